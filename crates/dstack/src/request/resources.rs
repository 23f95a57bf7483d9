//! The nodes, CPUs, memory and GPUs that a run asks for, and how long it waits for them.

use super::RequestError;
use super::instances::{node_pool, partitions};
use crate::configuration::resources::Resources;
use crate::configuration::task::{NodeGroup, Task};
use crate::effective::vendor_of;
use model::gpu::parse_vendor;
use model::price::Price;
use model::range::Range;
use model::request::{DeviceMake, Grant, GresRequest, Memory, Per, Request, Sharing, WaitPolicy};
use model::time::{TimeLimit, Timestamp};
use std::time::Duration;

/// One request for all nodes of the run; or, where its groups differ, one for each, which start together.
pub(super) fn requests(task: &Task, now: Timestamp) -> Result<Vec<Request>, RequestError> {
    let groups = task.different_groups();
    if groups.is_empty() {
        return Ok(vec![request(task, &task.resources, task.nodes, now)?]);
    }
    if !task.schedule.is_empty() {
        return Err(RequestError::NotForDifferentGroups("`schedule`"));
    }
    if task.array.is_some() {
        return Err(RequestError::NotForDifferentGroups("`array`"));
    }
    let of_group =
        |group: &NodeGroup| request(task, &group.resources, Range::exactly(group.nodes), now);
    groups.iter().map(of_group).collect()
}

fn request(
    task: &Task,
    resources: &Resources,
    nodes: Range<u32>,
    now: Timestamp,
) -> Result<Request, RequestError> {
    // A run on several nodes has whole ones, as in dstack: no two of its nodes are on one machine, and fabrics are its own.
    // They lie together, as in a fleet with `placement: cluster`.
    let is_multi_node = task.nodes.max != Some(1);
    Ok(Request {
        sharing: if is_multi_node { Sharing::Node } else { Sharing::Share },
        reservation: task.profile.reservation.clone(),
        partitions: partitions(&task.fleets)?,
        node_pool: node_pool(task)?,
        nodes,
        nodes_given: true,
        tasks_per_node: Some(1),
        cpus_per_task: one_or_more(&resources.cpu.count),
        cpus_per_task_given: true,
        memory: Memory::PerNode(resources.memory),
        gres: gpus(task, resources).into_iter().collect(),
        disk: resources.disk_given.then_some(resources.disk.min),
        architecture: resources.cpu.architecture,
        price_max: task.profile.max_price.map(Price::at_most),
        machines: task.profile.machine_choice().map(Box::new),
        time_limit: Some(time_limit(task.max_duration)),
        wait_policy: wait_policy(task, now),
        grant: Grant::Offer,
        one_switch: is_multi_node,
        ..Request::default()
    })
}

/// `..4` has no minimum, but a process needs a CPU.
fn one_or_more(count: &Range<u32>) -> Range<u32> {
    let min = count.min.max(1);
    Range { min, max: count.max.map(|max| max.max(min)) }
}

/// Returns `None` when the request's minimum is zero: such a request is satisfied without a GPU. Without an image the GPUs are
/// those of dstack's default vendor, as its plan says (`effective`); a name says more than a vendor.
fn gpus(task: &Task, resources: &Resources) -> Option<GresRequest> {
    let gpu = resources.gpu.as_ref().filter(|gpu| gpu.count.min > 0)?;
    let has_default =
        task.container.image.is_none() && !task.container.docker && gpu.names.is_empty();
    let default = || parse_vendor(vendor_of(&gpu.names)).ok().filter(|_| has_default);
    Some(GresRequest {
        per: Per::Node,
        name: "gpu".into(),
        kinds: gpu.names.clone(),
        by_model: true,
        count: gpu.count.map(|count| u64::from(*count)),
        device_memory: gpu.memory,
        total_memory: gpu.total_memory,
        make: DeviceMake {
            vendor: gpu.vendor.or_else(default),
            compute_capability: gpu.compute_capability,
        },
    })
}

fn time_limit(max_duration: Option<Duration>) -> TimeLimit {
    match max_duration.map(|length| length.as_secs().div_ceil(60)) {
        Some(minutes) => u32::try_from(minutes).map_or(TimeLimit::Unlimited, TimeLimit::Minutes),
        None => TimeLimit::Unlimited,
    }
}

/// Without a retry on no-capacity a run starts at once or not at all, unless it depends on others: what is free now says nothing
/// about the time at which those have ended.
fn wait_policy(task: &Task, now: Timestamp) -> WaitPolicy {
    let retry = task.retry.as_ref().filter(|retry| retry.on_no_capacity);
    match retry.map(|retry| retry.duration_s) {
        Some(Some(secs)) => WaitPolicy::Until(now + Duration::from_secs(secs)),
        Some(None) => WaitPolicy::Forever,
        None if !task.depends_on.is_empty() => WaitPolicy::Forever,
        None => WaitPolicy::Now,
    }
}

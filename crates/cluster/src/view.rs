//! The state as the scheduler is shown it.

use crate::dependency;
use crate::job::Job;
use crate::priority::Ranking;
use crate::state::State;
use model::dependency::DependencyState;
use model::id::JobId;
use model::partition::{Access, OverSubscribe, Partition};
use model::reason::{NotAllowed, Reason};
use model::request::Sharing;
use model::time::Timestamp;
use sched::view::{
    DependencyState as Standing, NodeInfo, PartitionInfo, Running, SchedulerPolicy, View, Waiting,
};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Builds the view. Held jobs stay out of the queue: nothing but a release can start them.
pub fn view(state: &State, now: Timestamp) -> View {
    let mut view = resources(state);
    let ranking = Ranking::new(state, now);
    view.queue = state
        .queue
        .iter()
        .filter_map(|id| state.job(*id))
        .filter_map(|job| waiting(state, &ranking, job, now).map(Arc::new))
        .collect();
    view
}

/// Nodes, partitions and running jobs, without the queue.
pub fn resources(state: &State) -> View {
    let index: BTreeMap<&str, u32> =
        state.nodes.keys().enumerate().map(|(i, name)| (name.as_str(), i as u32)).collect();
    let nodes = state.nodes.values().map(|node| {
        Arc::new(NodeInfo {
            config: node.config.clone(),
            availability: node.availability(),
            used: node.used.clone(),
        })
    });
    let partitions: Vec<PartitionInfo> = state
        .partitions
        .iter()
        .map(|partition| PartitionInfo {
            partition: partition.clone(),
            nodes: partition.nodes.iter().filter_map(|n| index.get(n.as_str()).copied()).collect(),
        })
        .collect();
    let running = state.active.iter().map(|id| Arc::new(running(state, *id, &index))).collect();
    let parameters = &state.config.parameters;
    View {
        nodes: nodes.collect(),
        partitions,
        running,
        queue: Vec::new(),
        qos: state.qos.values().cloned().collect(),
        reservations: state.reservations.values().cloned().map(Arc::new).collect(),
        accounting: state.accounting(),
        policy: SchedulerPolicy {
            backfill: parameters.backfill,
            default_memory: parameters.default_memory,
            memory_by_core: parameters.memory_by_core,
            over_time_min: parameters.over_time_limit_min,
            ..SchedulerPolicy::default()
        },
        ..View::default()
    }
}

/// Whether the job has its nodes to itself: it asked for that, or its partition gives nothing less.
pub(crate) fn is_exclusive(job: &Job, partition: Option<&Partition>) -> bool {
    job.spec.request().sharing == Sharing::Node
        || partition.is_some_and(|p| p.over_subscribe == OverSubscribe::Exclusive)
}

/// Whether its nodes take no other user's jobs beside it.
pub(crate) fn is_user_exclusive(job: &Job, partition: Option<&Partition>) -> bool {
    job.spec.request().sharing == Sharing::User || partition.is_some_and(|p| p.exclusive_user)
}

fn running(state: &State, id: JobId, index: &BTreeMap<&str, u32>) -> Running {
    let job = &state.jobs[&id];
    let attempt = job.attempt().expect("an active job has an attempt");
    let held = |node: &str| attempt.held_nodes.iter().any(|n| n == node);
    let partition = &attempt.allocation.partition;
    Running {
        job: id,
        uid: job.spec.owner.uid,
        account: job.account.to_string(),
        qos: job.qos.to_string(),
        association: state.tree().find(&job.account, &job.spec.owner.name, Some(partition)),
        partition: state.partitions.iter().position(|p| p.name == *partition).unwrap_or(0) as u32,
        shares: attempt
            .allocation
            .nodes
            .iter()
            .filter(|s| held(&s.node))
            .filter_map(|s| Some((*index.get(s.node.as_str())?, s.clone())))
            .collect(),
        end: attempt.end_limit,
        exclusive: is_exclusive(job, state.partition(partition).map(|p| &**p)),
        reservation: job.spec.request().reservation.clone(),
        start: attempt.start,
        requeue: job.spec.requeue,
        is_ending: attempt.ending.is_some(),
        // Suspended by hand a job keeps its cores.
        suspended: false,
    }
}

/// Partitions of a job by index, in the order asked; none if one is unknown.
pub fn partition_indices(state: &State, asked: &[String]) -> Option<Vec<u32>> {
    let position = |name: &str| state.partitions.iter().position(|p| p.name == name);
    if asked.is_empty() {
        let default = state.partitions.iter().position(|p| p.default)?;
        return Some(vec![default as u32]);
    }
    asked.iter().map(|name| position(name).map(|i| i as u32)).collect()
}

/// Of these partitions those that are open to the job's account and QOS; where none is, all of them, and the reason.
fn open_partitions(state: &State, job: &Job, asked: Vec<u32>) -> (Vec<u32>, Option<Reason>) {
    let closed = |at: &u32| {
        let partition = &state.partitions[*at as usize];
        let account = Some(&*job.account).filter(|account| !account.is_empty());
        let by_account = account.and_then(|a| not_allowed(partition, &partition.allow_accounts, a));
        by_account.map(Reason::AccountNotAllowed).or_else(|| {
            not_allowed(partition, &partition.allow_qos, &job.qos).map(Reason::QosNotAllowed)
        })
    };
    let open: Vec<u32> = asked.iter().copied().filter(|at| closed(at).is_none()).collect();
    if !open.is_empty() {
        return (open, None);
    }
    let why = asked.first().and_then(closed);
    (asked, why)
}

fn not_allowed(partition: &Partition, access: &Access, name: &str) -> Option<Box<NotAllowed>> {
    let (list, denies) = match access {
        Access::All => return None,
        Access::Only(list) => (list, false),
        Access::Except(list) => (list, true),
    };
    (!access.admits(name)).then(|| {
        Box::new(NotAllowed {
            partition: partition.name.clone(),
            list: list.clone(),
            denies,
            name: name.to_owned(),
        })
    })
}

/// One entry of the queue.
pub fn waiting(state: &State, ranking: &Ranking<'_>, job: &Job, now: Timestamp) -> Option<Waiting> {
    let pending = job.pending.as_deref();
    // Those that `aftercorr` still keeps back are not shown: they could not start.
    let ready = pending.map_or(1, |p| dependency::tasks_ready(state, job, &p.indices, now));
    // With none ready the dependency itself says why the array waits.
    let tasks = ready.clamp(1, u64::from(u32::MAX)) as u32;
    let tasks_allowed = pending.and_then(|p| {
        let running = state.arrays.get(&job.id).map_or(0, |tasks| {
            let active = tasks.values().filter(|id| state.active.contains(id));
            active.count() as u32
        });
        p.throttle.map(|limit| limit.saturating_sub(running))
    });
    let standing = match dependency::state_of(state, job, now) {
        DependencyState::Fulfilled => Standing::Met,
        DependencyState::Unfulfilled => Standing::Waiting,
        DependencyState::Failed => Standing::Never,
    };
    let asked = partition_indices(state, &job.spec.request().partitions)?;
    let (partitions, closed) = open_partitions(state, job, asked);
    let priorities = ranking.priorities(job, &partitions, now);
    let first = partitions.first().map(|at| state.partitions[*at as usize].name.as_str());
    Some(Waiting {
        job: job.id,
        tasks,
        tasks_allowed,
        spec: job.spec.clone(),
        priority: priorities.iter().copied().max().unwrap_or(1),
        priorities: if priorities.len() > 1 { priorities } else { Vec::new() },
        submit: job.submit,
        hold: job.hold,
        dependency: standing,
        begin: job.begin,
        partitions,
        account: job.account.to_string(),
        qos: job.qos.to_string(),
        association: ranking.association(job, first),
        fixed_reason: job.fixed_reason.as_deref().cloned().or(closed),
    })
}

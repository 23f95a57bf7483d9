//! The cluster that a trace is replayed on: nodes of one processor each, or a configuration of the site's.

use crate::error::SimError;
use crate::policy::Policy;
use crate::trace::pods::{GPU_MILLI, PodNode};
use crate::trace::{Trace, TraceJob};
use cluster::{ClusterConfig, Parameters};
use model::amount::Bytes;
use model::gres::GPU;
use model::node::{NodeConfig, NodeGres};
use model::partition::{Access, Partition};
use model::power::{PartitionPower, PowerPolicy};
use model::preempt::{PreemptBy, PreemptMode};
use model::priority::PriorityPolicy;
use std::collections::{BTreeMap, BTreeSet, HashSet};

const PARTITION: &str = "main";

/// `count` nodes of one processor in one partition, with jobs in the order of submission. Memory is not counted.
pub fn single_processor_nodes(count: u32, policy: Policy) -> ClusterConfig {
    // Names of equal length are in the order of their numbers.
    let width = count.to_string().len();
    let names: Vec<String> = (1..=count).map(|number| format!("n{number:0width$}")).collect();
    let mut partition = Partition::over(PARTITION, names.clone());
    partition.default = true;
    let mut parameters = Parameters {
        // Without fair share nothing is worked out anew as time passes.
        priority: PriorityPolicy { calc_period_s: u64::MAX, ..PriorityPolicy::default() },
        ..Parameters::default()
    };
    parameters.select.memory = false;
    policy.apply(&mut parameters);
    let config = ClusterConfig {
        nodes: names.iter().map(|name| NodeConfig::plain(name, 1, Bytes::from_gib(1))).collect(),
        partitions: vec![partition],
        parameters,
        ..ClusterConfig::default()
    };
    unbounded(config)
}

/// Thousandths of a CPU that count as one CPU of a node of pods. Pods ask for parts of CPUs, jobs for whole ones.
const CPU_MILLI: u32 = 20;

/// The name of thousandths of a GPU.
pub const GPU_SHARE: &str = "shard";

/// The CPUs for so many thousandths; at least one.
pub fn pod_cpus(cpu_milli: u32) -> u32 {
    cpu_milli.div_ceil(CPU_MILLI).max(1)
}

/// The nodes of a list in one partition. Each GPU is granted whole or in thousandths.
pub fn pod_nodes(nodes: &[PodNode]) -> ClusterConfig {
    let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
    let mut partition = Partition::over(PARTITION, names);
    partition.default = true;
    let config = ClusterConfig {
        nodes: nodes.iter().map(pod_node).collect(),
        partitions: vec![partition],
        ..ClusterConfig::default()
    };
    let mut config = unbounded(config);
    // What is typical is counted among all pods that came: records of those that were dropped stay.
    config.parameters.min_job_age_s = u32::MAX;
    config
}

fn pod_node(node: &PodNode) -> NodeConfig {
    let memory = Bytes::from_mib(node.memory_mib);
    // A node has no more than it says: what is left of a CPU does not count.
    let mut config = NodeConfig::plain(&node.name, (node.cpu_milli / CPU_MILLI).max(1), memory);
    if node.gpus > 0 {
        let model = Some(node.model.as_str()).filter(|model| !model.is_empty());
        let share = |gpu: u32| NodeGres {
            share_of: Some(gpu),
            ..NodeGres::plain(GPU_SHARE, model, GPU_MILLI.into())
        };
        config.gres = vec![NodeGres::plain(GPU, model, node.gpus.into())];
        config.gres.extend((0..node.gpus).map(share));
    }
    config
}

/// The configuration of a site, as far as it says how jobs are scheduled.
pub fn configured(
    mut config: ClusterConfig,
    policy: Option<Policy>,
) -> Result<ClusterConfig, SimError> {
    let parameters = &mut config.parameters;
    let modes = config.partitions.iter().filter_map(|partition| partition.preempt_mode.as_deref());
    let mut modes = modes.filter_map(PreemptMode::parse).chain([parameters.preempt.mode]);
    let suspends = modes.any(|mode| mode == PreemptMode::Suspend)
        && parameters.preempt.by != PreemptBy::Nothing;
    if suspends || parameters.gang_slice_s.is_some() {
        return Err(SimError::NotSimulated {
            what: "PreemptMode with SUSPEND or GANG",
            instead: "expected CANCEL, REQUEUE or OFF",
        });
    }
    if let Some(policy) = policy {
        policy.apply(parameters);
    }
    lift_gates_of_people(&mut config);
    remove_absent_nodes(&mut config);
    if config.nodes.is_empty() {
        return Err(SimError::NoNodes);
    }
    Ok(unbounded(config))
}

/// A trace brings no accounts, groups or QOS, and no reservations: whoever submitted is taken as a user whom every partition takes.
/// What a job asks for is checked before the replay (`admission`), whether or not the server would do so at submission.
fn lift_gates_of_people(config: &mut ClusterConfig) {
    let parameters = &mut config.parameters;
    parameters.enforce_associations = false;
    parameters.enforce_qos = false;
    parameters.enforce_partition_limits = false;
    for partition in &mut config.partitions {
        partition.allow_accounts = Access::All;
        partition.allow_groups = Access::All;
        partition.allow_qos = Access::All;
        partition.qos = None;
        partition.root_only = false;
        partition.require_reservation = false;
    }
}

/// Leaves out the nodes that are down, drained or yet to come: they take no part in a replay. All others are up, and stay so.
fn remove_absent_nodes(config: &mut ClusterConfig) {
    config.nodes.retain(|node| node.initial.is_none());
    config.nodes.iter_mut().for_each(|node| node.cloud = false);
    config.parameters.power = PowerPolicy::default();
    let there: HashSet<&str> = config.nodes.iter().map(|node| node.name.as_str()).collect();
    for partition in &mut config.partitions {
        partition.nodes.retain(|name| there.contains(name.as_str()));
        partition.power = PartitionPower::default();
    }
}

/// Without the bounds that guard the server's memory: a replay keeps all jobs of the trace that wait, and no record of those
/// that have ended.
fn unbounded(mut config: ClusterConfig) -> ClusterConfig {
    config.parameters.max_job_count = u32::MAX;
    config.parameters.max_job_id = u32::MAX;
    config.parameters.min_job_age_s = 0;
    config.parameters.book_jobs = false;
    config
}

/// The default partition, to which jobs go that name none.
pub fn default_partition(config: &ClusterConfig) -> Option<&Partition> {
    config.partitions.iter().find(|partition| partition.default)
}

/// The partition that a job of the trace goes to.
pub fn partition_of<'c>(
    trace: &Trace,
    config: &'c ClusterConfig,
    job: &TraceJob,
) -> Option<&'c Partition> {
    partition_at(trace, config, job.partition)
}

/// The partition at this position in the trace's list, or the default one.
fn partition_at<'c>(
    trace: &Trace,
    config: &'c ClusterConfig,
    at: Option<u16>,
) -> Option<&'c Partition> {
    let Some(at) = at else { return default_partition(config) };
    let name = trace.partitions.get(usize::from(at))?;
    config.partitions.iter().find(|partition| partition.name == *name)
}

/// The partitions that jobs of the trace go to.
pub fn partitions_of<'c>(trace: &Trace, config: &'c ClusterConfig) -> Vec<&'c Partition> {
    let used: BTreeSet<Option<u16>> = trace.jobs.iter().map(|job| job.partition).collect();
    let used = used.into_iter().filter_map(|at| partition_at(trace, config, at));
    // The default partition may be named too.
    let by_name: BTreeMap<&str, &Partition> = used.map(|one| (one.name.as_str(), one)).collect();
    by_name.into_values().collect()
}

/// The CPUs that jobs may get of each node of these partitions.
fn usable_cpus<'a>(
    config: &'a ClusterConfig,
    partitions: &[&Partition],
) -> impl Iterator<Item = u32> + 'a {
    let names = partitions.iter().flat_map(|partition| &partition.nodes);
    let names: HashSet<String> = names.cloned().collect();
    let nodes = config.nodes.iter().filter(move |node| names.contains(&node.name));
    nodes.map(|node| node.usable_cpus().len())
}

/// All CPUs that jobs of these partitions may get.
pub fn processors(config: &ClusterConfig, partitions: &[&Partition]) -> u64 {
    usable_cpus(config, partitions).map(u64::from).sum()
}

/// The most CPUs that the partition may give one job.
pub fn largest_job(config: &ClusterConfig, partition: &Partition) -> u64 {
    let most = partition.max_cpus_per_node.unwrap_or(u32::MAX);
    let mut cpus: Vec<u32> = usable_cpus(config, &[partition]).map(|of| of.min(most)).collect();
    cpus.sort_unstable_by_key(|cpus| std::cmp::Reverse(*cpus));
    let nodes = partition.max_nodes.map_or(usize::MAX, |most| most as usize);
    cpus.into_iter().take(nodes).map(u64::from).sum()
}

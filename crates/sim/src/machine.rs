//! The cluster that a trace is replayed on: nodes of one processor each, or a configuration of the site's.

use crate::error::SimError;
use crate::policy::Policy;
use crate::trace::pods::{GPU_MILLI, PodNode};
use cluster::{ClusterConfig, Parameters};
use model::amount::Bytes;
use model::gres::GPU;
use model::node::{NodeConfig, NodeGres};
use model::partition::Partition;
use model::preempt::{PreemptBy, PreemptMode};
use model::priority::PriorityPolicy;

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
    // A trace brings no accounts: whoever submitted is taken as a user of the cluster.
    parameters.enforce_associations = false;
    parameters.enforce_qos = false;
    if let Some(policy) = policy {
        policy.apply(parameters);
    }
    Ok(unbounded(config))
}

/// Without the bounds that guard the server's memory: a replay keeps all jobs of the trace that wait, and no record of those
/// that have ended.
fn unbounded(mut config: ClusterConfig) -> ClusterConfig {
    config.parameters.max_job_count = u32::MAX;
    config.parameters.min_job_age_s = 0;
    config.parameters.book_jobs = false;
    config
}

/// All CPUs that jobs may get.
pub fn processors(config: &ClusterConfig) -> u64 {
    config.nodes.iter().map(|node| u64::from(node.usable_cpus().len())).sum()
}

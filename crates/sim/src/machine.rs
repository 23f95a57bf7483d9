//! The cluster that a trace is replayed on: nodes of one processor each, or a configuration of the site's.

use crate::error::SimError;
use crate::policy::Policy;
use cluster::{ClusterConfig, Parameters};
use model::amount::Bytes;
use model::node::NodeConfig;
use model::partition::Partition;
use model::preempt::{PreemptBy, PreemptMode};
use model::priority::PriorityPolicy;

const PARTITION: &str = "main";

/// So many nodes of one processor in one partition, with jobs in the order of submission. Memory is not counted.
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

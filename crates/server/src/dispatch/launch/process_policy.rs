//! The limits and the nice value that a job's processes get by the cluster's policies.

use model::run::{Launch, NicePolicy, RlimitPolicy, Rlimits};
use slurm::environment::{Environment, PRIO_PROCESS};
use wire::order::Niceness;

/// The limits that a job's processes take over from their submitter. Limits that were asked for by name are kept whatever
/// the policy.
pub fn of_job(policy: &RlimitPolicy, launch: &Launch) -> Rlimits {
    let all = Rlimits { soft: launch.rlimits.to_vec(), asked: launch.rlimits_asked };
    policy.narrow(all)
}

/// The nice value of the command that asked, which came along in its environment.
pub fn niceness(policy: NicePolicy, exported: &Environment) -> Option<Niceness> {
    let value = exported.get(PRIO_PROCESS).and_then(|text| text.parse().ok()).unwrap_or(0);
    match policy {
        NicePolicy::Daemon => None,
        NicePolicy::Submitter => Some(Niceness { value, below_daemon: false }),
        NicePolicy::BelowDaemon => Some(Niceness { value, below_daemon: true }),
    }
}

/// Sets `SLURM_PRIO_PROCESS` for processes that do not run with the submitter's nice value, as Slurm does.
pub fn export_niceness(policy: NicePolicy, exported: Environment, told: &mut Environment) {
    match (policy, exported.get(PRIO_PROCESS)) {
        (NicePolicy::Daemon, Some(value)) => told.set(PRIO_PROCESS, value),
        (NicePolicy::Daemon, None) => {}
        _ => {
            told.remove(PRIO_PROCESS);
        }
    }
}

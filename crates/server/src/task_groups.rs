//! The groups of a task start as one: some wait until the nodes that start first are ready, whichever group those are of.

use cluster::{Job, State};
use model::attempt::Attempt;
use model::run::LaunchKind;

/// The groups of the task that the job is one of; of any other job, itself.
pub fn groups_of<'a>(state: &'a State, job: &'a Job) -> Vec<&'a Job> {
    match job.het.filter(|_| job.spec.launch.kind == LaunchKind::Task) {
        Some(het) => het.jobs().filter_map(|id| state.jobs.get(&id)).map(|job| &**job).collect(),
        None => vec![job],
    }
}

/// The job and the place in it of the node with this rank. By the number of its first group the nodes of all groups of a task are
/// counted, as in its logs and its `DSTACK_NODE_RANK`.
pub fn node_by_rank<'a>(state: &'a State, job: &'a Job, rank: u32) -> (&'a Job, u32) {
    if !is_first_group(job) {
        return (job, rank);
    }
    let mut left = rank;
    for group in groups_of(state, job) {
        // A group that waits has no nodes yet, so ranks behind it cannot be counted.
        let Some(granted) = group.allocation() else { break };
        let count = granted.nodes.len() as u32;
        if left < count {
            return (group, left);
        }
        left -= count;
    }
    (job, rank)
}

/// Whether a task goes by the number of this job: it is its first group, or has no others.
pub fn is_first_group(job: &Job) -> bool {
    job.spec.launch.kind != LaunchKind::Task || job.het.is_none_or(|het| het.is_leader())
}

/// Whether nodes of the job, or of another group of its task, have to be ready first.
pub fn is_preparing(state: &State, job: &Job) -> bool {
    groups_of(state, job).into_iter().filter_map(Job::attempt).any(has_preparing_nodes)
}

/// Whether other nodes wait for some of the attempt's. They do not wait for one that ends.
pub fn has_preparing_nodes(attempt: &Attempt) -> bool {
    attempt.ending.is_none() && !attempt.preparing_nodes.is_empty()
}

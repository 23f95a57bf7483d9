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

/// Whether nodes of the job, or of another group of its task, have to be ready first.
pub fn is_preparing(state: &State, job: &Job) -> bool {
    groups_of(state, job).into_iter().filter_map(Job::attempt).any(has_preparing_nodes)
}

/// Whether other nodes wait for some of the attempt's. They do not wait for one that ends.
pub fn has_preparing_nodes(attempt: &Attempt) -> bool {
    attempt.ending.is_none() && !attempt.preparing_nodes.is_empty()
}

//! What a new job names that does not exist, and is taken all the same, as in Slurm: an account or a QOS where names are not
//! enforced, and jobs that it depends on.

use cluster::{State, dependency};
use model::account::ROOT_ACCOUNT;
use model::id::JobId;
use wire::view::UnknownNames;

/// How many jobs are named.
const JOBS_MAX: usize = 8;

/// The names of a job that the state does not have. Where associations are enforced it has no such account or QOS: it
/// was refused.
pub fn unknown_names(state: &State, id: JobId) -> UnknownNames {
    let Some(job) = state.job(id) else { return UnknownNames::default() };
    let is_account = |name: &String| {
        state.accounts.contains_key(name)
            || state.projects.contains_key(name)
            || name == ROOT_ACCOUNT
    };
    let jobs = dependency::unknown_targets(state, job).take(JOBS_MAX);
    UnknownNames {
        jobs: jobs.map(|target| target.to_string()).collect(),
        account: job.spec.account.clone().filter(|name| !is_account(name)),
        qos: job.spec.qos.clone().filter(|name| !state.qos.contains_key(name)),
    }
}

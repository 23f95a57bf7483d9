//! What a new job names that does not exist: where names are not enforced it is taken all the same, as in Slurm.

use cluster::State;
use model::account::ROOT_ACCOUNT;
use model::id::JobId;
use wire::view::UnknownNames;

/// The names of a job that the state does not have. Where associations are enforced there are none: the job was refused.
pub fn unknown_names(state: &State, id: JobId) -> UnknownNames {
    let Some(job) = state.job(id) else { return UnknownNames::default() };
    let is_account = |name: &String| {
        state.accounts.contains_key(name)
            || state.projects.contains_key(name)
            || name == ROOT_ACCOUNT
    };
    UnknownNames {
        account: job.spec.account.clone().filter(|name| !is_account(name)),
        qos: job.spec.qos.clone().filter(|name| !state.qos.contains_key(name)),
    }
}

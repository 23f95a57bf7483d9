//! Secrets in use: `stored` seals and opens their values, `references` checks and fills in `${{ secrets.NAME }}`,
//! `registry_auth` and `git_credentials` keep the credentials with which a job's image is pulled and its repository cloned.

pub mod git_credentials;
pub mod references;
pub mod registry_auth;
pub mod stored;

use cluster::State;
use cluster::rights::Rights;
use model::fleet::MAIN_PROJECT;
use model::reason::Refusal;
use model::run::JobSpec;

/// The project whose secrets a job may refer to: the account that it names, else the main one.
pub fn project_of(job: &JobSpec) -> &str {
    job.account.as_deref().unwrap_or(MAIN_PROJECT)
}

/// Refuses a project's secrets to a job whose owner is not, or not any more, one of its members.
pub fn check_member(state: &State, job: &JobSpec) -> Result<(), Refusal> {
    let (project, owner) = (project_of(job), &job.owner);
    if Rights::of(state, owner).project_role(project).is_some() {
        return Ok(());
    }
    let user = &owner.name;
    Err(Refusal::Other(format!("secrets of project {project}: user {user} is no member of it")))
}

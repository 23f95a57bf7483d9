//! Secrets in use: `stored` seals and opens their values, `references` checks and fills in `${{ secrets.NAME }}`,
//! `registry_auth` and `git_credentials` keep the credentials with which a job's image is pulled and its repository cloned,
//! `repository` those that a user has given for later jobs, `backend` those of sources that calls have made.

pub mod backend;
pub mod git_credentials;
pub mod references;
pub mod registry_auth;
pub mod repository;
pub mod stored;

use cluster::State;
use cluster::rights::Rights;
use model::fleet::MAIN_PROJECT;
use model::reason::Refusal;
use model::run::JobSpec;

/// The project whose secrets a job may refer to: the account that it names, else the main one.
pub fn asked_project(job: &JobSpec) -> &str {
    job.project()
}

/// The project whose secret of this name a job gets when it starts. A job that was submitted before secrets belonged to
/// projects has those of the main one that its own project does not have.
pub fn project_with<'a>(state: &State, job: &'a JobSpec, secret: &str) -> Result<&'a str, Refusal> {
    let project = asked_project(job);
    let may_have = |project: &str| {
        is_member(state, job, project) && state.secrets_of(project).contains_key(secret)
    };
    if !job.launch.has_project_secrets && !may_have(project) && may_have(MAIN_PROJECT) {
        return Ok(MAIN_PROJECT);
    }
    check_member(state, job).map(|()| project)
}

fn is_member(state: &State, job: &JobSpec, project: &str) -> bool {
    Rights::of(state, &job.owner).project_role(project).is_some()
}

/// Refuses a project's secrets to a job whose owner is not, or not any more, one of its members.
pub fn check_member(state: &State, job: &JobSpec) -> Result<(), Refusal> {
    let project = asked_project(job);
    if is_member(state, job, project) {
        return Ok(());
    }
    let user = &job.owner.name;
    Err(Refusal::Other(format!("secrets of project {project}: user {user} is no member of it")))
}

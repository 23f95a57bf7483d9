//! Secrets in use: `stored` seals and opens their values, `references` checks and fills in `${{ secrets.NAME }}`,
//! `registry_auth` and `git_credentials` keep the credentials with which a job's image is pulled and its repository cloned.

pub mod git_credentials;
pub mod references;
pub mod registry_auth;
pub mod stored;

use model::fleet::MAIN_PROJECT;
use model::run::JobSpec;

/// The project whose secrets a job may refer to.
pub fn project_of(_job: &JobSpec) -> &str {
    MAIN_PROJECT
}

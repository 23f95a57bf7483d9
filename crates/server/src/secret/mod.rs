//! Secrets in use: `stored` seals and opens their values, `references` checks and fills in `${{ secrets.NAME }}`,
//! `registry_auth` keeps the credentials with which images are pulled.

pub mod references;
pub mod registry_auth;
pub mod stored;

use model::fleet::MAIN_PROJECT;
use model::run::JobSpec;

/// The project whose secrets a job may refer to.
pub fn project_of(_job: &JobSpec) -> &str {
    MAIN_PROJECT
}

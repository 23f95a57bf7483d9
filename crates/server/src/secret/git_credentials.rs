//! What a job's private repository is cloned with. A submission brings it; the job's record keeps it encrypted until its order
//! is written.

use super::stored;
use crate::shared::Shared;
use model::reason::Refusal;
use model::run::JobSpec;
use model::secret::GitCredentials;
use std::sync::Arc;
use wire::client::Submission;

const KIND: &str = "git credentials";

/// Puts the credentials of a submission into its specification. Whatever a client has put there itself is dropped.
pub fn seal(shared: &Shared, submission: &mut Submission) -> Result<(), Refusal> {
    let given = submission.git_credentials.take().filter(|given| !given.is_empty());
    let seal = |given| stored::seal_for_job(shared, KIND, &submission.spec, &given);
    let sealed = given.map(seal).transpose()?;
    let Submission { spec, het_components, .. } = submission;
    Arc::make_mut(&mut spec.launch).git_credentials = sealed;
    for component in het_components {
        Arc::make_mut(&mut component.launch).git_credentials = None;
    }
    Ok(())
}

/// The credentials of a job, for its order.
pub fn open(shared: &Shared, spec: &JobSpec) -> Result<Option<GitCredentials>, Refusal> {
    let sealed = spec.launch.git_credentials.as_deref();
    sealed.map(|sealed| stored::open_for_job(shared, KIND, spec, sealed)).transpose()
}

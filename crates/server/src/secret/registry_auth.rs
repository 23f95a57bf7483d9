//! The credentials with which a job's image is pulled. A submission brings them; the job's record keeps them encrypted, with
//! references to secrets in them, until its order is written.

use super::{references, stored};
use crate::shared::Shared;
use model::reason::Refusal;
use model::run::JobSpec;
use model::secret::{RegistryAuth, SecretValue};
use std::sync::Arc;
use wire::client::Submission;

const KIND: &str = "registry_auth";

/// Puts the credentials of a submission into its specification. Whatever a client has put there itself is dropped.
pub fn seal(shared: &Shared, submission: &mut Submission) -> Result<(), Refusal> {
    let auth = submission.registry_auth.take();
    let seal = |auth| stored::seal_for_job(shared, KIND, &submission.spec, &auth);
    let sealed = auth.map(seal).transpose()?;
    let Submission { spec, het_components, .. } = submission;
    Arc::make_mut(&mut spec.launch).registry_auth = sealed;
    for component in het_components {
        Arc::make_mut(&mut component.launch).registry_auth = None;
    }
    Ok(())
}

/// The credentials of a job, ready for an order.
pub fn open(shared: &Shared, spec: &JobSpec) -> Result<Option<RegistryAuth>, Refusal> {
    let Some(sealed) = &spec.launch.registry_auth else { return Ok(None) };
    let auth = stored::open_for_job(shared, KIND, spec, sealed)?;
    fill_in(shared, spec, &auth).map(Some)
}

/// The same with the values of secrets in place of references.
pub fn fill_in(
    shared: &Shared,
    job: &JobSpec,
    auth: &RegistryAuth,
) -> Result<RegistryAuth, Refusal> {
    let filled = |text: &SecretValue| {
        references::filled_value(shared, job, "registry_auth", &text.0).map(SecretValue)
    };
    Ok(RegistryAuth { username: filled(&auth.username)?, password: filled(&auth.password)? })
}

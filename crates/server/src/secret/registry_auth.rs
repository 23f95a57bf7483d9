//! The credentials with which a job's image is pulled. A submission brings them; the job's record keeps them encrypted, with
//! references to secrets in them, until its order is written.

use super::references;
use crate::shared::Shared;
use model::reason::Refusal;
use model::run::JobSpec;
use model::secret::{RegistryAuth, SecretValue};
use std::sync::Arc;
use wire::client::Submission;

/// What a stored value belongs to: the job's owner, so that one that was copied into another's job is not read there.
fn context(spec: &JobSpec) -> String {
    format!("registry_auth\0{}", spec.owner.uid)
}

/// Puts the credentials of a submission into its specification. Whatever a client has put there itself is dropped.
pub fn seal(shared: &Shared, submission: &mut Submission) -> Result<(), Refusal> {
    let sealed = match submission.registry_auth.take() {
        Some(auth) => {
            let text = serde_json::to_string(&auth).map_err(|e| Refusal::Other(e.to_string()))?;
            Some(shared.secret_keys.seal(&context(&submission.spec), &text)?)
        }
        None => None,
    };
    let Submission { spec, het_components, .. } = submission;
    Arc::make_mut(&mut spec.launch).registry_auth = sealed.map(Box::new);
    for component in het_components {
        Arc::make_mut(&mut component.launch).registry_auth = None;
    }
    Ok(())
}

/// The credentials of a job, ready for an order.
pub fn open(shared: &Shared, spec: &JobSpec) -> Result<Option<RegistryAuth>, Refusal> {
    let Some(sealed) = &spec.launch.registry_auth else { return Ok(None) };
    let text = shared.secret_keys.open(&context(spec), sealed)?;
    let damaged = |_| Refusal::Other("the job's credentials are damaged".into());
    let auth = serde_json::from_str(&text.0).map_err(damaged)?;
    fill_in(shared, super::project_of(spec), &auth).map(Some)
}

/// The same with the values of secrets in place of references.
pub fn fill_in(
    shared: &Shared,
    project: &str,
    auth: &RegistryAuth,
) -> Result<RegistryAuth, Refusal> {
    let filled = |text: &SecretValue| {
        references::filled_value(shared, project, "registry_auth", &text.0).map(SecretValue)
    };
    Ok(RegistryAuth { username: filled(&auth.username)?, password: filled(&auth.password)? })
}

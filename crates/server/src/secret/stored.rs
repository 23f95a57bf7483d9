//! The values of secrets and of what jobs hold, as the state keeps them and as they are.

use crate::auth::secret_keys::KeyError;
use crate::shared::Shared;
use model::reason::Refusal;
use model::run::JobSpec;
use model::secret::{Sealed, SecretValue};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// What a refusal about a secret that is not there calls it.
pub const SECRET: &str = "secret";

/// What a stored value belongs to: one that was copied to another name is not read there.
fn context(project: &str, name: &str) -> String {
    format!("secret\0{project}\0{name}")
}

pub fn seal(
    shared: &Shared,
    project: &str,
    name: &str,
    value: &SecretValue,
) -> Result<Sealed, KeyError> {
    shared.secret_keys.seal(&context(project, name), &value.0)
}

pub fn open(
    shared: &Shared,
    project: &str,
    name: &str,
    sealed: &Sealed,
) -> Result<SecretValue, KeyError> {
    shared.secret_keys.open(&context(project, name), sealed)
}

/// The value of a secret, for a caller who may have it.
pub fn value(shared: &Shared, project: &str, name: &str) -> Result<SecretValue, Refusal> {
    let unknown = || Refusal::UnknownThing { what: SECRET.into(), name: name.into() };
    let sealed = shared.read().secrets_of(project).get(name).cloned().ok_or_else(unknown)?;
    Ok(open(shared, project, name, &sealed)?)
}

/// What a value that a job holds belongs to: the job's owner, so that one that was copied into another's job is not read
/// there.
fn context_of_job(kind: &str, spec: &JobSpec) -> String {
    format!("{kind}\0{}", spec.owner.uid)
}

/// A value of this kind in the form in which the job's specification keeps it.
pub fn seal_for_job(
    shared: &Shared,
    kind: &str,
    spec: &JobSpec,
    value: &impl Serialize,
) -> Result<Box<Sealed>, Refusal> {
    let text = serde_json::to_string(value).map_err(|e| Refusal::Other(e.to_string()))?;
    Ok(Box::new(shared.secret_keys.seal(&context_of_job(kind, spec), &text)?))
}

pub fn open_for_job<T: DeserializeOwned>(
    shared: &Shared,
    kind: &str,
    spec: &JobSpec,
    sealed: &Sealed,
) -> Result<T, Refusal> {
    let text = shared.secret_keys.open(&context_of_job(kind, spec), sealed)?;
    let damaged = |_| Refusal::Other(format!("the job's {kind} cannot be read"));
    serde_json::from_str(&text.0).map_err(damaged)
}

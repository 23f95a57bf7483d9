//! The values of secrets, as the state keeps them and as they are.

use crate::auth::secret_keys::KeyError;
use crate::shared::Shared;
use model::reason::Refusal;
use model::secret::{Sealed, SecretValue};

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

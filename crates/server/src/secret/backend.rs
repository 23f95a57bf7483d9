//! The credentials of backends, as the state keeps them and as they are.

use crate::auth::secret_keys::KeyError;
use crate::shared::Shared;
use model::secret::{Sealed, SecretValue};

/// What they belong to: those that were copied to another source are not read there.
fn context(source: &str) -> String {
    format!("backend\0{source}")
}

pub fn seal(shared: &Shared, source: &str, value: &SecretValue) -> Result<Sealed, KeyError> {
    shared.secret_keys.seal(&context(source), &value.0)
}

pub fn open(shared: &Shared, source: &str, sealed: &Sealed) -> Result<SecretValue, KeyError> {
    shared.secret_keys.open(&context(source), sealed)
}

/// The credentials of a source that is a backend; `None` for those of its machine, and for a source of sluice.toml.
pub fn credentials(shared: &Shared, source: &str) -> Result<Option<SecretValue>, KeyError> {
    let sealed = shared.read().backends.get(source).and_then(|known| known.credentials.clone());
    sealed.map(|sealed| open(shared, source, &sealed)).transpose()
}

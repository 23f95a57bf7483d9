//! A new key of the agent, and the request for its certificate.

use super::private_file::{read_json, write_json};
use crate::error::AgentError;
use model::secret::SecretValue;
use rcgen::{CertificateParams, DnType, KeyPair};
use serde::{Deserialize, Serialize};
use std::path::Path;

/// The file, `.json`, of the key with which a join was asked for.
const PENDING_JOIN: &str = "pending-join";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NewKey {
    /// PEM, as the request.
    pub key: SecretValue,
    pub request: String,
}

/// A join that has not been answered yet. The server may have spent the token for it all the same: it answers the same request
/// once more, and no other.
#[derive(Serialize, Deserialize)]
struct PendingJoin {
    token_digest: String,
    key: NewKey,
}

impl NewKey {
    pub fn generate(name: String) -> Result<NewKey, AgentError> {
        let failed = |e: rcgen::Error| AgentError::Tls(e.to_string());
        let key = KeyPair::generate().map_err(failed)?;
        let mut params = CertificateParams::new(Vec::<String>::new()).map_err(failed)?;
        params.distinguished_name.push(DnType::CommonName, name);
        let request = params.serialize_request(&key).and_then(|r| r.pem()).map_err(failed)?;
        Ok(NewKey { key: SecretValue(key.serialize_pem()), request })
    }

    /// The key to join with: that of a join by this token which was not answered, else a new one, which is kept before
    /// anything is asked.
    pub fn for_join(folder: &Path, token_digest: &str, name: String) -> Result<NewKey, AgentError> {
        // A torn file is as good as none: then a new key asks.
        let pending: Option<PendingJoin> =
            read_json(&folder.join(format!("{PENDING_JOIN}.json"))).unwrap_or_default();
        if let Some(pending) = pending.filter(|pending| pending.token_digest == token_digest) {
            return Ok(pending.key);
        }
        let key = Self::generate(name)?;
        let pending = PendingJoin { token_digest: token_digest.to_owned(), key: key.clone() };
        write_json(folder, PENDING_JOIN, &pending)?;
        Ok(key)
    }

    /// The join was answered, and what came of it is kept.
    pub fn forget_pending(folder: &Path) {
        let _ = std::fs::remove_file(folder.join(format!("{PENDING_JOIN}.json")));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    #[test]
    fn join_that_was_not_answered_is_asked_for_again_with_the_same_key() {
        let folder = tempfile::tempdir().expect("a folder");
        let key = |token: &str| {
            NewKey::for_join(folder.path(), token, "n1".into()).expect("a key that is kept")
        };
        let first = key("token");
        assert_eq!(key("token"), first, "also by another process");
        let file = folder.path().join("pending-join.json");
        assert_eq!(std::fs::metadata(&file).expect("there").mode() & 0o777, 0o600);
        assert_ne!(key("another token"), first);
        std::fs::write(&file, "{").expect("torn");
        let last = key("token");
        NewKey::forget_pending(folder.path());
        assert!(!file.exists());
        assert_ne!(key("token"), last);
    }
}

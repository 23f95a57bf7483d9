//! The endpoint's own key: made at the first start and kept, so that clients find the same one again.

use crate::auth::identity::write_private;
use crate::error::ServerError;
use russh::keys::PrivateKey;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::Ed25519Keypair;
use std::path::Path;

const FILE: &str = "ssh_host_ed25519_key";

pub fn load_or_make(dir: &Path) -> Result<PrivateKey, ServerError> {
    let path = dir.join(FILE);
    if !path.exists() {
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&random_seed()?));
        let text = key.to_openssh(LineEnding::LF).map_err(failed)?;
        write_private(dir, FILE, &text)?;
    }
    let text = std::fs::read_to_string(&path).map_err(ServerError::file(&path))?;
    PrivateKey::from_openssh(text)
        .map_err(|error| ServerError::Identity(format!("{}: {error}", path.display())))
}

pub fn random_seed() -> Result<[u8; 32], ServerError> {
    let mut seed = [0; 32];
    let random = ring::rand::SystemRandom::new();
    ring::rand::SecureRandom::fill(&random, &mut seed).map_err(failed)?;
    Ok(seed)
}

fn failed(error: impl std::fmt::Display) -> ServerError {
    ServerError::Identity(format!("the SSH endpoint's key: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn key_is_made_once_and_readable_by_the_server_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let first = load_or_make(dir.path()).expect("a key");
        let again = load_or_make(dir.path()).expect("the same key");
        assert_eq!(first.public_key().key_data(), again.public_key().key_data());
        let mode = std::fs::metadata(dir.path().join(FILE)).expect("the file").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        std::fs::write(dir.path().join(FILE), "no key").expect("written");
        let error = load_or_make(dir.path()).expect_err("no key").to_string();
        assert!(error.contains(FILE), "{error}");
    }
}

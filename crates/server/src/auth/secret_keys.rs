//! The keys that encrypt the values of secrets: a file of the server's own, whose contents are neither in the journal nor in
//! the books. Without it everything but secrets works.
//!
//! The first key of the file encrypts; the others are there for what was encrypted before the last rotation.

use super::key_files::KeyFiles;
use crate::clock;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::reason::Refusal;
use model::secret::{Sealed, SecretValue};
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::digest::{SHA256, digest};
use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::sync::{Mutex, PoisonError};

pub const FILE: &str = "secrets.key";

const KEY_BYTES: usize = 32;

/// Digits of a key's name, which is the beginning of its hash.
const NAME_DIGITS: usize = 16;

/// The most keys in the file.
const KEYS_MAX: usize = 16;

#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum KeyError {
    #[error("secrets cannot be used: {0}")]
    Unusable(String),
    #[error("the secret was encrypted with key {0}, which is not in the server's {FILE}")]
    UnknownKey(String),
    #[error("the secret's stored value is damaged")]
    Damaged,
    #[error(
        "{FILE} has {KEYS_MAX} keys that are in use: end the jobs that wait, then rotate again"
    )]
    TooMany,
}

impl From<KeyError> for Refusal {
    fn from(error: KeyError) -> Self {
        Self::Other(error.to_string())
    }
}

#[derive(Clone)]
struct Key {
    name: String,
    bytes: [u8; KEY_BYTES],
}

impl Key {
    fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        let hash = digest(&SHA256, &bytes);
        let name: String = hash.as_ref().iter().map(|b| format!("{b:02x}")).collect();
        Self { name: name[..NAME_DIGITS].to_owned(), bytes }
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.bytes);
        LessSafeKey::new(key.expect("a key has the cipher's length"))
    }
}

pub struct SecretKeys {
    files: KeyFiles,
    /// The keys, or why there are none.
    keys: Mutex<Result<Vec<Key>, String>>,
}

impl SecretKeys {
    /// Reads the keys. A first one is made where nothing was encrypted yet; else a missing file is said, and so is a value
    /// whose key is not in it.
    pub fn load<'a>(files: impl Into<KeyFiles>, stored: impl Iterator<Item = &'a Sealed>) -> Self {
        let files = files.into();
        let names: BTreeSet<&str> = stored.filter_map(|s| Some(s.parts()?.0)).collect();
        let path = files.path(FILE);
        let keys = match std::fs::read_to_string(&path) {
            Ok(text) => parse(&text).ok_or_else(|| format!("{} is no key file", path.display())),
            Err(error) if error.kind() == ErrorKind::NotFound && names.is_empty() => {
                let first = vec![Key::from_bytes(clock::random())];
                write(&files, &first).map(|()| first)
            }
            Err(error) => Err(format!("{}: {error}", path.display())),
        };
        match &keys {
            Ok(keys) => {
                for name in names.iter().filter(|name| !keys.iter().any(|k| k.name == **name)) {
                    let path = path.display();
                    tracing::error!(
                        "secrets that were encrypted with key {name} cannot be used: it is not in {path}"
                    );
                }
            }
            Err(why) => tracing::error!("secrets cannot be used: {why}"),
        }
        Self { files, keys: Mutex::new(keys) }
    }

    fn keys(&self) -> Result<Vec<Key>, KeyError> {
        let keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        keys.clone().map_err(KeyError::Unusable)
    }

    /// Encrypts. `context` says what the value is of, and it is read back with the same one alone.
    pub fn seal(&self, context: &str, value: &str) -> Result<Sealed, KeyError> {
        let keys = self.keys()?;
        let first = keys.first().ok_or_else(|| KeyError::Unusable(format!("{FILE} is empty")))?;
        let nonce: [u8; NONCE_LEN] = clock::random();
        let mut bytes = value.as_bytes().to_vec();
        let sealed = first.cipher().seal_in_place_append_tag(
            Nonce::assume_unique_for_key(nonce),
            Aad::from(context.as_bytes()),
            &mut bytes,
        );
        sealed.map_err(|_| KeyError::Damaged)?;
        Ok(Sealed::new(&first.name, &BASE64.encode([&nonce[..], &bytes].concat())))
    }

    pub fn open(&self, context: &str, sealed: &Sealed) -> Result<SecretValue, KeyError> {
        let (name, text) = sealed.parts().ok_or(KeyError::Damaged)?;
        let keys = self.keys()?;
        let key = keys.iter().find(|key| key.name == name);
        let key = key.ok_or_else(|| KeyError::UnknownKey(name.to_owned()))?;
        let bytes = BASE64.decode(text).map_err(|_| KeyError::Damaged)?;
        let (nonce, rest) = bytes.split_at_checked(NONCE_LEN).ok_or(KeyError::Damaged)?;
        let nonce = Nonce::try_assume_unique_for_key(nonce).map_err(|_| KeyError::Damaged)?;
        let mut rest = rest.to_vec();
        let value = key.cipher().open_in_place(nonce, Aad::from(context.as_bytes()), &mut rest);
        let value = value.map_err(|_| KeyError::Damaged)?;
        String::from_utf8(value.to_vec()).map(SecretValue).map_err(|_| KeyError::Damaged)
    }

    /// Whether a value is encrypted with the newest key.
    pub fn is_newest(&self, sealed: &Sealed) -> bool {
        let newest = self.keys().ok().and_then(|keys| keys.first().map(|key| key.name.clone()));
        newest.is_some_and(|newest| sealed.parts().is_some_and(|(name, _)| name == newest))
    }

    /// Makes a new key, which encrypts from now on.
    pub fn add(&self) -> Result<(), KeyError> {
        self.change(|keys| {
            if keys.len() >= KEYS_MAX {
                return Err(KeyError::TooMany);
            }
            keys.insert(0, Key::from_bytes(clock::random()));
            Ok(())
        })
    }

    /// Removes every key but the newest and those of these values.
    pub fn retain<'a>(&self, used: impl Iterator<Item = &'a Sealed>) -> Result<(), KeyError> {
        let used: BTreeSet<&str> = used.filter_map(|s| Some(s.parts()?.0)).collect();
        self.change(|keys| {
            let newest = keys.first().map(|key| key.name.clone());
            keys.retain(|k| Some(&k.name) == newest.as_ref() || used.contains(k.name.as_str()));
            Ok(())
        })
    }

    /// The file is written before the keys are used.
    fn change(
        &self,
        change: impl FnOnce(&mut Vec<Key>) -> Result<(), KeyError>,
    ) -> Result<(), KeyError> {
        let mut known = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        let mut keys = known.clone().map_err(KeyError::Unusable)?;
        change(&mut keys)?;
        write(&self.files, &keys).map_err(KeyError::Unusable)?;
        *known = Ok(keys);
        Ok(())
    }
}

/// One key a line, in base64.
fn parse(text: &str) -> Option<Vec<Key>> {
    let key = |line: &str| {
        let bytes = BASE64.decode(line.trim()).ok()?;
        Some(Key::from_bytes(bytes.try_into().ok()?))
    };
    let lines = text.lines().filter(|line| !line.trim().is_empty());
    let keys: Vec<Key> = lines.map(key).collect::<Option<_>>()?;
    (!keys.is_empty()).then_some(keys)
}

fn write(files: &KeyFiles, keys: &[Key]) -> Result<(), String> {
    let text: String = keys.iter().map(|key| BASE64.encode(key.bytes) + "\n").collect();
    files.write(FILE, &text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn load(dir: &Path, stored: &[Sealed]) -> SecretKeys {
        SecretKeys::load(dir, stored.iter())
    }

    #[test]
    fn value_is_read_back_after_a_restart_and_its_text_is_not_in_the_stored_form() {
        let dir = tempfile::tempdir().unwrap();
        let sealed = load(dir.path(), &[]).seal("main/token", "hush").unwrap();
        assert!(!sealed.0.contains("hush") && !sealed.0.contains(&BASE64.encode("hush")));
        let mode = std::fs::metadata(dir.path().join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let again = load(dir.path(), std::slice::from_ref(&sealed));
        assert_eq!(again.open("main/token", &sealed), Ok(SecretValue("hush".into())));
        // A value that was moved under another name is not read.
        assert_eq!(again.open("main/other", &sealed), Err(KeyError::Damaged));
        assert_ne!(again.seal("main/token", "hush").unwrap(), sealed, "equal values do not show");
    }

    #[test]
    fn missing_wrong_and_garbled_keys_are_said_and_nothing_is_made_in_their_place() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(FILE);
        let stored = [load(dir.path(), &[]).seal("a", "hush").unwrap()];
        let good = std::fs::read_to_string(&path).unwrap();

        std::fs::remove_file(&path).unwrap();
        let without = load(dir.path(), &stored);
        assert!(matches!(without.open("a", &stored[0]), Err(KeyError::Unusable(_))));
        assert!(matches!(without.seal("a", "new"), Err(KeyError::Unusable(_))));
        assert!(!path.exists(), "a key that was lost is put back, not replaced");

        std::fs::write(&path, "garbage\n").unwrap();
        assert!(matches!(load(dir.path(), &stored).seal("a", "x"), Err(KeyError::Unusable(_))));

        std::fs::write(&path, BASE64.encode([7; KEY_BYTES])).unwrap();
        let wrong = load(dir.path(), &stored);
        assert!(matches!(wrong.open("a", &stored[0]), Err(KeyError::UnknownKey(_))));

        std::fs::write(&path, good).unwrap();
        assert!(load(dir.path(), &stored).open("a", &stored[0]).is_ok());
    }

    #[test]
    fn rotation_keeps_an_old_key_as_long_as_something_needs_it() {
        let dir = tempfile::tempdir().unwrap();
        let keys = load(dir.path(), &[]);
        let old = keys.seal("a", "hush").unwrap();
        keys.add().unwrap();
        let new = keys.seal("a", "hush").unwrap();
        assert!(keys.is_newest(&new) && !keys.is_newest(&old));
        keys.retain([&old].into_iter()).unwrap();
        assert!(load(dir.path(), &[]).open("a", &old).is_ok());
        keys.retain([&new].into_iter()).unwrap();
        let after = load(dir.path(), &[]);
        assert!(matches!(after.open("a", &old), Err(KeyError::UnknownKey(_))));
        assert!(after.open("a", &new).is_ok());
    }
}

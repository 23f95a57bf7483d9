//! The public keys with which users come in by SSH: those that they registered, and for each user one that the server
//! holds for dstack's client and for `sluice attach`.
//!
//! The key that the server holds is derived from a secret and the user's name: nothing is stored for it but how often it
//! was renewed. All is in two files beside the server's other keys, written before a change is answered.

use crate::auth::key_files::KeyFiles;
use crate::error::ServerError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::id::AttemptId;
use model::reason::Refusal;
use model::secret::SecretValue;
use model::time::Timestamp;
use ring::hmac;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::SshSig;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::ssh_key::public::KeyData;
use russh::keys::{HashAlg, PrivateKey, PublicKey};
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::sync::{Mutex, MutexGuard};
use wire::ssh::{KEY_PROOF_BYTES_MAX, KEY_PROOF_NAMESPACE, SshKeyView};

const SECRET: &str = "ssh_users.secret";
const SECRET_BYTES: usize = 32;
const FILE: &str = "ssh_users.json";

/// Keys that one user may register.
const KEYS_MAX: usize = 32;
/// Keys that a user has removed and that are kept in mind.
const REMOVED_MAX: usize = 256;
/// The longest line of a public key: RSA with 16,384 bits and a comment.
const LINE_BYTES_MAX: usize = 4096;
/// A run's own key is compared with as many of the keys that the server held before.
const RENEWALS_KNOWN: usize = 64;
/// Users whose held keys are remembered; beyond it they are derived anew.
const DERIVED_MAX: usize = 65_536;
/// The shortest RSA key that is taken.
const RSA_BITS_MIN: u32 = 2048;

pub struct SshKeys {
    files: KeyFiles,
    derivation: hmac::Key,
    users: Mutex<Users>,
    /// By user, the key that the server holds, as it was derived last.
    derived: Mutex<HashMap<String, DerivedKey>>,
}

/// Anybody who comes with some key has it compared with those that the server holds: each is derived once.
struct DerivedKey {
    renewals: u32,
    data: KeyData,
}

type Users = BTreeMap<String, UserKeys>;

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct UserKeys {
    /// How often the key that the server holds was renewed.
    #[serde(default)]
    renewals: u32,
    /// When that was last.
    #[serde(default)]
    renewed: Timestamp,
    /// Lines as in `id_ed25519.pub`.
    #[serde(default)]
    keys: Vec<String>,
    /// The fingerprints of those among them whose private key nobody has proved to have.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    unproved: Vec<String>,
    /// The fingerprints of keys that were removed and not registered again: they open no run of the user either that was
    /// given them. The latest last.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    removed: Vec<String>,
}

/// How a key comes to be registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Registration {
    /// By one who has its private key, or by an administrator.
    Proved,
    Unproved,
}

impl UserKeys {
    /// Forgets the key; `fingerprint` is its own.
    fn forget(&mut self, fingerprint: &str) {
        let is_other = |line: &String| {
            PublicKey::from_openssh(line).is_ok_and(|key| self::fingerprint(&key) != fingerprint)
        };
        self.keys.retain(is_other);
        self.unproved.retain(|known| known != fingerprint);
    }

    /// Keeps in mind that the key was removed.
    fn note_removed(&mut self, fingerprint: String) {
        self.removed.retain(|known| *known != fingerprint);
        self.removed.push(fingerprint);
        let too_many = self.removed.len().saturating_sub(REMOVED_MAX);
        self.removed.drain(..too_many);
    }

    fn public_keys(&self) -> impl Iterator<Item = PublicKey> {
        self.keys.iter().filter_map(|line| PublicKey::from_openssh(line).ok())
    }
}

/// A private key in OpenSSH's form.
fn private_text(key: &PrivateKey) -> SecretValue {
    let text = key.to_openssh(LineEnding::LF);
    SecretValue(text.map(|text| text.to_string()).unwrap_or_default())
}

impl SshKeys {
    pub fn load(
        files: impl Into<KeyFiles>,
        seed: impl FnOnce() -> Result<[u8; SECRET_BYTES], ServerError>,
    ) -> Result<Self, ServerError> {
        let files = files.into();
        let path = files.path(SECRET);
        if !path.exists() {
            files.write(SECRET, &BASE64.encode(seed()?))?;
        }
        let text = std::fs::read_to_string(&path).map_err(ServerError::file(&path))?;
        let wrong = |path: &Path, error: String| {
            ServerError::Identity(format!("{}: {error}", path.display()))
        };
        let secret = BASE64.decode(text.trim()).map_err(|e| wrong(&path, e.to_string()))?;
        if secret.len() != SECRET_BYTES {
            let found = secret.len();
            let text = format!("expected {SECRET_BYTES} bytes in base64, and not {found}");
            return Err(wrong(&path, text));
        }
        let path = files.path(FILE);
        let users = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| wrong(&path, e.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Users::new(),
            Err(error) => return Err(ServerError::file(&path)(error)),
        };
        Ok(Self {
            files,
            derivation: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            users: Mutex::new(users),
            derived: Mutex::default(),
        })
    }

    fn users(&self) -> MutexGuard<'_, Users> {
        self.users.lock().expect("no panic with the keys held")
    }

    fn held_key(&self, user: &str) -> PrivateKey {
        self.held_key_after(user, self.renewals(user))
    }

    fn renewals(&self, user: &str) -> u32 {
        self.users().get(user).map_or(0, |keys| keys.renewals)
    }

    fn held_key_after(&self, user: &str, renewals: u32) -> PrivateKey {
        self.derived_key(&format!("{renewals} {user}"), format!("{user}@sluice"))
    }

    /// The key with which the nodes of one run reach one another, by the attempt of the job that stands for the run. No name of
    /// a user derives it: what precedes one is a number.
    fn run_key(&self, attempt: AttemptId) -> PrivateKey {
        self.derived_key(&format!("run {attempt}"), format!("run {attempt}"))
    }

    pub fn run_private_text(&self, attempt: AttemptId) -> SecretValue {
        private_text(&self.run_key(attempt))
    }

    pub fn is_key_of_attempt(&self, attempt: AttemptId, key: &PublicKey) -> bool {
        self.run_key(attempt).public_key().key_data() == key.key_data()
    }

    fn derived_key(&self, of: &str, comment: String) -> PrivateKey {
        let tag = hmac::sign(&self.derivation, of.as_bytes());
        let mut seed = [0; 32];
        seed.copy_from_slice(&tag.as_ref()[..32]);
        let pair = KeypairData::from(Ed25519Keypair::from_seed(&seed));
        let named = PrivateKey::new(pair.clone(), comment);
        // A name that cannot be a comment is left out.
        named.or_else(|_| PrivateKey::new(pair, String::new())).expect("a pair makes a key")
    }

    /// The public key that the server holds for this user, as one line.
    pub fn held_public_line(&self, user: &str) -> String {
        self.held_key(user).public_key().to_openssh().unwrap_or_default()
    }

    pub fn held_private_text(&self, user: &str) -> SecretValue {
        private_text(&self.held_key(user))
    }

    /// Whether this is the key that the server holds for this user, or one that this user registered.
    pub fn is_key_of(&self, user: &str, key: &PublicKey) -> bool {
        self.is_held_for(user, key)
            || self.users().get(user).is_some_and(|keys| has(keys, &line_start(key)))
    }

    /// Whether this is the key that the server holds for this user.
    pub fn is_held_for(&self, user: &str, key: &PublicKey) -> bool {
        let renewals = self.renewals(user);
        let derived = || self.derived.lock().expect("no panic with the derived keys held");
        if let Some(known) = derived().get(user).filter(|known| known.renewals == renewals) {
            return known.data == *key.key_data();
        }
        let data = self.held_key_after(user, renewals).public_key().key_data().clone();
        let is_it = data == *key.key_data();
        let mut derived = derived();
        if derived.len() >= DERIVED_MAX {
            derived.clear();
        }
        derived.insert(user.to_owned(), DerivedKey { renewals, data });
        is_it
    }

    /// Whether the server holds this key for this user, or held it before one of the last renewals.
    pub fn was_held_for(&self, user: &str, key: &PublicKey) -> bool {
        let is_it =
            |after| self.held_key_after(user, after).public_key().key_data() == key.key_data();
        (0..=self.renewals(user)).rev().take(RENEWALS_KNOWN).any(is_it)
    }

    /// Whether the key that the server holds for this user is older than `at`.
    pub fn is_held_since_before(&self, user: &str, at: Timestamp) -> bool {
        self.users().get(user).is_none_or(|keys| keys.renewed < at)
    }

    /// Replaces the key that the server holds for this user if it is older than `at`. Of several who find that at once, one
    /// replaces it: the others would end the key that this one gives out.
    pub fn renew_if_older(&self, user: &str, at: Timestamp, now: Timestamp) -> Result<(), Refusal> {
        self.change(user, |keys| {
            if keys.renewed < at {
                keys.renewals += 1;
                keys.renewed = now;
            }
            Ok(())
        })
    }

    /// The users who registered this key.
    pub fn registered_by(&self, key: &PublicKey) -> Vec<String> {
        let start = line_start(key);
        let users = self.users();
        let has_key = users.iter().filter(|(_, keys)| has(keys, &start));
        has_key.map(|(name, _)| name.clone()).collect()
    }

    /// Whether this user registered the key and did not prove to have its private key.
    pub fn is_unproved(&self, user: &str, key: &PublicKey) -> bool {
        let fingerprint = fingerprint(key);
        self.users().get(user).is_some_and(|keys| keys.unproved.contains(&fingerprint))
    }

    /// Whether this user removed the key, and has not registered it again.
    pub fn was_removed_by(&self, user: &str, key: &PublicKey) -> bool {
        let fingerprint = fingerprint(key);
        self.users().get(user).is_some_and(|keys| keys.removed.contains(&fingerprint))
    }

    pub fn list(&self, user: &str) -> Vec<SshKeyView> {
        let users = self.users();
        let Some(keys) = users.get(user) else { return Vec::new() };
        let shown = |key: PublicKey| {
            let view = view(&key);
            SshKeyView { is_unproved: keys.unproved.contains(&view.fingerprint), ..view }
        };
        keys.public_keys().map(shown).collect()
    }

    /// Registers a key. One that another user has registered is refused; who proves that it is his takes it from those who did
    /// not. `others`: users whose held keys are nobody's to register.
    pub fn add(
        &self,
        user: &str,
        line: &str,
        registration: Registration,
        others: &[String],
    ) -> Result<(), Refusal> {
        let key = read_line(line)?;
        let is_held = |other: &&String| {
            *other != user && self.held_key(other).public_key().key_data() == key.key_data()
        };
        if others.iter().find(is_held).is_some() {
            return Err(wrong_line(line, "the server holds this key for another user"));
        }
        let line = key.to_openssh().map_err(|error| wrong_line(line, &error.to_string()))?;
        let (fingerprint, is_proved) = (fingerprint(&key), registration == Registration::Proved);
        let start = line_start(&key);
        self.change_all(|users| {
            let elsewhere = users.iter_mut().filter(|(name, _)| *name != user);
            for (_, keys) in elsewhere.filter(|(_, keys)| has(keys, &start)) {
                if !is_proved {
                    return Err(wrong_line(
                        &line,
                        "another user has registered this key: prove that it is yours, \
                        by `sluice key add` where ssh-keygen can use its private key",
                    ));
                }
                if keys.unproved.contains(&fingerprint) {
                    keys.forget(&fingerprint);
                }
            }
            let keys = users.entry(user.to_owned()).or_default();
            keys.removed.retain(|known| *known != fingerprint);
            if has(keys, &start) {
                keys.unproved.retain(|known| !is_proved || *known != fingerprint);
                return Ok(());
            }
            if keys.keys.len() >= KEYS_MAX {
                let text = format!("{user} has {KEYS_MAX} keys already: remove one first");
                return Err(Refusal::Other(text));
            }
            keys.keys.push(line);
            if !is_proved {
                keys.unproved.push(fingerprint);
            }
            Ok(())
        })
    }

    /// Removes the key with this fingerprint, or the only one with this comment. It opens nothing of the user's any more, also
    /// no run that was given it.
    pub fn remove(&self, user: &str, word: &str) -> Result<(), Refusal> {
        self.change(user, |keys| {
            let meant = |key: &PublicKey| {
                let view = view(key);
                view.fingerprint == word || view.comment == word
            };
            let found: Vec<String> =
                keys.public_keys().filter(meant).map(|key| fingerprint(&key)).collect();
            match &found[..] {
                [one] => {
                    keys.forget(one);
                    keys.note_removed(one.clone());
                    Ok(())
                }
                [] => Err(Refusal::Other(format!(
                    "{word:?}: {user} has no such key: expected a fingerprint or a comment of `sluice key list`"
                ))),
                _ => Err(Refusal::Other(format!(
                    "{word:?}: several keys of {user} have this comment: expected a fingerprint"
                ))),
            }
        })
    }

    /// Replaces the key that the server holds for this user.
    pub fn renew(&self, user: &str, now: Timestamp) -> Result<(), Refusal> {
        self.change(user, |keys| {
            keys.renewals += 1;
            keys.renewed = now;
            Ok(())
        })
    }

    /// Ends every key of this user: those registered are forgotten, and the one that the server holds is replaced.
    pub fn end_all(&self, user: &str, now: Timestamp) -> Result<(), Refusal> {
        self.change(user, |keys| {
            let all: Vec<String> = keys.public_keys().map(|key| fingerprint(&key)).collect();
            all.into_iter().for_each(|one| keys.note_removed(one));
            (keys.keys, keys.unproved) = (Vec::new(), Vec::new());
            (keys.renewals, keys.renewed) = (keys.renewals + 1, now);
            Ok(())
        })
    }

    fn change(
        &self,
        user: &str,
        change: impl FnOnce(&mut UserKeys) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        self.change_all(|users| change(users.entry(user.to_owned()).or_default()))
    }

    /// A change counts once it is on disk.
    fn change_all(
        &self,
        change: impl FnOnce(&mut Users) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut users = self.users();
        let mut next = users.clone();
        change(&mut next)?;
        let text = serde_json::to_string(&next).map_err(|e| Refusal::Other(e.to_string()))?;
        self.files.write(FILE, &text).map_err(|e| Refusal::Other(e.to_string()))?;
        *users = next;
        Ok(())
    }
}

/// How each line of this key begins: all but its comment.
fn line_start(key: &PublicKey) -> String {
    PublicKey::new(key.key_data().clone(), String::new()).to_openssh().unwrap_or_default()
}

/// Whether the key whose lines begin so is among these. No line of theirs is read for that: anybody who connects with some key has
/// it looked for among those of all users.
fn has(keys: &UserKeys, start: &str) -> bool {
    let is_of_key = |line: &String| {
        let comment = line.strip_prefix(start);
        comment.is_some_and(|comment| comment.is_empty() || comment.starts_with(' '))
    };
    !start.is_empty() && keys.keys.iter().any(is_of_key)
}

/// `SHA256:…`
fn fingerprint(key: &PublicKey) -> String {
    key.fingerprint(HashAlg::Sha256).to_string()
}

fn view(key: &PublicKey) -> SshKeyView {
    SshKeyView {
        fingerprint: fingerprint(key),
        algorithm: key.algorithm().to_string(),
        comment: key.comment().to_string(),
        is_unproved: false,
    }
}

/// Whether the signature over this text was made with the private key of this line.
pub fn is_proof(line: &str, text: &str, proof: &str) -> bool {
    let signature = SshSig::from_pem(proof.as_bytes()).ok();
    let key = read_line(line).ok();
    key.zip(signature).is_some_and(|(key, signature)| {
        proof.len() <= KEY_PROOF_BYTES_MAX
            && key.verify(KEY_PROOF_NAMESPACE, text.as_bytes(), &signature).is_ok()
    })
}

fn wrong_line(line: &str, why: &str) -> Refusal {
    let shown: String = line.chars().take(40).collect();
    Refusal::InvalidValue {
        what: "SSH key".into(),
        value: shown,
        expected: format!("one line as in ~/.ssh/id_ed25519.pub ({why})"),
    }
}

/// A public key of a kind that is taken.
pub fn read_line(line: &str) -> Result<PublicKey, Refusal> {
    let line = line.trim();
    if line.len() > LINE_BYTES_MAX || line.contains(['\n', '\r']) {
        return Err(wrong_line(line, "at most 4096 bytes"));
    }
    if line.contains("PRIVATE KEY") {
        return Err(wrong_line("", "this is a private key: keep it, and give its .pub file"));
    }
    let key =
        PublicKey::from_openssh(line).map_err(|error| wrong_line(line, &error.to_string()))?;
    let data = key.key_data();
    let bits = data.rsa().map(|rsa| rsa.key_size());
    let is_taken =
        data.is_ed25519() || data.is_ecdsa() || bits.is_some_and(|bits| bits >= RSA_BITS_MIN);
    if !is_taken {
        return Err(wrong_line(line, "Ed25519, ECDSA, or RSA with 2048 bits and more"));
    }
    Ok(key)
}

#[cfg(test)]
#[path = "ssh_keys_tests.rs"]
mod tests;

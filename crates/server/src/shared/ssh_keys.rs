//! The public keys with which users come in by SSH: those that they registered, and for each user one that the server
//! holds for dstack's client and for `sluice attach`.
//!
//! The key that the server holds is derived from a secret and the user's name: nothing is stored for it but how often it
//! was renewed. All is in two files beside the server's other keys, written before a change is answered.

use crate::auth::identity::write_private;
use crate::error::ServerError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use model::id::AttemptId;
use model::reason::Refusal;
use model::secret::SecretValue;
use model::time::Timestamp;
use ring::hmac;
use russh::keys::ssh_key::LineEnding;
use russh::keys::ssh_key::private::{Ed25519Keypair, KeypairData};
use russh::keys::{HashAlg, PrivateKey, PublicKey};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard};
use wire::ssh::SshKeyView;

const SECRET: &str = "ssh_users.secret";
const SECRET_BYTES: usize = 32;
const FILE: &str = "ssh_users.json";

/// Keys that one user may register.
const KEYS_MAX: usize = 32;
/// The longest line of a public key: RSA with 16,384 bits and a comment.
const LINE_BYTES_MAX: usize = 4096;
/// A run's own key is compared with as many of the keys that the server held before.
const RENEWALS_KNOWN: usize = 64;
/// The shortest RSA key that is taken.
const RSA_BITS_MIN: u32 = 2048;

pub struct SshKeys {
    dir: PathBuf,
    derivation: hmac::Key,
    users: Mutex<Users>,
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
}

impl UserKeys {
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
        dir: &Path,
        seed: impl FnOnce() -> Result<[u8; SECRET_BYTES], ServerError>,
    ) -> Result<Self, ServerError> {
        let path = dir.join(SECRET);
        if !path.exists() {
            write_private(dir, SECRET, &BASE64.encode(seed()?))?;
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
        let path = dir.join(FILE);
        let users = match std::fs::read(&path) {
            Ok(bytes) => serde_json::from_slice(&bytes).map_err(|e| wrong(&path, e.to_string()))?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Users::new(),
            Err(error) => return Err(ServerError::file(&path)(error)),
        };
        Ok(Self {
            dir: dir.to_owned(),
            derivation: hmac::Key::new(hmac::HMAC_SHA256, &secret),
            users: Mutex::new(users),
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
        self.held_key(user).public_key().key_data() == key.key_data()
            || self.users().get(user).is_some_and(|keys| has(keys, key))
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
        let users = self.users();
        let has_key = users.iter().filter(|(_, keys)| has(keys, key));
        has_key.map(|(name, _)| name.clone()).collect()
    }

    pub fn list(&self, user: &str) -> Vec<SshKeyView> {
        let users = self.users();
        let keys = users.get(user).into_iter().flat_map(UserKeys::public_keys);
        keys.map(|key| view(&key)).collect()
    }

    /// `others`: users whose held keys are nobody's to register.
    pub fn add(&self, user: &str, line: &str, others: &[String]) -> Result<(), Refusal> {
        let key = read_line(line)?;
        let is_held = |other: &&String| {
            *other != user && self.held_key(other).public_key().key_data() == key.key_data()
        };
        if others.iter().find(is_held).is_some() {
            return Err(wrong_line(line, "the server holds this key for another user"));
        }
        let line = key.to_openssh().map_err(|error| wrong_line(line, &error.to_string()))?;
        self.change(user, |keys| {
            if has(keys, &key) {
                return Ok(());
            }
            if keys.keys.len() >= KEYS_MAX {
                let text = format!("{user} has {KEYS_MAX} keys already: remove one first");
                return Err(Refusal::Other(text));
            }
            keys.keys.push(line);
            Ok(())
        })
    }

    /// Removes the key with this fingerprint, or the only one with this comment.
    pub fn remove(&self, user: &str, word: &str) -> Result<(), Refusal> {
        self.change(user, |keys| {
            let meant = |key: &PublicKey| {
                let view = view(key);
                view.fingerprint == word || view.comment == word
            };
            let found: Vec<String> = keys
                .keys
                .iter()
                .filter(|line| PublicKey::from_openssh(line).is_ok_and(|key| meant(&key)))
                .cloned()
                .collect();
            match &found[..] {
                [one] => {
                    keys.keys.retain(|line| line != one);
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
            *keys = UserKeys { renewals: keys.renewals + 1, renewed: now, keys: Vec::new() };
            Ok(())
        })
    }

    /// A change counts once it is on disk.
    fn change(
        &self,
        user: &str,
        change: impl FnOnce(&mut UserKeys) -> Result<(), Refusal>,
    ) -> Result<(), Refusal> {
        let mut users = self.users();
        let mut next = users.clone();
        change(next.entry(user.to_owned()).or_default())?;
        let text = serde_json::to_string(&next).map_err(|e| Refusal::Other(e.to_string()))?;
        write_private(&self.dir, FILE, &text).map_err(|e| Refusal::Other(e.to_string()))?;
        *users = next;
        Ok(())
    }
}

fn has(keys: &UserKeys, key: &PublicKey) -> bool {
    keys.public_keys().any(|known| known.key_data() == key.key_data())
}

fn view(key: &PublicKey) -> SshKeyView {
    SshKeyView {
        fingerprint: key.fingerprint(HashAlg::Sha256).to_string(),
        algorithm: key.algorithm().to_string(),
        comment: key.comment().to_string(),
    }
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
mod tests {
    use super::*;

    const ADA: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti ada@laptop";

    fn keys(dir: &Path) -> SshKeys {
        SshKeys::load(dir, || Ok([7; 32])).expect("keys")
    }

    #[test]
    fn registered_key_is_its_users_alone_and_is_there_after_a_restart() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = keys(dir.path());
        store.add("ada", ADA, &[]).expect("added");
        store.add("ada", ADA, &[]).expect("the same key again changes nothing");
        let key = read_line(ADA).expect("a key");
        let again = keys(dir.path());
        assert!(again.is_key_of("ada", &key) && !again.is_key_of("bob", &key));
        assert_eq!(again.registered_by(&key), ["ada"]);
        assert_eq!(again.list("ada").len(), 1);
        again.remove("ada", "nobody@nowhere").expect_err("no such key");
        again.remove("ada", "ada@laptop").expect("removed");
        assert!(!keys(dir.path()).is_key_of("ada", &key));
    }

    #[test]
    fn held_keys_differ_by_user_and_renewal_and_stay_over_a_restart() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = keys(dir.path());
        let (ada, bob) = (store.held_public_line("ada"), store.held_public_line("bob"));
        assert_ne!(ada.split(' ').nth(1), bob.split(' ').nth(1));
        let private = PrivateKey::from_openssh(&store.held_private_text("ada").0).expect("a key");
        assert!(store.is_key_of("ada", private.public_key()));
        assert!(!store.is_key_of("bob", private.public_key()));
        assert_eq!(keys(dir.path()).held_public_line("ada"), ada);
        store.renew("ada", Timestamp(5)).expect("renewed");
        assert!(!keys(dir.path()).is_key_of("ada", private.public_key()));
        assert_eq!(store.held_public_line("bob"), bob);
        assert!(store.was_held_for("ada", private.public_key()), "it is known as an old one");
        assert!(!store.was_held_for("bob", private.public_key()));
        assert!(!store.was_held_for("ada", &read_line(ADA).expect("a key")));
    }

    #[test]
    fn key_that_the_server_holds_for_another_is_not_registered() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = keys(dir.path());
        let (bobs, known) = (store.held_public_line("bob"), ["ada".to_owned(), "bob".to_owned()]);
        store.add("ada", &bobs, &known).expect_err("it is bob's");
        store.add("bob", &bobs, &known).expect("his own");
    }

    #[test]
    fn keys_of_a_user_who_was_removed_end() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = keys(dir.path());
        store.add("ada", ADA, &[]).expect("added");
        let held = read_line(&store.held_public_line("ada")).expect("a key");
        assert!(store.is_held_since_before("ada", Timestamp(9)));
        store.renew_if_older("ada", Timestamp(3), Timestamp(5)).expect("renewed");
        let renewed = store.held_public_line("ada");
        store.renew_if_older("ada", Timestamp(3), Timestamp(6)).expect("nothing to do");
        assert_eq!(store.held_public_line("ada"), renewed, "it is renewed once");
        store.end_all("ada", Timestamp(9)).expect("ended");
        assert!(!store.is_held_since_before("ada", Timestamp(9)));
        let known = read_line(ADA).expect("a key");
        assert!(!store.is_key_of("ada", &known) && !store.is_key_of("ada", &held));
    }

    #[test]
    fn secret_of_another_length_is_refused() {
        let dir = tempfile::tempdir().expect("a folder");
        for text in ["", "AAAA"] {
            std::fs::write(dir.path().join(SECRET), text).expect("written");
            let error = SshKeys::load(dir.path(), || Ok([7; 32])).err().expect(text).to_string();
            assert!(error.contains("expected 32 bytes"), "{error}");
        }
    }

    #[test]
    fn what_is_no_public_key_is_refused_in_one_line() {
        for line in [
            "",
            "ssh-ed25519",
            "ssh-ed25519 AAAA",
            "ssh-dss AAAAB3NzaC1kc3MAAACB",
            "-----BEGIN OPENSSH PRIVATE KEY-----",
            "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+\nssh-ed25519 AAAA",
            &"x".repeat(LINE_BYTES_MAX + 1),
        ] {
            let refusal = read_line(line).expect_err(line).to_string();
            assert!(!refusal.contains('\n') && refusal.len() < 250, "{refusal}");
        }
    }

    #[test]
    fn user_has_a_bounded_number_of_keys() {
        let dir = tempfile::tempdir().expect("a folder");
        let store = keys(dir.path());
        for number in 0..KEYS_MAX {
            store.add("ada", &keys_line(number as u8), &[]).expect("added");
        }
        let refusal = store.add("ada", &keys_line(200), &[]).expect_err("one too many").to_string();
        assert!(refusal.contains("remove one first"), "{refusal}");
        store.add("bob", &keys_line(200), &[]).expect("another user's");
    }

    fn keys_line(number: u8) -> String {
        let key = PrivateKey::from(Ed25519Keypair::from_seed(&[number; 32]));
        key.public_key().to_openssh().expect("a line")
    }
}

//! The keys of a cluster in the database that its servers share: every file of `server/keys`, and the administrator's token. Each
//! is sealed under the key that an administrator gives every server in a file or the environment, so that the database and its
//! backups alone open nothing.
//!
//! A server takes the files from there when it starts and when it takes over; the leader writes them there before its own folder.

use super::identity::{Identity, write_private};
use crate::clock;
use crate::error::ServerError;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hmac;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use store::postgres::{self, Database, DatabaseUrl, SharedFile};

/// The variable that has the key, where no file does.
const KEY_VARIABLE: &str = "SLUICE_STORE_KEY";
/// The shortest text that is taken as a key: `openssl rand -hex 32` gives 64.
const KEY_TEXT_MIN: usize = 32;
/// What is derived from the text is for this alone.
const KEY_PURPOSE: &[u8] = b"sluice: files that servers share";

/// The file whose content says which cluster the keys are of.
const AUTHORITY: &str = "authority.pem";
const ADMIN_TOKEN: &str = "admin.token";

/// The most files of keys, and the most bytes of one.
const FILES_MAX: usize = 64;
const FILE_BYTES_MAX: u64 = 16 << 20;

/// What files are sealed under. It has no `Debug`.
#[derive(Clone)]
pub struct StoreKey([u8; 32]);

impl StoreKey {
    /// The key in this file, or in the environment; `None` where neither has one.
    pub fn read(file: Option<&Path>) -> Result<Option<Self>, ServerError> {
        let (text, place) = match file {
            Some(path) => {
                let text = std::fs::read_to_string(path).map_err(ServerError::file(path))?;
                (text, path.display().to_string())
            }
            None => match std::env::var(KEY_VARIABLE) {
                Ok(text) => (text, KEY_VARIABLE.to_owned()),
                Err(_) => return Ok(None),
            },
        };
        Self::from_text(&text).map(Some).ok_or_else(|| {
            let expected = format!("expected a key of {KEY_TEXT_MIN} characters or more");
            ServerError::Configuration(format!("{place}: {expected} (openssl rand -hex 32)"))
        })
    }

    fn from_text(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.len() < KEY_TEXT_MIN {
            return None;
        }
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, text.as_bytes()), KEY_PURPOSE);
        tag.as_ref().try_into().ok().map(Self)
    }

    fn cipher(&self) -> LessSafeKey {
        let key = UnboundKey::new(&CHACHA20_POLY1305, &self.0);
        LessSafeKey::new(key.expect("a key has the cipher's length"))
    }

    /// Encrypts; `name` is the file's, and the content is read back under the same name alone.
    fn seal(&self, name: &str, content: &[u8]) -> Result<Vec<u8>, ServerError> {
        let nonce: [u8; NONCE_LEN] = clock::random();
        let mut bytes = content.to_vec();
        self.cipher()
            .seal_in_place_append_tag(
                Nonce::assume_unique_for_key(nonce),
                Aad::from(name.as_bytes()),
                &mut bytes,
            )
            .map_err(|_| ServerError::Identity(format!("{name} cannot be encrypted")))?;
        Ok([&nonce[..], &bytes].concat())
    }

    fn open(&self, name: &str, sealed: &[u8]) -> Result<Vec<u8>, ServerError> {
        let open = || {
            let (nonce, rest) = sealed.split_at_checked(NONCE_LEN)?;
            let nonce = Nonce::try_assume_unique_for_key(nonce).ok()?;
            let mut rest = rest.to_vec();
            let opened = self.cipher().open_in_place(nonce, Aad::from(name.as_bytes()), &mut rest);
            opened.ok().map(|content| content.to_vec())
        };
        open().ok_or_else(|| {
            ServerError::Identity(format!(
                "{name} in the database was encrypted under another key than this server's: \
                 every server needs the same --store-key-file"
            ))
        })
    }
}

/// The files in the database.
#[derive(Clone)]
pub struct SharedKeys {
    database: Arc<Database>,
    key: StoreKey,
}

impl SharedKeys {
    pub fn new(url: &DatabaseUrl, key: StoreKey) -> Result<Self, ServerError> {
        let database = Database::new(url.clone())
            .map_err(|e| ServerError::Other(format!("cannot start a thread: {e}")))?;
        Ok(Self { database, key })
    }

    /// The administrator's token of the cluster; `None` where no server has begun it.
    pub fn admin_token(&self) -> Result<Option<String>, ServerError> {
        postgres::bring_up_to_date(&self.database)?;
        let Some(sealed) = SharedFile::read(&self.database, ADMIN_TOKEN)? else { return Ok(None) };
        let text = String::from_utf8_lossy(&self.key.open(ADMIN_TOKEN, &sealed)?).into_owned();
        Ok(Some(text))
    }

    /// Makes the keys in `dir` those of the cluster. The first server of a cluster makes them, and a folder that has none gets
    /// what is there; one that has another cluster's is refused, and nothing is changed.
    pub fn join(&self, dir: &Path, token: &str) -> Result<(), ServerError> {
        postgres::bring_up_to_date(&self.database)?;
        let had_own = dir.join(AUTHORITY).exists();
        if SharedFile::read_all(&self.database)?.is_empty() {
            let identity = Identity::load_or_make(dir)?;
            let mut files = self.sealed(dir)?;
            let content = self.key.seal(ADMIN_TOKEN, token.as_bytes())?;
            files.push(SharedFile { name: ADMIN_TOKEN.into(), content });
            let cluster = identity.authority_fingerprint()?;
            SharedFile::put_first(&self.database, &cluster, files)?;
        }
        let files = self.opened()?;
        let same = || {
            let own = std::fs::read(dir.join(AUTHORITY)).unwrap_or_default();
            files.get(AUTHORITY).is_some_and(|of_cluster| *of_cluster == own)
        };
        if had_own && !same() {
            return Err(ServerError::Identity(format!(
                "{} has keys, and the database is the store of another cluster: \
                 start with another state folder, or remove these keys",
                dir.display()
            )));
        }
        write_changed(dir, &files)
    }

    /// Makes the files in `dir` what they are in the database, and returns the administrator's token.
    pub fn refresh(&self, dir: &Path) -> Result<Option<String>, ServerError> {
        let files = self.opened()?;
        write_changed(dir, &files)?;
        let token = files.get(ADMIN_TOKEN).map(|text| String::from_utf8_lossy(text).into_owned());
        Ok(token)
    }

    /// Puts the files of `dir` there that the database lacks.
    pub fn add_missing(&self, dir: &Path, epoch: i64) -> Result<(), ServerError> {
        let known = SharedFile::read_all(&self.database)?;
        let is_new = |file: &SharedFile| !known.iter().any(|other| other.name == file.name);
        for file in self.sealed(dir)?.into_iter().filter(is_new) {
            file.put(&self.database, epoch)?;
        }
        Ok(())
    }

    pub fn put(&self, epoch: i64, name: &str, text: &str) -> Result<(), ServerError> {
        let content = self.key.seal(name, text.as_bytes())?;
        Ok(SharedFile { name: name.into(), content }.put(&self.database, epoch)?)
    }

    /// Puts the administrator's new token there; returns the one before.
    pub fn replace_admin_token(
        &self,
        epoch: i64,
        token: &str,
    ) -> Result<Option<String>, ServerError> {
        let former = SharedFile::read(&self.database, ADMIN_TOKEN)?;
        let former = former.map(|content| self.key.open(ADMIN_TOKEN, &content)).transpose()?;
        self.put(epoch, ADMIN_TOKEN, token)?;
        Ok(former.map(|text| String::from_utf8_lossy(&text).into_owned()))
    }

    fn opened(&self) -> Result<BTreeMap<String, Vec<u8>>, ServerError> {
        let files = SharedFile::read_all(&self.database)?.into_iter();
        files
            .map(|SharedFile { name, content }| {
                let content = self.key.open(&name, &content)?;
                Ok((name, content))
            })
            .collect()
    }

    /// The files of a folder as the database gets them.
    fn sealed(&self, dir: &Path) -> Result<Vec<SharedFile>, ServerError> {
        let mut files = Vec::new();
        for entry in std::fs::read_dir(dir).map_err(ServerError::file(dir))? {
            let entry = entry.map_err(ServerError::file(dir))?;
            let (path, name) = (entry.path(), entry.file_name().to_string_lossy().into_owned());
            let found = entry.metadata().map_err(ServerError::file(&path))?;
            if !found.is_file() || !is_key_file(&name) {
                continue;
            }
            if found.len() > FILE_BYTES_MAX || files.len() >= FILES_MAX {
                let bound = format!("at most {FILES_MAX} files of {FILE_BYTES_MAX} bytes");
                return Err(ServerError::Identity(format!("{}: {bound}", path.display())));
            }
            let content = std::fs::read(&path).map_err(ServerError::file(&path))?;
            let content = self.key.seal(&name, &content)?;
            files.push(SharedFile { name, content });
        }
        Ok(files)
    }
}

/// A plain name, and not that of a file that is being written.
fn is_key_file(name: &str) -> bool {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"._-".contains(&b);
    !name.starts_with('.') && !name.ends_with(".partial") && name.bytes().all(is_plain)
}

fn write_changed(dir: &Path, files: &BTreeMap<String, Vec<u8>>) -> Result<(), ServerError> {
    super::identity::make_folder(dir)?;
    for (name, content) in files {
        if name == ADMIN_TOKEN || !is_key_file(name) {
            continue;
        }
        if std::fs::read(dir.join(name)).is_ok_and(|own| own == *content) {
            continue;
        }
        let text = std::str::from_utf8(content)
            .map_err(|_| ServerError::Identity(format!("{name} in the database is no text")))?;
        write_private(dir, name, text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_is_read_back_under_its_key_and_its_name_alone() {
        let key = StoreKey::from_text(&"k".repeat(KEY_TEXT_MIN)).expect("a key");
        let sealed = key.seal("order.key", b"hush").expect("sealed");
        assert!(!sealed.windows(4).any(|bytes| bytes == b"hush"));
        assert_eq!(key.open("order.key", &sealed).expect("opened"), b"hush");
        assert!(key.open("server.key", &sealed).is_err(), "under another's name");
        let other = StoreKey::from_text(&"o".repeat(KEY_TEXT_MIN)).expect("a key");
        let said = other.open("order.key", &sealed).expect_err("another key").to_string();
        assert!(said.contains("--store-key-file"), "{said}");
        assert!(key.open("order.key", b"short").is_err());
    }

    #[test]
    fn key_comes_from_its_file_and_a_short_one_is_refused() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("store.key");
        std::fs::write(&file, "too short\n").expect("written");
        let said = StoreKey::read(Some(&file)).err().expect("short").to_string();
        assert!(said.contains("openssl rand -hex 32"), "{said}");
        assert!(!said.contains("too short"), "{said}");
        std::fs::write(&file, format!("{}\n", "a".repeat(64))).expect("written");
        let (read, plain) = (StoreKey::read(Some(&file)), StoreKey::from_text(&"a".repeat(64)));
        let read = read.expect("read").expect("a key");
        assert!(plain.is_some_and(|plain| plain.0 == read.0), "blanks around it do not count");
    }

    #[test]
    fn files_that_are_being_written_are_not_shared() {
        for (name, is_shared) in [
            ("ssh_users.json", true),
            ("ssh_host_ed25519_key", true),
            ("secrets.key.partial", false),
            (".hidden", false),
            ("a/b", false),
        ] {
            assert_eq!(is_key_file(name), is_shared, "{name}");
        }
    }
}

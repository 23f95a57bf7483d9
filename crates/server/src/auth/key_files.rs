//! The folder of the server's keys, as what keeps a file in it sees it. Of several servers, the leader writes a change to their
//! database first: a server that takes over has it.

use super::identity::write_private;
use super::shared_keys::SharedKeys;
use crate::error::ServerError;
use std::path::{Path, PathBuf};
use tokio::task::block_in_place;

#[derive(Clone)]
pub struct KeyFiles {
    dir: PathBuf,
    shared: Option<(SharedKeys, i64)>,
}

impl From<&Path> for KeyFiles {
    fn from(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), shared: None }
    }
}

impl From<&PathBuf> for KeyFiles {
    fn from(dir: &PathBuf) -> Self {
        Self::from(dir.as_path())
    }
}

impl KeyFiles {
    /// The files of the leader under the lease of this epoch.
    pub fn shared(dir: &Path, keys: SharedKeys, epoch: i64) -> Self {
        Self { dir: dir.to_owned(), shared: Some((keys, epoch)) }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// Replaces a file. It counts once it is where other servers find it.
    pub fn write(&self, name: &str, text: &str) -> Result<(), ServerError> {
        if let Some((keys, epoch)) = &self.shared {
            block_in_place(|| keys.put(*epoch, name, text))?;
        }
        write_private(&self.dir, name, text)
    }

    /// Whether other servers have the files from the database.
    pub fn are_shared(&self) -> bool {
        self.shared.is_some()
    }

    /// Lets other servers have the administrator's new token; returns the one that they had. A server alone has it in a file of its
    /// own.
    pub fn share_admin_token(&self, token: &str) -> Result<Option<String>, ServerError> {
        match &self.shared {
            Some((keys, epoch)) => block_in_place(|| keys.replace_admin_token(*epoch, token)),
            None => Ok(None),
        }
    }
}

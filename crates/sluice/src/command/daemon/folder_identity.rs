//! Which folder a state folder is: its path and its inode, saved in it at each start. A folder with neither of those is a copy. The
//! same cluster twice would run its jobs twice, so a copy is not started until it is said that the cluster has moved there.
//!
//! A folder that was renamed keeps its inode, and one that was put back from a backup of the disk, or is mounted anew, its path:
//! both are the folder itself. A copy at the same path of another machine is not told from it.

use super::state_dir::StateDir;
use crate::client::server_lock;
use crate::command::verb::VerbError;
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

const SAVED: &str = "folder.json";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FolderIdentity {
    path: PathBuf,
    inode: u64,
}

impl FolderIdentity {
    fn of(state: &StateDir) -> Result<Self, VerbError> {
        let path = state.path.canonicalize().map_err(VerbError::file(&state.path))?;
        let inode = path.metadata().map_err(VerbError::file(&path))?.ino();
        Ok(Self { path, inode })
    }

    /// `None` where nothing was started, or only by a program that saved none.
    fn read(state: &StateDir) -> Option<Self> {
        let bytes = std::fs::read(state.path.join(SAVED)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn is_copy_of(&self, saved: &Self) -> bool {
        self.path != saved.path && self.inode != saved.inode
    }
}

/// Refuses a copy of another state folder, unless its cluster has `moved` here and runs there no more.
pub fn refuse_copy(state: &StateDir, moved: bool) -> Result<(), VerbError> {
    let (this, saved) = (FolderIdentity::of(state)?, FolderIdentity::read(state));
    let Some(original) = saved.filter(|saved| this.is_copy_of(saved)) else { return Ok(()) };
    let (here, there) = (this.path.display(), original.path.display());
    let has_lock = original.path.join(server_lock::FILE).exists();
    if moved && has_lock && !server_lock::is_free(&original.path) {
        let text = format!(
            "{here} is a copy of {there}, and a server runs there: stop it first, with `sluice down --state {there}`"
        );
        return Err(VerbError::Message(text));
    }
    if moved {
        return Ok(());
    }
    Err(VerbError::Message(format!(
        "{here} is a copy of {there}, and the same cluster in two folders would run its jobs twice: \
         start it with --moved if that folder is not used again, or use another folder"
    )))
}

/// Saves which folder this is, for the next start.
pub fn save(state: &StateDir) -> Result<(), VerbError> {
    let this = FolderIdentity::of(state)?;
    if FolderIdentity::read(state).is_some_and(|saved| saved == this) {
        return Ok(());
    }
    let file = state.path.join(SAVED);
    let text = serde_json::to_string(&this)
        .map_err(|error| VerbError::Message(format!("{}: {error}", file.display())))?;
    let written = state.trusted()?.replace(SAVED, 0o644, text.as_bytes());
    written.map_err(VerbError::file(&file))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_with_another_path_and_another_inode_is_a_copy() {
        let identity = |path: &str, inode| FolderIdentity { path: path.into(), inode };
        let saved = identity("/srv/one", 7);
        for (this, is_copy) in [
            (identity("/srv/one", 7), false),
            (identity("/srv/renamed", 7), false),
            (identity("/srv/one", 8), false),
            (identity("/srv/two", 8), true),
        ] {
            assert_eq!(this.is_copy_of(&saved), is_copy, "{this:?}");
        }
    }
}

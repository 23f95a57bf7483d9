//! Which folder a state folder is: its path, its inode and its machine, saved in it at each start. A folder with another inode that
//! has another path, or is on another machine, is a copy. The same cluster twice would run its jobs twice, so a copy is not
//! started until it is said that the cluster has moved there.
//!
//! A folder that was renamed, whose disk is in another machine now, or whose machine was installed anew keeps its inode; one that
//! was put back from a backup of the disk, or is mounted anew, its path and machine: all of these are the folder itself. A machine
//! without an id, as a container may be, is told from no other, and a clone of a whole disk not from its original: the server says
//! it of two agents (`server/agents/receive.rs`).

use super::state_dir::StateDir;
use crate::client::server_lock;
use crate::command::verb::VerbError;
use ring::digest::{SHA256, digest};
use serde::{Deserialize, Serialize};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

const SAVED: &str = "folder.json";
/// The id of this installation of an operating system, in 32 hexadecimal digits.
const MACHINE_ID: &str = "/etc/machine-id";
const MACHINE_ID_DIGITS: usize = 32;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FolderIdentity {
    path: PathBuf,
    inode: u64,
    /// The digest of the machine's id; `None` where it has none, or an earlier version saved none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    machine: Option<String>,
}

impl FolderIdentity {
    fn of(state: &StateDir) -> Result<Self, VerbError> {
        let path = state.path.canonicalize().map_err(VerbError::file(&state.path))?;
        let inode = path.metadata().map_err(VerbError::file(&path))?.ino();
        let id = std::fs::read_to_string(MACHINE_ID).unwrap_or_default();
        Ok(Self { path, inode, machine: machine_digest(&id) })
    }

    /// `None` where nothing was started, or only by a program that saved none.
    fn read(state: &StateDir) -> Option<Self> {
        let bytes = std::fs::read(state.path.join(SAVED)).ok()?;
        serde_json::from_slice(&bytes).ok()
    }

    fn is_copy_of(&self, saved: &Self) -> bool {
        self.inode != saved.inode && (self.path != saved.path || self.is_on_another_machine(saved))
    }

    fn is_on_another_machine(&self, saved: &Self) -> bool {
        matches!((&self.machine, &saved.machine), (Some(this), Some(that)) if this != that)
    }
}

/// The digest of a machine's id: the id itself is the machine's own secret. `None` for a file that holds no id, as that of an
/// image which gets one at its first boot.
fn machine_digest(text: &str) -> Option<String> {
    let id = text.trim();
    let is_id = id.len() == MACHINE_ID_DIGITS && id.bytes().all(|b| b.is_ascii_hexdigit());
    is_id.then(|| {
        let digest = digest(&SHA256, format!("sluice state folder {id}").as_bytes());
        digest.as_ref().iter().take(16).map(|byte| format!("{byte:02x}")).collect()
    })
}

/// Refuses a copy of another state folder, unless its cluster has `moved` here and runs there no more. `verb` is the command that
/// is refused.
pub fn refuse_copy(state: &StateDir, moved: bool, verb: &str) -> Result<(), VerbError> {
    let (this, saved) = (FolderIdentity::of(state)?, FolderIdentity::read(state));
    let Some(original) = saved.filter(|saved| this.is_copy_of(saved)) else { return Ok(()) };
    let (here, there) = (this.path.display(), original.path.display());
    let is_elsewhere = this.is_on_another_machine(&original);
    if moved && !is_elsewhere && is_served(&original.path) {
        let text = format!(
            "{here} is a copy of {there}, and a server runs there: stop it first, with `sluice down --state {there}`"
        );
        return Err(VerbError::Message(text));
    }
    if moved {
        return Ok(());
    }
    let place = if is_elsewhere { " of another machine" } else { "" };
    Err(VerbError::Message(format!(
        "{here} is a copy of {there}{place}, and the same cluster in two folders would run its jobs twice: \
         start it with --moved if that folder is not used again (`sluice {verb} --state {here} --moved`), or use another folder"
    )))
}

/// Whether a server runs in a folder of this machine.
fn is_served(folder: &Path) -> bool {
    folder.join(server_lock::FILE).exists() && !server_lock::is_free(folder)
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

    fn identity(path: &str, inode: u64, machine: Option<&str>) -> FolderIdentity {
        FolderIdentity { path: path.into(), inode, machine: machine.map(str::to_owned) }
    }

    #[test]
    fn folder_with_another_path_and_another_inode_is_a_copy() {
        let saved = identity("/srv/one", 7, None);
        for (this, is_copy) in [
            (identity("/srv/one", 7, None), false),
            (identity("/srv/renamed", 7, None), false),
            (identity("/srv/one", 8, None), false),
            (identity("/srv/two", 8, None), true),
        ] {
            assert_eq!(this.is_copy_of(&saved), is_copy, "{this:?}");
        }
    }

    #[test]
    fn folder_at_its_path_on_another_machine_is_a_copy_where_both_machines_are_known() {
        let saved = identity("/srv/one", 7, Some("a"));
        for (this, is_copy) in [
            (identity("/srv/one", 8, Some("b")), true),
            // Put back, or mounted anew, on its machine.
            (identity("/srv/one", 8, Some("a")), false),
            // The machine was installed anew, or its disk is in another one now.
            (identity("/srv/one", 7, Some("b")), false),
            // A container without an id.
            (identity("/srv/one", 8, None), false),
        ] {
            assert_eq!(this.is_copy_of(&saved), is_copy, "{this:?}");
        }
        let of_before = identity("/srv/one", 7, None);
        assert!(!identity("/srv/one", 8, Some("b")).is_copy_of(&of_before));
    }

    #[test]
    fn machine_is_known_by_a_whole_id_and_the_id_is_not_saved() {
        let id = "0123456789abcdef0123456789abcdef";
        let digest = machine_digest(&format!("{id}\n")).expect("an id");
        assert!(!digest.contains(id) && digest.len() == 32, "{digest}");
        assert_eq!(machine_digest(id), Some(digest), "the same each time");
        for text in ["", "\n", "uninitialized\n", "0123", &format!("{id}0")] {
            assert_eq!(machine_digest(text), None, "{text:?}");
        }
    }

    #[test]
    fn folder_that_an_earlier_version_saved_is_read() {
        let saved: FolderIdentity =
            serde_json::from_str(r#"{"path":"/srv/one","inode":7}"#).expect("read");
        assert_eq!(saved, identity("/srv/one", 7, None));
    }
}

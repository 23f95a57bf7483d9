//! Whether the state folder that a process runs in is still at its path. A server or an agent whose folder was removed, moved or
//! replaced ends by itself: nobody finds its socket any more, what it writes is lost, and started again it would be an empty
//! cluster in the place of the one that was there.

use super::state_dir::StateDir;
use crate::command::verb::VerbError;
use ::agent::trusted_dir::TrustedDir;
use nix::sys::stat::fstat;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::time::Duration;

/// The exit code of a process whose state folder is gone. No keeper starts it again, nor the server's service.
pub const FOLDER_GONE: i32 = 72;

const LOOK_INTERVAL: Duration = Duration::from_secs(1);

/// How many looks in a row must find the folder gone: one that was moved aside and back at once, or that a file server did not find for a
/// moment, is there.
const GONE_LOOKS: u32 = 3;

/// The state folder, held open from before root is given up.
pub struct OpenFolder {
    folder: TrustedDir,
}

impl OpenFolder {
    pub fn of(state: &StateDir) -> Result<Self, VerbError> {
        state.trusted().map(|folder| Self { folder })
    }

    /// Whether the folder was removed, or its path leads nowhere or to another. Where this user may not pass the path, a folder
    /// without a link is a removed one; elsewhere the links tell nothing, as some file systems count none. Nor does another error.
    pub fn is_gone(&self) -> bool {
        let Ok(held) = fstat(&self.folder) else { return false };
        match std::fs::metadata(self.folder.path()) {
            Ok(there) => (there.dev(), there.ino()) != (held.st_dev, held.st_ino),
            Err(error) => match error.kind() {
                ErrorKind::NotFound => true,
                ErrorKind::PermissionDenied => held.st_nlink == 0,
                _ => false,
            },
        }
    }

    /// The line of a process that ends; `of` is its name.
    pub fn tell_gone(&self, of: &str) {
        let path = self.folder.path().display();
        tracing::error!(
            "the state folder {path} was removed or replaced while the {of} ran: the {of} ends"
        );
    }

    /// Ends this process when the folder is gone. The caller forks no more: this is a thread beside it.
    pub fn watch(self, of: &'static str) -> Result<(), VerbError> {
        let named = std::thread::Builder::new().name("folder-watch".to_owned());
        let watch = named.spawn(move || self.end_when_gone(of)).map(drop);
        watch.map_err(VerbError::file("the watch of the state folder"))
    }

    fn end_when_gone(&self, of: &str) {
        let mut gone_looks = 0;
        while gone_looks < GONE_LOOKS {
            std::thread::sleep(LOOK_INTERVAL);
            gone_looks = if self.is_gone() { gone_looks + 1 } else { 0 };
        }
        self.tell_gone(of);
        std::process::exit(FOLDER_GONE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn opened(parent: &tempfile::TempDir) -> (StateDir, OpenFolder) {
        let path = parent.path().canonicalize().expect("a path").join("state");
        std::fs::create_dir(&path).expect("a folder");
        let state = StateDir::open(&path);
        let folder = OpenFolder::of(&state).expect("it opens");
        (state, folder)
    }

    #[test]
    fn folder_that_was_removed_moved_or_replaced_is_gone() {
        let parent = tempfile::tempdir().expect("a folder");
        let (state, folder) = opened(&parent);
        assert!(!folder.is_gone());
        let aside = parent.path().join("aside");
        std::fs::rename(&state.path, &aside).expect("moved");
        assert!(folder.is_gone(), "nothing is at its path");
        std::fs::create_dir(&state.path).expect("another folder");
        assert!(folder.is_gone(), "another is at its path");
        std::fs::remove_dir(&state.path).expect("removed");
        std::fs::rename(&aside, &state.path).expect("moved back");
        assert!(!folder.is_gone(), "it is there again");
        std::fs::remove_dir(&state.path).expect("removed");
        assert!(folder.is_gone());
    }
}

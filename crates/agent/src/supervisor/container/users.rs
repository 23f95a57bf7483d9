//! The users of a named container: each process in it holds a shared lock on a file for as long as it lives. The holder
//! waits for the exclusive lock, so the container ends with its last user and not with the step that made it.

use super::holder::Holder;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, FdFlag, Flock, FlockArg, fcntl};
use std::fs::{self, File, OpenOptions};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

const FILE: &str = "users";

/// The lock of one user. It is released when the last process that has it open ends.
pub(super) struct Users {
    lock: Flock<File>,
    path: PathBuf,
}

impl Users {
    /// Takes the lock in the container's folder, whose own lock the caller holds. Returns whether the container of
    /// `holder` has other users; if it has none, it is ended, and a new one can be made.
    pub fn join(folder: &Path, holder: Option<&Holder>) -> Result<(Users, bool), String> {
        let path = folder.join(FILE);
        let failed = |e: std::io::Error| format!("{}: {e}", path.display());
        if let Some(holder) = holder
            && let Ok(file) = OpenOptions::new().read(true).write(true).open(&path)
        {
            match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                // Nobody uses it. The holder may not have noticed yet.
                Ok(_) => holder.end(),
                Err((file, Errno::EWOULDBLOCK)) => {
                    let lock = Flock::lock(file, FlockArg::LockShared);
                    let lock = lock.map_err(|(_, e)| failed(e.into()))?;
                    let has_ended = lock.metadata().map_err(failed)?.len() > 0;
                    if !has_ended && holder.is_alive() {
                        return Ok((Users { lock, path }, true));
                    }
                    holder.end();
                }
                Err((_, errno)) => return Err(failed(errno.into())),
            }
        }
        // A file of its own for each holder: it may say already that the one before has ended.
        if let Err(error) = fs::remove_file(&path)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(failed(error));
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create_new(true).mode(0o600);
        let file = options.open(&path).map_err(failed)?;
        let lock = Flock::lock(file, FlockArg::LockShared).map_err(|(_, e)| failed(e.into()))?;
        Ok((Users { lock, path }, false))
    }

    /// The file as the holder has it open: a lock through it is the holder's own.
    pub fn for_holder(&self) -> Result<OwnedFd, String> {
        let file = OpenOptions::new().read(true).write(true).open(&self.path);
        file.map(OwnedFd::from).map_err(|e| format!("{}: {e}", self.path.display()))
    }

    /// Keeps the lock over an `exec`. No program of the user may get it: called just before the runtime is executed,
    /// which gives nothing that it has open to the container.
    pub fn keep_over_exec(&self) -> nix::Result<()> {
        fcntl(&*self.lock, FcntlArg::F_SETFD(FdFlag::empty())).map(drop)
    }
}

impl AsFd for Users {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.lock.as_fd()
    }
}

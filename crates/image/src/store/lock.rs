//! Locks between processes: `flock` on a file, which the kernel gives back when its holder dies.

use std::fs::{File, OpenOptions};
use std::io::{Seek, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::{Error, Result};

/// How often a lock that another process holds is asked for again. Waiting in the kernel could not tell the waiter's
/// progress, and two pulls that share layers could wait for each other.
pub const POLL: Duration = Duration::from_millis(40);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    Shared,
    Exclusive,
}

/// A lock that is held until it is dropped. A process that forks keeps it for as long as either lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock if nobody stands in the way.
    pub fn try_take(path: &Path, mode: Mode) -> Result<Option<Self>> {
        loop {
            let file = OpenOptions::new()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600)
                .open(path)
                .map_err(Error::at(path))?;
            if !flock(&file, mode, false).map_err(Error::at(path))? {
                return Ok(None);
            }
            // A file that was removed after it was opened locks nothing.
            let held = file.metadata().map_err(Error::at(path))?;
            let there = std::fs::symlink_metadata(path);
            if there.is_ok_and(|there| (there.dev(), there.ino()) == (held.dev(), held.ino())) {
                return Ok(Some(Self { file, path: path.to_owned() }));
            }
        }
    }

    /// Waits for the lock; `waiting` is called at every turn.
    pub fn take(path: &Path, mode: Mode, mut waiting: impl FnMut()) -> Result<Self> {
        loop {
            if let Some(lock) = Self::try_take(path, mode)? {
                return Ok(lock);
            }
            waiting();
            std::thread::sleep(POLL);
        }
    }

    /// From exclusive to shared: nobody can take it exclusively in between who could not have before.
    pub fn downgrade(self) -> Result<Self> {
        flock(&self.file, Mode::Shared, true).map_err(Error::at(&self.path))?;
        Ok(self)
    }

    /// Says that what the lock stands for was used now.
    pub fn touch(&self) -> Result<()> {
        self.file.set_modified(std::time::SystemTime::now()).map_err(Error::at(&self.path))
    }

    /// Removes the lock's file, which must be held exclusively.
    pub fn remove(self) {
        let _ = std::fs::remove_file(&self.path);
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Writes this text instead of what is in the lock's file.
    pub fn write(&mut self, text: &str) -> Result<()> {
        let file = &mut self.file;
        let written = file
            .set_len(0)
            .and_then(|()| file.rewind())
            .and_then(|()| file.write_all(text.as_bytes()));
        written.map_err(Error::at(&self.path))
    }

    pub fn file(&mut self) -> &mut File {
        &mut self.file
    }
}

impl AsFd for Lock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl From<Lock> for OwnedFd {
    fn from(lock: Lock) -> Self {
        lock.file.into()
    }
}

/// Returns whether the lock was got; waits for it only when asked to.
fn flock(file: &File, mode: Mode, wait: bool) -> std::io::Result<bool> {
    let kind = if mode == Mode::Shared { libc::LOCK_SH } else { libc::LOCK_EX };
    let operation = if wait { kind } else { kind | libc::LOCK_NB };
    loop {
        // SAFETY: the descriptor is open for as long as `file` is borrowed.
        if unsafe { libc::flock(file.as_raw_fd(), operation) } == 0 {
            return Ok(true);
        }
        let error = std::io::Error::last_os_error();
        match error.raw_os_error() {
            Some(libc::EWOULDBLOCK) => return Ok(false),
            Some(libc::EINTR) => {}
            _ => return Err(error),
        }
    }
}

//! Waits for a v2 group to change: `cgroup.events` wakes a poll when the group becomes empty or frozen.

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};

use super::dir::{GroupDir, keyed_value};
use super::error::CgroupError;

/// A descriptor to poll for `POLLPRI`. After each wake, [`EmptyWatch::is_empty`] reads the state and arms it again.
pub struct EmptyWatch {
    events: File,
    path: String,
}

impl EmptyWatch {
    pub(super) fn open(dir: &GroupDir) -> Result<EmptyWatch, CgroupError> {
        let events = File::from(dir.open_file("cgroup.events", OFlag::O_RDONLY)?);
        let watch = EmptyWatch { events, path: dir.file_path("cgroup.events") };
        // The kernel wakes only a descriptor that has been read once.
        watch.is_empty()?;
        Ok(watch)
    }

    /// No process is in the group or below it. A group that was removed is empty.
    pub fn is_empty(&self) -> Result<bool, CgroupError> {
        Ok(self.state("populated")?.unwrap_or(0) == 0)
    }

    /// The group was removed from outside: nothing will ever change there.
    pub fn is_gone(&self) -> bool {
        matches!(self.state("populated"), Ok(None))
    }

    pub(super) fn is_frozen(&self) -> Result<bool, CgroupError> {
        Ok(self.state("frozen")?.unwrap_or(0) == 1)
    }

    fn state(&self, key: &str) -> Result<Option<u64>, CgroupError> {
        let mut buffer = [0_u8; 256];
        match self.events.read_at(&mut buffer, 0) {
            Ok(length) => Ok(std::str::from_utf8(&buffer[..length])
                .ok()
                .and_then(|text| keyed_value(text, key))),
            Err(error) if error.raw_os_error() == Some(Errno::ENODEV as i32) => Ok(None),
            Err(source) => Err(CgroupError::io("read", self.path.as_str(), source)),
        }
    }

    /// Sleeps until the group changes or `limit` has passed.
    pub(super) fn wait(&self, limit: Duration) {
        let millis = i32::try_from(limit.as_millis().max(1)).unwrap_or(i32::MAX);
        let timeout = PollTimeout::try_from(millis).unwrap_or(PollTimeout::MAX);
        let mut fds = [PollFd::new(self.events.as_fd(), PollFlags::POLLPRI)];
        // An interrupted wait is a shorter one: the caller checks again and has its own deadline.
        let _ = poll(&mut fds, timeout);
    }
}

impl AsFd for EmptyWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.events.as_fd()
    }
}

//! What a supervisor leaves for an agent that is not there, in room that was set aside before anything was started.
//!
//! Two files of equal size are written when the attempt's folder is made, and from then on take turns: the new status
//! is written over the spare one, and the two change names. So an end can be written on a disk that has filled up.

use super::{AttemptDir, STATUS, STATUS_NEW};
use crate::error::AgentError;
use model::time::Timestamp;
use nix::errno::Errno;
use nix::fcntl::{OFlag, RenameFlags, openat, renameat, renameat2};
use nix::sys::stat::Mode;
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Write};
use wire::report::ReportEvent;
use wire::supervisor::SupervisorEvent;

/// Room for an attempt's end, and for those of about a dozen steps: one block of most file systems.
pub(super) const RESERVE_BYTES: usize = 4096;

/// Every event that no agent has taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatusFile {
    pub version: u32,
    pub at: Timestamp,
    pub events: Vec<SupervisorEvent>,
}

impl StatusFile {
    /// The same without its oldest step's end; none if there is no step's end in it.
    fn shorter(mut self) -> Option<StatusFile> {
        let is_step = |e: &SupervisorEvent| matches!(e.event, ReportEvent::StepEnded { .. });
        let oldest = self.events.iter().position(is_step)?;
        self.events.remove(oldest);
        Some(self)
    }
}

impl AttemptDir {
    /// Sets room aside: fails where there is none, before anything is started.
    pub(super) fn reserve_status(&self) -> io::Result<()> {
        let blank = [b' '; RESERVE_BYTES];
        [STATUS, STATUS_NEW]
            .into_iter()
            .try_for_each(|name| self.make(name, 0o600).and_then(|mut file| file.write_all(&blank)))
    }

    /// `None` while the supervisor has written none.
    pub fn read_status(&self) -> Result<Option<StatusFile>, AgentError> {
        self.read_json(STATUS)
    }

    /// Replaces the status as a whole: a reader sees the old one or the new one. Where the disk has no more room than
    /// was set aside, the oldest ends of steps give way: the attempt's own end says what matters.
    pub fn write_status(&self, status: &StatusFile) -> Result<(), AgentError> {
        let failed = |e| AgentError::file("write", self.path.join(STATUS), e);
        let mut bytes = encoded(status).map_err(failed)?;
        let mut kept = status.clone();
        loop {
            match self.replace_status(&bytes) {
                Err(e) if is_full(&e) && bytes.len() > RESERVE_BYTES => {}
                written => return written.map_err(failed),
            }
            while bytes.len() > RESERVE_BYTES {
                let Some(shorter) = kept.shorter() else {
                    return Err(failed(Errno::ENOSPC.into()));
                };
                kept = shorter;
                bytes = encoded(&kept).map_err(failed)?;
            }
        }
    }

    fn replace_status(&self, bytes: &[u8]) -> io::Result<()> {
        // Not cut off first: that would give the room away.
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, STATUS_NEW, flags, Mode::from_bits_truncate(0o600))?;
        let mut file = File::from(fd);
        file.write_all(bytes)?;
        file.set_len(bytes.len() as u64)?;
        let swapped =
            renameat2(&self.fd, STATUS_NEW, &self.fd, STATUS, RenameFlags::RENAME_EXCHANGE);
        match swapped {
            // A file system that cannot swap; or a folder from before the room was set aside.
            Err(Errno::EINVAL | Errno::ENOSYS | Errno::ENOENT) => {
                Ok(renameat(&self.fd, STATUS_NEW, &self.fd, STATUS)?)
            }
            swapped => Ok(swapped?),
        }
    }
}

/// As JSON, filled up with blanks: a file keeps all the room that it has.
fn encoded(status: &StatusFile) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(status)?;
    bytes.resize(bytes.len().max(RESERVE_BYTES), b' ');
    Ok(bytes)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

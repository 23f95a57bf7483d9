//! What a supervisor leaves for an agent that is not there, in room that was set aside before anything was started.
//!
//! The file is written when the attempt's folder is made, with two slots of equal size that take turns: a new status
//! goes over the older one. So an end can be written on a disk that has filled up. What does not fit has a file of its own.

use super::attempt_dir::{AttemptDir, STATUS, STATUS_LONG, STATUS_NEW};
use crate::error::AgentError;
use model::time::Timestamp;
use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};
use serde::{Deserialize, Serialize};
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use wire::report::ReportEvent;
use wire::supervisor::SupervisorEvent;

/// Room for an attempt's end, and for those of about a dozen steps: one block of most file systems.
pub(super) const RESERVE_BYTES: usize = 4096;
const SLOTS: usize = 2;

/// Every event that no agent has taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatusFile {
    pub version: u32,
    pub at: Timestamp,
    pub events: Vec<SupervisorEvent>,
}

/// What its one writer remembers of the file: how many statuses were written, and how many of them into a slot.
#[derive(Debug, Default)]
pub(crate) struct Slots {
    turn: u64,
    used: u64,
}

impl Slots {
    /// The slot with the older status.
    fn next(&mut self) -> u64 {
        self.used += 1;
        (self.used - 1) % SLOTS as u64
    }
}

/// A status as it is on disk: which of several is the newest, the turn says.
#[derive(Serialize, Deserialize)]
struct NumberedStatus<S> {
    turn: u64,
    status: S,
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
        let blank = [b' '; SLOTS * RESERVE_BYTES];
        self.make(STATUS, 0o600).and_then(|mut file| file.write_all(&blank))
    }

    /// `None` while the supervisor has written none.
    pub fn read_status(&self) -> Result<Option<StatusFile>, AgentError> {
        let failed = |e| AgentError::file("read", self.path.join(STATUS), e);
        let parts = self.parts().map_err(failed)?;
        let newest = parts.iter().filter_map(|part| parsed(part)).max_by_key(|turn| turn.turn);
        if newest.is_none()
            // The version before wrote one status, without a turn.
            && let Ok(status) = serde_json::from_slice(&parts[..SLOTS].concat())
        {
            return Ok(Some(status));
        }
        let blank = parts.iter().flatten().all(u8::is_ascii_whitespace);
        match newest {
            None if !blank => Err(AgentError::Content {
                path: self.path.join(STATUS).display().to_string(),
                reason: "nothing in it is a status".into(),
            }),
            newest => Ok(newest.map(|turn| turn.status)),
        }
    }

    /// The slots, and what did not fit into one.
    fn parts(&self) -> io::Result<[Vec<u8>; SLOTS + 1]> {
        let mut first = self.read_whole(STATUS)?;
        let second = first.split_off(first.len().min(RESERVE_BYTES));
        Ok([first, second, self.read_whole(STATUS_LONG)?])
    }

    fn read_whole(&self, name: &str) -> io::Result<Vec<u8>> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let mut bytes = Vec::new();
        match openat(&self.fd, name, flags, Mode::empty()) {
            Ok(fd) => File::from(fd).read_to_end(&mut bytes).map(|_| bytes),
            Err(Errno::ENOENT) => Ok(bytes),
            Err(e) => Err(e.into()),
        }
    }

    /// Replaces the status as a whole: a reader sees the old one or the new one. Where the disk has no more room than
    /// was set aside, the oldest ends of steps give way: the attempt's own end says what matters.
    pub fn write_status(&self, status: &StatusFile, slots: &mut Slots) -> Result<(), AgentError> {
        let failed = |e| AgentError::file("write", self.path.join(STATUS), e);
        slots.turn += 1;
        let turn = slots.turn;
        let mut bytes = encoded(turn, status).map_err(failed)?;
        let mut kept = status.clone();
        loop {
            let written = match bytes.len() > RESERVE_BYTES {
                true => self.write_long(&bytes),
                false => self.write_slot(slots.next(), &bytes),
            };
            match written {
                Err(e) if is_full(&e) && bytes.len() > RESERVE_BYTES => {}
                written => return written.map_err(failed),
            }
            while bytes.len() > RESERVE_BYTES {
                let Some(shorter) = kept.shorter() else {
                    return Err(failed(Errno::ENOSPC.into()));
                };
                kept = shorter;
                bytes = encoded(turn, &kept).map_err(failed)?;
            }
        }
    }

    /// One write of a block is there whole or not at all for whoever lives on.
    fn write_slot(&self, slot: u64, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let file = File::from(openat(&self.fd, STATUS, flags, Mode::from_bits_truncate(0o600))?);
        file.write_all_at(bytes, slot * RESERVE_BYTES as u64)
    }

    /// Beside the slots, which keep their room.
    fn write_long(&self, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, STATUS_NEW, flags, Mode::from_bits_truncate(0o600))?;
        let written = File::from(fd).write_all(bytes);
        if written.is_err() {
            // Half of it has the room that the next needs.
            let _ = unlinkat(&self.fd, STATUS_NEW, UnlinkatFlags::NoRemoveDir);
        }
        written?;
        Ok(renameat(&self.fd, STATUS_NEW, &self.fd, STATUS_LONG)?)
    }
}

fn parsed(bytes: &[u8]) -> Option<NumberedStatus<StatusFile>> {
    serde_json::from_slice(bytes).ok()
}

/// As JSON, filled up with blanks: a file keeps all the room that it has.
fn encoded(turn: u64, status: &StatusFile) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(&NumberedStatus { turn, status })?;
    bytes.resize(bytes.len().max(RESERVE_BYTES), b' ');
    Ok(bytes)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

//! The status that a supervisor leaves for a later agent, in space that is reserved before the job starts.
//!
//! The file has two slots of equal size: a new status overwrites the older one. So the end can be written to a full
//! disk. A status that does not fit is written to a file of its own.

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

/// The size of a slot: enough for an attempt's end and the ends of about a dozen steps, and one block of most file
/// systems.
pub(super) const RESERVE_BYTES: usize = 4096;
const SLOTS: usize = 2;

/// Every event that no agent has taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StatusFile {
    pub version: u32,
    pub at: Timestamp,
    pub events: Vec<SupervisorEvent>,
}

/// The writer's counts: of all statuses written, and of those written into a slot.
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

/// A status as stored: the highest turn is the newest.
#[derive(Serialize, Deserialize)]
struct NumberedStatus<S> {
    turn: u64,
    status: S,
}

impl StatusFile {
    /// The status without its oldest step's end; `None` if it has none.
    fn shorter(mut self) -> Option<StatusFile> {
        let is_step = |e: &SupervisorEvent| matches!(e.event, ReportEvent::StepEnded { .. });
        let oldest = self.events.iter().position(is_step)?;
        self.events.remove(oldest);
        Some(self)
    }
}

impl AttemptDir {
    /// Reserves the space. Fails on a full disk, before the job starts.
    pub(super) fn reserve_status(&self) -> io::Result<()> {
        let blank = [b' '; SLOTS * RESERVE_BYTES];
        self.make(STATUS, 0o600).and_then(|mut file| file.write_all(&blank))
    }

    /// Reads the newest status; `None` if the supervisor has written none.
    pub fn read_status(&self) -> Result<Option<StatusFile>, AgentError> {
        let failed = |e| AgentError::file("read", self.path.join(STATUS), e);
        let parts = self.parts().map_err(failed)?;
        let newest = parts.iter().filter_map(|part| parsed(part)).max_by_key(|turn| turn.turn);
        if newest.is_none()
            // The previous version wrote a single status without a turn.
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

    /// The contents of the slots and of the long file.
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

    /// Replaces the status: a reader sees the old one or the new one. On a full disk the oldest ends of steps are
    /// dropped until it fits its slot: the attempt's own end matters more.
    pub fn write_status(&self, status: &StatusFile, slots: &mut Slots) -> Result<(), AgentError> {
        let failed = |e| AgentError::file("write", self.path.join(STATUS), e);
        slots.turn += 1;
        let turn = slots.turn;
        let mut bytes = encoded(turn, status).map_err(failed)?;
        let mut kept = status.clone();
        loop {
            let written = if bytes.len() > RESERVE_BYTES {
                self.write_long(&bytes)
            } else {
                self.write_slot(slots.next(), &bytes)
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

    /// Writes one slot. A write of one block is complete or absent for a later reader.
    fn write_slot(&self, slot: u64, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let file = File::from(openat(&self.fd, STATUS, flags, Mode::from_bits_truncate(0o600))?);
        file.write_all_at(bytes, slot * RESERVE_BYTES as u64)
    }

    /// Writes a file of its own; the slots keep their space.
    fn write_long(&self, bytes: &[u8]) -> io::Result<()> {
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_TRUNC | OFlag::O_CLOEXEC;
        let fd = openat(&self.fd, STATUS_NEW, flags, Mode::from_bits_truncate(0o600))?;
        let written = File::from(fd).write_all(bytes);
        if written.is_err() {
            // An incomplete file would take the space that the next try needs.
            let _ = unlinkat(&self.fd, STATUS_NEW, UnlinkatFlags::NoRemoveDir);
        }
        written?;
        Ok(renameat(&self.fd, STATUS_NEW, &self.fd, STATUS_LONG)?)
    }
}

fn parsed(bytes: &[u8]) -> Option<NumberedStatus<StatusFile>> {
    serde_json::from_slice(bytes).ok()
}

/// Encodes as JSON, padded with blanks to the size of a slot.
fn encoded(turn: u64, status: &StatusFile) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(&NumberedStatus { turn, status })?;
    bytes.resize(bytes.len().max(RESERVE_BYTES), b' ');
    Ok(bytes)
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

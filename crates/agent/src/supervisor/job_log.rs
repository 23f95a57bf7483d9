//! The log of a job without an output file, bounded while the job runs.
//!
//! The job writes to a pipe and the supervisor to the file, so the file is never larger than its bounds, however fast the
//! job writes. The first bytes are kept for the server. Behind them the newest are kept for those who follow the log, and
//! the space of older ones is given back: positions in the file are positions in the output.

use crate::error::AgentError;
use crate::spool::AttemptDir;
use crate::supervisor::process::pipe::{pipe, set_nonblocking};
use model::bounds;
use nix::fcntl::{FallocateFlags, fallocate};
use std::fs::File;
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use wire::order::UserIds;

/// What one round of the supervisor takes from the pipe.
const READ_BYTES: usize = 64 << 10;

/// What a pipe can hold at most, unless root has set another bound: taken at the end.
const PIPE_BYTES_MAX: usize = 1 << 20;

/// How much of a log is on the disk.
#[derive(Debug, Clone, Copy)]
struct Bounds {
    /// The first bytes, which are never given back.
    first: u64,
    /// The newest, at least so many and at most twice.
    newest: u64,
}

const BOUNDS: Bounds = Bounds { first: bounds::LOG_BYTES.most as u64, newest: 4 << 20 };

const FULL: &str = "\n[sluice: the log has reached its bound; what follows is shown while the job runs, and is not kept]\n";
const STOPPED: &str = "\n[sluice: what follows is dropped]\n";

pub(super) struct JobLog {
    file: File,
    bounds: Bounds,
    len: u64,
    /// Up to where space was given back.
    given_back: u64,
    /// Output that could not be written and was not yet spoken of.
    lost: u64,
    /// The file system cannot give space back: nothing more is written.
    stopped: bool,
    buffer: Vec<u8>,
    /// `None` when no writer is left.
    pipe: Option<File>,
    /// The job's end, until the job is started.
    pub job_end: Option<OwnedFd>,
}

impl JobLog {
    pub fn make(dir: &AttemptDir, user: &UserIds) -> Result<JobLog, AgentError> {
        let failed = |e: nix::Error| AgentError::file("open", "the pipe of the job's log", e);
        let (read, write) = pipe(user).map_err(failed)?;
        set_nonblocking(&read).map_err(failed)?;
        Ok(JobLog {
            pipe: Some(File::from(read)),
            job_end: Some(write),
            ..JobLog::new(dir.make_log()?, BOUNDS)
        })
    }

    fn new(file: File, bounds: Bounds) -> JobLog {
        JobLog {
            file,
            bounds,
            len: 0,
            given_back: bounds.first,
            lost: 0,
            stopped: false,
            buffer: vec![0; READ_BYTES],
            pipe: None,
            job_end: None,
        }
    }

    pub fn pipe(&self) -> Option<BorrowedFd<'_>> {
        self.pipe.as_ref().map(AsFd::as_fd)
    }

    /// Takes what the job has written, a bounded part of it. Returns how much that was.
    pub fn carry(&mut self) -> usize {
        let Some(pipe) = &mut self.pipe else { return 0 };
        let read = match pipe.read(&mut self.buffer) {
            Ok(0) => {
                self.pipe = None;
                return 0;
            }
            Ok(read) => read,
            Err(error) if error.kind() == ErrorKind::Interrupted => return 0,
            Err(error) if error.kind() == ErrorKind::WouldBlock => return 0,
            Err(_) => {
                self.pipe = None;
                return 0;
            }
        };
        let buffer = std::mem::take(&mut self.buffer);
        self.append(&buffer[..read]);
        self.buffer = buffer;
        read
    }

    /// Takes all that is in the pipe.
    pub fn drain(&mut self) {
        let mut taken = 0;
        while taken <= PIPE_BYTES_MAX {
            match self.carry() {
                0 => return,
                read => taken += read,
            }
        }
    }

    /// Adds a line of the node's own, after all that the job has written.
    pub fn write_line(&mut self, line: &str) {
        self.drain();
        self.append(format!("{line}\n").as_bytes());
    }

    fn append(&mut self, bytes: &[u8]) {
        let before = self.bounds.first.saturating_sub(self.len);
        let (kept, newer) = bytes.split_at(bytes.len().min(before as usize));
        self.write(kept);
        if self.len == self.bounds.first && !newer.is_empty() {
            self.write(FULL.as_bytes());
        }
        self.write(newer);
        self.give_back();
    }

    /// Writes at the end; what the disk does not take is counted and spoken of when it takes something again.
    fn write(&mut self, bytes: &[u8]) {
        if self.stopped || bytes.is_empty() {
            return;
        }
        if self.lost > 0 {
            let said = format!("\n[sluice: {} bytes could not be written here]\n", self.lost);
            if self.file.write_all_at(said.as_bytes(), self.len).is_ok() {
                self.len += said.len() as u64;
                self.lost = 0;
            }
        }
        if self.lost == 0 && self.file.write_all_at(bytes, self.len).is_ok() {
            self.len += bytes.len() as u64;
        } else {
            self.lost += bytes.len() as u64;
        }
    }

    /// Gives back the space of what is neither among the first bytes nor among the newest.
    fn give_back(&mut self) {
        let Bounds { newest, .. } = self.bounds;
        if self.len < self.given_back + 2 * newest {
            return;
        }
        let until = (self.len - newest) / newest * newest;
        let punch = FallocateFlags::FALLOC_FL_PUNCH_HOLE | FallocateFlags::FALLOC_FL_KEEP_SIZE;
        let from = self.given_back as i64;
        match fallocate(&self.file, punch, from, until as i64 - from) {
            Ok(()) => self.given_back = until,
            Err(_) => {
                self.write(STOPPED.as_bytes());
                self.stopped = true;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt;

    const SMALL: Bounds = Bounds { first: 256 << 10, newest: 64 << 10 };

    #[test]
    fn log_on_the_disk_stays_within_its_bounds_and_keeps_its_first_and_newest_bytes() {
        let file = tempfile::tempfile().expect("a file");
        let mut log = JobLog::new(file.try_clone().expect("a copy"), SMALL);
        let mut written = 0;
        while written < 16 << 20 {
            let line = format!("{written:<4095}\n");
            log.append(line.as_bytes());
            written += line.len() as u64;
            let on_disk = file.metadata().expect("a log").blocks() * 512;
            assert!(on_disk <= SMALL.first + 2 * SMALL.newest + 8192, "{on_disk}");
        }
        let mut start = vec![0; SMALL.first as usize];
        file.read_exact_at(&mut start, 0).expect("the start");
        assert!(start.starts_with(b"0 ") && !start.contains(&0));
        let mut newest = vec![0; SMALL.newest as usize];
        file.read_exact_at(&mut newest, log.len - SMALL.newest).expect("the end");
        assert!(!newest.contains(&0));
        assert_eq!(log.len, written + FULL.len() as u64);
    }

    #[test]
    fn output_that_passes_the_bound_is_spoken_of_once() {
        let file = tempfile::tempfile().expect("a file");
        let mut log = JobLog::new(file.try_clone().expect("a copy"), SMALL);
        for _ in 0..40 {
            log.append(&[b'x'; 8 << 10]);
        }
        let mut all = String::new();
        let mut reader = &file;
        std::io::Seek::rewind(&mut reader).expect("rewound");
        reader.read_to_string(&mut all).expect("text");
        assert_eq!(all.find(FULL.trim()), Some(SMALL.first as usize + 1));
        assert_eq!(all.matches("sluice").count(), 1);
        assert_eq!(all.matches('x').count(), 40 * (8 << 10));
    }
}

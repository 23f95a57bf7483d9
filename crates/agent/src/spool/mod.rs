//! A node's spool: one folder for each attempt, from its accepted order until the server orders to forget it.
//!
//! `STATE/nodes/NAME/spool/JOB.ATTEMPT/` holds
//! - `launch.json`: the accepted order, for the supervisor, which claims the attempt by it (`claim`);
//! - `slurm_script`: the script, readable by its user only;
//! - `ctl.sock`: where the supervisor listens once it has lost its agent;
//! - `steps.sock`: where the supervisor takes streams to its steps, from the first step on;
//! - `status.json`: unreported events, written at the end and at stages that take time. Its space is reserved at the
//!   start, so that the end can be written to a full disk;
//! - `log`: the output of a job without an output file.
//!
//! Everything is reached through directory descriptors, so that no path that a user changes can redirect root.

mod attempt_dir;
mod claim;
mod launch_record;
mod status;

use crate::error::AgentError;
pub(crate) use attempt_dir::{AttemptDir, STEPS};
use attempt_dir::{DIRECTORY, FILES, LAUNCH, LOG, RARE_FILES};
pub(crate) use claim::{Claim, ClaimState, close_claim_in_child};
pub(crate) use launch_record::{LaunchRecord, group_name, site_group_names};
use model::id::{AttemptId, JobId};
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, fchmod, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
pub(crate) use status::{Slots, StatusFile};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub(crate) struct Spool {
    dir: OwnedFd,
    path: PathBuf,
    /// Logs of forgotten attempts, which `sluice logs` can still read.
    logs: OwnedFd,
}

/// Logs of forgotten attempts that are kept; those of the oldest jobs are removed first.
const LOGS_MAX: usize = 1000;

/// Folders that jobs pass through to their scripts, and that nobody but root lists.
const PASSABLE: Mode = Mode::from_bits_truncate(0o711);

impl Spool {
    /// Opens the spool of one node below the state folder, or makes it.
    pub fn open(state: &Path, node: &str) -> Result<Spool, AgentError> {
        let mut path = state.to_path_buf();
        let mut dir = open(&path, DIRECTORY.difference(OFlag::O_NOFOLLOW), Mode::empty())
            .map_err(|e| AgentError::file("open", &path, e))?;
        for part in ["nodes", node, "spool"] {
            path.push(part);
            match mkdirat(&dir, part, PASSABLE) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(e) => return Err(AgentError::file("make", &path, e)),
            }
            dir = openat(&dir, part, DIRECTORY, Mode::empty())
                .map_err(|e| AgentError::file("open", &path, e))?;
            // An earlier build let everybody list it.
            fchmod(&dir, PASSABLE).map_err(|e| AgentError::file("close", &path, e))?;
        }
        let logs = {
            let above = open(&state.join("nodes").join(node), DIRECTORY, Mode::empty())
                .map_err(|e| AgentError::file("open", &path, e))?;
            match mkdirat(&above, "logs", Mode::from_bits_truncate(0o700)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(e) => return Err(AgentError::file("make", path.join("../logs"), e)),
            }
            openat(&above, "logs", DIRECTORY, Mode::empty())
                .map_err(|e| AgentError::file("open", path.join("../logs"), e))?
        };
        Ok(Spool { dir, path, logs })
    }

    /// Opens the log of a forgotten attempt, if it is still kept.
    pub fn kept_log(&self, attempt: AttemptId) -> Option<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        openat(&self.logs, attempt.to_string().as_str(), flags, Mode::empty()).ok().map(File::from)
    }

    /// Moves a log out of a folder that is being removed, and removes the oldest logs.
    fn keep_log(&self, dir: &OwnedFd, attempt: AttemptId) -> nix::Result<()> {
        let name = attempt.to_string();
        match renameat(dir, LOG, &self.logs, name.as_str()) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Ok(()),
            Err(e) => return Err(e),
        }
        // The server keeps no more of it.
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let log = File::from(openat(&self.logs, name.as_str(), flags, Mode::empty())?);
        let bound = model::bounds::LOG_BYTES.most as u64;
        if log.metadata().is_ok_and(|log| log.len() > bound) {
            nix::unistd::ftruncate(&log, bound as i64)?;
        }
        let again = openat(&self.logs, ".", DIRECTORY, Mode::empty())?;
        let mut kept = Vec::new();
        for entry in Dir::from_fd(again)?.iter() {
            kept.extend(entry?.file_name().to_str().ok().and_then(parse_name));
        }
        kept.sort_unstable();
        for old in kept.iter().take(kept.len().saturating_sub(LOGS_MAX)) {
            unlinkat(&self.logs, old.to_string().as_str(), UnlinkatFlags::NoRemoveDir)?;
        }
        Ok(())
    }

    /// The attempts that have a folder; other names are ignored.
    pub fn attempts(&self) -> Result<Vec<AttemptId>, AgentError> {
        let failed = |e: Errno| AgentError::file("list", &self.path, e);
        let again = openat(&self.dir, ".", DIRECTORY, Mode::empty()).map_err(failed)?;
        let mut listing = Dir::from_fd(again).map_err(failed)?;
        let mut found = Vec::new();
        for entry in listing.iter() {
            let entry = entry.map_err(failed)?;
            found.extend(entry.file_name().to_str().ok().and_then(parse_name));
        }
        found.sort_unstable();
        Ok(found)
    }

    /// Makes the folder of an accepted launch.
    pub fn create(
        &self,
        record: &LaunchRecord,
        script: Option<&str>,
    ) -> Result<AttemptDir, AgentError> {
        let name = record.attempt.to_string();
        let path = self.path.join(&name);
        mkdirat(&self.dir, name.as_str(), PASSABLE)
            .map_err(|e| AgentError::file("make", &path, e))?;
        let made = self.open_attempt(record.attempt).and_then(|dir| {
            dir.fill(record, script)?;
            Ok(dir)
        });
        if made.is_err() {
            // An incomplete folder would look like an attempt.
            let _ = self.remove(record.attempt);
        }
        made
    }

    /// Whether the launch was written: only then can it have been started. It is one write, complete or absent.
    pub fn has_record(&self, attempt: AttemptId) -> bool {
        let dir = openat(&self.dir, attempt.to_string().as_str(), DIRECTORY, Mode::empty());
        let found = dir.and_then(|dir| fstatat(&dir, LAUNCH, AtFlags::AT_SYMLINK_NOFOLLOW));
        found.is_ok_and(|found| found.st_size > 0)
    }

    pub fn open_attempt(&self, attempt: AttemptId) -> Result<AttemptDir, AgentError> {
        let name = attempt.to_string();
        let path = self.path.join(&name);
        match openat(&self.dir, name.as_str(), DIRECTORY, Mode::empty()) {
            Ok(fd) => Ok(AttemptDir { fd, path }),
            Err(e) => Err(AgentError::file("open", &path, e)),
        }
    }

    /// Removes an attempt's folder. Succeeds if it does not exist.
    pub fn remove(&self, attempt: AttemptId) -> Result<(), AgentError> {
        let name = attempt.to_string();
        let failed = |e: Errno| AgentError::file("remove", self.path.join(&name), e);
        let dir = match openat(&self.dir, name.as_str(), DIRECTORY, Mode::empty()) {
            Ok(dir) => dir,
            Err(Errno::ENOENT) => return Ok(()),
            Err(e) => return Err(failed(e)),
        };
        let remove_files = |files: &[&str]| {
            for file in files {
                match unlinkat(&dir, *file, UnlinkatFlags::NoRemoveDir) {
                    Ok(()) | Err(Errno::ENOENT) => {}
                    Err(e) => return Err(failed(e)),
                }
            }
            Ok(())
        };
        let remove_folder = || unlinkat(&self.dir, name.as_str(), UnlinkatFlags::RemoveDir);
        remove_files(&FILES)?;
        match remove_folder() {
            Err(Errno::ENOTEMPTY | Errno::EEXIST) => {}
            removed => return removed.map_err(failed),
        }
        self.keep_log(&dir, attempt).map_err(failed)?;
        remove_files(&RARE_FILES)?;
        remove_folder().map_err(failed)
    }
}

/// Parses `JOB.ATTEMPT`, such as `12.1`.
fn parse_name(name: &str) -> Option<AttemptId> {
    let (job, number) = name.split_once('.')?;
    let attempt = AttemptId { job: JobId(job.parse().ok()?), number: number.parse().ok()? };
    // Only the canonical form is a folder of ours.
    (attempt.to_string() == name).then_some(attempt)
}

#[cfg(test)]
pub(crate) mod tests;

//! A node's spool: one folder for each attempt, from the order that was taken until the server has its end.
//!
//! `STATE/nodes/NAME/spool/JOB.ATTEMPT/` holds
//! - `launch.json`: the order as it was accepted, for the supervisor, who takes the attempt by it (`claim`);
//! - `slurm_script`: the script, its user's own and nobody else's to read;
//! - `ctl.sock`: where the supervisor listens once it has lost its agent;
//! - `steps.sock`: where streams to its steps come in, from the first step on;
//! - `status.json`: what the supervisor has to tell, written whole at the end and at stages that take time. There from
//!   the start, with nothing in it, so that a disk that fills up has room for the end;
//! - `log`: the output, where it goes to no file of the user's.
//!
//! Everything is reached through directory descriptors, so nothing that a user does to a path redirects root.

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
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};
pub(crate) use status::{Slots, StatusFile};
use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

pub(crate) struct Spool {
    dir: OwnedFd,
    path: PathBuf,
    /// Logs of attempts that the server has taken in: `logs` still reads them.
    logs: OwnedFd,
}

/// The most logs that a node keeps after their attempts are forgotten; the oldest jobs' go first.
const LOGS_MAX: usize = 1000;

impl Spool {
    /// Opens the spool of one node below the state folder, and makes it if this is the first time.
    pub fn open(state: &Path, node: &str) -> Result<Spool, AgentError> {
        let mut path = state.to_path_buf();
        let mut dir = open(&path, DIRECTORY.difference(OFlag::O_NOFOLLOW), Mode::empty())
            .map_err(|e| AgentError::file("open", &path, e))?;
        for part in ["nodes", node, "spool"] {
            path.push(part);
            match mkdirat(&dir, part, Mode::from_bits_truncate(0o755)) {
                Ok(()) | Err(Errno::EEXIST) => {}
                Err(e) => return Err(AgentError::file("make", &path, e)),
            }
            dir = openat(&dir, part, DIRECTORY, Mode::empty())
                .map_err(|e| AgentError::file("open", &path, e))?;
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

    /// The log of an attempt that was forgotten, if it is still kept.
    pub fn kept_log(&self, attempt: AttemptId) -> Option<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        openat(&self.logs, attempt.to_string().as_str(), flags, Mode::empty()).ok().map(File::from)
    }

    /// Moves a log out of the folder that is being removed, and lets go of the oldest.
    fn keep_log(&self, dir: &OwnedFd, attempt: AttemptId) -> nix::Result<()> {
        match renameat(dir, LOG, &self.logs, attempt.to_string().as_str()) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Ok(()),
            Err(e) => return Err(e),
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

    /// The attempts that have a folder; what is not named like one is left alone.
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

    /// Makes the folder with the accepted launch and the script in it.
    pub fn create(
        &self,
        record: &LaunchRecord,
        script: Option<&str>,
    ) -> Result<AttemptDir, AgentError> {
        let name = record.attempt.to_string();
        let path = self.path.join(&name);
        mkdirat(&self.dir, name.as_str(), Mode::from_bits_truncate(0o755))
            .map_err(|e| AgentError::file("make", &path, e))?;
        let made = self.open_attempt(record.attempt).and_then(|dir| {
            dir.fill(record, script)?;
            Ok(dir)
        });
        if made.is_err() {
            // Half a folder would look like an attempt; the error says what failed.
            let _ = self.remove(record.attempt);
        }
        made
    }

    /// Whether the launch was written down: only then is anything started. It is one write, there whole or not at all.
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

    /// Removing what is gone already is no error.
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

/// `12.1`: the job and its attempt.
fn parse_name(name: &str) -> Option<AttemptId> {
    let (job, number) = name.split_once('.')?;
    let attempt = AttemptId { job: JobId(job.parse().ok()?), number: number.parse().ok()? };
    // A name that would be written otherwise is not ours.
    (attempt.to_string() == name).then_some(attempt)
}

#[cfg(test)]
pub(crate) mod tests;

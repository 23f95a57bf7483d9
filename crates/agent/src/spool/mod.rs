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
//! Everything is reached through directory descriptors, so that no path that a user changes can redirect root. A spool
//! that nobody works in has none open: an agent may be ten thousand nodes.

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
use std::sync::Arc;

pub(crate) struct Spool {
    /// The folder of all nodes of the agent, from which its own folders are opened when they are needed.
    nodes: Arc<OwnedFd>,
    node: String,
    path: PathBuf,
}

const SPOOL: &str = "spool";
/// Logs of forgotten attempts, which `sluice logs` can still read.
const LOGS: &str = "logs";

/// Logs of forgotten attempts that are kept; those of the oldest jobs are removed first.
const LOGS_MAX: usize = 1000;

/// Folders that jobs pass through to their scripts, and that nobody but root lists.
const PASSABLE: Mode = Mode::from_bits_truncate(0o711);

impl Spool {
    /// Opens the folder of all nodes below the state folder, or makes it.
    pub fn open_nodes(state: &Path) -> Result<Arc<OwnedFd>, AgentError> {
        let dir = open(state, DIRECTORY.difference(OFlag::O_NOFOLLOW), Mode::empty())
            .map_err(|e| AgentError::file("open", state, e))?;
        open_or_make(&dir, "nodes", &state.join("nodes"), PASSABLE).map(Arc::new)
    }

    /// The spool of one node; its folders are made where they are missing.
    pub fn open(state: &Path, nodes: &Arc<OwnedFd>, node: &str) -> Result<Spool, AgentError> {
        let above = state.join("nodes").join(node);
        let folder = open_or_make(nodes, node, &above, PASSABLE)?;
        let path = above.join(SPOOL);
        open_or_make(&folder, SPOOL, &path, PASSABLE)?;
        open_or_make(&folder, LOGS, &above.join(LOGS), Mode::from_bits_truncate(0o700))?;
        Ok(Spool { nodes: nodes.clone(), node: node.to_owned(), path })
    }

    fn folder(&self, part: &str) -> nix::Result<OwnedFd> {
        let above = openat(&self.nodes, self.node.as_str(), DIRECTORY, Mode::empty())?;
        openat(&above, part, DIRECTORY, Mode::empty())
    }

    fn dir(&self) -> Result<OwnedFd, AgentError> {
        self.folder(SPOOL).map_err(|e| AgentError::file("open", &self.path, e))
    }

    /// Opens the log of a forgotten attempt, if it is still kept.
    pub fn kept_log(&self, attempt: AttemptId) -> Option<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let logs = self.folder(LOGS).ok()?;
        openat(&logs, attempt.to_string().as_str(), flags, Mode::empty()).ok().map(File::from)
    }

    /// Moves a log out of a folder that is being removed, and removes the oldest logs.
    fn keep_log(&self, dir: &OwnedFd, attempt: AttemptId) -> nix::Result<()> {
        let name = attempt.to_string();
        let logs = self.folder(LOGS)?;
        match renameat(dir, LOG, &logs, name.as_str()) {
            Ok(()) => {}
            Err(Errno::ENOENT) => return Ok(()),
            Err(e) => return Err(e),
        }
        // The server keeps no more of it.
        let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let log = File::from(openat(&logs, name.as_str(), flags, Mode::empty())?);
        let bound = model::bounds::LOG_BYTES.most as u64;
        if log.metadata().is_ok_and(|log| log.len() > bound) {
            nix::unistd::ftruncate(&log, bound as i64)?;
        }
        let again = openat(&logs, ".", DIRECTORY, Mode::empty())?;
        let mut kept = Vec::new();
        for entry in Dir::from_fd(again)?.iter() {
            kept.extend(entry?.file_name().to_str().ok().and_then(parse_name));
        }
        kept.sort_unstable();
        for old in kept.iter().take(kept.len().saturating_sub(LOGS_MAX)) {
            unlinkat(&logs, old.to_string().as_str(), UnlinkatFlags::NoRemoveDir)?;
        }
        Ok(())
    }

    /// The attempts that have a folder; other names are ignored.
    pub fn attempts(&self) -> Result<Vec<AttemptId>, AgentError> {
        let failed = |e: Errno| AgentError::file("list", &self.path, e);
        let mut listing = Dir::from_fd(self.dir()?).map_err(failed)?;
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
        script: Option<&[u8]>,
    ) -> Result<AttemptDir, AgentError> {
        let name = record.attempt.to_string();
        let path = self.path.join(&name);
        let spool = self.dir()?;
        mkdirat(&spool, name.as_str(), PASSABLE).map_err(|e| AgentError::file("make", &path, e))?;
        let made = self.open_attempt_in(&spool, record.attempt).and_then(|dir| {
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
        let Ok(spool) = self.folder(SPOOL) else { return false };
        let dir = openat(&spool, attempt.to_string().as_str(), DIRECTORY, Mode::empty());
        let found = dir.and_then(|dir| fstatat(&dir, LAUNCH, AtFlags::AT_SYMLINK_NOFOLLOW));
        found.is_ok_and(|found| found.st_size > 0)
    }

    pub fn open_attempt(&self, attempt: AttemptId) -> Result<AttemptDir, AgentError> {
        self.open_attempt_in(&self.dir()?, attempt)
    }

    fn open_attempt_in(
        &self,
        spool: &OwnedFd,
        attempt: AttemptId,
    ) -> Result<AttemptDir, AgentError> {
        let name = attempt.to_string();
        let path = self.path.join(&name);
        match openat(spool, name.as_str(), DIRECTORY, Mode::empty()) {
            Ok(fd) => Ok(AttemptDir { fd, path }),
            Err(e) => Err(AgentError::file("open", &path, e)),
        }
    }

    /// Removes an attempt's folder. Succeeds if it does not exist.
    pub fn remove(&self, attempt: AttemptId) -> Result<(), AgentError> {
        let name = attempt.to_string();
        let failed = |e: Errno| AgentError::file("remove", self.path.join(&name), e);
        let spool = self.dir()?;
        let dir = match openat(&spool, name.as_str(), DIRECTORY, Mode::empty()) {
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
        let remove_folder = || unlinkat(&spool, name.as_str(), UnlinkatFlags::RemoveDir);
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

fn open_or_make(
    above: &OwnedFd,
    name: &str,
    path: &Path,
    mode: Mode,
) -> Result<OwnedFd, AgentError> {
    match mkdirat(above, name, mode) {
        Ok(()) | Err(Errno::EEXIST) => {}
        Err(e) => return Err(AgentError::file("make", path, e)),
    }
    let dir = openat(above, name, DIRECTORY, Mode::empty())
        .map_err(|e| AgentError::file("open", path, e))?;
    // An earlier build let everybody list it.
    fchmod(&dir, mode).map_err(|e| AgentError::file("close", path, e))?;
    Ok(dir)
}

/// The nodes of a state folder whose spools hold attempts, of those that are asked for by name: their jobs may run on, whatever
/// the configuration says now.
pub fn nodes_with_attempts(state: &Path, is_asked: impl Fn(&str) -> bool) -> Vec<String> {
    let names = |path: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let nodes = state.join("nodes");
    let holds_any = |node: &String| {
        names(&nodes.join(node).join(SPOOL)).iter().any(|name| parse_name(name).is_some())
    };
    let mut found = names(&nodes);
    found.retain(|node| is_asked(node) && holds_any(node));
    found.sort_unstable();
    found
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

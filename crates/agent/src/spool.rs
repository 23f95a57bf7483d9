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

mod claim;
mod status;

use crate::error::AgentError;
use crate::supervisor::Inside;
pub(crate) use claim::{Claim, Standing, leave_to_parent};
use model::binding::CpuPlace;
use model::cpuset::CpuSet;
use model::id::{AttemptId, JobId};
use model::limits::Limits;
use model::site::Site;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat, renameat};
use nix::sys::stat::{Mode, fstatat, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchown, unlinkat};
use serde::{Deserialize, Serialize};
pub(crate) use status::{Slots, StatusFile};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use wire::order::JobLaunch;

pub(crate) const LAUNCH: &str = "launch.json";
/// What the version before wrote first.
const LAUNCH_NEW: &str = "launch.new";
pub(crate) const SCRIPT: &str = "slurm_script";
pub(crate) const CONTROL: &str = "ctl.sock";
pub(crate) const STEPS: &str = "steps.sock";
pub(crate) const STATUS: &str = "status.json";
pub(crate) const LOG: &str = "log";
const STATUS_NEW: &str = "status.new";
const STATUS_LONG: &str = "status.long";

/// Files that a forgotten attempt leaves, and those that few do; the folder is removed after them.
const FILES: [&str; 3] = [LAUNCH, SCRIPT, STATUS];
const RARE_FILES: [&str; 6] = [LAUNCH_NEW, CONTROL, STEPS, LOG, STATUS_NEW, STATUS_LONG];

/// A launch as accepted, with all that the supervisor cannot learn from the order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRecord {
    pub version: u32,
    pub attempt: AttemptId,
    pub node: String,
    /// The root of the node's control groups.
    pub group_root: String,
    /// `CgroupPlugin` in its own words.
    pub plugin: String,
    /// Of the kernel's numbers of CPUs.
    pub limits: Limits,
    /// Where the CPUs of the share are; empty where they are only counted.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub places: Vec<CpuPlace>,
    /// How many CPUs the node has, and its machine.
    #[serde(default)]
    pub node_cpus: u32,
    #[serde(default)]
    pub machine_cpus: u32,
    /// Whether there is a script beside this file; the launch itself does not repeat it.
    pub has_script: bool,
    /// Times in it are by the node's own clock.
    pub launch: JobLaunch,
    /// What the site does around it.
    #[serde(default)]
    pub site: Site,
    /// What the supervisor has made for its processes; nothing of it is written down.
    #[serde(skip)]
    pub inside: Inside,
}

impl LaunchRecord {
    /// Never used for another attempt: a job's id and attempt number together are new each time.
    pub fn group_name(&self) -> String {
        group_name(self.attempt)
    }

    /// The kernel's numbers of a part of the share; as they are where CPUs are only counted.
    pub fn kernel_cpus(&self, share: &CpuSet) -> CpuSet {
        if self.places.is_empty() {
            return share.clone();
        }
        let places = self.places.iter().filter(|place| share.contains(place.id));
        places.flat_map(|place| place.kernel.iter().copied()).collect()
    }
}

pub(crate) fn group_name(attempt: AttemptId) -> String {
    format!("job_{}_{}", attempt.job, attempt.number)
}

/// The groups of the site's programs before and after an attempt, beside its own.
pub(crate) fn site_group_names(attempt: AttemptId) -> [String; 3] {
    let job = group_name(attempt);
    ["init", "prolog", "epilog"].map(|program| format!("{job}.{program}"))
}

pub(crate) struct Spool {
    dir: OwnedFd,
    path: PathBuf,
    /// Logs of attempts that the server has taken in: `logs` still reads them.
    logs: OwnedFd,
}

/// The most logs that a node keeps after their attempts are forgotten; the oldest jobs' go first.
const LOGS_MAX: usize = 1000;

/// One attempt's folder.
pub(crate) struct AttemptDir {
    fd: OwnedFd,
    path: PathBuf,
}

const DIRECTORY: OFlag =
    OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC).union(OFlag::O_NOFOLLOW).union(OFlag::O_RDONLY);

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

impl AttemptDir {
    /// For the supervisor, which is told its folder by path.
    pub fn open(path: &Path) -> Result<AttemptDir, AgentError> {
        let fd =
            open(path, DIRECTORY, Mode::empty()).map_err(|e| AgentError::file("open", path, e))?;
        Ok(AttemptDir { fd, path: path.to_path_buf() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn script_path(&self) -> PathBuf {
        self.path.join(SCRIPT)
    }

    pub fn steps_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{STEPS}", self.fd.as_raw_fd()))
    }

    /// A way to the socket that no length of the state folder's path can make too long for the kernel.
    pub fn control_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{CONTROL}", self.fd.as_raw_fd()))
    }

    fn fill(&self, record: &LaunchRecord, script: Option<&str>) -> Result<(), AgentError> {
        let failed = |file| move |e| AgentError::file("write", self.path.join(file), e);
        let json = serde_json::to_vec(record).map_err(|e| AgentError::Content {
            path: self.path.join(LAUNCH).display().to_string(),
            reason: e.to_string(),
        })?;
        if let Some(script) = script {
            let user = &record.launch.user;
            let write = |mut file: File| {
                file.write_all(script.as_bytes())?;
                give(&file, user.uid, user.gid)
            };
            self.make(SCRIPT, 0o700).and_then(write).map_err(failed(SCRIPT))?;
        }
        self.reserve_status().map_err(failed(STATUS))?;
        // Last: a folder with something in this file is ready to be started.
        self.make(LAUNCH, 0o600).and_then(|mut file| file.write_all(&json)).map_err(failed(LAUNCH))
    }

    fn make(&self, name: &str, mode: u32) -> std::io::Result<File> {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, Mode::from_bits_truncate(mode))?))
    }

    pub fn read_launch(&self) -> Result<LaunchRecord, AgentError> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let fd = openat(&self.fd, LAUNCH, flags, Mode::empty())
            .map_err(|e| AgentError::file("open", self.path.join(LAUNCH), e))?;
        self.read_record(&File::from(fd))
    }

    fn read_record(&self, mut file: &File) -> Result<LaunchRecord, AgentError> {
        let path = || self.path.join(LAUNCH);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| AgentError::file("read", path(), e))?;
        serde_json::from_slice(&bytes).map_err(|e| AgentError::Content {
            path: path().display().to_string(),
            reason: e.to_string(),
        })
    }

    /// The attempt's log, for its processes to append to. It is the user's own: a process may open `/dev/stdout` again.
    pub fn open_log(&self, uid: u32, gid: u32) -> Result<OwnedFd, AgentError> {
        let flags = OFlag::O_CREAT | OFlag::O_WRONLY | OFlag::O_APPEND | OFlag::O_CLOEXEC;
        let failed = |e| AgentError::file("open", self.path.join(LOG), e);
        let fd = openat(&self.fd, LOG, flags, Mode::from_bits_truncate(0o600))
            .map_err(|e| failed(e.into()))?;
        let file = File::from(fd);
        give(&file, uid, gid).map_err(failed)?;
        Ok(file.into())
    }

    /// `None` if nothing was ever written to one.
    pub fn read_log(&self) -> Result<Option<File>, AgentError> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        match openat(&self.fd, LOG, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(AgentError::file("open", self.path.join(LOG), e)),
        }
    }
}

/// Makes a file its user's own, where we are root and it is not already.
fn give(file: &File, uid: u32, gid: u32) -> std::io::Result<()> {
    if Uid::effective().is_root() && (uid, gid) != (0, 0) {
        fchown(file.as_fd(), Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests;

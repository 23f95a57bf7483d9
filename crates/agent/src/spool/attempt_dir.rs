//! The folder of one attempt and the files in it.

use super::launch_record::LaunchRecord;
use crate::error::AgentError;
use crate::ownership::give_to_user;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, fstat};
use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};

pub(super) const LAUNCH: &str = "launch.json";
/// Written by the previous version before `launch.json`.
const LAUNCH_NEW: &str = "launch.new";
const SCRIPT: &str = "slurm_script";
pub(super) const CONTROL: &str = "ctl.sock";
pub(crate) const STEPS: &str = "steps.sock";
pub(super) const STATUS: &str = "status.json";
pub(super) const LOG: &str = "log";
pub(super) const STATUS_NEW: &str = "status.new";
pub(super) const STATUS_LONG: &str = "status.long";

/// Files of an attempt that are always removed with it, and those that few attempts have.
pub(super) const FILES: [&str; 3] = [LAUNCH, SCRIPT, STATUS];
pub(super) const RARE_FILES: [&str; 6] = [LAUNCH_NEW, CONTROL, STEPS, LOG, STATUS_NEW, STATUS_LONG];

/// One attempt's folder.
pub(crate) struct AttemptDir {
    pub(super) fd: OwnedFd,
    pub(super) path: PathBuf,
}

pub(super) const DIRECTORY: OFlag =
    OFlag::O_DIRECTORY.union(OFlag::O_CLOEXEC).union(OFlag::O_NOFOLLOW).union(OFlag::O_RDONLY);

impl AttemptDir {
    /// Opens the folder by its path, for the supervisor.
    pub fn open(path: &Path) -> Result<AttemptDir, AgentError> {
        let fd =
            open(path, DIRECTORY, Mode::empty()).map_err(|e| AgentError::file("open", path, e))?;
        Ok(AttemptDir { fd, path: path.to_path_buf() })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Whether the folder was removed, by whatever path: no agent would find the attempt again.
    pub fn is_removed(&self) -> bool {
        fstat(&self.fd).is_ok_and(|status| status.st_nlink == 0)
    }

    /// The files of its node, the spool among them.
    pub fn node_folder(&self) -> &Path {
        self.path.ancestors().nth(2).unwrap_or(Path::new("/"))
    }

    pub fn script_path(&self) -> PathBuf {
        self.path.join(SCRIPT)
    }

    pub fn steps_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{STEPS}", self.fd.as_raw_fd()))
    }

    /// The path of `ctl.sock` by descriptor: socket paths are limited to about 100 bytes, and the state folder's may be
    /// longer.
    pub fn control_path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}/{CONTROL}", self.fd.as_raw_fd()))
    }

    pub(super) fn fill(
        &self,
        record: &LaunchRecord,
        script: Option<&[u8]>,
    ) -> Result<(), AgentError> {
        let failed = |file| move |e| AgentError::file("write", self.path.join(file), e);
        let json = serde_json::to_vec(record).map_err(|e| AgentError::Content {
            path: self.path.join(LAUNCH).display().to_string(),
            reason: e.to_string(),
        })?;
        if let Some(script) = script {
            let user = &record.launch.user;
            let write = |mut file: File| {
                file.write_all(script)?;
                Ok(give_to_user(&file, user.uid, user.gid)?)
            };
            self.make(SCRIPT, 0o700).and_then(write).map_err(failed(SCRIPT))?;
        }
        self.reserve_status().map_err(failed(STATUS))?;
        // Written last: a folder with contents in this file is ready to be started.
        self.make(LAUNCH, 0o600).and_then(|mut file| file.write_all(&json)).map_err(failed(LAUNCH))
    }

    pub(super) fn make(&self, name: &str, mode: u32) -> std::io::Result<File> {
        let flags = OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_WRONLY | OFlag::O_CLOEXEC;
        Ok(File::from(openat(&self.fd, name, flags, Mode::from_bits_truncate(mode))?))
    }

    pub fn read_launch(&self) -> Result<LaunchRecord, AgentError> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let fd = openat(&self.fd, LAUNCH, flags, Mode::empty())
            .map_err(|e| AgentError::file("open", self.path.join(LAUNCH), e))?;
        self.read_record(&File::from(fd))
    }

    pub(super) fn read_record(&self, mut file: &File) -> Result<LaunchRecord, AgentError> {
        let path = || self.path.join(LAUNCH);
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).map_err(|e| AgentError::file("read", path(), e))?;
        serde_json::from_slice(&bytes).map_err(|e| AgentError::Content {
            path: path().display().to_string(),
            reason: e.to_string(),
        })
    }

    /// Makes the attempt's log, for the supervisor alone: the job writes to a pipe.
    pub fn make_log(&self) -> Result<File, AgentError> {
        self.make(LOG, 0o600).map_err(|e| AgentError::file("make", self.path.join(LOG), e))
    }

    /// Opens the attempt's log for reading; `None` if there is none.
    pub fn read_log(&self) -> Result<Option<File>, AgentError> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        match openat(&self.fd, LOG, flags, Mode::empty()) {
            Ok(fd) => Ok(Some(File::from(fd))),
            Err(Errno::ENOENT) => Ok(None),
            Err(e) => Err(AgentError::file("open", self.path.join(LOG), e)),
        }
    }
}

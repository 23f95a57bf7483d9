//! Signals, freezes, thaws and kills the processes of a group.

use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::error::CgroupError;
use super::group::JobGroup;
use super::mounts::{Controller, Version};
use super::signal::signal_listed;
use super::tree_group::TreeGroup;

/// How long a freeze may take before it is given up. A task in an uninterruptible wait delays it.
const FREEZE_TIMEOUT: Duration = Duration::from_secs(5);
/// The longest pause between two checks of a group that cannot be polled.
const PAUSE_MAX: Duration = Duration::from_millis(50);

impl JobGroup {
    pub fn signal_all(&self, signal: Signal) -> Result<(), CgroupError> {
        signal_listed(signal, &|| self.pids())
    }

    /// Sends the kill and returns at once. Use [`JobGroup::kill_all`] to be sure of the end.
    pub fn kill(&self) -> Result<(), CgroupError> {
        let Some(first) = self.members().first() else {
            return self.signal_all(Signal::SIGKILL);
        };
        if first.version == Version::V2 && first.dir.has("cgroup.kill") {
            return first.dir.write("cgroup.kill", "1");
        }
        // Frozen, so that nothing forks while the listed processes are signalled. v1 delivers the signal at the thaw.
        let frozen = self.freeze_within(Duration::from_millis(100));
        let killed = self.signal_all(Signal::SIGKILL);
        let thawed = self.thaw();
        // A task stuck in the kernel keeps the group from freezing; the signal is sent all the same.
        let _ = frozen;
        killed.and(thawed)
    }

    /// Kills until nothing is left, in any tree; gives up after `timeout` and names what remains.
    pub fn kill_all(&self, timeout: Duration) -> Result<(), CgroupError> {
        let start = Instant::now();
        let watch = self.wait_empty_fd()?;
        let mut pause = Duration::from_millis(1);
        loop {
            self.kill()?;
            if let Some(watch) = &watch
                && watch.is_empty()?
                && !self.is_empty()?
            {
                // A process that has left the first tree but is still in another one is a member too.
                self.signal_all(Signal::SIGKILL)?;
            }
            if self.is_empty()? {
                return Ok(());
            }
            let Some(left) = timeout.checked_sub(start.elapsed()) else {
                return Err(self.stuck("empty", timeout));
            };
            match &watch {
                Some(watch) if !watch.is_empty()? => watch.wait(left.min(pause * 8)),
                _ => thread::sleep(left.min(pause)),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Stops every process of the group; returns when all have stopped.
    pub fn freeze(&self) -> Result<(), CgroupError> {
        self.freeze_within(FREEZE_TIMEOUT)
    }

    fn freeze_within(&self, timeout: Duration) -> Result<(), CgroupError> {
        let Some((first, file, value)) = self.freezer(true) else {
            return self.signal_all(Signal::SIGSTOP);
        };
        let watch = self.wait_empty_fd()?;
        first.dir.write(file, value)?;
        let start = Instant::now();
        let mut pause = Duration::from_micros(100);
        loop {
            let frozen = match &watch {
                Some(watch) => watch.is_frozen()?,
                None => first.dir.read(file)?.trim() == value,
            };
            if frozen {
                return Ok(());
            }
            let Some(left) = timeout.checked_sub(start.elapsed()) else {
                return Err(self.stuck("frozen", timeout));
            };
            match &watch {
                Some(watch) => watch.wait(left.min(PAUSE_MAX)),
                None => thread::sleep(left.min(pause)),
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    pub fn thaw(&self) -> Result<(), CgroupError> {
        match self.freezer(false) {
            Some((first, file, value)) => first.dir.write(file, value),
            None => self.signal_all(Signal::SIGCONT),
        }
    }

    /// The file and value that freeze or thaw the group; `None` where only signals can.
    fn freezer(&self, freeze: bool) -> Option<(&TreeGroup, &'static str, &'static str)> {
        let first = self.members().first()?;
        match (first.version, freeze) {
            (Version::V2, true) => Some((first, "cgroup.freeze", "1")),
            (Version::V2, false) => Some((first, "cgroup.freeze", "0")),
            (Version::V1, _) if !first.controllers.has(Controller::Freezer) => None,
            (Version::V1, true) => Some((first, "freezer.state", "FROZEN")),
            (Version::V1, false) => Some((first, "freezer.state", "THAWED")),
        }
    }

    fn stuck(&self, wanted: &'static str, timeout: Duration) -> CgroupError {
        let mut pids = self.pids().unwrap_or_default();
        pids.truncate(10);
        let waited_ms = timeout.as_millis();
        CgroupError::Stuck { name: self.name().to_owned(), wanted, waited_ms, pids }
    }
}

//! Control groups for tests, under a root group that is removed with them.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::os::unix::process::CommandExt;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use agent::cgroup::{CgroupError, GroupLimits, Hierarchy, JobGroup, Plugin};

pub const TIMEOUT: Duration = Duration::from_secs(60);
pub const MIB: u64 = 1 << 20;

pub struct Scratch {
    pub hierarchy: Hierarchy,
}

impl Scratch {
    /// `None` where the machine has no such trees.
    pub fn new(plugin: Plugin) -> Option<Scratch> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        assert!(nix::unistd::Uid::effective().is_root(), "run as root: this test makes groups");
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("sluicegroups_{}_{number}", std::process::id());
        match Hierarchy::discover(plugin, &name) {
            Ok(hierarchy) => Some(Scratch { hierarchy }),
            Err(CgroupError::Unavailable { .. }) => None,
            Err(error) => panic!("{plugin}: {error}"),
        }
    }

    /// One for each kind of tree that the machine has.
    pub fn all() -> Vec<(Plugin, Scratch)> {
        let plugins = [Plugin::Auto, Plugin::V1, Plugin::V2];
        plugins.into_iter().filter_map(|one| Some((one, Scratch::new(one)?))).collect()
    }

    pub fn job(&self, limits: &GroupLimits) -> JobGroup {
        JobGroup::create(&self.hierarchy, "job_1_1", limits).expect("make the group")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        for name in self.hierarchy.leftovers().unwrap_or_default() {
            if let Ok(group) = JobGroup::open(&self.hierarchy, &name) {
                let _ = group.kill_all(TIMEOUT);
                let _ = group.remove();
            }
        }
        let _ = self.hierarchy.remove_root();
    }
}

/// Runs a shell in the group to its end.
pub fn shell(group: &JobGroup, script: &str) -> Output {
    let entry = group.entry_fds().expect("entry descriptors");
    let mut command = Command::new("/bin/bash");
    command.arg("-c").arg(script).stdin(Stdio::null());
    // SAFETY: `enter` only writes to open descriptors, which is allowed between fork and exec.
    unsafe { command.pre_exec(move || Ok(entry.enter()?)) };
    command.output().expect("start in the group")
}

/// What the script prints, when run in the group.
pub fn said(group: &JobGroup, script: &str) -> String {
    let output = shell(group, script);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    format!("{}{}", text(&output.stdout), text(&output.stderr))
}

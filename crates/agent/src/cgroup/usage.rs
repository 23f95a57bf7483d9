//! What a job has used, read from its own groups. A value nobody counted is `None`, not zero.

use super::dir::{GroupDir, keyed_value};
use super::error::CgroupError;
use super::group::Member;
use super::mounts::{Controller, Version};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_user_us: Option<u64>,
    pub cpu_system_us: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub memory_now: Option<u64>,
    /// Processes that the kernel killed because the group was at its memory limit.
    pub oom_kills: Option<u64>,
    pub pids_now: Option<u64>,
}

impl Usage {
    pub(super) fn read(members: &[Member]) -> Usage {
        let mut usage = Usage::default();
        for member in members.iter().filter(|member| member.owned) {
            usage.add_cpu(member);
            if member.controllers.has(Controller::Memory) {
                usage.add_memory(member);
            }
        }
        usage
    }

    fn add_cpu(&mut self, member: &Member) {
        let dir = &member.dir;
        match member.version {
            Version::V2 => {
                let text = dir.read("cpu.stat").unwrap_or_default();
                self.cpu_user_us = keyed_value(&text, "user_usec");
                self.cpu_system_us = keyed_value(&text, "system_usec");
            }
            Version::V1 if member.controllers.has(Controller::Cpuacct) => {
                let micros = |file| dir.read_number(file).map(|nanos| nanos / 1000);
                self.cpu_user_us = micros("cpuacct.usage_user");
                self.cpu_system_us = micros("cpuacct.usage_sys");
            }
            Version::V1 => {}
        }
    }

    fn add_memory(&mut self, member: &Member) {
        let dir = &member.dir;
        match member.version {
            Version::V2 => {
                self.memory_peak_bytes = dir.read_number("memory.peak");
                self.memory_now = dir.read_number("memory.current");
                // Counts the whole subtree.
                self.oom_kills = dir.read_keyed("memory.events", "oom_kill");
            }
            Version::V1 => {
                self.memory_peak_bytes = dir.read_number("memory.max_usage_in_bytes");
                self.memory_now = dir.read_number("memory.usage_in_bytes");
                self.oom_kills = leaf_kills(dir).ok().flatten();
            }
        }
    }
}

/// v1 counts a kill only in the group the victim was in, never where the limit is; and failcnt stays zero when memory
/// and swap are limited together.
fn leaf_kills(dir: &GroupDir) -> Result<Option<u64>, CgroupError> {
    let mut kills = None;
    dir.walk(&mut |group| {
        if let Some(more) = group.read_keyed("memory.oom_control", "oom_kill") {
            kills = Some(kills.unwrap_or(0) + more);
        }
        Ok(())
    })?;
    Ok(kills)
}

/// The kills in a group but for those in the groups directly inside it whose names begin with `inner`.
pub(super) fn oom_kills_outside(member: &Member, inner: &str) -> Option<u64> {
    let dir = &member.dir;
    match member.version {
        // What is in no group inside it. Groups inside it that are not ours are in the leaf of the script.
        Version::V2 => dir.read_keyed("memory.events.local", "oom_kill"),
        Version::V1 => {
            let own = dir.read_keyed("memory.oom_control", "oom_kill")?;
            let others = dir.children().ok()?;
            let others = others.iter().filter(|name| !name.starts_with(inner));
            let below = others.filter_map(|name| leaf_kills(&dir.open_child(name).ok()?).ok()?);
            Some(own + below.sum::<u64>())
        }
    }
}

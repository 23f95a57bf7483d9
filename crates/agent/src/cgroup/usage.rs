//! The usage of a job, read from its groups. A value that is not counted is `None`, not zero.

use super::dir::{GroupDir, keyed_value};
use super::error::CgroupError;
use super::mounts::{Controller, Version};
use super::tree_group::TreeGroup;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    pub cpu_user_us: Option<u64>,
    pub cpu_system_us: Option<u64>,
    pub memory_peak_bytes: Option<u64>,
    pub memory_now: Option<u64>,
    /// OOM kills at the group's memory limit.
    pub oom_kills: Option<u64>,
    pub pids_now: Option<u64>,
}

impl Usage {
    pub(super) fn read(members: &[TreeGroup]) -> Usage {
        let mut usage = Usage::read_consumed(members);
        for member in counting(members) {
            usage.memory_now = member.dir.read_number(match member.version {
                Version::V2 => "memory.current",
                Version::V1 => "memory.usage_in_bytes",
            });
            usage.oom_kills = oom_kills_of(member);
        }
        usage
    }

    pub(super) fn read_consumed(members: &[TreeGroup]) -> Usage {
        let mut usage = Usage::default();
        members.iter().filter(|member| member.owned).for_each(|member| usage.add_cpu(member));
        counting(members).for_each(|member| usage.add_peak(member));
        usage
    }

    fn add_cpu(&mut self, member: &TreeGroup) {
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

    fn add_peak(&mut self, member: &TreeGroup) {
        self.memory_peak_bytes = member.dir.read_number(match member.version {
            Version::V2 => "memory.peak",
            Version::V1 => "memory.max_usage_in_bytes",
        });
    }
}

/// The OOM kills in a group and in all groups inside it; `None` if the tree does not count them.
pub(super) fn oom_kills_of(member: &TreeGroup) -> Option<u64> {
    if !member.controllers.has(Controller::Memory) {
        return None;
    }
    match member.version {
        // Counts the whole subtree.
        Version::V2 => member.dir.read_keyed("memory.events", "oom_kill"),
        Version::V1 => leaf_kills(&member.dir).ok().flatten(),
    }
}

/// The trees that count memory for this group.
fn counting(members: &[TreeGroup]) -> impl Iterator<Item = &TreeGroup> {
    members.iter().filter(|member| member.owned && member.controllers.has(Controller::Memory))
}

/// Sums the OOM kills of all groups below. v1 counts a kill only in the victim's own group, never in the group with the
/// limit, and failcnt stays zero if memory and swap are limited together.
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

/// The OOM kills in a group without those in its direct children whose names begin with `inner`.
pub(super) fn oom_kills_outside(member: &TreeGroup, inner: &str) -> Option<u64> {
    let dir = &member.dir;
    match member.version {
        // Counts only the group itself. Groups that a job makes are inside the script's leaf group.
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

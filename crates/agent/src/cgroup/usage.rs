//! What a job has used, read from its own groups. A value nobody counted is `None`, not zero.

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
                self.cpu_user_us = dir.read_keyed("cpu.stat", "user_usec");
                self.cpu_system_us = dir.read_keyed("cpu.stat", "system_usec");
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
                // v1 counts a kill only in the group the victim was in, never where the limit is; and failcnt
                // stays zero when memory and swap are limited together.
                let mut kills = None;
                let walked = dir.walk(&mut |group| {
                    if let Some(more) = group.read_keyed("memory.oom_control", "oom_kill") {
                        kills = Some(kills.unwrap_or(0) + more);
                    }
                    Ok(())
                });
                self.oom_kills = walked.ok().and(kills);
            }
        }
    }
}

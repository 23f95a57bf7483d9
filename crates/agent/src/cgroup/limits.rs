//! The limits of a group, and the kernel file of each limit in v1 and v2.

use super::capability::Capabilities;
use super::device_limits;
use super::device_rule::DeviceRule;
use super::dir::GroupDir;
use super::error::CgroupError;
use super::mounts::{Controller, ControllerSet, Version};

/// The limits of one group; `None` is neither limited nor counted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    pub memory_bytes: Option<u64>,
    /// Swap beyond `memory_bytes`; zero forbids swapping.
    pub swap_bytes: Option<u64>,
    /// Above this the kernel reclaims memory; less than `memory_bytes`.
    pub soft_memory_bytes: Option<u64>,
    /// v1 only.
    pub swappiness: Option<u8>,
    /// Memory is counted even if it is not limited.
    pub count_memory: bool,
    /// A list as the kernel writes it: `0-3,8`.
    pub cpuset: Option<String>,
    /// A quota of CPU time, in CPUs.
    pub cpu_time: Option<u32>,
    pub pids_max: Option<u64>,
    /// The only devices that may be opened.
    pub devices: Option<Vec<DeviceRule>>,
}

/// The period of the quota of CPU time: the kernel's default.
const CPU_PERIOD_US: u64 = 100_000;

fn quota_us(cpus: u32) -> u64 {
    CPU_PERIOD_US * u64::from(cpus.max(1))
}

impl GroupLimits {
    /// The controllers that these limits need.
    pub(super) fn controllers(&self) -> ControllerSet {
        [
            (self.memory_bytes.is_some() || self.count_memory, Controller::Memory),
            (self.cpuset.is_some(), Controller::Cpuset),
            (self.pids_max.is_some(), Controller::Pids),
            (self.cpu_time.is_some(), Controller::Cpu),
            (self.devices.is_some(), Controller::Devices),
        ]
        .into_iter()
        .filter(|(wanted, _)| *wanted)
        .fold(ControllerSet::default(), |set, (_, controller)| set.with(controller))
    }

    /// Refuses what this machine cannot enforce, before anything is made.
    pub(super) fn check(&self, can: &Capabilities) -> Result<(), CgroupError> {
        for (wanted, able, what) in [
            (self.memory_bytes.is_some(), can.memory_hard, "memory"),
            (self.swap_bytes.is_some(), can.swap, "swap"),
            (self.cpuset.is_some(), can.cpuset, "cpuset"),
            (self.pids_max.is_some(), can.pids, "pids"),
            (self.cpu_time.is_some(), can.cpu_time, "cpu_time"),
            (self.devices.is_some(), can.devices, "devices"),
        ] {
            if wanted && !able {
                let reason = can.reason_against(what).unwrap_or("not available here").to_owned();
                return Err(CgroupError::CannotEnforce { what, reason });
            }
        }
        if self.swap_bytes.is_some() && self.memory_bytes.is_none() {
            let reason = "a swap limit needs a memory limit beside it".to_owned();
            return Err(CgroupError::CannotEnforce { what: "swap", reason });
        }
        Ok(())
    }

    /// The files to write for one controller, in the order the kernel needs them.
    fn writes(
        &self,
        version: Version,
        controller: Controller,
    ) -> [Option<(&'static str, String)>; 4] {
        let memory = self.memory_bytes;
        let soft = self.soft_memory_bytes;
        match (version, controller) {
            (Version::V1, Controller::Memory) => [
                memory.map(|bytes| ("memory.limit_in_bytes", bytes.to_string())),
                // v1 limits memory and swap together, and refuses a sum below the memory limit, which therefore comes
                // first.
                memory.zip(self.swap_bytes).map(|(bytes, swap)| {
                    ("memory.memsw.limit_in_bytes", bytes.saturating_add(swap).to_string())
                }),
                soft.map(|bytes| ("memory.soft_limit_in_bytes", bytes.to_string())),
                self.swappiness.map(|value| ("memory.swappiness", value.to_string())),
            ],
            (Version::V2, Controller::Memory) => [
                memory.map(|bytes| ("memory.max", bytes.to_string())),
                self.swap_bytes.map(|bytes| ("memory.swap.max", bytes.to_string())),
                soft.map(|bytes| ("memory.high", bytes.to_string())),
                // v2 has no swappiness of a group; the node reports that.
                None,
            ],
            (_, Controller::Cpuset) => {
                let list = self.cpuset.as_ref();
                [list.map(|list| ("cpuset.cpus", list.clone())), None, None, None]
            }
            (_, Controller::Pids) => {
                [self.pids_max.map(|max| ("pids.max", max.to_string())), None, None, None]
            }
            (Version::V1, Controller::Cpu) => [
                self.cpu_time.map(|_| ("cpu.cfs_period_us", CPU_PERIOD_US.to_string())),
                self.cpu_time.map(|cpus| ("cpu.cfs_quota_us", quota_us(cpus).to_string())),
                None,
                None,
            ],
            (Version::V2, Controller::Cpu) => {
                let max = |cpus| format!("{} {CPU_PERIOD_US}", quota_us(cpus));
                [self.cpu_time.map(|cpus| ("cpu.max", max(cpus))), None, None, None]
            }
            _ => [None, None, None, None],
        }
    }

    pub(super) fn apply(
        &self,
        dir: &GroupDir,
        version: Version,
        controllers: ControllerSet,
    ) -> Result<(), CgroupError> {
        if let Some(rules) = self.devices.as_ref().filter(|_| controllers.has(Controller::Devices))
        {
            device_limits::restrict(dir, version, rules)?;
        }
        for (controller, _) in controllers.both(self.controllers()).names() {
            for (file, value) in self.writes(version, controller).into_iter().flatten() {
                dir.write(file, &value)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_written_to_the_file_of_its_version() {
        let limits = GroupLimits {
            memory_bytes: Some(1000),
            swap_bytes: Some(24),
            soft_memory_bytes: Some(900),
            swappiness: Some(5),
            cpuset: Some("0,2-3".into()),
            pids_max: Some(7),
            cpu_time: Some(3),
            ..GroupLimits::default()
        };
        let written = |version| -> Vec<String> {
            limits
                .controllers()
                .names()
                .flat_map(|(controller, _)| limits.writes(version, controller))
                .flatten()
                .map(|(file, value)| format!("{file}={value}"))
                .collect()
        };
        let v1 = [
            "memory.limit_in_bytes=1000",
            "memory.memsw.limit_in_bytes=1024",
            "memory.soft_limit_in_bytes=900",
            "memory.swappiness=5",
            "cpuset.cpus=0,2-3",
            "pids.max=7",
            "cpu.cfs_period_us=100000",
            "cpu.cfs_quota_us=300000",
        ];
        let v2 = [
            "memory.max=1000",
            "memory.swap.max=24",
            "memory.high=900",
            "cpuset.cpus=0,2-3",
            "pids.max=7",
            "cpu.max=300000 100000",
        ];
        assert_eq!(written(Version::V1), v1);
        assert_eq!(written(Version::V2), v2);
    }

    #[test]
    fn no_limit_needs_no_controller() {
        assert!(GroupLimits::default().controllers().is_empty());
    }

    #[test]
    fn limit_that_cannot_be_enforced_is_refused_with_its_reason() {
        let can = Capabilities {
            memory_hard: true,
            why_not: vec![("swap", "swap accounting is off".into())],
            ..Capabilities::default()
        };
        let memory = GroupLimits { memory_bytes: Some(1), ..GroupLimits::default() };
        assert!(memory.check(&can).is_ok());
        for (limits, words) in [
            (GroupLimits { swap_bytes: Some(0), ..memory.clone() }, "swap: swap accounting is off"),
            (GroupLimits { pids_max: Some(1), ..memory }, "pids: not available"),
        ] {
            let error = limits.check(&can).expect_err("must be refused").to_string();
            assert!(error.contains(words), "{error}");
        }
        let can = Capabilities { swap: true, ..can };
        let alone = GroupLimits { swap_bytes: Some(0), ..GroupLimits::default() };
        assert!(alone.check(&can).is_err(), "swap without memory");
    }
}

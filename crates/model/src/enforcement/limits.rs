//! Limits that the kernel enforces: a pure function of the allocation and the node's policy.

pub use super::device::{DeviceLimits, DeviceLine, DeviceUnit};
use crate::allocation::NodeShare;
use crate::amount::Bytes;
use crate::cpuset::CpuSet;
use serde::{Deserialize, Serialize};

/// `cgroup.conf` as it bears on one node. The default constrains all that can be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CgroupPolicy {
    pub constrain_cores: bool,
    pub constrain_memory: bool,
    pub constrain_swap: bool,
    pub constrain_devices: bool,
    /// `AllowedRAMSpace`: per cent of the allocated memory.
    pub allowed_memory_percent: f64,
    /// `AllowedSwapSpace`: per cent of the allocated memory, beyond it.
    pub allowed_swap_percent: f64,
    /// `MaxRAMPercent`: no limit is set above this share of the node's memory.
    #[serde(default = "whole")]
    pub max_memory_percent: f64,
    /// `MaxSwapPercent`: the same for memory and swap together.
    #[serde(default = "whole")]
    pub max_swap_percent: f64,
    /// `MinRAMSpace`: no limit is set below this.
    pub memory_floor: Bytes,
    /// `MemorySwappiness`, where the kernel takes one for each group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swappiness: Option<u8>,
    /// Processes and threads of one job on the node; `None` for half of the machine's maximum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids_max: Option<u64>,
    /// Open files of each process of a job, whatever limit it brings along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files_max: Option<u64>,
    /// The setuid bit of a program gives a job's process no further rights.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_new_privs: bool,
    /// Seconds of CPU time that one job may use on the node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds_max: Option<u64>,
    /// The folder of a job is held to the disk that it has asked for.
    #[serde(default)]
    pub constrain_scratch: bool,
    /// Disk for a job that has asked for none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch_max: Option<Bytes>,
    /// CPU time is limited to that of the job's CPUs, even if they are only counted and not pinned.
    #[serde(default)]
    pub constrain_cpu_time: bool,
    /// The node's CPU counts are only declared (several nodes on one host, `config_overrides`):
    /// cores that do not exist are counted, not pinned.
    pub declared: bool,
    /// The base of the percentages above; zero if not known.
    #[serde(default)]
    pub node_memory: Bytes,
    /// The node's generic resources that are devices.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<DeviceLine>,
    /// Devices that every job may open, by path; the last part may hold one `*`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_devices: Vec<String>,
}

fn whole() -> f64 {
    100.0
}

impl Default for CgroupPolicy {
    fn default() -> Self {
        Self {
            constrain_cores: true,
            constrain_memory: true,
            constrain_swap: true,
            constrain_devices: true,
            allowed_memory_percent: 100.0,
            allowed_swap_percent: 0.0,
            max_memory_percent: 100.0,
            max_swap_percent: 100.0,
            memory_floor: Bytes::from_mib(30),
            swappiness: None,
            pids_max: None,
            open_files_max: None,
            no_new_privs: false,
            cpu_seconds_max: None,
            constrain_scratch: true,
            scratch_max: None,
            constrain_cpu_time: false,
            declared: false,
            node_memory: Bytes(0),
            devices: Vec::new(),
            allowed_devices: Vec::new(),
        }
    }
}

/// The limits of one job on one node. `None` means not constrained.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    pub memory: Option<Bytes>,
    /// Memory and swap together.
    pub memory_and_swap: Option<Bytes>,
    /// Memory above which the kernel reclaims; `None` for the limit itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_soft: Option<Bytes>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swappiness: Option<u8>,
    pub cpus: Option<CpuSet>,
    /// CPU time, as so many CPUs' worth.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_time: Option<u32>,
    /// Seconds of CPU time, after which the job is ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_seconds: Option<u64>,
    /// `None` for the node's own maximum for a job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pids: Option<u64>,
    /// Open files of each process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_files: Option<u64>,
    /// No process gains rights by the setuid bit of a program.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub no_new_privs: bool,
    /// Disk in the job's own folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scratch: Option<Bytes>,
    /// `None` if every device may be opened.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub devices: Option<DeviceLimits>,
}

impl Limits {
    pub fn of(share: &NodeShare, policy: &CgroupPolicy) -> Self {
        let (memory, memory_and_swap) = memory_of(share.memory, policy);
        let devices = policy.constrain_devices && !policy.devices.is_empty();
        Self {
            memory,
            memory_and_swap,
            memory_soft: memory.map(|_| share.memory).filter(|soft| {
                policy.constrain_memory && soft.0 > 0 && memory.is_some_and(|hard| *soft < hard)
            }),
            swappiness: policy.swappiness.filter(|_| policy.constrain_swap && memory.is_some()),
            cpus: (policy.constrain_cores && !policy.declared).then(|| share.cpus.clone()),
            cpu_time: (policy.constrain_cpu_time && !share.cpus.is_empty())
                .then(|| share.cpus.len()),
            cpu_seconds: policy.cpu_seconds_max,
            pids: policy.pids_max,
            open_files: policy.open_files_max,
            no_new_privs: policy.no_new_privs,
            scratch: scratch_of(share.disk, policy),
            devices: devices
                .then(|| DeviceLimits::of(share, &policy.devices, &policy.allowed_devices)),
        }
    }
}

/// The granted scratch space, else the site's maximum for every job.
fn scratch_of(granted: Bytes, policy: &CgroupPolicy) -> Option<Bytes> {
    let asked = Some(granted).filter(|disk| disk.0 > 0);
    asked.or(policy.scratch_max).filter(|_| policy.constrain_scratch)
}

/// The limits of memory, and of memory and swap together. A share without memory has what a job may have at most.
fn memory_of(granted: Bytes, policy: &CgroupPolicy) -> (Option<Bytes>, Option<Bytes>) {
    let of = |amount: Bytes, percent: f64| Bytes((amount.0 as f64 * percent / 100.0) as u64);
    let ceiling = |percent: f64| match policy.node_memory {
        Bytes(0) => Bytes(u64::MAX),
        memory => of(memory, percent),
    };
    let (most, most_with_swap) =
        (ceiling(policy.max_memory_percent), ceiling(policy.max_swap_percent));
    if !policy.constrain_memory && !policy.constrain_swap {
        return (None, None);
    }
    if granted.0 == 0 && policy.node_memory.0 == 0 {
        return (None, None);
    }
    let floor = policy.memory_floor;
    let swap = of(granted, policy.allowed_swap_percent);
    // If memory alone is not constrained, the limit of memory and swap together is its limit.
    let ram = match (granted.0, policy.constrain_memory) {
        (0, _) => most,
        (_, true) => of(granted, policy.allowed_memory_percent).min(most),
        (_, false) => Bytes(granted.0.saturating_add(swap.0)),
    };
    let both = match (granted.0, policy.constrain_memory) {
        (0, _) => most_with_swap,
        (_, true) => Bytes(ram.max(floor).0.saturating_add(swap.0)).min(most_with_swap),
        (_, false) => ram.min(most_with_swap),
    };
    let both = both.max(floor);
    if policy.constrain_swap {
        (Some(ram.max(floor).min(both)), Some(both))
    } else {
        (Some(ram.max(floor)), None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::allocation::GresShare;

    fn share(memory_mib: u64) -> NodeShare {
        NodeShare {
            node: "n1".into(),
            cpus: "0-3".parse().unwrap(),
            memory: Bytes::from_mib(memory_mib),
            gres: vec![GresShare { name: "gpu".into(), kind: None, count: 2, indices: vec![1, 4] }],
            tasks: 1,
            sharers: 1,
            disk: Bytes(0),
            price: None,
        }
    }

    #[test]
    fn what_was_allocated_is_the_limit() {
        let limits = Limits::of(&share(512), &CgroupPolicy::default());
        assert_eq!(limits.memory, Some(Bytes::from_mib(512)));
        assert_eq!(limits.memory_and_swap, Some(Bytes::from_mib(512)));
        assert_eq!(limits.cpus.unwrap().to_string(), "0-3");
        assert_eq!(
            (limits.memory_soft, limits.devices),
            (None, None),
            "no devices, no list of them"
        );
    }

    #[test]
    fn a_policy_may_loosen_floor_or_drop_a_limit() {
        let policy = CgroupPolicy {
            constrain_cores: false,
            constrain_devices: false,
            allowed_swap_percent: 50.0,
            ..CgroupPolicy::default()
        };
        let limits = Limits::of(&share(10), &policy);
        assert_eq!(limits.memory, Some(Bytes::from_mib(30)), "never below the floor");
        assert_eq!(limits.memory_and_swap, Some(Bytes::from_mib(35)));
        assert_eq!((limits.cpus, limits.devices), (None, None));
    }

    #[test]
    fn cores_of_a_declared_node_are_counted_only() {
        let policy = CgroupPolicy { declared: true, ..CgroupPolicy::default() };
        assert_eq!(Limits::of(&share(64), &policy).cpus, None);
    }

    #[test]
    fn memory_has_a_ceiling_a_floor_and_a_soft_limit() {
        let mib = |n| Some(Bytes::from_mib(n));
        let with = |change: fn(&mut CgroupPolicy)| {
            let mut policy =
                CgroupPolicy { node_memory: Bytes::from_mib(1000), ..CgroupPolicy::default() };
            change(&mut policy);
            policy
        };
        let table: [(u64, CgroupPolicy, Option<Bytes>, Option<Bytes>); 8] = [
            (200, with(|p| p.allowed_memory_percent = 150.0), mib(300), mib(300)),
            (800, with(|p| p.allowed_memory_percent = 150.0), mib(1000), mib(1000)),
            (800, with(|p| p.max_memory_percent = 50.0), mib(500), mib(500)),
            (800, with(|p| p.max_swap_percent = 50.0), mib(500), mib(500)),
            (100, with(|p| p.allowed_swap_percent = 20.0), mib(100), mib(120)),
            (0, with(|p| p.max_memory_percent = 80.0), mib(800), mib(1000)),
            (
                100,
                with(|p| (p.constrain_memory, p.allowed_swap_percent) = (false, 50.0)),
                mib(150),
                mib(150),
            ),
            (100, with(|p| (p.constrain_memory, p.constrain_swap) = (false, false)), None, None),
        ];
        for (granted, policy, memory, both) in table {
            let limits = Limits::of(&share(granted), &policy);
            assert_eq!(
                (limits.memory, limits.memory_and_swap),
                (memory, both),
                "{granted} {policy:?}"
            );
        }
        let loose = with(|p| (p.allowed_memory_percent, p.swappiness) = (150.0, Some(10)));
        let limits = Limits::of(&share(200), &loose);
        assert_eq!((limits.memory_soft, limits.swappiness), (mib(200), Some(10)));
        let unknown = Limits::of(&share(0), &CgroupPolicy::default());
        assert_eq!(unknown.memory, None, "of an unknown memory nothing is a part");
    }

    #[test]
    fn cpu_time_may_be_held_to_the_cpus() {
        let policy =
            CgroupPolicy { constrain_cpu_time: true, declared: true, ..CgroupPolicy::default() };
        assert_eq!(Limits::of(&share(64), &policy).cpu_time, Some(4));
        let limits = Limits::of(&share(64), &CgroupPolicy::default());
        assert_eq!((limits.cpu_time, limits.cpu_seconds), (None, None));
        let policy = CgroupPolicy { cpu_seconds_max: Some(60), ..CgroupPolicy::default() };
        assert_eq!(Limits::of(&share(64), &policy).cpu_seconds, Some(60));
    }

    #[test]
    fn disk_is_held_to_what_was_asked_or_to_what_the_site_gives() {
        let gib = Bytes::from_gib;
        let limit = |disk, constrain_scratch, scratch_max| {
            let policy = CgroupPolicy { constrain_scratch, scratch_max, ..CgroupPolicy::default() };
            Limits::of(&NodeShare { disk, ..share(64) }, &policy).scratch
        };
        assert_eq!(limit(gib(3), true, None), Some(gib(3)));
        assert_eq!(limit(gib(3), true, Some(gib(1))), Some(gib(3)), "asking gives more");
        assert_eq!(limit(Bytes(0), true, Some(gib(1))), Some(gib(1)));
        assert_eq!(limit(Bytes(0), true, None), None);
        assert_eq!(limit(gib(3), false, Some(gib(1))), None);
    }
}

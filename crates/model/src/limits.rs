//! What the kernel enforces: a pure function of what was granted and of the node's policy.

use crate::allocation::NodeShare;
use crate::amount::Bytes;
use crate::cpuset::CpuSet;
use serde::{Deserialize, Serialize};

/// `cgroup.conf` as it bears on one node. The default constrains all that can be.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Policy {
    pub constrain_cores: bool,
    pub constrain_memory: bool,
    pub constrain_swap: bool,
    pub constrain_devices: bool,
    /// `AllowedRAMSpace`: per cent of the allocated memory.
    pub allowed_memory_percent: f64,
    /// `AllowedSwapSpace`: per cent of the allocated memory, beyond it.
    pub allowed_swap_percent: f64,
    /// `MinRAMSpace`: no limit is set below this.
    pub memory_floor: Bytes,
    /// The node's CPU counts are only declared (several nodes on one host, `config_overrides`):
    /// cores that do not exist are counted, not pinned.
    pub declared: bool,
}

impl Default for Policy {
    fn default() -> Self {
        Self {
            constrain_cores: true,
            constrain_memory: true,
            constrain_swap: true,
            constrain_devices: true,
            allowed_memory_percent: 100.0,
            allowed_swap_percent: 0.0,
            memory_floor: Bytes::from_mib(30),
            declared: false,
        }
    }
}

/// The limits of one job on one node. `None` means not constrained.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Limits {
    pub memory: Option<Bytes>,
    /// Memory and swap together.
    pub memory_and_swap: Option<Bytes>,
    pub cpus: Option<CpuSet>,
    /// GPU indices that may be opened; `None` means every device may.
    pub gpus: Option<Vec<u32>>,
}

impl Limits {
    pub fn of(share: &NodeShare, policy: &Policy) -> Self {
        let percent = |p: f64| Bytes((share.memory.0 as f64 * p / 100.0) as u64);
        let ram = percent(policy.allowed_memory_percent).max(policy.memory_floor);
        let memory = (policy.constrain_memory && share.memory.0 > 0).then_some(ram);
        let memory_and_swap = match memory {
            Some(ram) if policy.constrain_swap => {
                Some(Bytes(ram.0 + percent(policy.allowed_swap_percent).0))
            }
            _ => None,
        };
        let gpus = || {
            let of_gpus = share.gres.iter().filter(|g| g.name == "gpu");
            of_gpus.flat_map(|g| g.indices.iter().copied()).collect()
        };
        Self {
            memory,
            memory_and_swap,
            cpus: (policy.constrain_cores && !policy.declared).then(|| share.cpus.clone()),
            gpus: policy.constrain_devices.then(gpus),
        }
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
        }
    }

    #[test]
    fn what_was_allocated_is_the_limit() {
        let limits = Limits::of(&share(512), &Policy::default());
        assert_eq!(limits.memory, Some(Bytes::from_mib(512)));
        assert_eq!(limits.memory_and_swap, Some(Bytes::from_mib(512)));
        assert_eq!(limits.cpus.unwrap().to_string(), "0-3");
        assert_eq!(limits.gpus, Some(vec![1, 4]));
    }

    #[test]
    fn a_policy_may_loosen_floor_or_drop_a_limit() {
        let policy = Policy {
            constrain_cores: false,
            constrain_devices: false,
            allowed_swap_percent: 50.0,
            ..Policy::default()
        };
        let limits = Limits::of(&share(10), &policy);
        assert_eq!(limits.memory, Some(Bytes::from_mib(30)), "never below the floor");
        assert_eq!(limits.memory_and_swap, Some(Bytes::from_mib(35)));
        assert_eq!((limits.cpus, limits.gpus), (None, None));
    }

    #[test]
    fn cores_of_a_declared_node_are_counted_only() {
        let policy = Policy { declared: true, ..Policy::default() };
        assert_eq!(Limits::of(&share(64), &policy).cpus, None);
    }
}

//! The memory of a job on a node: what the request says, else the partition's default, else the cluster's.

use crate::view::SchedulerPolicy;
use model::amount::{Bytes, MIB};
use model::node::NodeConfig;
use model::partition::{DefaultMemory, Partition};
use model::request::{Memory, Request};

/// How much memory a share of a node brings with it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemoryRule {
    PerNode(Bytes),
    PerCpu(Bytes),
    PerGpu(Bytes),
    /// The node's memory over its CPUs, for each CPU granted.
    NodeOverCpus,
    WholeNode,
}

impl MemoryRule {
    pub fn of(request: &Request, partition: &Partition, policy: &SchedulerPolicy) -> Self {
        match &request.memory {
            Memory::PerNode(range) => Self::PerNode(range.min),
            Memory::PerCpu(each) => Self::PerCpu(*each),
            Memory::PerGpu(each) => Self::PerGpu(*each),
            Memory::WholeNode => Self::WholeNode,
            Memory::Default => {
                let (own, cluster) = (partition.default_memory, policy.default_memory);
                let default = DefaultMemory::applicable(own, cluster, request.asks_for_gpus());
                default.map_or(Self::unconfigured(policy), Self::from_default)
            }
        }
    }

    fn from_default(default: DefaultMemory) -> Self {
        match default {
            DefaultMemory::PerCpu(each) => Self::PerCpu(each),
            DefaultMemory::PerNode(amount) => Self::PerNode(amount),
            DefaultMemory::PerGpu(each) => Self::PerGpu(each),
        }
    }

    fn unconfigured(policy: &SchedulerPolicy) -> Self {
        if policy.memory_by_core { Self::NodeOverCpus } else { Self::WholeNode }
    }

    /// The memory that comes with so many CPUs and GPUs of this node.
    pub fn on_node(self, config: &NodeConfig, cpus: u32, gpus: u64) -> Bytes {
        let times = |each: Bytes, count: u64| Bytes(each.0.saturating_mul(count));
        let whole = config.usable_memory();
        match self {
            Self::PerNode(amount) => amount,
            Self::PerCpu(each) => times(each, u64::from(cpus)),
            Self::PerGpu(each) => times(each, gpus),
            Self::WholeNode => whole,
            Self::NodeOverCpus => {
                portion(whole, u64::from(cpus), u64::from(config.usable_cpus().len()))
            }
        }
    }
}

/// The `part / of` of an amount, in whole mebibytes; all of it where the part is the whole.
pub fn portion(amount: Bytes, part: u64, of: u64) -> Bytes {
    if part >= of {
        return amount;
    }
    let share = u128::from(amount.0) * u128::from(part) / u128::from(of);
    let share = u64::try_from(share).unwrap_or(u64::MAX);
    if share < MIB { Bytes(share) } else { Bytes(share / MIB * MIB) }
}

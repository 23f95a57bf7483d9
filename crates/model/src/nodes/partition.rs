//! Partitions: views over nodes, with policy. Views overlap.

use crate::amount::Bytes;
use crate::power::PartitionPower;
use crate::select::PartitionSelect;
use crate::time::TimeLimit;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Partition {
    pub name: String,
    pub nodes: Vec<String>,
    #[serde(default)]
    pub default: bool,
    #[serde(default)]
    pub state: PartitionState,
    #[serde(default = "unlimited")]
    pub max_time: TimeLimit,
    /// `None` for `max_time`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_time: Option<TimeLimit>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_nodes: Option<u32>,
    #[serde(default)]
    pub min_nodes: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cpus_per_node: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_cpus_per_socket: Option<u32>,
    /// `DefCpuPerGPU`
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpus_per_gpu: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub select: Option<PartitionSelect>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_memory: Option<DefaultMemory>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_memory: Option<DefaultMemory>,
    #[serde(default = "one")]
    pub priority_tier: u32,
    #[serde(default = "one")]
    pub priority_job_factor: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    #[serde(default)]
    pub allow_accounts: Access,
    #[serde(default)]
    pub allow_groups: Access,
    /// The numbers of `allow_groups`, as the machine's group database has them: a user's further
    /// groups are known by number.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allow_group_ids: Vec<u32>,
    #[serde(default)]
    pub allow_qos: Access,
    #[serde(default)]
    pub hidden: bool,
    #[serde(default)]
    pub root_only: bool,
    #[serde(default)]
    pub disable_root_jobs: bool,
    #[serde(default)]
    pub exclusive_user: bool,
    #[serde(default)]
    pub least_loaded: bool,
    #[serde(default)]
    pub require_reservation: bool,
    #[serde(default)]
    pub over_subscribe: OverSubscribe,
    #[serde(default)]
    pub grace_time_s: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub preempt_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over_time_limit: Option<TimeLimit>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub billing_weights: BTreeMap<String, f64>,
    #[serde(default, skip_serializing_if = "PartitionPower::is_default")]
    pub power: PartitionPower,
    #[serde(default, skip_serializing_if = "DynamicMembers::is_none")]
    pub dynamic_members: DynamicMembers,
}

/// Which dynamic nodes a partition takes in: all (`Nodes=ALL`), or those with one of these features (`NodeSet=… Feature=…`).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct DynamicMembers {
    #[serde(default)]
    pub all: bool,
    #[serde(default)]
    pub features: Vec<String>,
}

impl DynamicMembers {
    pub fn is_none(&self) -> bool {
        !self.all && self.features.is_empty()
    }

    /// Whether a node with these features is one of them.
    pub fn admits(&self, features: &[String]) -> bool {
        self.all || features.iter().any(|feature| self.features.contains(feature))
    }
}

fn unlimited() -> TimeLimit {
    TimeLimit::Unlimited
}

fn one() -> u32 {
    1
}

impl Partition {
    /// A partition over these nodes, with Slurm's defaults for everything else.
    pub fn over(name: &str, nodes: Vec<String>) -> Self {
        Self {
            name: name.to_string(),
            nodes,
            default: false,
            state: PartitionState::Up,
            max_time: TimeLimit::Unlimited,
            default_time: None,
            max_nodes: None,
            min_nodes: 0,
            max_cpus_per_node: None,
            max_cpus_per_socket: None,
            cpus_per_gpu: None,
            select: None,
            default_memory: None,
            max_memory: None,
            priority_tier: 1,
            priority_job_factor: 1,
            qos: None,
            allow_accounts: Access::All,
            allow_groups: Access::All,
            allow_group_ids: Vec::new(),
            allow_qos: Access::All,
            hidden: false,
            root_only: false,
            disable_root_jobs: false,
            exclusive_user: false,
            least_loaded: false,
            require_reservation: false,
            over_subscribe: OverSubscribe::No,
            grace_time_s: 0,
            preempt_mode: None,
            over_time_limit: None,
            billing_weights: BTreeMap::new(),
            power: PartitionPower::default(),
            dynamic_members: DynamicMembers::default(),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionState {
    #[default]
    Up,
    /// Accepts jobs and starts none.
    Down,
    /// Accepts no jobs; those that it has run on.
    Drain,
    Inactive,
}

/// An amount of memory with its unit: `DefMemPerCPU`, `DefMemPerNode`, `DefMemPerGPU`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, Hash)]
#[serde(rename_all = "snake_case")]
pub enum DefaultMemory {
    PerCpu(Bytes),
    PerNode(Bytes),
    PerGpu(Bytes),
}

impl DefaultMemory {
    /// The default for a job that names no memory: its partition's, else the cluster's. `DefMemPerGPU` says nothing of a
    /// job without GPUs: the next default applies to it.
    pub fn applicable(
        partition: Option<Self>,
        cluster: Option<Self>,
        has_gpus: bool,
    ) -> Option<Self> {
        let applies = |default: &Self| has_gpus || !matches!(default, Self::PerGpu(_));
        [partition, cluster].into_iter().flatten().find(applies)
    }

    pub fn amount(self) -> Bytes {
        match self {
            Self::PerCpu(amount) | Self::PerNode(amount) | Self::PerGpu(amount) => amount,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Access {
    #[default]
    All,
    Only(Vec<String>),
    Except(Vec<String>),
}

impl Access {
    pub fn admits(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::Only(names) => names.iter().any(|n| n == name),
            Self::Except(names) => !names.iter().any(|n| n == name),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverSubscribe {
    #[default]
    No,
    Exclusive,
    Yes(u32),
    Force(u32),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_memory_per_gpu_applies_to_jobs_with_gpus_only() {
        let per_gpu = Some(DefaultMemory::PerGpu(Bytes::from_mib(100)));
        let per_cpu = Some(DefaultMemory::PerCpu(Bytes::from_mib(10)));
        assert_eq!(DefaultMemory::applicable(per_gpu, per_cpu, true), per_gpu);
        assert_eq!(DefaultMemory::applicable(per_gpu, per_cpu, false), per_cpu);
        assert_eq!(DefaultMemory::applicable(per_gpu, None, false), None);
        assert_eq!(DefaultMemory::applicable(None, per_cpu, true), per_cpu);
    }
}

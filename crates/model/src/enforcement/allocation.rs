//! Allocations: for each node of a job the CPU ids, bytes of memory and device indices.

use crate::amount::Bytes;
use crate::cpuset::CpuSet;
use crate::tres::{Tres, TresKind};
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allocation {
    /// The one of the requested partitions that the job was started in.
    pub partition: String,
    /// In the order of Slurm's node list; the first is the batch host.
    pub nodes: Vec<NodeShare>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeShare {
    pub node: String,
    pub cpus: CpuSet,
    pub memory: Bytes,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gres: Vec<GresShare>,
    /// Tasks that the job may start here.
    pub tasks: u32,
    /// The most jobs that may have these CPUs at once (`OverSubscribe`); 1 if they are not shared.
    #[serde(default = "alone", skip_serializing_if = "is_alone")]
    pub sharers: u32,
    /// Local scratch space; zero if none was requested.
    #[serde(default, skip_serializing_if = "is_nothing")]
    pub disk: Bytes,
}

fn is_nothing(amount: &Bytes) -> bool {
    amount.0 == 0
}

fn alone() -> u32 {
    1
}

fn is_alone(sharers: &u32) -> bool {
    *sharers <= 1
}

/// Granted units of one generic resource, by index where the units are told apart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GresShare {
    pub name: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<String>,
    pub count: u64,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub indices: Vec<u32>,
}

impl Allocation {
    pub fn share(&self, node: &str) -> Option<&NodeShare> {
        self.nodes.iter().find(|s| s.node == node)
    }

    pub fn node_names(&self) -> impl Iterator<Item = &str> {
        self.nodes.iter().map(|s| s.node.as_str())
    }

    pub fn cpu_count(&self) -> u32 {
        self.nodes.iter().map(|s| s.cpus.len()).sum()
    }

    pub fn task_count(&self) -> u32 {
        self.nodes.iter().map(|s| s.tasks).sum()
    }

    /// The allocation as trackable resources, `billing` left to the books' weights.
    pub fn tres(&self) -> Tres {
        let mut tres = Tres::default();
        tres.add(TresKind::Node, self.nodes.len() as u64);
        for share in &self.nodes {
            tres.merge(&share.tres());
        }
        tres
    }
}

impl NodeShare {
    pub fn tres(&self) -> Tres {
        let mut tres = Tres::default();
        tres.add(TresKind::Cpu, u64::from(self.cpus.len()));
        tres.add(TresKind::Mem, self.memory.mib());
        for gres in &self.gres {
            tres.add(TresKind::Gres { name: gres.name.clone(), kind: None }, gres.count);
        }
        tres
    }

    pub fn gres_count(&self, name: &str) -> u64 {
        self.gres.iter().filter(|g| g.name == name).map(|g| g.count).sum()
    }
}

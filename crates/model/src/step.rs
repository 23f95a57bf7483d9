//! What a step asks of its job's allocation, beyond counts: how it shares, and where its tasks sit.

use crate::request::{GresRequest, Memory};
use serde::{Deserialize, Serialize};

/// How a step's tasks are dealt to its nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskDistribution {
    /// Neighbouring ranks share a node.
    Block,
    /// Each rank goes to the next node.
    Cyclic,
    /// So many ranks to a node, then to the next.
    Plane(u32),
    /// Rank by rank as the node list names them.
    Arbitrary,
}

/// The shape of a step. The default takes all CPUs, memory and devices of the job on its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepShape {
    /// Told apart by this from another of the same job: one that asks again gets the step that it has. 0: never.
    #[serde(default)]
    pub ticket: u64,
    /// The first step of an allocation that was made for it.
    #[serde(default)]
    pub own: bool,
    /// The most nodes; none: as many as asked for at least.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nodes_max: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub exclude: Vec<String>,
    /// Begins at this node of the allocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub relative: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<TaskDistribution>,
    /// As few nodes as hold the tasks, each filled before the next.
    #[serde(default)]
    pub pack: bool,
    /// Takes only the CPUs that its tasks need.
    #[serde(default)]
    pub exact: bool,
    /// Uses what others use, and takes nothing from them.
    #[serde(default)]
    pub overlap: bool,
    /// None: its part of the job's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// None: all of the job's on its nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres: Option<Vec<GresRequest>>,
}

/// Why a step cannot be had of its job, or not now.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum StepRefusal {
    /// Other steps have what it needs; it may wait.
    #[error("other steps of the job have what it needs")]
    Busy,
    #[error("{asked} nodes, the job has {most}")]
    Nodes { asked: u32, most: u32, excluded: bool },
    #[error("no node is left")]
    NoNodes,
    #[error("{asked} nodes from node {first}, the job has {most}")]
    Relative { first: u32, asked: u32, most: u32 },
    #[error("{asked} processors, the job has {most} there")]
    Processors { asked: u64, most: u64 },
    #[error("{asked_mib} MiB of memory on a node, the job has {most_mib}")]
    Memory { asked_mib: u64, most_mib: u64 },
    #[error("{asked} of {name} on a node, the job has {most}")]
    GresPerNode { name: String, asked: u64, most: u64 },
    #[error("{asked} of {name}, the job has {most} there")]
    Gres { name: String, asked: u64, most: u64 },
    #[error("{name}: the job has none")]
    GresUnknown { name: String },
    #[error("{asked} of {name} for {nodes} nodes")]
    GresBelowNodes { name: String, asked: u64, nodes: u32 },
    #[error("the job has created {most} steps, and may create no more")]
    Count { most: u32 },
    #[error("the job's open steps take {bytes} bytes, {most} are allowed")]
    OpenBytes { bytes: usize, most: usize },
    #[error("{tasks} tasks for {hosts} named nodes")]
    Hosts { tasks: u32, hosts: u32 },
}

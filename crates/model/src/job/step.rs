//! A step's request on its job's allocation: sharing, nodes, distribution of tasks, and why it is refused.

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
    /// This many ranks to a node, then as many to the next.
    Plane(u32),
    /// One rank for each name of the node list, in its order.
    Arbitrary,
}

/// The shape of a step. The default takes all CPUs, memory and devices that the job asked for on its nodes.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct StepShape {
    /// Identifies the request: a repeated request with the same ticket gets the same step. 0 for no ticket.
    #[serde(default)]
    pub ticket: u64,
    /// The step for which `srun` made the allocation.
    #[serde(default)]
    pub own: bool,
    /// The most nodes; `None` for the requested minimum.
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
    /// `--overlap`: uses resources that other steps may use too.
    #[serde(default)]
    pub overlap: bool,
    /// `None` for the step's part of the job's memory.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<Memory>,
    /// `None` for all of the job's devices on the step's nodes; of a job with whole nodes, for those that it asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gres: Option<Vec<GresRequest>>,
}

/// Why a step is refused, or must wait.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum StepRefusal {
    /// Other steps hold the resources; the step may wait.
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

//! The health of a node: when the site's check runs there, and what was found unhealthy.

use serde::{Deserialize, Serialize};

/// `HealthCheckProgram` with its interval and states.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    pub program: String,
    /// At least 1.
    pub interval_s: u32,
    /// The loads in which a node is checked.
    pub loads: Vec<NodeLoad>,
    /// The nodes are checked at different times of the interval, not all at once.
    #[serde(default)]
    pub spread: bool,
}

/// How much of a node's CPUs its jobs have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeLoad {
    Idle,
    Mixed,
    Allocated,
}

impl NodeLoad {
    pub const ALL: [NodeLoad; 3] = [NodeLoad::Idle, NodeLoad::Mixed, NodeLoad::Allocated];

    pub fn of(cpus_granted: u32, cpus: u32) -> NodeLoad {
        match cpus_granted {
            0 => NodeLoad::Idle,
            granted if granted < cpus => NodeLoad::Mixed,
            _ => NodeLoad::Allocated,
        }
    }
}

/// Who found a node unhealthy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HealthSource {
    /// The site's check program.
    Check,
    /// The counters of the node's GPUs.
    Gpu,
    /// The machine has less than the configuration says.
    Hardware,
    /// The cloud takes a spot machine back.
    Interruption,
}

/// A failure that was found last and has not passed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthFailure {
    pub text: String,
    /// The node was resumed in spite of it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub acknowledged: bool,
}

//! `SelectType` and `SelectTypeParameters`: the unit of allocation, and which resources are counted.

use serde::{Deserialize, Serialize};

/// The smallest part of a node that is allocated to one job alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// `CR_CPU`: a job gets as many CPUs as it asked for, though no two jobs are on one core.
    Cpu,
    /// `CR_Core`: all hardware threads of a core go together.
    #[default]
    Core,
    /// `CR_Socket`
    Socket,
    /// `select/linear`
    Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default)]
pub struct Select {
    pub unit: Unit,
    /// Memory is counted. Otherwise `--mem` only excludes nodes that have less.
    pub memory: bool,
    /// `CR_ONE_TASK_PER_CORE`
    pub one_task_per_core: bool,
    /// `CR_LLN`: the nodes with the most idle CPUs come first.
    pub least_loaded: bool,
    /// `CR_Pack_Nodes`: tasks fill the first of a job's whole nodes.
    pub pack_nodes: bool,
    /// `CR_Memory` alone: CPUs are not counted, jobs share them.
    pub shares_cpus: bool,
}

impl Default for Select {
    fn default() -> Self {
        Self {
            unit: Unit::Core,
            memory: true,
            one_task_per_core: false,
            least_loaded: false,
            pack_nodes: false,
            shares_cpus: false,
        }
    }
}

/// A partition's own `SelectTypeParameters`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartitionSelect {
    pub unit: Unit,
    pub memory: bool,
}

//! Fleets: owners of nodes. Every fleet is shown as a partition too.

use serde::{Deserialize, Serialize};

/// The fleet of the nodes that slurm.conf declares.
pub const STATIC: &str = "static";

/// The project (account) to which `static` belongs.
pub const MAIN_PROJECT: &str = "main";

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fleet {
    pub name: String,
    pub project: String,
    pub blocks: Blocks,
}

/// Into how many equal shares a host of the fleet is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocks {
    /// The smallest free share that satisfies the ranges.
    Auto,
    Count(u32),
}

impl Fleet {
    pub fn of_static_nodes() -> Self {
        Self { name: STATIC.into(), project: MAIN_PROJECT.into(), blocks: Blocks::Auto }
    }
}

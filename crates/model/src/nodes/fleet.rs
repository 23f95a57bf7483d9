//! Fleets: owners of nodes. Every fleet is shown as a partition too.

use serde::{Deserialize, Serialize};

/// The fleet of the nodes that slurm.conf declares.
pub const STATIC: &str = "static";

/// The project (account) to which `static` belongs.
pub const MAIN_PROJECT: &str = "main";

/// The project whose jobs alone may use what belongs to it, a fleet or a backend's machines. `None` for what is of the main project:
/// that is everybody's.
pub fn only_for(project: &str) -> Option<&str> {
    Some(project).filter(|project| *project != MAIN_PROJECT)
}

/// Into how many equal shares a host of the fleet is offered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Blocks {
    /// The smallest free share that satisfies the ranges.
    Auto,
    Count(u32),
}

//! The agent's request to its launcher to start one attempt.

use crate::cgroup::{Hierarchy, Plugin};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The parameters of a supervisor, beside its end of the socket to the agent.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct LaunchRequest {
    /// The attempt's folder in the spool.
    pub folder: PathBuf,
    pub group_root: String,
    /// `CgroupPlugin` as slurm.conf writes it.
    pub plugin: String,
    /// The job's CPUs are only counted.
    #[serde(default)]
    pub without_cpuset: bool,
}

impl LaunchRequest {
    /// Finds the control-group trees that the attempt's group is made in.
    pub fn discover_groups(&self) -> Result<Hierarchy, String> {
        let plugin: Plugin = self.plugin.parse()?;
        let found = if self.without_cpuset {
            Hierarchy::discover_without_cpuset(plugin, &self.group_root)
        } else {
            Hierarchy::discover(plugin, &self.group_root)
        };
        found.map_err(|e| e.to_string())
    }
}

//! What a site does around jobs on its nodes: prolog and epilog, health check, sampling of usage, scratch and private
//! folders.

use crate::health::HealthCheck;
use crate::run::LaunchKind;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The default of [`Site::sample_s`].
pub const SAMPLE_S_DEFAULT: u32 = 30;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Site {
    /// Run by root on each node before a job's processes, and `epilog` after them: paths, folders or patterns.
    pub prolog: Vec<String>,
    pub epilog: Vec<String>,
    /// Run by the job's user around each task.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_prolog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub task_epilog: Option<String>,
    /// Run by `srun` itself, as its user.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srun_prolog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub srun_epilog: Option<String>,
    /// Run by the server, as its user, before a job's nodes are told of it and after its end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_prolog: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub controller_epilog: Option<String>,
    /// `Alloc`: the prolog runs with the allocation, not before the first step on the node.
    pub prolog_at_allocation: bool,
    /// `NoHold`: the client of an allocation does not wait for the prologs; only its steps do.
    pub no_hold: bool,
    /// `DeferBatch`: a script waits for the prologs of all its nodes, not only of its own.
    pub defer_batch: bool,
    /// One prolog or epilog at a time on a node.
    pub one_at_a_time: bool,
    /// `None` for no timeout of prolog and epilog.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout_s: Option<u32>,
    /// A job whose prolog failed is requeued and held.
    pub hold_on_failure: bool,
    /// `None` where nodes are not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub health_check: Option<HealthCheck>,
    /// Seconds between two samples of tasks' usage; 0: only at their ends.
    pub sample_s: u32,
    /// The parent of the jobs' scratch folders; `None` for the node's own files.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub scratch: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub private: Option<PrivateFolders>,
    /// Nodes whose private folders differ from `private`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub private_of: BTreeMap<String, Option<PrivateFolders>>,
}

impl Default for Site {
    fn default() -> Self {
        Self {
            prolog: Vec::new(),
            epilog: Vec::new(),
            task_prolog: None,
            task_epilog: None,
            srun_prolog: None,
            srun_epilog: None,
            controller_prolog: None,
            controller_epilog: None,
            prolog_at_allocation: false,
            no_hold: false,
            defer_batch: false,
            one_at_a_time: false,
            timeout_s: None,
            hold_on_failure: true,
            health_check: None,
            sample_s: SAMPLE_S_DEFAULT,
            scratch: None,
            private: None,
            private_of: BTreeMap::new(),
        }
    }
}

impl Site {
    pub fn has_prolog_epilog(&self) -> bool {
        let own = self.private_of.values().chain([&self.private]).flatten();
        let inits = own.filter(|folders| folders.init_script.is_some()).count();
        !self.prolog.is_empty() || !self.epilog.is_empty() || inits > 0
    }

    /// The settings of one node.
    pub fn on(&self, node: &str) -> Site {
        let private = self.private_of.get(node).unwrap_or(&self.private).clone();
        Site { private, private_of: BTreeMap::new(), ..self.clone() }
    }

    /// Whether a job's script or client waits until the prolog is over on all its nodes.
    pub fn prolog_is_awaited(&self, kind: LaunchKind, nodes: usize) -> bool {
        let waited = match kind {
            LaunchKind::Interactive => !self.no_hold,
            // On one node the script starts after the prolog anyway.
            LaunchKind::Batch => self.defer_batch && nodes > 1,
            LaunchKind::Task => false,
        };
        waited && self.prolog_at_allocation && !self.prolog.is_empty()
    }
}

/// `job_container.conf`: folders of which each job has its own version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PrivateFolders {
    /// The parent of the private versions.
    pub base: String,
    /// `base` is made if it does not exist.
    pub make_base: bool,
    pub dirs: Vec<String>,
    /// Run by root before the private versions are mounted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub init_script: Option<String>,
}

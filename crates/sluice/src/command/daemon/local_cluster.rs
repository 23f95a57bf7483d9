//! A cluster that `sluice up` started in a state folder of this machine, as somebody finds it who looks after its agent: no service
//! manager knows of it.

use super::agent::short_host_name;
use super::keeper::{AGENT_KEEPER, SERVER_KEEPER};
use super::state_dir::StateDir;
use std::path::Path;

/// What starts an agent again whose server runs.
const AGENT_GONE: &str = "sluice up --detach";
/// What has an agent that is there join anew.
const AGENT_SILENT: &str = "sluice down; sluice up --detach   # jobs go on";

pub struct LocalCluster {
    host: String,
    has_agent: bool,
}

impl LocalCluster {
    /// `None` where no server of `sluice up` runs in this folder.
    pub fn find(state: &Path) -> Option<Self> {
        let state = StateDir::open(state);
        let runs = |of: &str| state.running_pid(of).is_some();
        let has_agent = || [AGENT_KEEPER.name, "agent"].into_iter().any(runs);
        runs(SERVER_KEEPER.name).then(|| Self { host: short_host_name(), has_agent: has_agent() })
    }

    /// Whether a node is served by this machine's agent, or is to be. `hostname` is what the node's agent said last; a node that
    /// never had one has none.
    pub fn serves(&self, hostname: &str) -> bool {
        hostname.is_empty() || hostname == self.host
    }

    /// The command for nodes of its own that do not answer.
    pub fn remedy(&self) -> &'static str {
        if self.has_agent { AGENT_SILENT } else { AGENT_GONE }
    }
}

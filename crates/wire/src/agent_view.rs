//! Machines and their agents, as `sluice node` shows them, and nodes that no configuration file names.

use model::node::NodeConfig;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Dynamic nodes that are to be, alike but for their names and addresses.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NewNodes {
    /// As a host list.
    pub names: String,
    /// One for each name; none: the host names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// One for each name; none: the names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hostnames: Vec<String>,
    /// What all of them are.
    pub node: NodeConfig,
}

/// A machine of the cluster, and the agent that speaks for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentView {
    pub node: String,
    /// It runs no jobs: a login node.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub login: bool,
    /// The address that the agent's connection comes from; `None` while it is not connected.
    pub address: Option<String>,
    /// The agent's program, as it says.
    pub version: Option<String>,
    /// Since when the agent is connected.
    pub connected: Option<Timestamp>,
    pub joined: Option<JoinView>,
    /// Until when it may join again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rejoin_until: Option<Timestamp>,
}

/// How a machine joined.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinView {
    /// `None` for one that joined before this was kept, as for the next two.
    pub at: Option<Timestamp>,
    pub method: Option<JoinMethodView>,
    /// The name of its token.
    pub token: Option<String>,
    /// When its certificate ends; `None` for one of before certificates ended.
    pub certificate_end: Option<Timestamp>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JoinMethodView {
    File,
    Group,
    Fleet,
}

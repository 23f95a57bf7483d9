//! Fleets over SSH, as clients name and see them.

use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::fmt;

/// dstack's configuration of a fleet, as JSON. It carries private keys: its debug form hides it.
#[derive(Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FleetConfiguration(pub serde_json::Value);

impl fmt::Debug for FleetConfiguration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FleetConfiguration(…)")
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetView {
    pub name: String,
    pub project: String,
    /// dstack's configuration of it as JSON, without private keys.
    pub configuration: String,
    pub created: Timestamp,
    pub hosts: Vec<FleetHostView>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FleetHostView {
    pub number: u32,
    /// The node that it is.
    pub node: String,
    pub hostname: String,
    pub state: FleetHostState,
    /// How many shares it is offered in; `None` for as many as fit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocks: Option<u32>,
    /// Why it is not in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FleetHostState {
    /// The agent has not answered yet.
    Installing,
    /// The node says how it is.
    Joined,
    /// What was installed there is being removed.
    Leaving,
}

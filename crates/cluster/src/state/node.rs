//! A node as the state holds it: configuration, slot, and what is granted of it.

use model::health::{HealthFailure, HealthSource};
use model::id::AttemptId;
use model::node::{AdminState, Architecture, NodeConfig, NodeFacts, SlotState};
use model::node_reason::NodeReason;
use model::time::Timestamp;
use sched::view::{Availability, NodeUse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub config: Arc<NodeConfig>,
    pub slot: SlotState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<AdminState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<NodeReason>,
    #[serde(default)]
    pub facts: NodeFacts,
    /// Since when the node has not answered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub silent_since: Option<Timestamp>,
    /// Attempts that were given up while the node did not answer, and that it still holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub stale: Vec<AttemptId>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_busy: Option<Timestamp>,
    /// What was found unhealthy and has not passed.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub failures: BTreeMap<HealthSource, HealthFailure>,
    /// No longer in the configuration: the node is dropped when its last job ends.
    #[serde(default)]
    pub removed: bool,
    /// Derived from the active attempts; not stored.
    #[serde(skip)]
    pub used: NodeUse,
    /// Derived: attempts that hold a share of the node.
    #[serde(skip)]
    pub holders: Vec<AttemptId>,
}

impl Node {
    pub fn new(config: Arc<NodeConfig>) -> Self {
        Self {
            config,
            slot: SlotState::Joining,
            admin: None,
            reason: None,
            facts: NodeFacts::default(),
            silent_since: None,
            stale: Vec::new(),
            last_busy: None,
            failures: BTreeMap::new(),
            removed: false,
            used: NodeUse::default(),
            holders: Vec::new(),
        }
    }

    /// Sets the architecture that the node's agent reported, if any has. Returns whether that changes something.
    pub fn take_architecture(&mut self) -> bool {
        let found = Architecture::of_machine(&self.facts.arch);
        let is_new = found.is_some() && self.config.architecture != found;
        if is_new {
            Arc::make_mut(&mut self.config).architecture = found;
        }
        is_new
    }

    pub fn availability(&self) -> Availability {
        match (self.slot, self.admin) {
            (_, Some(AdminState::Down | AdminState::Fail | AdminState::Future)) => {
                Availability::Down
            }
            (SlotState::Up, Some(AdminState::Drain)) => Availability::Drained,
            (SlotState::Up, None) if !self.stale.is_empty() => Availability::Reconciling,
            (SlotState::Up, None) if self.removed => Availability::Drained,
            (SlotState::Up, None) => Availability::Available,
            (SlotState::Silent, _) => Availability::Silent,
            _ => Availability::Down,
        }
    }
}

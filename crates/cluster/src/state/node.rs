//! A node as the state holds it: configuration, slot, and what is granted of it.

use model::health::{HealthFailure, HealthSource};
use model::id::AttemptId;
use model::node::{AdminState, Architecture, NodeConfig, NodeFacts, SlotState};
use model::node_reason::NodeReason;
use model::power::PowerState;
use model::time::Timestamp;
use model::tres::{Tres, TresKind};
use sched::view::{Availability, NodeUse};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Node {
    pub config: Arc<NodeConfig>,
    pub slot: SlotState,
    #[serde(default, skip_serializing_if = "PowerState::is_on")]
    pub power: PowerState,
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
    /// All that the node has, as it is counted.
    pub fn tres(&self) -> Tres {
        let mut tres = Tres::new();
        tres.set(TresKind::Node, 1);
        tres.set(TresKind::Cpu, u64::from(self.config.cpus));
        tres.set(TresKind::Billing, u64::from(self.config.cpus));
        tres.set(TresKind::Mem, self.config.memory.mib());
        for gres in &self.config.gres {
            tres.add(TresKind::gres(&gres.name, None), gres.count);
            if let Some(kind) = &gres.kind {
                tres.add(TresKind::gres(&gres.name, Some(kind)), gres.count);
            }
        }
        if let Some(price) = self.config.price {
            tres.set(TresKind::Cost, price.units());
        }
        tres
    }

    pub fn new(config: Arc<NodeConfig>) -> Self {
        Self {
            config,
            slot: SlotState::Joining,
            power: PowerState::On,
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

    /// Takes the address and the host name that the agent of a cloud's machine reported.
    pub fn take_address(&mut self) {
        if !self.config.cloud {
            return;
        }
        let config = Arc::make_mut(&mut self.config);
        let reported = [
            (&mut config.address, &self.facts.address),
            (&mut config.hostname, &self.facts.hostname),
        ];
        for (known, reported) in reported.into_iter().filter(|(_, new)| !new.is_empty()) {
            known.clone_from(reported);
        }
    }

    /// Whether it is powered down, and somebody or a job waits for it to be up.
    pub fn is_to_power_up(&self) -> bool {
        match self.power {
            PowerState::PowerUpPending => true,
            PowerState::PoweredDown => !self.holders.is_empty(),
            _ => false,
        }
    }

    /// Whether nothing runs here, nor has to end here first.
    pub fn is_idle(&self) -> bool {
        self.holders.is_empty() && (self.stale.is_empty() || self.slot != SlotState::Up)
    }

    /// Whether it is idle and could take a job at once.
    pub fn is_usable_idle(&self) -> bool {
        self.is_idle() && self.power.is_on() && self.availability() == Availability::Available
    }

    /// Whether it has been idle, or down, for so many seconds.
    pub fn was_idle_for(&self, seconds: u32, now: Timestamp) -> bool {
        let since = match self.slot {
            _ if !self.is_idle() || self.admin == Some(AdminState::Future) => None,
            SlotState::Up => self.last_busy,
            SlotState::Down => self.last_busy.max(self.reason.as_ref().map(|reason| reason.at)),
            SlotState::Joining | SlotState::Silent => None,
        };
        since.is_some_and(|since| since + Duration::from_secs(seconds.into()) <= now)
    }

    pub fn availability(&self) -> Availability {
        let is_out =
            matches!(self.admin, Some(AdminState::Down | AdminState::Fail | AdminState::Future));
        match self.power {
            _ if is_out => return Availability::Down,
            // Suspended while it was down: it is so until somebody resumes it.
            power if power.is_off() && self.slot == SlotState::Down => return Availability::Down,
            power if power.is_off() && (self.admin.is_some() || self.removed) => {
                return Availability::Drained;
            }
            PowerState::PoweringUp { .. } => return Availability::PoweringUp,
            power if power.is_off() => return Availability::PoweredDown,
            PowerState::PoweringDown { .. } | PowerState::Rebooting { .. } => {
                return Availability::Reconciling;
            }
            power if power.drains() => return Availability::Drained,
            _ => {}
        }
        match (self.slot, self.admin) {
            (SlotState::Up, Some(AdminState::Drain)) => Availability::Drained,
            (SlotState::Up, None) if !self.stale.is_empty() => Availability::Reconciling,
            (SlotState::Up, None) if self.removed => Availability::Drained,
            (SlotState::Up, None) => Availability::Available,
            (SlotState::Silent, _) => Availability::Silent,
            _ => Availability::Down,
        }
    }
}

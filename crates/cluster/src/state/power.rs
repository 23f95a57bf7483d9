//! What the configuration says of each node's power: its times, and which nodes are not suspended.

use crate::state::State;
use crate::state::node::Node;
use model::node::{AdminState, SlotState};
use model::power::{ExemptState, PartitionPower, PowerPolicy, SuspendTime};
use model::reservation::ReservationFlag;
use model::time::Timestamp;
use std::collections::{HashMap, HashSet};

/// The times of one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodePowerTimes {
    /// `None`: it is not suspended by itself.
    pub suspend_time_s: Option<u32>,
    pub suspend_timeout_s: u32,
    pub resume_timeout_s: u32,
}

/// The times of all nodes: those of the cluster, and of the nodes whose partitions set others.
pub struct PowerTimes<'a> {
    usual: NodePowerTimes,
    of_partitions: HashMap<&'a str, PartitionPower>,
}

impl PowerTimes<'_> {
    pub fn of(&self, node: &str) -> NodePowerTimes {
        let Some(set) = self.of_partitions.get(node) else { return self.usual };
        NodePowerTimes {
            suspend_time_s: set
                .suspend_time
                .map_or(self.usual.suspend_time_s, SuspendTime::seconds),
            suspend_timeout_s: set.suspend_timeout_s.unwrap_or(self.usual.suspend_timeout_s),
            resume_timeout_s: set.resume_timeout_s.unwrap_or(self.usual.resume_timeout_s),
        }
    }
}

/// What keeps nodes from being suspended: names, partitions, states, and counts of which some must stay.
pub struct Exemptions<'a> {
    policy: &'a PowerPolicy,
    names: HashSet<&'a str>,
    /// Nodes, how many of them must stay, and how many there are now that could.
    counted: Vec<(HashSet<&'a str>, usize, usize)>,
}

impl Exemptions<'_> {
    /// Whether the node may be suspended now; counts it as gone if so.
    pub fn lets_go(&mut self, state: &State, name: &str, node: &Node, now: Timestamp) -> bool {
        let in_state = |wanted: &ExemptState| is_in(state, name, node, *wanted, now);
        if self.names.contains(name) || self.policy.exempt_states.iter().any(in_state) {
            return false;
        }
        if !node.is_usable_idle() {
            return true;
        }
        let mut of_node: Vec<_> =
            self.counted.iter_mut().filter(|(nodes, ..)| nodes.contains(name)).collect();
        if of_node.iter().any(|(_, stay, there)| there <= stay) {
            return false;
        }
        of_node.iter_mut().for_each(|(_, _, there)| *there -= 1);
        true
    }
}

fn is_in(state: &State, name: &str, node: &Node, wanted: ExemptState, now: Timestamp) -> bool {
    let reserved = |maintenance: bool| {
        state.reservations.values().any(|r| {
            let is_of = r.nodes.iter().any(|reserved| reserved == name);
            let kind = !maintenance || r.has(ReservationFlag::Maint);
            is_of && kind && r.is_active(now)
        })
    };
    match wanted {
        ExemptState::Cloud => node.config.cloud,
        ExemptState::Down => node.slot == SlotState::Down || node.admin == Some(AdminState::Down),
        ExemptState::Drain => node.admin == Some(AdminState::Drain),
        ExemptState::Fail => node.admin == Some(AdminState::Fail),
        ExemptState::InvalidReg => {
            node.failures.contains_key(&model::health::HealthSource::Hardware)
        }
        ExemptState::Maintenance => reserved(true),
        ExemptState::NotResponding => node.slot != SlotState::Up,
        ExemptState::Reserved => reserved(false),
    }
}

impl State {
    pub fn power_times(&self) -> PowerTimes<'_> {
        let policy = &self.config.parameters.power;
        let enabled = policy.is_enabled();
        let usual = NodePowerTimes {
            suspend_time_s: policy.suspend_time_s.filter(|_| enabled),
            suspend_timeout_s: policy.suspend_timeout_s,
            resume_timeout_s: policy.resume_timeout_s,
        };
        let mut of_partitions: HashMap<&str, PartitionPower> = HashMap::new();
        for partition in self.partitions.iter().filter(|p| enabled && !p.power.is_default()) {
            for node in &partition.nodes {
                let known = of_partitions.entry(node).or_default();
                known.suspend_time = known.suspend_time.max(partition.power.suspend_time);
                known.suspend_timeout_s =
                    known.suspend_timeout_s.max(partition.power.suspend_timeout_s);
                known.resume_timeout_s =
                    known.resume_timeout_s.max(partition.power.resume_timeout_s);
            }
        }
        PowerTimes { usual, of_partitions }
    }

    pub fn exemptions(&self) -> Exemptions<'_> {
        let policy = &self.config.parameters.power;
        let exempt = |name: &String| policy.exempt_partitions.contains(name);
        let of_partitions = self.partitions.iter().filter(|p| exempt(&p.name));
        let mut names: HashSet<&str> =
            of_partitions.flat_map(|p| &p.nodes).map(String::as_str).collect();
        let mut counted = Vec::new();
        for set in &policy.exempt_nodes {
            let nodes = set.nodes.iter().map(String::as_str);
            let Some(stay) = set.count else {
                names.extend(nodes);
                continue;
            };
            let nodes: HashSet<&str> = nodes.collect();
            let usable = |name: &&&str| self.nodes.get(**name).is_some_and(Node::is_usable_idle);
            let there = nodes.iter().filter(usable).count();
            counted.push((nodes, stay as usize, there));
        }
        Exemptions { policy, names, counted }
    }
}

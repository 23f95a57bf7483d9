//! What the configuration says of each node's power: its times, and which nodes are not suspended.

use crate::state::State;
use crate::state::node::Node;
use model::node::{AdminState, SlotState};
use model::power::{ExemptState, PartitionPower, PowerPolicy, PowerState, SuspendTime};
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
    counted: Vec<CountedNodes<'a>>,
    /// Nodes of active reservations, and those of them that are for maintenance.
    reserved: HashSet<&'a str>,
    maintained: HashSet<&'a str>,
    state: &'a State,
}

/// Nodes of which some must stay.
struct CountedNodes<'a> {
    nodes: HashSet<&'a str>,
    stay: usize,
    /// How many there are now that could.
    idle: usize,
}

impl Exemptions<'_> {
    /// Whether the node may be suspended now; counts it as gone if so.
    pub fn may_suspend(&mut self, name: &str, node: &Node) -> bool {
        let in_state = |wanted: &ExemptState| self.is_in(name, node, *wanted);
        if self.names.contains(name) || self.policy.exempt_states.iter().any(in_state) {
            return false;
        }
        if !node.is_usable_idle() {
            return true;
        }
        let mut of_node: Vec<_> =
            self.counted.iter_mut().filter(|counted| counted.nodes.contains(name)).collect();
        if of_node.iter().any(|counted| counted.idle <= counted.stay) {
            return false;
        }
        of_node.iter_mut().for_each(|counted| counted.idle -= 1);
        true
    }

    fn is_in(&self, name: &str, node: &Node, wanted: ExemptState) -> bool {
        match wanted {
            ExemptState::Cloud => node.config.cloud,
            ExemptState::Down => {
                node.slot == SlotState::Down || node.admin == Some(AdminState::Down)
            }
            ExemptState::Drain => node.admin == Some(AdminState::Drain),
            ExemptState::DynamicFuture => self.state.is_dynamic_future(name),
            ExemptState::DynamicNorm => node.config.dynamic,
            ExemptState::Fail => node.admin == Some(AdminState::Fail),
            ExemptState::InvalidReg => {
                node.failures.contains_key(&model::health::HealthSource::Hardware)
            }
            ExemptState::Maintenance => self.maintained.contains(name),
            ExemptState::NotResponding => node.slot != SlotState::Up,
            ExemptState::Reserved => self.reserved.contains(name),
        }
    }
}

/// Machines of which a node waits for a reboot, by their agents, and whether nothing is on any of their nodes. Several nodes
/// may be of one machine: those of one agent, which has one certificate for them.
pub struct MachinesToReboot<'a> {
    state: &'a State,
    idle: HashMap<&'a str, bool>,
}

impl MachinesToReboot<'_> {
    fn is_idle_machine(&self, node: &str) -> Option<bool> {
        self.idle.get(self.state.agents.get(node)?.as_str()).copied()
    }

    /// Whether nothing is on the node, nor on others of its machine.
    pub fn may_reboot(&self, node: &str) -> bool {
        let is_idle = self.state.nodes.get(node).is_some_and(Node::is_idle);
        is_idle && self.is_idle_machine(node).unwrap_or(true)
    }

    /// Whether the machine of a node that nobody asked to reboot is rebooted now.
    pub fn reboots_now(&self, node: &str) -> bool {
        self.is_idle_machine(node) == Some(true)
    }
}

impl State {
    pub fn machines_to_reboot(&self) -> MachinesToReboot<'_> {
        let waits = |name: &&String| {
            self.nodes.get(*name).is_some_and(|node| {
                matches!(node.power, PowerState::RebootPending { .. }) && node.slot == SlotState::Up
            })
        };
        let mut idle: HashMap<&str, bool> = HashMap::new();
        if self.nodes.keys().any(|name| waits(&name)) {
            let waiting = self.agents.iter().filter(|(name, _)| waits(name));
            idle.extend(waiting.map(|(_, agent)| (agent.as_str(), true)));
            for (name, agent) in &self.agents {
                let node = self.nodes.get(name);
                if let (Some(is_idle), Some(node)) = (idle.get_mut(agent.as_str()), node) {
                    *is_idle &= node.is_idle();
                }
            }
        }
        MachinesToReboot { state: self, idle }
    }

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
        // Machines take their time, and cost while they are idle, whether slurm.conf says something of it or not.
        for source in self.config.sources.iter().filter(|_| enabled) {
            for node in &source.nodes {
                let known = of_partitions.entry(node).or_default();
                let said = known.suspend_time.or(policy.suspend_time_s.map(SuspendTime::Seconds));
                known.suspend_time = said.or(Some(SuspendTime::Seconds(source.idle_s)));
                let resume = known.resume_timeout_s.unwrap_or(policy.resume_timeout_s);
                known.resume_timeout_s = Some(resume.max(source.boot_s));
            }
        }
        PowerTimes { usual, of_partitions }
    }

    pub fn exemptions(&self, now: Timestamp) -> Exemptions<'_> {
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
            let idle = nodes.iter().filter(usable).count();
            counted.push(CountedNodes { nodes, stay: stay as usize, idle });
        }
        let active = self.reservations.values().filter(|reservation| reservation.is_active(now));
        let (mut reserved, mut maintained) = (HashSet::new(), HashSet::new());
        for reservation in active {
            reserved.extend(reservation.nodes.iter().map(String::as_str));
            if reservation.has(ReservationFlag::Maint) {
                maintained.extend(reservation.nodes.iter().map(String::as_str));
            }
        }
        Exemptions { policy, names, counted, reserved, maintained, state: self }
    }
}

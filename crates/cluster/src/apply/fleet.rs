//! The events of fleets over SSH: their nodes and partitions come and go beside those of the configuration.

use crate::event::Event;
use crate::state::State;
use crate::state::node::Node;
use model::node::NodeConfig;
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use model::partition::Partition;
use model::ssh_fleet::SshFleet;
use model::time::Timestamp;
use std::collections::BTreeSet;
use std::sync::Arc;

impl State {
    pub(super) fn apply_fleet(&mut self, event: &Event) {
        match event {
            Event::FleetSet { fleet, at } => {
                let mut fleet = SshFleet::clone(fleet);
                if let Some(known) = self.fleets.get(&fleet.name) {
                    fleet.keep_machines(known);
                }
                self.fleets.insert(fleet.name.clone(), fleet.clone());
                self.settle_fleet(&fleet, *at);
            }
            Event::FleetHostSet { fleet, number, host, at } => {
                let Some(known) = self.fleets.get_mut(fleet) else { return };
                known.hosts.insert(*number, (**host).clone());
                if host.leaving.is_none() {
                    let config = known.node(*number, host);
                    self.settle_fleet_node(&config, host.failure.as_deref(), *at);
                    self.hardware.invalidate();
                }
            }
            Event::FleetHostRemoved { fleet, number } => {
                let Some(known) = self.fleets.get_mut(fleet) else { return };
                known.hosts.remove(number);
                let node = known.node_name(*number);
                self.forget_agent(&node);
            }
            Event::FleetRemoved { name } => {
                self.fleets.remove(name);
                self.partitions.retain(|partition| partition.name != *name);
                self.invalidate_configuration();
                self.count_node_use();
            }
            other => unreachable!("{other:?} is applied elsewhere"),
        }
    }

    /// Brings the nodes and the partition of a fleet to what it says.
    fn settle_fleet(&mut self, fleet: &SshFleet, at: Timestamp) {
        let mut staying = BTreeSet::new();
        for (number, config) in fleet.nodes() {
            let failure = fleet.hosts.get(&number).and_then(|host| host.failure.as_deref());
            self.settle_fleet_node(&config, failure, at);
            staying.insert(config.name);
        }
        let of_fleet = self.nodes.values().filter(|node| node.config.fleet == fleet.name);
        let gone = of_fleet.map(|node| node.config.name.clone());
        let gone: Vec<String> = gone.filter(|name| !staying.contains(name)).collect();
        for name in gone {
            match self.nodes.get_mut(&name) {
                Some(node) if !node.holders.is_empty() => node.removed = true,
                _ => {
                    self.nodes.remove(&name);
                }
            }
        }
        let wanted = fleet.partition();
        match self.partitions.iter_mut().find(|known| known.name == fleet.name) {
            // What an administrator has changed of it since stays.
            Some(known) => {
                let next = Partition {
                    nodes: wanted.nodes,
                    allow_accounts: wanted.allow_accounts,
                    over_subscribe: wanted.over_subscribe,
                    dynamic_members: wanted.dynamic_members,
                    ..(**known).clone()
                };
                *known = Arc::new(next);
            }
            None => self.partitions.push(Arc::new(wanted)),
        }
        self.settle_dynamic_members();
        self.invalidate_configuration();
        self.count_node_use();
    }

    fn settle_fleet_node(&mut self, config: &NodeConfig, failure: Option<&str>, at: Timestamp) {
        let known = self.nodes.remove(&config.name);
        // Its agent has told it, and tells it again when it comes back.
        let told = known.as_ref().and_then(|node| node.config.architecture);
        let architecture = config.architecture.or(told);
        let price = self.config.prices.get(&config.name).copied();
        let config = NodeConfig { architecture, price, ..config.clone() };
        let name = config.name.clone();
        let mut node = match known {
            Some(node) if *node.config == config => Node { removed: false, ..node },
            Some(node) => Node { config: Arc::new(config), removed: false, ..node },
            None => Node::new(Arc::new(config)),
        };
        // An administrator's reason stays, and so does that of a check.
        if node.admin.is_none() {
            node.reason = failure.map(|text| NodeReason {
                cause: NodeCause::Text(text.to_owned()),
                author: ReasonAuthor::System,
                at,
            });
        }
        self.nodes.insert(name, node);
    }

    /// The nodes that fleets add to those of the configuration.
    pub(super) fn fleet_nodes(&self) -> Vec<NodeConfig> {
        self.fleets.values().flat_map(|fleet| fleet.nodes().map(|(_, config)| config)).collect()
    }

    /// The partitions that fleets add: as they are now, else as the fleet says.
    pub(super) fn fleet_partitions(&self) -> Vec<Arc<Partition>> {
        let one = |fleet: &SshFleet| {
            let known = self.partition(&fleet.name).cloned();
            known.unwrap_or_else(|| Arc::new(fleet.partition()))
        };
        self.fleets.values().map(one).collect()
    }

    /// What is computed from nodes and partitions is computed anew.
    pub(super) fn invalidate_configuration(&mut self) {
        self.tree.invalidate();
        self.accounting.invalidate();
        self.fair_share_ranks.invalidate();
        self.priority_totals.invalidate();
        self.hardware.invalidate();
        self.typical_jobs.invalidate();
        self.topology.invalidate();
    }
}

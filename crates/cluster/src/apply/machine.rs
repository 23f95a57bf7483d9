//! The event of a machine: what is known of it, and what it has cost when it is not kept any more.

use crate::config::ClusterConfig;
use crate::state::State;
use model::backend::Backend;
use model::fleet::Blocks;
use model::machine::{Machine, MachinePhase, SourceConfig};
use model::node::NodeConfig;
use model::price::{Cost, Price};
use model::time::Timestamp;
use model::volume::Volume;
use std::sync::Arc;

/// How many machines are kept that are gone: what failed a short while ago is among the newest.
const GONE_MAX: usize = 1_000;

/// For how many months the costs of a source are kept.
const MONTHS_MAX: usize = 24;

impl State {
    pub(super) fn apply_machine(&mut self, machine: &Machine) {
        self.last_machine = self.last_machine.max(machine.number);
        self.machines.insert(machine.token.clone(), machine.clone());
        if machine.phase == MachinePhase::Gone {
            self.forget_machines();
        }
        if self.backing(&machine.node).is_some() {
            self.price_backed_node(&machine.node);
        }
    }

    /// Sources that the configuration has otherwise are not left alone for failures of before, and none is where machines find
    /// the server elsewhere.
    pub(super) fn settle_failures(&mut self, next: &ClusterConfig) {
        let is_moved = self.config.server_addresses != next.server_addresses;
        let is_other = |of: &&SourceConfig| is_moved || !next.sources.contains(of);
        let others = self.config.sources.iter().filter(is_other).map(|of| &of.name);
        let backends = self.backends.keys().filter(|_| is_moved);
        let others: Vec<String> = others.chain(backends).cloned().collect();
        others.iter().for_each(|source| self.settle_failures_of(source));
    }

    /// The same of a backend: its credentials are beside its source.
    pub(super) fn settle_backend_failures(&mut self, next: &Backend) {
        let source = &next.source.name;
        if self.backends.get(source).is_some_and(|known| known != next) {
            self.settle_failures_of(source);
        }
    }

    fn settle_failures_of(&mut self, source: &str) {
        let of_source = self.machines.values_mut().filter(|machine| machine.source == source);
        for failure in of_source.filter_map(|machine| machine.failure.as_mut()) {
            failure.settled = true;
        }
    }

    /// The nodes of slurm.conf that sources back have the price of their machines, or of those that would be made.
    pub(super) fn price_backed_nodes(&mut self) {
        let config = self.config.clone();
        for name in config.sources.iter().flat_map(|source| &source.nodes) {
            self.price_backed_node(name);
        }
    }

    fn price_backed_node(&mut self, name: &str) {
        let (Some(source), Some(node)) = (self.backing(name), self.nodes.get(name)) else { return };
        let own = self.config.prices.get(name).copied();
        let mut priced = self.priced(&node.config, own);
        let would_be = || self.fitting_offer(source, &node.config, &[]);
        priced.price = priced.price.or_else(|| would_be().map(|offer| offer.price));
        if priced != *node.config
            && let Some(node) = self.nodes.get_mut(name)
        {
            node.config = Arc::new(priced);
        }
    }

    /// Forgets the oldest machines that are gone, and keeps their costs.
    fn forget_machines(&mut self) {
        let gone = self.machines.values().filter(|machine| !machine.is_live());
        let mut gone: Vec<(u32, String)> =
            gone.map(|machine| (machine.number, machine.token.clone())).collect();
        if gone.len() <= GONE_MAX {
            return;
        }
        gone.sort_unstable();
        for (_, token) in &gone[..gone.len() - GONE_MAX] {
            let Some(machine) = self.machines.remove(token) else { continue };
            let Some(end) = machine.gone else { continue };
            self.keep_costs(&machine.source, machine.costs_by_month(end));
        }
    }

    /// Keeps what the disk of a volume has cost that is not there any more.
    pub(super) fn keep_disk_costs(&mut self, volume: &Volume, end: Timestamp) {
        if let (Some(place), Some(disk)) = (volume.cloud(), &volume.disk) {
            self.keep_costs(&place.source, disk.costs_by_month(end));
        }
    }

    fn keep_costs(&mut self, source: &str, costs: Vec<(String, Cost)>) {
        let months = self.former_machine_costs.entry(source.to_owned()).or_default();
        for (month, cost) in costs {
            let sum = months.entry(month).or_default();
            *sum = *sum + cost;
        }
        while months.len() > MONTHS_MAX {
            months.pop_first();
        }
    }

    /// The node with what it costs, and with what it is where it is a machine of a source. A price of the site's own counts
    /// before that of the machine.
    pub(super) fn priced(&self, node: &NodeConfig, own: Option<Price>) -> NodeConfig {
        let mut machines = self.machines.values();
        let machine = machines.find(|machine| machine.is_live() && machine.node == node.name);
        let fleet = machine.and_then(|machine| self.fleets.get(machine.terms.fleet.as_ref()?));
        NodeConfig {
            blocks: match fleet.and_then(|fleet| fleet.cloud.as_ref()).map(|cloud| cloud.blocks) {
                Some(Blocks::Count(count)) => Some(count),
                _ => node.blocks,
            },
            price: own.or(machine.map(|machine| machine.offer.price)),
            machine: machine.map(|of| Box::new(of.kind(self.source_ref(&of.source)))),
            ..node.clone()
        }
    }
}

//! The events of dynamic nodes: they come and go beside those of the configuration.

use super::configured_node;
use crate::event::Event;
use crate::state::State;
use std::collections::HashMap;
use std::sync::Arc;

impl State {
    pub(super) fn apply_dynamic_nodes(&mut self, event: &Event) {
        match event {
            Event::DynamicNodesSet { nodes, at } => {
                for dynamic in nodes {
                    let name = &dynamic.config.name;
                    let known = self.nodes.remove(name);
                    let power = &self.config.parameters.power;
                    let price = self.config.prices.get(name).copied();
                    let config = self.priced(&dynamic.config, price);
                    let node = configured_node(known, &config, power, *at);
                    self.nodes.insert(name.clone(), node);
                    self.dynamic_nodes.insert(name.clone(), dynamic.clone());
                }
            }
            Event::DynamicNodesRemoved { nodes } => {
                for name in nodes {
                    self.dynamic_nodes.remove(name);
                    self.nodes.remove(name);
                    // A machine that was removed stays shut out: a join file of a group could bring its name back.
                    self.forget_agent(name);
                }
                for partition in &mut self.partitions {
                    if partition.nodes.iter().any(|name| nodes.contains(name)) {
                        Arc::make_mut(partition).nodes.retain(|name| !nodes.contains(name));
                    }
                }
            }
            other => unreachable!("{other:?} is applied elsewhere"),
        }
        self.settle_dynamic_members();
        self.invalidate_configuration();
    }

    /// What an administrator changed of a dynamic node stays: there is no file that says otherwise.
    pub(super) fn keep_dynamic_change(
        &mut self,
        name: &str,
        weight: Option<u32>,
        features: Option<&[String]>,
    ) {
        let Some(node) = self.dynamic_nodes.get_mut(name) else { return };
        if let Some(weight) = weight {
            node.config.weight = weight;
            node.set_weight = Some(weight);
        }
        if let Some(features) = features {
            node.config.features = features.to_vec();
            node.set_features = Some(features.to_vec());
            self.settle_dynamic_members();
            self.invalidate_configuration();
        }
    }

    /// Brings the dynamic nodes of every partition to what it takes in.
    pub(super) fn settle_dynamic_members(&mut self) {
        let dynamic = &self.dynamic_nodes;
        // An instance of a fleet is in the partition of its fleet alone.
        let live = self.machines.values().filter(|machine| machine.is_live());
        let of_fleets: HashMap<&str, &str> = live
            .filter_map(|machine| Some((machine.node.as_str(), machine.terms.fleet.as_deref()?)))
            .collect();
        for partition in &mut self.partitions {
            let (members, own) = (&partition.dynamic_members, partition.name.as_str());
            let belongs = |name: &String| match of_fleets.get(name.as_str()) {
                Some(fleet) => *fleet == own,
                None => dynamic.get(name).is_none_or(|node| members.admits(&node.config.features)),
            };
            let mut nodes: Vec<String> =
                partition.nodes.iter().filter(|n| belongs(n)).cloned().collect();
            if !members.is_none() {
                let there: std::collections::HashSet<&String> = partition.nodes.iter().collect();
                let added = dynamic.keys().filter(|name| !there.contains(name) && belongs(name));
                nodes.extend(added.cloned());
            }
            if nodes != partition.nodes {
                Arc::make_mut(partition).nodes = nodes;
            }
        }
    }
}

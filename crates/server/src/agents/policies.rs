//! The policy that each node gets: how jobs are confined there.

use crate::agents::devices;
use crate::shared::Shared;
use model::limits::{CgroupPolicy, DeviceLine};
use std::collections::BTreeMap;
use wire::link::NodePolicy;

/// The policy of every node, by its name.
pub fn policies(shared: &Shared) -> BTreeMap<String, NodePolicy> {
    let nodes: Vec<String> = shared.read().nodes.keys().cloned().collect();
    of_nodes(shared, &nodes)
}

/// The policies of these nodes.
pub fn of_nodes(shared: &Shared, nodes: &[String]) -> BTreeMap<String, NodePolicy> {
    let state = shared.read();
    let config = &state.config;
    let of = |node: &cluster::Node| {
        let limits = CgroupPolicy {
            declared: node.config.declared,
            node_memory: node.config.memory,
            devices: DeviceLine::of_node(&devices::of_node(&shared.volatile, node)),
            ..config.limits.clone()
        };
        let cgroup_plugin = config.cgroup_plugin.clone();
        let (cpus, site) = (node.config.cpus, config.site.on(&node.config.name));
        NodePolicy { limits, cgroup_plugin, cpus, site }
    };
    nodes.iter().filter_map(|name| Some((name.clone(), of(state.nodes.get(name)?)))).collect()
}

//! Dynamic nodes within what a node may be: an agent or a client says it, and the scheduler counts on it.

use crate::fleet::found_machine;
use cluster::State;
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::node::NodeConfig;
use model::printable::is_unprintable;
use std::net::IpAddr;

/// The most features of a node, and the longest.
const FEATURES_MAX: usize = 64;
const FEATURE_BYTES_MAX: usize = 128;

/// What a node is said to be, held to what a node may be.
pub fn within_bounds(said: &NodeConfig) -> NodeConfig {
    let held = found_machine::within_bounds(said);
    let mut beyond = said.cpus_reserved.clone();
    beyond.subtract(&CpuSet::first(held.cpus));
    let mut cpus_reserved = said.cpus_reserved.clone();
    cpus_reserved.subtract(&beyond);
    // CPUs are threads, or cores where the site counts those.
    let cores = said.sockets.checked_mul(said.cores_per_socket);
    let threads = cores.and_then(|cores| cores.checked_mul(said.threads_per_core));
    let fits_shape = [cores, threads].contains(&Some(held.cpus)) && threads.is_some();
    let shape = if fits_shape { said } else { &held };
    let fits = |feature: &&String| {
        let is_plain = !feature.contains(is_unprintable) && !feature.contains([',', '&', '|']);
        (1..=FEATURE_BYTES_MAX).contains(&feature.len()) && is_plain
    };
    let text =
        |text: &str| -> String { text.chars().filter(|c| !is_unprintable(*c)).take(255).collect() };
    NodeConfig {
        boards: said.boards.clamp(1, shape.sockets),
        sockets: shape.sockets,
        cores_per_socket: shape.cores_per_socket,
        threads_per_core: shape.threads_per_core,
        address: text(&said.address),
        features: said.features.iter().filter(fits).take(FEATURES_MAX).cloned().collect(),
        weight: said.weight,
        memory_reserved: Bytes(said.memory_reserved.0.min(held.memory.0)),
        cpus_reserved,
        gpus_detected: said.gpus_detected,
        declared: said.declared,
        initial: said.initial,
        initial_reason: said.initial_reason.as_deref().map(text),
        cloud: said.cloud,
        topology: said.topology.as_deref().map(text),
        dynamic: true,
        ..held
    }
}

/// Whether the counts of nodes are declared, not measured (`config_overrides`).
pub fn is_declared(state: &State) -> bool {
    let parameters = state.config.shown.get("SlurmdParameters");
    parameters.is_some_and(|words| words.contains("config_overrides"))
}

/// The switch that a node names and that takes no nodes.
pub fn unknown_switch<'n>(state: &State, node: &'n NodeConfig) -> Option<&'n str> {
    let takes = |name: &&str| state.config.topology.as_ref().is_some_and(|t| t.takes_nodes(name));
    node.topology.as_deref().filter(|name| !takes(name))
}

/// A dynamic node as its agent says it is, on a machine that has this, at the address that it comes from. `declared`: more than
/// the machine has is no shortage.
pub fn registered(
    said: &NodeConfig,
    detected: &NodeConfig,
    address: IpAddr,
    declared: bool,
) -> NodeConfig {
    let devices = if said.gpus_detected { &detected.gres } else { &said.gres };
    let or = |said: &String, found: String| if said.is_empty() { found } else { said.clone() };
    within_bounds(&NodeConfig {
        name: detected.name.clone(),
        address: or(&said.address, address.to_string()),
        hostname: or(&said.hostname, detected.hostname.clone()),
        tmp_disk: if said.tmp_disk.0 == 0 { detected.tmp_disk } else { said.tmp_disk },
        gres: devices.clone(),
        declared,
        // Whether it is in service is not its own to say.
        initial: None,
        initial_reason: None,
        cloud: false,
        ..said.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::node::NodeGres;

    #[test]
    fn node_is_what_its_agent_says_within_bounds_and_never_in_a_state_of_its_own() {
        let detected = NodeConfig {
            gres: vec![NodeGres::plain("gpu", Some("h100"), 2)],
            hostname: "host7".into(),
            ..NodeConfig::plain("d1", 8, Bytes::from_gib(4))
        };
        let said = NodeConfig {
            features: vec!["fast".into(), "a\nb".into(), "x".repeat(500), "a,b".into()],
            gpus_detected: true,
            cloud: true,
            initial_reason: Some("mine".into()),
            memory_reserved: Bytes(u64::MAX),
            ..NodeConfig::plain("other", 4, Bytes::from_gib(2))
        };
        let address = IpAddr::from([10, 0, 0, 7]);
        let node = registered(&said, &detected, address, false);
        assert_eq!((node.name.as_str(), node.cpus), ("d1", 4));
        assert_eq!((node.address.as_str(), node.hostname.as_str()), ("10.0.0.7", "host7"));
        assert_eq!(
            (node.features.as_slice(), node.gres_total("gpu")),
            (&["fast".to_owned()][..], 2)
        );
        assert!(node.dynamic && !node.cloud && node.initial_reason.is_none());
        assert_eq!(node.memory_reserved, node.memory);
        let declared = NodeConfig { gpus_detected: false, ..said };
        assert_eq!(registered(&declared, &detected, address, false).gres_total("gpu"), 0);
    }
}

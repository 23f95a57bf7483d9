//! Dynamic nodes within what a node may be: an agent or a client says it, and the scheduler counts on it.

use crate::agents::policies;
use crate::auth::principal::server_principal;
use crate::fleet::found_machine;
use crate::shared::Shared;
use crate::shared::agent_links::Link;
use cluster::{Command, State};
use model::amount::Bytes;
use model::bounds;
use model::cpuset::CpuSet;
use model::node::NodeConfig;
use model::printable::is_unprintable;
use std::net::IpAddr;
use std::time::Instant;
use wire::link::ToAgent;

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

/// Has a dynamic node be what its agent says it is.
pub async fn register(shared: &Shared, said: &NodeConfig, detected: &NodeConfig, link: &Link) {
    let own = std::slice::from_ref(&detected.name);
    let before = policies::of_nodes(shared, own);
    let declared = is_declared(&shared.read());
    let node = registered(said, detected, link.peer.address, declared);
    if let Err(why) = may_become(shared, &node) {
        let line = format!("node {}: not as it says it is: {why}", detected.name);
        return shared.volatile.agent_warnings.warn(&detected.name, &line);
    }
    if let Some(switch) = unknown_switch(&shared.read(), &node) {
        let line = format!(
            "node {}: Topology={switch}: no switch or block of topology.conf to which nodes are connected; it is on none",
            detected.name
        );
        shared.volatile.agent_warnings.warn(&detected.name, &line);
    }
    let command = Command::RegisterNode(Box::new(node));
    if let Err(why) = shared.writer.run(command, server_principal()).await {
        return tracing::warn!("node {}: not as it says it is: {why}", detected.name);
    }
    let after = policies::of_nodes(shared, own);
    if before != after {
        let _ = link.outbox.try_send(ToAgent::Policies(after));
    }
}

/// Ends the link of a node that is no more, and forgets what its agent said.
pub fn forget(shared: &Shared, node: &str) {
    shared.agents.cut(node);
    let volatile = &shared.volatile;
    volatile.facts.write().expect("no panic while writing facts").remove(node);
    volatile.detected.write().expect("no panic while writing what was found").remove(node);
    volatile.machines.write().expect("no panic while writing machines").remove(node);
}

/// The same of a machine that is about to be deleted: its agent is expected to come again until it is. The state knows no more which
/// agent that is.
pub fn forget_machine(shared: &Shared, origin: &str, node: &str) {
    if let Some(fingerprint) = shared.agents.peer_certificate(node) {
        shared.volatile.left_hosts.note(origin, node, &fingerprint, Instant::now());
    }
    forget(shared, node);
}

/// Holds what an agent says to the size of an event, and to a rate where it says something else than before.
fn may_become(shared: &Shared, node: &NodeConfig) -> Result<(), String> {
    let encoded = serde_json::to_vec(node).map_err(|e| e.to_string())?;
    bounds::NODE_CONFIG_BYTES.hold(encoded.len()).map_err(|why| why.to_string())?;
    let is_change = shared
        .read()
        .dynamic_nodes
        .get(&node.name)
        .is_some_and(|known| known.by_agent && known.said.as_deref() != Some(node));
    if is_change && !shared.volatile.registration_rates.take(&node.name, Instant::now()) {
        return Err("it says something else too often".into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::shared::agent_links::{AgentBuild, LinkPeer};
    use crate::testing::TestServer;
    use cluster::command::JoinAttempt;
    use model::node::NodeGres;
    use std::time::Duration;
    use tokio::sync::mpsc;

    /// A server with the dynamic node `d1`, whose agent has joined.
    async fn with_dynamic_node() -> TestServer {
        let server = TestServer::start().await;
        let mut config = server.shared.read().config.as_ref().clone();
        config.parameters.max_node_count = 5;
        server.run(Command::Configure(Box::new(config))).await.expect("room for dynamic nodes");
        let expires = clock::now() + Duration::from_secs(600);
        let (hash, pattern) = ("group000".to_owned(), "d[1-3]".to_owned());
        let issue = Command::IssueGroupToken {
            hash: hash.clone(),
            pattern,
            count: None,
            dynamic: true,
            expires,
        };
        server.run(issue).await.expect("a join file");
        let join = JoinAttempt {
            hash,
            fingerprint: "certificate".into(),
            request: "request".into(),
            certificate_end: expires,
            node: Some("d1".into()),
            dynamic: true,
            future: None,
        };
        server.run(Command::UseToken(join)).await.expect("it joins");
        server
    }

    fn link() -> (Link, mpsc::Receiver<ToAgent>) {
        let (outbox, sent) = mpsc::channel(64);
        let build = AgentBuild { program: "test".into(), protocol: wire::version::PROTOCOL };
        let address = IpAddr::from([10, 0, 0, 7]);
        let link = Link {
            number: 1,
            fingerprint: "certificate".into(),
            peer: LinkPeer {
                address,
                build,
                since: clock::now(),
                takes_bytes: true,
                is_near: false,
                finds_servers: false,
            },
            outbox,
            data: mpsc::channel(1).0,
            cut: Default::default(),
            shutdown: Default::default(),
        };
        (link, sent)
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn agent_that_says_something_else_again_and_again_or_too_much_changes_its_node_no_more() {
        let server = with_dynamic_node().await;
        let (shared, (link, _sent)) = (&server.shared, link());
        let cpus = || shared.read().nodes["d1"].config.cpus;
        let node = |cpus| NodeConfig::plain("d1", cpus, Bytes::from_gib(1));
        let mut large = node(3);
        let files = (0..1000).map(|at| format!("/dev/{at}{}", "x".repeat(200))).collect();
        large.gres = vec![NodeGres { files, ..NodeGres::plain("lamp", None, 1000) }];
        register(shared, &large, &large, &link).await;
        assert_eq!(cpus(), 1, "nothing of what is too much");
        for changes in 1..=1000 {
            let said = node(2 + changes % 2);
            register(shared, &said, &said, &link).await;
        }
        let size = cpus();
        let said = node(8);
        register(shared, &said, &said, &link).await;
        assert_eq!(cpus(), size, "nor of what comes too often");
        let changes = || shared.read().dynamic_nodes["d1"].said.as_ref().map(|said| said.cpus);
        assert_eq!(changes(), Some(size));
    }

    #[tokio::test]
    async fn agent_of_a_machine_that_is_deleted_is_no_stranger() {
        let server = TestServer::without_writer();
        let (shared, (link, _sent)) = (&server.shared, link());
        let origin = || {
            let left = &shared.volatile.left_hosts;
            left.origin_of("cloud-1", &link.fingerprint, Instant::now()).map(|(origin, _)| origin)
        };
        shared.agents.add(&["cloud-1".into()], &link);
        assert_eq!(origin(), None);
        forget_machine(shared, "source cloud", "cloud-1");
        assert_eq!(origin(), Some("source cloud".to_owned()));
        // A deletion that failed is tried again, when the agent has no link any more.
        shared.agents.remove(link.number, &["cloud-1".into()]);
        forget_machine(shared, "source cloud", "cloud-1");
        assert_eq!(origin(), Some("source cloud".to_owned()));
    }

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

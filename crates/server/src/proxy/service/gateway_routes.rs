//! What gateways are told of services: where their replicas listen, as far as a gateway can connect to them.

use super::live::LiveService;
use super::replica::Replica;
use super::table::Table;
use crate::gateway::is_loopback;
use crate::shared::agent_links::AgentLinks;
use crate::shared::gateways::PublishedRoute;
use cluster::State;
use model::listening_socket;
use std::cmp::Ordering;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Instant;
use wire::forward::OwnServer;
use wire::gateway::{ReplicaRoute, SERVICES_MAX, ServiceRoute};

pub fn of(state: &State, agents: &AgentLinks, table: &Table, now: Instant) -> Vec<PublishedRoute> {
    let route = |live: &Arc<LiveService>| PublishedRoute {
        gateway: live.service.gateway.clone(),
        default: state.default_gateway(&live.name.project).map(str::to_owned),
        route: service(state, agents, live, now),
    };
    table.values().take(SERVICES_MAX).map(route).collect()
}

fn service(state: &State, agents: &AgentLinks, live: &LiveService, now: Instant) -> ServiceRoute {
    let is_up = |replica: &&Arc<Replica>| live.is_serving(replica) && replica.is_reached();
    let open: Vec<&Arc<Replica>> = live.replicas.iter().filter(is_up).collect();
    let strip_prefix = strips_prefix(live, &open);
    let open = open.into_iter().filter(|one| one.path.strip_prefix == strip_prefix);
    // What listens at a port of a node is known from there alone: a gateway is told of a server that the agent has found to be the
    // replica's own, as long as it finds it there.
    let own = |replica: &Arc<Replica>| {
        let found = route(state, agents, replica)?;
        let server = replica.port_check.server(now);
        if !leads_to_own_server(state, replica, &found, server.as_ref()) {
            return None;
        }
        let server = server.filter(|_| is_loopback(&found.host));
        let sockets = server.map(|server| server.sockets).unwrap_or_default();
        let uid = (!sockets.is_empty()).then_some(live.owner.uid);
        Some(ReplicaRoute { sockets, uid, ..found })
    };
    ServiceRoute {
        project: live.name.project.clone(),
        run: live.name.run.clone(),
        auth: live.auth,
        strip_prefix,
        https: live.service.https,
        is_ready: live.ready() > 0,
        rate_limits: live.service.rate_limits.clone(),
        replicas: open.filter_map(own).collect(),
    }
}

/// Whether a gateway leaves the prefix of the path out: as most replicas that it may be told of have it. During an update that changes it the
/// others are asked by the server alone, which knows what each is to see.
fn strips_prefix(live: &LiveService, open: &[&Arc<Replica>]) -> bool {
    let stripped = open.iter().filter(|one| one.path.strip_prefix).count();
    match (2 * stripped).cmp(&open.len()) {
        Ordering::Less => false,
        Ordering::Equal => live.service.strip_prefix,
        Ordering::Greater => true,
    }
}

/// Whether all connections to an address of a route are the replica's own server's. Its agent has looked at `localhost`: another user may
/// listen at the same port of the node's other addresses, or of the other family.
fn leads_to_own_server(
    state: &State,
    replica: &Replica,
    route: &ReplicaRoute,
    server: Option<&OwnServer>,
) -> bool {
    let job = state.jobs.get(&replica.attempt.job);
    if job.is_some_and(|job| job.spec.launch.container.is_some()) {
        // The agent gives these ports, of IPv4 alone.
        let v6 = route.host.parse::<Ipv6Addr>();
        return !v6.is_ok_and(|address| address.to_ipv4_mapped().is_none());
    }
    server.is_some_and(|server| has_all_connections(server.address, &route.host))
}

/// Whether a server that listens at an address has all connections of a gateway to a host. Of a name's addresses a gateway asks for those of
/// IPv4.
fn has_all_connections(server: IpAddr, host: &str) -> bool {
    if host == "localhost" {
        return listening_socket::takes(server, Ipv4Addr::LOCALHOST.into());
    }
    match host.parse::<IpAddr>() {
        Ok(host) => listening_socket::takes(server, host.to_canonical()),
        Err(_) => server == Ipv4Addr::UNSPECIFIED,
    }
}

/// Where a replica listens. One in a container has a network of its own, and is reached through the server alone unless a port of its node
/// leads to it, as one does to each worker of a router. A node elsewhere that says a loopback address is reached through the server
/// too: who connects there would reach what listens for their own machine alone. A tunnel to the server's loopback leads elsewhere.
pub fn route(state: &State, agents: &AgentLinks, replica: &Replica) -> Option<ReplicaRoute> {
    let job = state.jobs.get(&replica.attempt.job)?;
    let port = match &job.spec.launch.container {
        None => replica.port(),
        Some(_) => {
            let network = job.attempt()?.network.as_ref()?;
            network.ports.iter().find(|port| port.container == replica.port())?.node
        }
    };
    let first = job.allocation()?.nodes.first()?;
    let node = state.nodes.get(&first.node)?;
    let said = Some(node.facts.address.clone()).filter(|address| !address.is_empty());
    let internal = state.fleet_host(&first.node).and_then(|(.., host)| host.internal_address());
    // The name of a node of the server's own machine need not lead anywhere.
    let peer = agents.peer(&first.node).filter(|peer| peer.is_near);
    let own = peer.map(|peer| peer.address.to_canonical().to_string());
    let is_near = own.is_some();
    let host = internal.or(said).or(own).unwrap_or_else(|| node.config.address.clone());
    (is_near || !is_loopback(&host)).then_some(ReplicaRoute {
        attempt: replica.attempt,
        host,
        port,
        sockets: Vec::new(),
        uid: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock;
    use crate::shared::agent_links::{AgentBuild, Link, LinkPeer};
    use crate::testing::{NODE, TestServer};
    use model::id::{AttemptId, JobId};
    use model::service::Service;
    use tokio::sync::mpsc;

    fn link_from(address: &str, is_near: bool) -> Link {
        let build = AgentBuild { program: "test".into(), protocol: wire::version::PROTOCOL };
        let address: IpAddr = address.parse().expect("an address");
        Link {
            number: 1,
            fingerprint: "certificate".into(),
            peer: LinkPeer {
                address,
                build,
                since: clock::now(),
                takes_bytes: true,
                is_near,
                finds_servers: true,
            },
            outbox: mpsc::channel(1).0,
            data: mpsc::channel(1).0,
            cut: Arc::default(),
            shutdown: Arc::default(),
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn loopback_address_is_taken_from_a_node_of_the_servers_own_machine_alone() {
        let server = TestServer::start().await;
        server.node_up().await;
        let job = server.submit("name: web").await.expect("a job");
        server.plan();
        let mut state = State::clone(&server.shared.read());
        let attempt = state.jobs[&job].attempt_id().expect("it runs");
        let replica = Replica::new(attempt, None, &Service::at(80));
        for (from, said, expected) in [
            ("10.0.0.7", "10.0.0.7", Some("10.0.0.7")),
            ("10.0.0.7", "node.example", Some("node.example")),
            ("10.0.0.7", "127.0.0.1", None),
            ("10.0.0.7", "127.8.9.10", None),
            ("10.0.0.7", "::ffff:127.0.0.1", None),
            ("10.0.0.7", "localhost", None),
            ("127.0.0.1", "127.0.0.1", Some("127.0.0.1")),
            ("::ffff:127.0.0.1", "", Some("127.0.0.1")),
        ] {
            let agents = AgentLinks::default();
            agents.add(&[NODE.to_owned()], &link_from(from, from.ends_with("127.0.0.1")));
            let node = state.nodes.get_mut(NODE).expect("a node");
            node.facts.address = said.to_owned();
            let found = route(&state, &agents, &replica).map(|found| found.host);
            assert_eq!(found.as_deref(), expected, "{said} from {from}");
        }
        let agents = AgentLinks::default();
        agents.add(&[NODE.to_owned()], &link_from("127.0.0.1", false));
        let node = state.nodes.get_mut(NODE).expect("a node");
        node.facts.address = "127.0.0.1".to_owned();
        assert_eq!(route(&state, &agents, &replica), None, "a tunnel ends here");
    }

    #[test]
    fn gateway_is_told_of_replicas_that_see_paths_alike() {
        let replica = |job: u32, strip_prefix: bool| {
            let attempt = AttemptId { job: JobId(job), number: 1 };
            let service = Service { strip_prefix, ..Service::at(80) };
            Arc::new(Replica::new(attempt, None, &service))
        };
        let newest = Service { strip_prefix: false, ..Service::at(80) };
        let live = LiveService::of_test(newest, Vec::new(), 0);
        for (replicas, expected) in [
            (vec![], false),
            (vec![replica(1, true)], true),
            (vec![replica(1, true), replica(2, false)], false),
            (vec![replica(1, true), replica(2, true), replica(3, false)], true),
            (vec![replica(1, true), replica(2, false), replica(3, false)], false),
        ] {
            let open: Vec<&Arc<Replica>> = replicas.iter().collect();
            assert_eq!(strips_prefix(&live, &open), expected, "of {}", open.len());
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn gateway_is_told_of_a_replica_whose_server_has_all_connections_to_the_address() {
        let server = TestServer::start().await;
        server.node_up().await;
        let job = server.submit("name: web").await.expect("a job");
        server.plan();
        let state = State::clone(&server.shared.read());
        let attempt = state.jobs[&job].attempt_id().expect("it runs");
        let replica = Replica::new(attempt, None, &Service::at(80));
        let told = |server: Option<&OwnServer>, host: &str| {
            let (host, sockets) = (host.to_owned(), Vec::new());
            let route = ReplicaRoute { attempt, host, port: 80, sockets, uid: None };
            leads_to_own_server(&state, &replica, &route, server)
        };
        assert!(!told(None, "10.0.0.7"), "no agent has found its server");
        for (address, host, expected) in [
            ("0.0.0.0", "10.0.0.7", true),
            ("0.0.0.0", "::ffff:10.0.0.7", true),
            ("0.0.0.0", "node.example", true),
            ("0.0.0.0", "localhost", true),
            ("0.0.0.0", "2001:db8::7", false),
            ("127.0.0.1", "10.0.0.7", false),
            ("127.0.0.1", "node.example", false),
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.1", "localhost", true),
            ("::", "10.0.0.7", false),
            ("::", "node.example", false),
            ("::", "2001:db8::7", true),
            ("::1", "2001:db8::7", false),
            ("::1", "::1", true),
        ] {
            let address = address.parse().expect("an address");
            let server = OwnServer { address, sockets: vec![7] };
            assert_eq!(told(Some(&server), host), expected, "{address} for {host}");
        }
    }
}

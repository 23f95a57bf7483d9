//! What gateways are told of services: where their replicas listen, as far as a gateway can connect to them.

use super::live::LiveService;
use super::replica::Replica;
use super::table::Table;
use crate::shared::agent_links::AgentLinks;
use crate::shared::gateways::PublishedRoute;
use cluster::State;
use std::sync::Arc;
use wire::gateway::{ReplicaRoute, SERVICES_MAX, ServiceRoute};

pub fn of(state: &State, agents: &AgentLinks, table: &Table) -> Vec<PublishedRoute> {
    let route = |live: &Arc<LiveService>| PublishedRoute {
        gateway: live.service.gateway.clone(),
        default: state.default_gateway(&live.name.project).map(str::to_owned),
        route: service(state, agents, live),
    };
    table.values().take(SERVICES_MAX).map(route).collect()
}

fn service(state: &State, agents: &AgentLinks, live: &LiveService) -> ServiceRoute {
    let open = live.replicas.iter().filter(|replica| live.is_serving(replica));
    ServiceRoute {
        project: live.name.project.clone(),
        run: live.name.run.clone(),
        auth: live.service.auth,
        strip_prefix: live.service.strip_prefix,
        https: live.service.https,
        is_ready: live.ready() > 0,
        rate_limits: live.service.rate_limits.clone(),
        replicas: open.filter_map(|replica| route(state, agents, replica)).collect(),
    }
}

/// Where a replica listens. One in a container has a network of its own, and is reached through the server alone unless a port of its node
/// leads to it, as one does to each worker of a router.
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
    let internal = state.fleet_host(&first.node).and_then(|(.., host)| host.internal_ip.clone());
    // The name of a node of the server's own machine need not lead anywhere.
    let peer = agents.peer(&first.node).map(|peer| peer.address.to_canonical());
    let own = peer.filter(|address| address.is_loopback()).map(|address| address.to_string());
    let host = internal.or(said).or(own).unwrap_or_else(|| node.config.address.clone());
    Some(ReplicaRoute { attempt: replica.attempt, host, port })
}

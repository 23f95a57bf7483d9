//! Asks the agents whether the replicas' own servers listen at their ports, again and again as long as the replicas are there.

use super::replica::Replica;
use crate::shared::Shared;
use model::id::AttemptId;
use std::sync::Arc;
use std::time::Instant;

/// Asks the agent of a replica's node, if it is time to.
pub fn check(shared: &Arc<Shared>, replica: &Arc<Replica>, now: Instant) {
    if !replica.port_check.begin(now) {
        return;
    }
    let Some(node) = node_with_its_port(shared, replica.attempt) else {
        return replica.port_check.end(None, now);
    };
    let (shared, replica) = (shared.clone(), replica.clone());
    tokio::spawn(async move {
        let asked = shared.agents.server_at_port(&node, replica.attempt, replica.port());
        let found = asked.await;
        replica.port_check.end(found.as_ref(), Instant::now());
        if found.is_some_and(|found| !found.listens) {
            replica.note_unreached(now);
        }
    });
}

/// The node of a replica that shares the network of its node. Ports of others are their own.
fn node_with_its_port(shared: &Shared, attempt: AttemptId) -> Option<String> {
    let state = shared.read();
    let job = state.jobs.get(&attempt.job)?;
    let is_there = job.attempt_id() == Some(attempt) && job.attempt()?.network.is_none();
    Some(job.allocation()?.nodes.first().filter(|_| is_there)?.node.clone())
}

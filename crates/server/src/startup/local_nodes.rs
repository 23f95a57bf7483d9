//! The wait for the nodes of this machine: a server of `sluice up` is ready when they answer.

use crate::shared::Shared;
use model::node::{AdminState, SlotState};
use std::collections::BTreeMap;

/// After so long without this machine's agent, the server logs that it is missing.
const LOCAL_NODES_NOTICE: std::time::Duration = std::time::Duration::from_secs(15);

/// Waits until all nodes of this machine answer, but those that are powered down: a cluster on which nothing can run is not up.
/// Clients are served meanwhile.
pub(super) async fn await_nodes(shared: &Shared, nodes: &[String]) {
    let notice = tokio::time::Instant::now() + LOCAL_NODES_NOTICE;
    let mut commits = shared.commits.subscribe();
    let mut is_told = false;
    loop {
        let expected = powered_up(shared, nodes);
        let missing = expected.len() - shared.agents.connected(&expected);
        if missing == 0 && have_answered(shared, &expected) {
            return;
        }
        // Nodes that are still missing then are other machines'.
        if is_told && one_agent_is_whole(shared, &expected) {
            return;
        }
        if is_told {
            let _ = commits.changed().await;
        } else if tokio::time::timeout_at(notice, commits.changed()).await.is_err() {
            is_told = true;
            if !one_agent_is_whole(shared, &expected) {
                tracing::warn!("{missing} of {} nodes do not answer yet", expected.len());
            }
        }
    }
}

fn powered_up(shared: &Shared, nodes: &[String]) -> Vec<String> {
    let state = shared.read();
    // A dropped node that has lost its last job is not in the state.
    let is_on = |node: &String| {
        let known = state.nodes.get(node);
        known.is_some_and(|node| node.power.is_on() && node.admin != Some(AdminState::Future))
    };
    nodes.iter().filter(|node| is_on(node)).cloned().collect()
}

/// Whether all nodes that one certificate speaks for are connected.
fn one_agent_is_whole(shared: &Shared, nodes: &[String]) -> bool {
    let mut of_agents: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let state = shared.read();
    for node in nodes {
        if let Some(fingerprint) = state.agents.get(node) {
            of_agents.entry(fingerprint.clone()).or_default().push(node.clone());
        }
    }
    drop(state);
    of_agents
        .values()
        .any(|own| shared.agents.connected(own) == own.len() && have_answered(shared, own))
}

/// Whether what their agent said is in the state. A node that an administrator has set down is answered for as well.
fn have_answered(shared: &Shared, nodes: &[String]) -> bool {
    let state = shared.read();
    let waits = |slot| matches!(slot, SlotState::Joining | SlotState::Silent);
    nodes.iter().all(|n| state.nodes.get(n).is_none_or(|node| !waits(node.slot)))
}

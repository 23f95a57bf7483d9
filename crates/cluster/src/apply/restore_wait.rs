//! The wait for nodes after a restore: its beginning, and the events that end it.

use crate::event::Event;
use crate::state::State;
use crate::state::node::Node;
use crate::state::restore_wait::RestoreWait;
use model::id::JobId;
use model::node::{AdminState, SlotState};
use model::node_reason::{NodeReason, ReasonAuthor};
use model::time::Timestamp;
use std::collections::BTreeSet;

/// Whether a node is no machine of the cluster: nothing that it runs is this cluster's.
fn is_gone(node: &Node) -> bool {
    node.removed || node.admin == Some(AdminState::Future)
}

impl State {
    /// Begins the wait, for every node that may have been given a job since. A new term has made those silent that were up. Those that
    /// were down, powered down or on their way may have come back. One that never joined is refused until it joins again.
    pub(super) fn begin_restore_wait(&mut self, at: Timestamp) {
        let may_run = |(name, node): &(&String, &Node)| match node.slot {
            _ if is_gone(node) => false,
            SlotState::Up | SlotState::Silent | SlotState::Down => true,
            SlotState::Joining => self.agents.contains_key(*name),
        };
        let awaited = self.nodes.iter().filter(may_run);
        let nodes: BTreeSet<String> = awaited.map(|(name, _)| name.clone()).collect();
        let wait = RestoreWait { nodes, below: JobId(self.next_job), since: Some(at) };
        self.restore_wait = Some(wait).filter(|wait| !wait.nodes.is_empty());
    }

    /// Ends the wait for the nodes that an event says enough of, and the whole with the last of them.
    pub(super) fn settle_restore_wait(&mut self, event: &Event) {
        let Some(mut wait) = self.restore_wait.take() else { return };
        let node_of = |name: &String| self.nodes.get(name);
        match event {
            Event::NodeUp { node, .. } | Event::StaleAttemptGone { node, .. } => {
                let is_settled = |node: &Node| node.slot == SlotState::Up && node.stale.is_empty();
                if node_of(node).is_none_or(is_settled) {
                    wait.nodes.remove(node);
                }
            }
            // By `SlurmdTimeout`, or by an administrator: it is given up, as at any other time.
            Event::NodeDown { node, .. } => {
                wait.nodes.remove(node);
            }
            // A node that stays down by `ReturnToService` when it is back may still run something.
            Event::NodeAdmin {
                node,
                admin: Some(AdminState::Down | AdminState::Future),
                reason: Some(NodeReason { author: ReasonAuthor::User { .. }, .. }),
            } => {
                wait.nodes.remove(node);
            }
            Event::NodePower { node, power, .. } if power.excuses_silence() => {
                wait.nodes.remove(node);
            }
            Event::RestoreWaitEnded { nodes } => {
                for node in nodes {
                    wait.nodes.remove(node);
                }
            }
            Event::Configured { .. }
            | Event::DynamicNodesRemoved { .. }
            | Event::FleetHostRemoved { .. }
            | Event::FleetRemoved { .. } => {
                wait.nodes.retain(|name| node_of(name).is_some_and(|node| !is_gone(node)));
            }
            _ => {}
        }
        self.restore_wait = Some(wait).filter(|wait| !wait.nodes.is_empty());
    }
}

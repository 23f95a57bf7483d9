//! The wait for nodes after a restore: its beginning, and the events that end it.

use crate::event::Event;
use crate::state::State;
use crate::state::node::Node;
use crate::state::restore_wait::RestoreWait;
use model::id::JobId;
use model::node::{AdminState, SlotState};
use std::collections::BTreeSet;

/// Whether a node that was up may still run what is not known here. One that is set down or goes down, by an administrator or by
/// `SlurmdTimeout`, is given up, as at any other time.
fn is_awaited(node: &Node) -> bool {
    let is_given_up = matches!(node.admin, Some(AdminState::Down | AdminState::Future))
        || node.removed
        || node.power.excuses_silence();
    match node.slot {
        _ if is_given_up => false,
        SlotState::Silent => true,
        SlotState::Up => !node.stale.is_empty(),
        SlotState::Joining | SlotState::Down => false,
    }
}

impl State {
    /// Begins the wait, for the nodes that were up: a new term has made them silent.
    pub(super) fn begin_restore_wait(&mut self) {
        let awaited = self.nodes.iter().filter(|(_, node)| is_awaited(node));
        let nodes: BTreeSet<String> = awaited.map(|(name, _)| name.clone()).collect();
        let wait = RestoreWait { nodes, below: JobId(self.next_job) };
        self.restore_wait = Some(wait).filter(|wait| !wait.nodes.is_empty());
    }

    /// Ends the wait for the nodes that an event says enough of, and the whole with the last of them.
    pub(super) fn settle_restore_wait(&mut self, event: &Event) {
        let Some(mut wait) = self.restore_wait.take() else { return };
        let is_awaited = |name: &String| self.nodes.get(name).is_some_and(is_awaited);
        match event {
            Event::NodeUp { node, .. }
            | Event::NodeDown { node, .. }
            | Event::NodeAdmin { node, .. }
            | Event::NodePower { node, .. }
            | Event::StaleAttemptGone { node, .. }
                if !is_awaited(node) =>
            {
                wait.nodes.remove(node);
            }
            Event::Configured { .. }
            | Event::DynamicNodesRemoved { .. }
            | Event::FleetHostRemoved { .. }
            | Event::FleetRemoved { .. } => wait.nodes.retain(is_awaited),
            _ => {}
        }
        self.restore_wait = Some(wait).filter(|wait| !wait.nodes.is_empty());
    }
}

//! What ends the wait for nodes after a restore, beside what the nodes themselves say.

use crate::event::Event;
use crate::state::State;
use crate::state::node::Node;
use model::node::SlotState;
use model::time::Timestamp;
use std::time::Duration;

impl State {
    /// Nodes that were down or powered down already have `SlurmdTimeout` from the start of the server on. Those that were up go down
    /// after the same time (`silent_nodes`), which ends the wait for them.
    pub(super) fn overdue_restore_wait(&self, now: Timestamp) -> Option<Event> {
        let wait = self.restore_wait.as_ref()?;
        let timeout = Duration::from_secs(u64::from(self.config.parameters.slurmd_timeout_s));
        if wait.since.is_none_or(|since| since + timeout > now) {
            return None;
        }
        let is_silent = |node: &Node| match node.slot {
            SlotState::Joining | SlotState::Down => true,
            SlotState::Silent => node.power.excuses_silence(),
            SlotState::Up => false,
        };
        let lost = wait.nodes.iter().filter(|name| self.nodes.get(*name).is_none_or(is_silent));
        let nodes: Vec<String> = lost.cloned().collect();
        (!nodes.is_empty()).then_some(Event::RestoreWaitEnded { nodes })
    }

    /// An administrator who resumes a node says that nothing there is to be waited for.
    pub(super) fn end_restore_wait(&self, node: &str) -> Option<Event> {
        let is_awaited = self.restore_wait.as_ref().is_some_and(|wait| wait.nodes.contains(node));
        is_awaited.then(|| Event::RestoreWaitEnded { nodes: vec![node.to_owned()] })
    }
}

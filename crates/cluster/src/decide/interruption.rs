//! Machines that their cloud takes back, of which their agents hear some time before. The node is drained at the notice, as any
//! that is not well; here its machine leaves, and its jobs end while there is time for it.

use super::end::ending;
use crate::event::Event;
use crate::requeue;
use crate::state::State;
use crate::state::node::Node;
use model::health::HealthSource;
use model::machine::{Machine, MachinePhase};
use model::node_reason::NodeCause;
use model::run::{ExitStatus, Outcome};
use model::time::Timestamp;
use std::time::Duration;

/// How long a node that is taken back may be silent until it counts as down.
pub(super) const INTERRUPTED_SILENCE: Duration = Duration::from_secs(10);

/// Whether the cloud has said that it takes the node's machine back.
pub(super) fn is_interrupted(node: &Node) -> bool {
    node.failures.contains_key(&HealthSource::Interruption)
}

impl State {
    /// The machine of a node that is taken back leaves: at once where nothing is on it, else when its jobs have ended.
    pub(super) fn interrupted_machine(&self, node: &str, now: Timestamp) -> Vec<Event> {
        let is_there =
            |of: &&Machine| matches!(of.phase, MachinePhase::Made | MachinePhase::Joined);
        let mut of_node = self.machines.values().filter(|machine| machine.node == node);
        let Some(machine) = of_node.find(is_there).cloned() else { return Vec::new() };
        if self.nodes.get(node).is_some_and(|node| !node.holders.is_empty()) {
            let leaving = Machine { phase: MachinePhase::Leaving, ..machine };
            return vec![Event::MachineSet(Box::new(leaving))];
        }
        self.machine_leaves(machine, "its machine is taken back", now)
    }

    /// The jobs of machines that are about to be gone end as those of a node that failed: they begin again elsewhere where they
    /// may.
    pub(super) fn interrupted_jobs(&self, now: Timestamp) -> Vec<Event> {
        let leaving = self.machines.values().filter(|of| of.phase == MachinePhase::Leaving);
        let due = leaving.filter_map(|machine| {
            let node = self.nodes.get(&machine.node).filter(|node| is_interrupted(node))?;
            let source = self.source(&machine.source)?;
            let grace = Duration::from_secs(source.kind.interruption_grace_s().into());
            (noticed(node)? + grace <= now).then_some(node)
        });
        let holders = due.flat_map(|node| node.holders.iter());
        let jobs = holders.filter_map(|attempt| self.jobs.get(&attempt.job));
        let (outcome, exit) = (Outcome::NodeFail, ExitStatus::default());
        let end = jobs.filter_map(|job| {
            let again = requeue::after_end(&self.config.parameters, job, outcome, exit, now);
            ending(job, outcome, exit, now, again)
        });
        let mut events: Vec<Event> = Vec::new();
        for event in end {
            // A job on two such machines ends once.
            let is_known = |of: &Event| match (of, &event) {
                (Event::Ending { job, .. }, Event::Ending { job: other, .. }) => job == other,
                _ => false,
            };
            if !events.iter().any(is_known) {
                events.push(event);
            }
        }
        events
    }
}

/// When the node was drained for it. One that an administrator had drained before ends its jobs with its machine.
fn noticed(node: &Node) -> Option<Timestamp> {
    let reason = node.reason.as_ref()?;
    match reason.cause {
        NodeCause::Unhealthy { source: HealthSource::Interruption, .. } => Some(reason.at),
        _ => None,
    }
}

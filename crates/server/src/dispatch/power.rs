//! What the power of a node means for orders: jobs start when all their nodes are up and have their disks, and agents are told
//! to reboot.

use super::{DispatchThread, NO_ATTEMPT, SERVER_UID};
use crate::shared::Shared;
use model::id::{AttemptId, StepId};
use model::power::PowerState;
use model::volume::Volume;
use wire::order::Action;

/// Whether the attempt waits for nodes to come up: no node is told of it before.
pub(super) fn is_booting(shared: &Shared, attempt: AttemptId) -> bool {
    let state = shared.read();
    let job = state.jobs.get(&attempt.job);
    let active = job.and_then(|job| job.attempt()).filter(|a| a.number == attempt.number);
    active.is_some_and(|active| !active.booting_nodes.is_empty())
}

impl DispatchThread {
    pub(super) fn on_power(&mut self, shared: &Shared, node: &str, power: PowerState) {
        match power {
            PowerState::On => self.launch_booted(shared, node),
            // An agent that is there all the same says hello: its machine is slow to go, or does not go.
            PowerState::PoweredDown | PowerState::PowerUpPending => shared.agents.cut(node),
            PowerState::Rebooting { .. } => self.order_reboot(shared, node),
            _ => {}
        }
    }

    /// Tells the agent to reboot its machine, where that is still to be done.
    pub(super) fn order_reboot(&mut self, shared: &Shared, node: &str) {
        let order = {
            let state = shared.read();
            let since = state.nodes.get(node).and_then(|node| match node.power {
                PowerState::Rebooting { since, .. } => Some(since),
                _ => None,
            });
            let program = state.config.parameters.power.reboot_program.clone();
            since
                .zip(program)
                .map(|(since, program)| Action::Reboot { program, since: Some(since) })
        };
        if let Some(order) = order {
            self.send(shared, node, NO_ATTEMPT, SERVER_UID, order);
        }
    }

    /// Attempts that wait on the node for the disk go on, or fail by it.
    pub(super) fn on_disk(&mut self, shared: &Shared, volume: &Volume) {
        let attachment = volume.disk.as_ref().and_then(|disk| disk.attachment.as_ref());
        if let Some(attachment) = attachment.filter(|of| of.state.is_settled()) {
            self.launch_booted(shared, &attachment.node);
        }
    }

    /// Starts the attempts whose last node came up.
    fn launch_booted(&mut self, shared: &Shared, node: &str) {
        let ready: Vec<(AttemptId, Vec<String>, Vec<StepId>)> = {
            let state = shared.read();
            let Some(known) = state.nodes.get(node) else { return };
            let ready = known.holders.iter().filter_map(|attempt| {
                let active = state.job(attempt.job)?.attempt()?;
                let starts = active.booting_nodes.is_empty() && active.ending.is_none();
                let steps = active.steps.iter().map(|step| step.id).collect();
                starts.then(|| (*attempt, active.held_nodes.clone(), steps))
            });
            ready.collect()
        };
        for (attempt, nodes, steps) in ready {
            for node in nodes {
                if !self.is_known_to(shared, &node, attempt) {
                    self.launch(shared, attempt, &node);
                }
            }
            for step in steps {
                self.step(shared, attempt.job, step);
            }
        }
    }
}

//! The power of nodes, and what it means for the attempts that wait for them.

use crate::state::State;
use crate::state::job::Phase;
use crate::state::node::Node;
use model::allocation::Allocation;
use model::id::AttemptId;
use model::node::SlotState;
use model::node_reason::NodeReason;
use model::power::PowerState;
use model::time::Timestamp;
use model::volume::Volume;

impl Node {
    /// A server that was away gives nodes their whole time again: they could not tell it that they had come up.
    pub(super) fn restart_power_timeout(&mut self, at: Timestamp) {
        match &mut self.power {
            PowerState::PoweringUp { since, .. }
            | PowerState::Rebooting { since, .. }
            | PowerState::PoweringDown { since, called: false, .. } => *since = at,
            _ => {}
        }
    }
}

impl State {
    /// The nodes of an allocation that have to be powered up before anything can be started; they are asked to be.
    pub(super) fn nodes_to_boot(&mut self, allocation: &Allocation) -> Vec<String> {
        let mut booting = Vec::new();
        for name in allocation.node_names() {
            let Some(node) = self.nodes.get_mut(name).filter(|node| node.power.is_off()) else {
                continue;
            };
            if node.power == PowerState::PoweredDown {
                node.power = PowerState::PowerUpPending;
            }
            booting.push(name.to_owned());
        }
        booting
    }

    /// The attempts on the node of a disk go on where it was the last thing that they waited for.
    pub(super) fn disk_settled(&mut self, volume: &Volume) {
        let attachment = volume.disk.as_ref().and_then(|disk| disk.attachment.as_ref());
        let Some(attachment) = attachment.filter(|of| of.state.is_settled()) else { return };
        let node = self.nodes.get(&attachment.node);
        let holders = node.map(|node| node.holders.clone()).unwrap_or_default();
        for holder in holders {
            self.node_booted(holder, &attachment.node, attachment.since);
        }
    }

    pub(super) fn apply_power(
        &mut self,
        name: &str,
        power: PowerState,
        at: Timestamp,
        reason: Option<&NodeReason>,
    ) {
        // What was asked for twice is done once, and counts once against the rates.
        let due = self.nodes.get(name).and_then(|node| node.power.program_due());
        if due.is_none() || due != power.program_due() {
            self.power_counts.add(power, at);
        }
        let node = self.node_mut(name);
        let was_off = node.power.is_off() || matches!(node.power, PowerState::PoweringDown { .. });
        node.power = power;
        if let Some(reason) = reason {
            node.reason = Some(reason.clone());
        }
        // Its machine is gone: the agent's hello says when it is there again.
        if power == PowerState::PoweredDown && node.slot != SlotState::Down {
            node.slot = SlotState::Joining;
            node.silent_since = None;
        }
        if was_off && power.is_on() {
            node.last_busy = Some(at);
            for holder in node.holders.clone() {
                self.node_booted(holder, name, at);
            }
        }
    }

    /// An attempt that waited for its nodes starts when the last of them is up: the time before is no part of its run.
    fn node_booted(&mut self, attempt: AttemptId, name: &str, at: Timestamp) {
        let is_off = self.nodes.get(name).is_some_and(|node| node.power.is_off());
        if is_off || self.awaits_disk(attempt.job, name) {
            return;
        }
        let Phase::Active(active) = &mut self.job_mut(attempt.job).phase else { return };
        let before = active.booting_nodes.len();
        active.booting_nodes.retain(|node| node != name);
        if before > 0 && active.booting_nodes.is_empty() {
            let waited = at.since(active.start);
            active.end_limit = active.end_limit.map(|end| end + waited);
            active.start = at;
        }
    }
}

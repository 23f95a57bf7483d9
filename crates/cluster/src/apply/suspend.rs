//! Suspended jobs: they give up their cores, and keep everything else.

use crate::state::State;
use model::attempt::Attempt;
use model::id::JobId;
use model::time::Timestamp;
use std::time::Duration;

impl State {
    pub(super) fn apply_suspended(&mut self, id: JobId, at: Timestamp, for_preemption: bool) {
        self.charge(id, at);
        let attempt = self.attempt_mut(id);
        attempt.auto_resume = for_preemption;
        attempt.gang_suspended = false;
        stop(attempt, at);
        self.recount_all(id);
    }

    pub(super) fn apply_gang_suspended(&mut self, id: JobId, at: Timestamp) {
        self.charge(id, at);
        let attempt = self.attempt_mut(id);
        attempt.gang_suspended = true;
        stop(attempt, at);
    }

    pub(super) fn apply_resumed(&mut self, id: JobId, at: Timestamp) {
        let attempt = self.attempt_mut(id);
        let stood_ms = attempt.suspended_total_ms(at).saturating_sub(attempt.suspended_ms);
        attempt.suspended = false;
        attempt.suspended_since = None;
        attempt.suspend_changed = Some(at);
        attempt.auto_resume = false;
        attempt.gang_suspended = false;
        attempt.suspended_ms += stood_ms;
        // Suspended time is not charged.
        attempt.charged_until = Some(at);
        // Suspended time does not count against the limit; the node's supervisor does the same.
        attempt.end_limit = attempt.end_limit.map(|end| end + Duration::from_millis(stood_ms));
        self.recount_all(id);
    }

    fn recount_all(&mut self, id: JobId) {
        let held = self.attempt_mut(id).held_nodes.clone();
        held.iter().for_each(|node| self.recount(node));
    }
}

fn stop(attempt: &mut Attempt, at: Timestamp) {
    if !attempt.suspended {
        attempt.suspended = true;
        attempt.suspended_since = Some(at);
        attempt.suspend_changed = Some(at);
    }
}

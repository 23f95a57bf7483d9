//! The signal that wakes the planner.

use std::sync::{Condvar, Mutex};
use std::time::Duration;

#[derive(Default)]
pub struct PlannerSignal {
    requested: Mutex<bool>,
    changed: Condvar,
}

impl PlannerSignal {
    /// Something happened that may let a job start. Several wakes before the next plan are one.
    pub fn wake(&self) {
        *self.requested.lock().expect("nobody panics with the signal held") = true;
        self.changed.notify_one();
    }

    /// Returns when the planner was woken, or after `period` at the latest.
    pub fn wait(&self, period: Duration) {
        let guard = self.requested.lock().expect("nobody panics with the signal held");
        let (mut guard, _) = self
            .changed
            .wait_timeout_while(guard, period, |requested| !*requested)
            .expect("nobody panics with the signal held");
        *guard = false;
    }
}

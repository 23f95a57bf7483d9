//! The signal that wakes the planner.

use std::sync::{Condvar, Mutex, MutexGuard};
use std::time::Duration;

#[derive(Default)]
pub struct PlannerSignal {
    requests: Mutex<PlanRequests>,
    changed: Condvar,
}

#[derive(Default)]
struct PlanRequests {
    requested: PlanRequest,
    /// What the planner's thread waits for: it is not woken for less.
    awaited: Option<PlanRequest>,
}

/// Why a plan is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
enum PlanRequest {
    #[default]
    None,
    /// Jobs have come, and nothing else has changed.
    NewJobs,
    /// Something happened that may let a job start which waits.
    Change,
}

impl PlannerSignal {
    /// Something happened that may let a job start. Several wakes before the next plan are one.
    pub fn wake(&self) {
        self.request(PlanRequest::Change);
    }

    /// The same, where jobs were submitted and nothing more.
    pub fn wake_for_new_jobs(&self) {
        self.request(PlanRequest::NewJobs);
    }

    fn request(&self, why: PlanRequest) {
        let mut requests = self.held();
        requests.requested = why.max(requests.requested);
        let wakes = requests.awaited.is_some_and(|awaited| requests.requested >= awaited);
        drop(requests);
        if wakes {
            self.changed.notify_one();
        }
    }

    /// Returns when the planner was woken, or after `period` at the latest.
    pub fn wait(&self, period: Duration) {
        self.held_until(PlanRequest::NewJobs, period).requested = PlanRequest::None;
    }

    /// Pauses for `least`, and for up to `more` after it while only new jobs have come. What was requested stays so.
    pub fn pause(&self, least: Duration, more: Duration) {
        std::thread::sleep(least);
        drop(self.held_until(PlanRequest::Change, more));
    }

    /// What is requested, once it is as much as `wanted` or this time has passed.
    fn held_until(&self, wanted: PlanRequest, most: Duration) -> MutexGuard<'_, PlanRequests> {
        let mut requests = self.held();
        requests.awaited = Some(wanted);
        let waits = |requests: &mut PlanRequests| requests.requested < wanted;
        let waited = self.changed.wait_timeout_while(requests, most, waits);
        let mut requests = waited.expect("nobody panics with the signal held").0;
        requests.awaited = None;
        requests
    }

    fn held(&self) -> MutexGuard<'_, PlanRequests> {
        self.requests.lock().expect("nobody panics with the signal held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn change_ends_a_pause_and_new_jobs_are_planned_after_it() {
        let signal = PlannerSignal::default();
        signal.wake();
        signal.wake_for_new_jobs();
        signal.pause(Duration::ZERO, HOUR);
        signal.wait(HOUR);
        assert_eq!(signal.held().requested, PlanRequest::None, "both were one");
        signal.wake_for_new_jobs();
        signal.pause(Duration::ZERO, Duration::from_millis(1));
        assert_eq!(signal.held().requested, PlanRequest::NewJobs, "it is not lost");
        signal.wait(HOUR);
    }

    #[test]
    fn sleeping_planner_is_woken_by_what_it_waits_for() {
        let signal = PlannerSignal::default();
        std::thread::scope(|threads| {
            let waits = threads.spawn(|| signal.pause(Duration::ZERO, HOUR));
            while signal.held().awaited.is_none() {
                std::thread::yield_now();
            }
            signal.wake_for_new_jobs();
            assert!(signal.held().awaited.is_some(), "not by new jobs");
            signal.wake();
            waits.join().expect("no panic");
        });
        signal.wait(HOUR);
        assert_eq!(signal.held().requested, PlanRequest::None);
    }
}

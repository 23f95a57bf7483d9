//! The queue of steps that wait for other steps of their job: woken one by one, in the order in which they first asked.
//!
//! A client asks again every few seconds, so a server that restarts loses nothing but the order, and a client that
//! died is soon forgotten. One that asks again in time keeps its position.

use crate::shared::state_lock::StateLock;
use cluster::command::StepRequest;
use model::id::JobId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A position is kept for so long while its client does not ask.
const ABSENT_MAX: Duration = Duration::from_secs(5);

/// Steps that wait, of all jobs; beyond it a step is refused as busy.
const WAITING_MAX: usize = 4096;

#[derive(Default)]
pub struct StepQueue {
    waiting: Mutex<HashMap<JobId, Vec<WaitingStep>>>,
}

struct WaitingStep {
    ticket: u64,
    ask: Arc<StepRequest>,
    wake: Arc<Notify>,
    /// Since when no call has asked for it; `None` while a call waits.
    absent: Option<Instant>,
}

impl WaitingStep {
    fn is_stale(&self) -> bool {
        self.absent.is_some_and(|since| since.elapsed() > ABSENT_MAX)
    }
}

impl StepQueue {
    fn waiting(&self) -> MutexGuard<'_, HashMap<JobId, Vec<WaitingStep>>> {
        self.waiting.lock().expect("no panic with the queue held")
    }

    /// Whether a step that asked before could start now: it goes first.
    pub fn must_wait_for_earlier(&self, state: &StateLock, job: JobId, ticket: u64) -> bool {
        let waiting = self.waiting();
        let Some(list) = waiting.get(&job) else { return false };
        let before = list.iter().take_while(|w| w.ticket != ticket);
        let state = state.read();
        before.filter(|w| w.absent.is_none()).any(|w| !state.step_waits(job, &w.ask))
    }

    /// Takes the last position, or the one that the ticket had; `None` when too many wait.
    pub fn enter(&self, job: JobId, ticket: u64, ask: &Arc<StepRequest>) -> Option<Arc<Notify>> {
        let mut waiting = self.waiting();
        if waiting.values().map(Vec::len).sum::<usize>() >= WAITING_MAX {
            waiting.values_mut().for_each(|list| list.retain(|w| !w.is_stale()));
            waiting.retain(|_, list| !list.is_empty());
        }
        let all: usize = waiting.values().map(Vec::len).sum();
        let list = waiting.entry(job).or_default();
        if let Some(known) = list.iter_mut().find(|w| w.ticket == ticket) {
            known.absent = None;
            return Some(known.wake.clone());
        }
        if all >= WAITING_MAX {
            return None;
        }
        let wake = Arc::new(Notify::new());
        list.push(WaitingStep { ticket, ask: ask.clone(), wake: wake.clone(), absent: None });
        Some(wake)
    }

    /// The call is over for now; its position is kept for `ABSENT_MAX`.
    pub fn pause(&self, job: JobId, ticket: u64) {
        let mut waiting = self.waiting();
        let list = waiting.get_mut(&job).into_iter().flatten();
        for step in list.filter(|w| w.ticket == ticket) {
            step.absent = Some(Instant::now());
        }
    }

    pub fn leave(&self, job: JobId, ticket: u64) {
        let mut waiting = self.waiting();
        let Some(list) = waiting.get_mut(&job) else { return };
        // A call that still waits under the ticket is woken, and finds no position.
        list.iter().filter(|w| w.ticket == ticket).for_each(|w| w.wake.notify_one());
        list.retain(|w| w.ticket != ticket);
        if list.is_empty() {
            waiting.remove(&job);
        }
    }

    pub fn has(&self, job: JobId, ticket: u64) -> bool {
        self.waiting().get(&job).is_some_and(|list| list.iter().any(|w| w.ticket == ticket))
    }

    /// Something of the job was freed, or the job ends: wakes the first step that need not wait any more.
    pub fn wake_next(&self, state: &StateLock, job: JobId) {
        let mut waiting = self.waiting();
        let Some(list) = waiting.get_mut(&job) else { return };
        list.retain(|w| !w.is_stale());
        let state = state.read();
        let first = list.iter().find(|w| w.absent.is_none() && !state.step_waits(job, &w.ask));
        if let Some(first) = first {
            first.wake.notify_one();
        }
        let over = state.jobs.get(&job).is_none_or(|job| job.attempt().is_none());
        if over {
            list.iter().for_each(|w| w.wake.notify_one());
        }
        if over || list.is_empty() {
            waiting.remove(&job);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::State;

    const JOB: JobId = JobId(1);

    fn enter(queue: &StepQueue, ticket: u64) -> Arc<Notify> {
        queue.enter(JOB, ticket, &Arc::default()).expect("a position")
    }

    /// A job that the state does not know: each of its steps could start at once.
    fn state() -> StateLock {
        StateLock::new(State::default())
    }

    #[test]
    fn later_step_waits_for_an_earlier_one_until_that_leaves_or_is_absent() {
        let (queue, state) = (StepQueue::default(), state());
        assert!(!queue.must_wait_for_earlier(&state, JOB, 1), "nobody is before it");
        enter(&queue, 1);
        enter(&queue, 2);
        assert!(!queue.must_wait_for_earlier(&state, JOB, 1));
        assert!(queue.must_wait_for_earlier(&state, JOB, 2));
        queue.pause(JOB, 1);
        assert!(!queue.must_wait_for_earlier(&state, JOB, 2), "no call asks for the first now");
        enter(&queue, 1);
        assert!(queue.must_wait_for_earlier(&state, JOB, 2), "it has kept its position");
        queue.leave(JOB, 1);
        assert!(!queue.must_wait_for_earlier(&state, JOB, 2));
        assert!(!queue.has(JOB, 1) && queue.has(JOB, 2));
    }

    #[tokio::test]
    async fn steps_of_a_job_that_is_over_are_woken_and_removed() {
        let queue = StepQueue::default();
        let (first, second) = (enter(&queue, 1), enter(&queue, 2));
        queue.wake_next(&state(), JOB);
        first.notified().await;
        second.notified().await;
        assert!(!queue.has(JOB, 1) && !queue.has(JOB, 2));
    }

    #[test]
    fn full_queue_refuses_a_new_step_and_keeps_a_known_one() {
        let queue = StepQueue::default();
        for ticket in 1..=WAITING_MAX as u64 {
            enter(&queue, ticket);
        }
        assert!(queue.enter(JOB, 0, &Arc::default()).is_none());
        enter(&queue, 1);
    }
}

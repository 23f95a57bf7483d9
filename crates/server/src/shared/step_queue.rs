//! The queue of steps that wait for other steps of their job: woken one by one, in the order in which they first asked.
//!
//! A client asks again every few seconds, so a server that restarts loses nothing but the order, and a client that
//! died is soon forgotten. One that asks again in time keeps its position.

use crate::shared::state_lock::StateLock;
use cluster::State;
use cluster::command::{FreedBySteps, StepRequest};
use model::id::JobId;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// A position is kept for so long while its client does not ask.
const ABSENT_MAX: Duration = Duration::from_secs(5);

/// Steps that wait, of all jobs; beyond it a step is refused as busy. One user's are at most half of them.
const WAITING_MAX: usize = 4096;
const WAITING_OF_USER_MAX: usize = WAITING_MAX / 2;

/// The bytes of the names of nodes in the steps of one user that wait.
const NAMES_OF_USER_MAX: usize = 16 << 20;

/// The steps of a job that are tried when something of it was freed: those that wait the longest. The others move up.
const TRIED_MAX: usize = 256;

#[derive(Default)]
pub struct StepQueue {
    waiting: Mutex<HashMap<JobId, Vec<WaitingStep>>>,
}

struct WaitingStep {
    ticket: u64,
    owner: u32,
    ask: Arc<StepRequest>,
    wake: Arc<Notify>,
    /// Since when no call has asked for it; `None` while a call waits.
    absent: Option<Instant>,
    /// What its job's steps had freed when it had to wait. To place a step anew is much work where the job is large, all steps of a job
    /// are looked at for each call, and nobody else's step is created meanwhile.
    waited_at: Option<FreedBySteps>,
}

impl WaitingStep {
    /// Whether it has to wait for other steps. `freed`: what those have freed until now.
    fn waits(&mut self, state: &State, job: JobId, freed: Option<FreedBySteps>) -> bool {
        if freed.is_some() && self.waited_at == freed {
            return true;
        }
        let waits = state.step_waits(job, &self.ask);
        self.waited_at = freed.filter(|_| waits);
        waits
    }

    fn is_stale(&self) -> bool {
        self.absent.is_some_and(|since| since.elapsed() > ABSENT_MAX)
    }

    fn name_bytes(&self) -> usize {
        name_bytes(&self.ask)
    }
}

fn name_bytes(ask: &StepRequest) -> usize {
    let names = ask.node_list.iter().chain(&ask.shape.exclude);
    names.map(|name| size_of::<String>() + name.len()).sum()
}

impl StepQueue {
    fn waiting(&self) -> MutexGuard<'_, HashMap<JobId, Vec<WaitingStep>>> {
        self.waiting.lock().expect("no panic with the queue held")
    }

    /// Whether a step that asked before could start now: it goes first.
    pub fn must_wait_for_earlier(&self, state: &StateLock, job: JobId, ticket: u64) -> bool {
        let mut waiting = self.waiting();
        let Some(list) = waiting.get_mut(&job) else { return false };
        let before = list.iter_mut().take_while(|w| w.ticket != ticket);
        let mut before: Vec<&mut WaitingStep> = before.filter(|w| w.absent.is_none()).collect();
        if before.len() >= TRIED_MAX {
            return true;
        }
        let state = state.read();
        let freed = state.freed_by_steps(job);
        before.iter_mut().any(|w| !w.waits(&state, job, freed))
    }

    /// Takes the last position, or the one that the ticket had; `None` when too many wait, or too many of this user.
    pub fn enter(
        &self,
        job: JobId,
        owner: u32,
        ticket: u64,
        ask: &Arc<StepRequest>,
    ) -> Option<Arc<Notify>> {
        let mut waiting = self.waiting();
        if waiting.values().map(Vec::len).sum::<usize>() >= WAITING_MAX {
            waiting.values_mut().for_each(|list| list.retain(|w| !w.is_stale()));
            waiting.retain(|_, list| !list.is_empty());
        }
        let known = waiting.get_mut(&job).into_iter().flatten().find(|w| w.ticket == ticket);
        if let Some(known) = known {
            known.absent = None;
            return Some(known.wake.clone());
        }
        let all: usize = waiting.values().map(Vec::len).sum();
        let of_owner = || waiting.values().flatten().filter(|w| w.owner == owner);
        let names = of_owner().map(WaitingStep::name_bytes).sum::<usize>() + name_bytes(ask);
        let owner_has_all = of_owner().count() >= WAITING_OF_USER_MAX || names > NAMES_OF_USER_MAX;
        if all >= WAITING_MAX || owner_has_all {
            return None;
        }
        let wake = Arc::new(Notify::new());
        let (ask, absent, waited_at) = (ask.clone(), None, None);
        let step = WaitingStep { ticket, owner, ask, wake: wake.clone(), absent, waited_at };
        waiting.entry(job).or_default().push(step);
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
        let freed = state.freed_by_steps(job);
        let mut tried = list.iter_mut().filter(|w| w.absent.is_none()).take(TRIED_MAX);
        let first = tried.find_map(|w| (!w.waits(&state, job, freed)).then_some(&w.wake));
        if let Some(first) = first {
            first.notify_one();
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
    use crate::clock;
    use crate::testing::{NODE, TestServer};
    use cluster::Command;
    use cluster::command::AttemptReport;
    use model::id::{AttemptId, StepId};
    use model::step::StepShape;

    const JOB: JobId = JobId(1);
    const OWNER: u32 = 1000;

    fn enter(queue: &StepQueue, ticket: u64) -> Arc<Notify> {
        queue.enter(JOB, OWNER, ticket, &Arc::default()).expect("a position")
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

    /// To place one is much work in a large job, and each call of its owner looks at all that wait before its own.
    #[tokio::test(flavor = "multi_thread")]
    async fn step_that_waits_is_placed_anew_only_when_a_step_has_freed_something() {
        let server = TestServer::start().await;
        server.node_up().await;
        let job = server.submit("name: steps").await.expect("a job");
        server.plan();
        let ask = |overlap| {
            let shape = StepShape { exact: true, overlap, ..StepShape::default() };
            Arc::new(StepRequest { tasks: Some(1), shape, ..StepRequest::default() })
        };
        let create = Command::CreateStep { job, ask: Box::new((*ask(false)).clone()) };
        server.run(create).await.expect("a step that has the job's only CPU");
        let (queue, state) = (StepQueue::default(), &server.shared.state);
        queue.enter(job, OWNER, 1, &ask(false)).expect("a position");
        assert!(!queue.must_wait_for_earlier(state, job, 2), "the first has to wait itself");
        // One that could start at once is not looked at while nothing was freed.
        queue.waiting().get_mut(&job).expect("the steps")[0].ask = ask(true);
        assert!(!queue.must_wait_for_earlier(state, job, 2));
        let attempt = AttemptId { job, number: 1 };
        let (exit, usage) = Default::default();
        let what = AttemptReport::StepEnded { step: StepId::Number(0), exit, usage, oom: false };
        let ended = Command::Report { node: NODE.into(), attempt, at: clock::now(), what };
        server.run(ended).await.expect("ended");
        assert!(queue.must_wait_for_earlier(state, job, 2));
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
        for ticket in 1..=WAITING_OF_USER_MAX as u64 {
            enter(&queue, ticket);
        }
        assert!(queue.enter(JOB, OWNER, 0, &Arc::default()).is_none(), "one user has half");
        let (of_others, other) = (WAITING_OF_USER_MAX as u64 + 1..=WAITING_MAX as u64, JobId(2));
        for ticket in of_others {
            queue.enter(other, OWNER + 1, ticket, &Arc::default()).expect("a position");
        }
        assert!(queue.enter(JobId(3), OWNER + 2, 0, &Arc::default()).is_none());
        enter(&queue, 1);
    }

    #[test]
    fn names_of_nodes_in_the_waiting_steps_of_a_user_are_bounded() {
        let queue = StepQueue::default();
        let node_list = vec!["n1".to_owned(); 65_536];
        let ask = Arc::new(StepRequest { node_list, ..StepRequest::default() });
        let enter = |owner, ticket| queue.enter(JOB, owner, ticket, &ask).is_some();
        let taken = (1..100).take_while(|ticket| enter(OWNER, *ticket)).count();
        assert!((1..20).contains(&taken), "{taken}");
        assert!(enter(OWNER, 1), "it is known");
        assert!(enter(OWNER + 1, 200), "another's are his own");
    }

    #[test]
    fn step_far_back_waits_until_it_has_moved_up() {
        let (queue, state) = (StepQueue::default(), state());
        for ticket in 1..=TRIED_MAX as u64 + 1 {
            enter(&queue, ticket);
            queue.pause(JOB, ticket);
        }
        let last = TRIED_MAX as u64 + 1;
        assert!(!queue.must_wait_for_earlier(&state, JOB, last), "the others are absent");
        (1..=TRIED_MAX as u64).for_each(|ticket| drop(enter(&queue, ticket)));
        assert!(queue.must_wait_for_earlier(&state, JOB, last));
    }
}

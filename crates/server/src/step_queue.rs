//! Steps that wait for other steps of their job: woken one by one, in the order in which they first asked.
//!
//! A client asks again every few seconds, so a server that restarts loses nothing but the order, and a client that
//! died is soon forgotten. One that asks again in time keeps its place.

use crate::calls::fits_an_order;
use crate::shared::Shared;
use crate::writer::step_ask;
use cluster::Command;
use cluster::authorise::{Act, authorise};
use cluster::command::{StepPlacement, StepRequest};
use model::id::JobId;
use model::principal::Principal;
use model::reason::Refusal;
use model::step::StepRefusal;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use tokio::sync::Notify;
use wire::client::{Answer, CreateStep};
use wire::step::{StepLaunch, StepLayout, StepNode};

/// How long one call waits; the client asks again.
const WAIT_MAX: Duration = Duration::from_secs(10);
/// A place is kept for so long while its client does not ask.
const ABSENT_MAX: Duration = Duration::from_secs(5);
/// Steps that wait, of all jobs; more are told that they would have to.
const WAITING_MAX: usize = 4096;

#[derive(Default)]
pub struct StepQueue {
    waiting: Mutex<HashMap<JobId, Vec<Waiting>>>,
}

struct Waiting {
    ticket: u64,
    ask: Arc<StepRequest>,
    wake: Arc<Notify>,
    /// Since when nobody asks for it; none while a call waits.
    absent: Option<Instant>,
}

impl Waiting {
    fn is_stale(&self) -> bool {
        self.absent.is_some_and(|since| since.elapsed() > ABSENT_MAX)
    }
}

impl StepQueue {
    fn held(&self) -> MutexGuard<'_, HashMap<JobId, Vec<Waiting>>> {
        self.waiting.lock().expect("no panic with the queue held")
    }

    /// Whether another that came before could be had now: it goes first.
    pub fn others_first(&self, shared: &Shared, job: JobId, ticket: u64) -> bool {
        let held = self.held();
        let Some(list) = held.get(&job) else { return false };
        let before = list.iter().take_while(|w| w.ticket != ticket);
        let state = shared.read();
        before.filter(|w| w.absent.is_none()).any(|w| !state.step_waits(job, &w.ask))
    }

    /// Takes a place, or the place that it had; none when too many wait.
    pub fn enter(&self, job: JobId, ticket: u64, ask: &Arc<StepRequest>) -> Option<Arc<Notify>> {
        let mut held = self.held();
        if held.values().map(Vec::len).sum::<usize>() >= WAITING_MAX {
            held.values_mut().for_each(|list| list.retain(|w| !w.is_stale()));
            held.retain(|_, list| !list.is_empty());
        }
        let all: usize = held.values().map(Vec::len).sum();
        let list = held.entry(job).or_default();
        if let Some(known) = list.iter_mut().find(|w| w.ticket == ticket) {
            known.absent = None;
            return Some(known.wake.clone());
        }
        if all >= WAITING_MAX {
            return None;
        }
        let wake = Arc::new(Notify::new());
        list.push(Waiting { ticket, ask: ask.clone(), wake: wake.clone(), absent: None });
        Some(wake)
    }

    /// The call is over for now; the place is kept for a while.
    pub fn pause(&self, job: JobId, ticket: u64) {
        let mut held = self.held();
        let list = held.get_mut(&job).into_iter().flatten();
        for waiting in list.filter(|w| w.ticket == ticket) {
            waiting.absent = Some(Instant::now());
        }
    }

    pub fn leave(&self, job: JobId, ticket: u64) {
        let mut held = self.held();
        let Some(list) = held.get_mut(&job) else { return };
        // Whoever still waits under it is told by the wake, and finds no place.
        list.iter().filter(|w| w.ticket == ticket).for_each(|w| w.wake.notify_one());
        list.retain(|w| w.ticket != ticket);
        if list.is_empty() {
            held.remove(&job);
        }
    }

    pub fn has(&self, job: JobId, ticket: u64) -> bool {
        self.held().get(&job).is_some_and(|list| list.iter().any(|w| w.ticket == ticket))
    }

    /// Something of the job was freed, or the job ends: the first that need not wait any more is woken.
    pub fn stir(&self, shared: &Shared, job: JobId) {
        let mut held = self.held();
        let Some(list) = held.get_mut(&job) else { return };
        list.retain(|w| !w.is_stale());
        let state = shared.read();
        let first = list.iter().find(|w| w.absent.is_none() && !state.step_waits(job, &w.ask));
        if let Some(first) = first {
            first.wake.notify_one();
        }
        let over = state.jobs.get(&job).is_none_or(|job| job.attempt().is_none());
        if over {
            list.iter().for_each(|w| w.wake.notify_one());
        }
        if over || list.is_empty() {
            held.remove(&job);
        }
    }
}

/// A new step, at once or after a wait.
pub async fn create(
    shared: &Arc<Shared>,
    by: Principal,
    create: CreateStep,
) -> Result<Answer, Refusal> {
    let CreateStep { job, launch, wait_ms } = create;
    let programs = launch.programs.iter().flatten();
    let texts = launch.argv.iter().chain(programs).map(String::as_str);
    fits_an_order(texts.chain([launch.environment.as_str()]))?;
    may_have_steps(shared, &by, job)?;
    let (queue, ticket) = (&shared.volatile.step_queue, launch.shape.ticket);
    let placed = in_turn(shared, by, job, launch, wait_ms).await;
    match &placed {
        Err(Refusal::Step(StepRefusal::Busy)) => queue.pause(job, ticket),
        _ => queue.leave(job, ticket),
    }
    queue.stir(shared, job);
    let placed = placed?;
    if placed.known {
        shared.dispatch.step(job, placed.step);
    }
    let nodes = placed.nodes.iter().map(|(share, ranks)| StepNode {
        node: share.node.clone(),
        tasks: ranks.clone(),
        cpus: share.cpus.len(),
    });
    Ok(Answer::Step(StepLayout {
        job,
        step: placed.step,
        attempt: placed.attempt.number,
        nodes: nodes.collect(),
        cpus_per_task: placed.cpus_per_task,
        srun_prolog_epilog: crate::launch::srun_prolog_epilog(&shared.read()),
    }))
}

/// The step when its turn has come, or what speaks against it when the wait is over.
async fn in_turn(
    shared: &Arc<Shared>,
    by: Principal,
    job: JobId,
    launch: StepLaunch,
    wait_ms: u64,
) -> Result<StepPlacement, Refusal> {
    let (queue, ticket) = (&shared.volatile.step_queue, launch.shape.ticket);
    let ask = Arc::new(step_ask(&launch));
    let busy = || Refusal::Step(StepRefusal::Busy);
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(wait_ms));
    loop {
        if !queue.others_first(shared, job, ticket) {
            let command = Command::CreateStep { job, ask: Box::new((*ask).clone()) };
            match shared.writer.run_step(command, by.clone(), job, launch.clone()).await {
                Err(why) if why == busy() => {}
                answered => return answered,
            }
        }
        if wait_ms == 0 || ticket == 0 {
            return Err(busy());
        }
        let wake = queue.enter(job, ticket, &ask).ok_or_else(busy)?;
        // What ended before the place was taken has woken nobody.
        queue.stir(shared, job);
        if tokio::time::timeout_at(deadline, wake.notified()).await.is_err() {
            return Err(busy());
        }
        // The place is gone: its asker has left, or the job is over.
        if !queue.has(job, ticket) {
            return Err(Refusal::JobEnded(job));
        }
    }
}

/// Its asker does not want it any more.
pub fn leave(shared: &Shared, by: &Principal, job: JobId, ticket: u64) -> Result<Answer, Refusal> {
    may_have_steps(shared, by, job)?;
    shared.volatile.step_queue.leave(job, ticket);
    Ok(Answer::Done)
}

fn may_have_steps(shared: &Shared, by: &Principal, job: JobId) -> Result<(), Refusal> {
    let state = shared.read();
    let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
    authorise(&state, by, Act::OwnJob(found))
}

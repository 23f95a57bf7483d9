//! Triggers of `strigger`: what they wait for is looked at every second, and their programs are run.
//!
//! A trigger fires at most once for what happened: it leaves the journal before its program is started, unless it is permanent.
//! What happened to nodes while no server ran is not known to it; that a job has ended is.

use crate::auth::principal::server_principal;
use crate::clock;
use crate::shared::Shared;
use crate::site_program::SiteProgram;
use cluster::{Command, Node, State};
use model::hostlist;
use model::id::JobId;
use model::node::{AdminState, SlotState};
use model::search_path::SYSTEM_PATH;
use model::time::Timestamp;
use model::trigger::{Trigger, TriggerEvent, TriggerSubject};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;

const PERIOD: Duration = Duration::from_secs(1);

/// Programs that run at once; further ones wait.
const RUNNING_MAX: usize = 16;

/// A program that takes longer is killed, as in Slurm.
const PROGRAM_TIMEOUT: Duration = Duration::from_secs(300);

/// Programs that run or wait for their turn; further ones are left out.
const QUEUED_MAX: usize = 1_000;

/// The turns of programs.
struct ProgramQueue {
    running: Arc<Semaphore>,
    queued: Arc<Semaphore>,
}

/// Firings that wait for their offset to pass.
const WAITING_MAX: usize = 10_000;

pub async fn run(shared: Arc<Shared>) {
    let queue = ProgramQueue {
        running: Arc::new(Semaphore::new(RUNNING_MAX)),
        queued: Arc::new(Semaphore::new(QUEUED_MAX)),
    };
    let mut watch = TriggerWatch::default();
    let mut timer = tokio::time::interval(PERIOD);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut commits = shared.commits.subscribe_beyond_submits();
    let mut newest = 0;
    loop {
        let is_timed = tokio::select! {
            _ = timer.tick() => true,
            changed = commits.changed() => if changed.is_err() { return } else { false },
        };
        let due = {
            let state = shared.read();
            // A new trigger is looked at when it is there: what happens next is a change.
            let is_new = std::mem::replace(&mut newest, state.last_trigger) != state.last_trigger;
            if !is_new && !is_timed || state.triggers.is_empty() && watch.is_empty() {
                continue;
            }
            watch.look(&state, clock::now())
        };
        for settled in due {
            settle(&shared, &queue, settled).await;
        }
    }
}

/// A trigger that has fired, or that cannot fire any more.
#[derive(Debug, PartialEq, Eq)]
struct Settled {
    trigger: u32,
    /// What its program is called with; `None` if nothing happened that it waits for.
    argument: Option<String>,
}

async fn settle(shared: &Arc<Shared>, queue: &ProgramQueue, settled: Settled) {
    let Settled { trigger: id, argument } = settled;
    let known = shared.read().triggers.get(&id).cloned();
    // Somebody has cleared it meanwhile.
    let Some(trigger) = known else { return };
    if !trigger.request.permanent {
        let done = Command::SettleTrigger { id };
        if let Err(why) = shared.writer.run(done, server_principal()).await {
            // Its program would otherwise run again after a restart.
            tracing::error!(
                trigger = id,
                "the trigger is not run: its end could not be kept: {why}"
            );
            return;
        }
    }
    let Some(argument) = argument else { return };
    let mut words = trigger.request.program.split_whitespace().map(str::to_owned);
    let Some(program) = words.next() else { return };
    let argument_shown = argument.clone();
    let arguments: Vec<String> = words.chain([argument]).collect();
    // Its words may hold a secret.
    tracing::info!(
        trigger = id,
        owner = trigger.owner,
        program,
        about = argument_shown,
        "trigger fires"
    );
    let mut environment = vec![("PATH".to_owned(), SYSTEM_PATH.to_owned())];
    let state_dir = shared.setup.client_state.clone();
    environment.extend(state_dir.map(|dir| ("SLUICE_STATE".to_owned(), dir)));
    let Ok(queued) = queue.queued.clone().try_acquire_owned() else {
        return tracing::warn!(trigger = id, "not run: too many programs of triggers wait");
    };
    let running = queue.running.clone();
    tokio::spawn(async move {
        let _queued = queued;
        let Ok(_running) = running.acquire_owned().await else { return };
        let call = SiteProgram {
            program,
            arguments,
            environment,
            limit: Some(PROGRAM_TIMEOUT),
            limit_name: "five minutes",
            logs_output: true,
        };
        match tokio::task::spawn_blocking(move || call.run()).await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => tracing::warn!(trigger = id, "the trigger's program failed: {why}"),
            Err(error) => tracing::warn!(trigger = id, "the trigger's program failed: {error}"),
        }
    });
}

/// What was seen at the last look.
#[derive(Default)]
struct TriggerWatch {
    /// For each trigger about nodes those that were in its state.
    seen: BTreeMap<u32, BTreeSet<String>>,
    /// Nodes that have changed, until the offset has passed.
    waiting: Vec<(Timestamp, u32, BTreeSet<String>)>,
}

impl TriggerWatch {
    fn is_empty(&self) -> bool {
        self.seen.is_empty() && self.waiting.is_empty()
    }

    /// What is due now.
    fn look(&mut self, state: &State, now: Timestamp) -> Vec<Settled> {
        self.seen.retain(|id, _| state.triggers.contains_key(id));
        self.waiting.retain(|(_, id, _)| state.triggers.contains_key(id));
        let mut due = Vec::new();
        for trigger in state.triggers.values() {
            let id = trigger.id;
            match (&trigger.request.subject, trigger.request.event) {
                (TriggerSubject::Job(job), TriggerEvent::Fini) => {
                    let offset = Duration::from_secs(trigger.request.offset_s.max(0) as u64);
                    let is_due = job_end(state, *job).is_some_and(|end| end + offset <= now);
                    let argument = is_due.then(|| job.to_string());
                    due.extend(argument.map(|a| Settled { trigger: id, argument: Some(a) }));
                }
                (TriggerSubject::Job(job), TriggerEvent::Time) => {
                    due.extend(time_limit(state, trigger, *job, now));
                }
                (TriggerSubject::Job(job), _) if job_end(state, *job).is_some() => {
                    due.push(Settled { trigger: id, argument: None });
                }
                _ => self.look_at_nodes(state, trigger, now),
            }
        }
        let (ready, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition::<Vec<_>, _>(|(when, _, _)| *when <= now);
        self.waiting = waiting;
        due.extend(ready.into_iter().map(|(_, trigger, nodes)| Settled {
            trigger,
            argument: Some(hostlist::compress(&nodes)),
        }));
        due
    }

    fn look_at_nodes(&mut self, state: &State, trigger: &Trigger, now: Timestamp) {
        let current = nodes_in_state(state, trigger, now);
        let is_idle = trigger.request.event == TriggerEvent::Idle;
        // The state at the first look is where changes are counted from; a node that is idle already is one that stays so.
        let before = match self.seen.insert(trigger.id, current.clone()) {
            Some(before) => before,
            None if is_idle => BTreeSet::new(),
            None => return,
        };
        let changed: BTreeSet<String> = current.difference(&before).cloned().collect();
        if changed.is_empty() {
            return;
        }
        if self.waiting.len() >= WAITING_MAX {
            tracing::warn!(trigger = trigger.id, "too many triggers wait for their offset");
            return;
        }
        // An idle node was idle for the offset already.
        let offset = if is_idle { 0 } else { trigger.request.offset_s.max(0) };
        self.waiting.push((now + Duration::from_secs(offset as u64), trigger.id, changed));
    }
}

/// The nodes of the trigger's subject that are in the state it waits for.
fn nodes_in_state(state: &State, trigger: &Trigger, now: Timestamp) -> BTreeSet<String> {
    let is_in = |node: &Node| {
        let is_down = node.slot == SlotState::Down || node.admin == Some(AdminState::Down);
        match trigger.request.event {
            TriggerEvent::Down => is_down,
            // A node whose server was away was not down.
            TriggerEvent::Up => !is_down,
            TriggerEvent::Drained => {
                node.admin == Some(AdminState::Drain) && node.is_idle() && !is_down
            }
            TriggerEvent::Fail => node.admin == Some(AdminState::Fail),
            TriggerEvent::Idle => {
                let offset = u32::try_from(trigger.request.offset_s).unwrap_or(0);
                node.is_usable_idle() && node.was_idle_for(offset, now)
            }
            TriggerEvent::Fini | TriggerEvent::Time => false,
        }
    };
    let found = |name: &String| state.nodes.get(name).is_some_and(is_in);
    match &trigger.request.subject {
        TriggerSubject::Nodes(names) if names.is_empty() => {
            let all = state.nodes.iter().filter(|(_, node)| is_in(node));
            all.map(|(name, _)| name.clone()).collect()
        }
        TriggerSubject::Nodes(names) => names.iter().filter(|name| found(name)).cloned().collect(),
        TriggerSubject::Job(job) => {
            let allocation = state.job(*job).and_then(|job| job.allocation());
            let names = allocation.into_iter().flat_map(|granted| granted.node_names());
            names.map(|name| name.to_string()).filter(found).collect()
        }
    }
}

/// When the job ended, with every task if it is an array; one that has left the memory has ended before.
fn job_end(state: &State, id: JobId) -> Option<Timestamp> {
    let tasks = state.arrays.get(&id).into_iter().flat_map(|tasks| tasks.values());
    let mut end = Timestamp::from_millis(0);
    for job in tasks.chain([&id]).filter_map(|id| state.job(*id)) {
        end = end.max(job.ended()?.end);
    }
    Some(end)
}

/// Fires at the time limit, or so long before it; a job that ended earlier has not reached it.
fn time_limit(state: &State, trigger: &Trigger, job: JobId, now: Timestamp) -> Option<Settled> {
    let id = trigger.id;
    if job_end(state, job).is_some() {
        let reached = state.job(job).and_then(|job| job.ended());
        let reached = reached.is_some_and(|end| end.outcome == model::run::Outcome::Timeout);
        return Some(Settled { trigger: id, argument: reached.then(|| job.to_string()) });
    }
    let limit = state.job(job)?.attempt()?.end_limit?;
    let at = limit.millis() + i64::from(trigger.request.offset_s) * 1000;
    (at <= now.millis()).then(|| Settled { trigger: id, argument: Some(job.to_string()) })
}

//! Cancelling and signalling jobs: `scancel`, `dstack stop`, and a client that gives up its allocation.

use super::end::{aborting, ended_unstarted, ending, ending_for_good};
use crate::authorise::{Act, authorise};
use crate::command::{CancelJobs, Context, Decision, Reply, SignalJob};
use crate::event::Event;
use crate::job_selection::SelectedJob;
use crate::state::State;
use crate::state::job::Job;
use crate::visibility::Viewer;
use model::array::IndexSet;
use model::attempt::EndCause;
use model::change::JobRef;
use model::id::{AttemptId, JobId};
use model::reason::Refusal;
use model::run::{ExitStatus, LaunchKind, Outcome};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const SIGKILL: i32 = 9;

impl State {
    pub(super) fn decide_cancel(&self, cancel: &CancelJobs, context: &Context) -> Decision {
        let mut events = Vec::new();
        let mut signals = Vec::new();
        let mut results = Vec::new();
        let viewer = Viewer::new(self, &context.by);
        let mut arrays: HashMap<JobId, ArrayTasks> = HashMap::new();
        let mut seen = HashSet::new();
        for wanted in cancel.filter.jobs.iter().filter(|wanted| seen.insert(*wanted)) {
            let array = arrays.entry(wanted.id);
            let why = match &wanted.tasks {
                None => why_not(&viewer, wanted),
                Some(tasks) => array
                    .or_insert_with(|| ArrayTasks::of(&viewer, wanted.id))
                    .why_not(wanted, tasks),
            };
            results.extend(why.map(|why| (shown(wanted), Err(why))));
        }
        let named: HashSet<JobId> = cancel.filter.jobs.iter().map(|named| named.id).collect();
        let chosen = viewer.matching(&cancel.filter);
        let selected: HashSet<JobId> = chosen.iter().map(|chosen| chosen.job.id).collect();
        for chosen in chosen {
            if chosen.job.has_ended() {
                continue;
            }
            // A step id belongs to the component that was named, and to no other component of its het job.
            let is_named = named.contains(&chosen.job.id);
            if cancel.step.is_some() && chosen.job.het.is_some() && !is_named {
                continue;
            }
            let name = shown_chosen(&chosen, cancel.filter.jobs.is_empty());
            if let Err(why) = authorise(self, &context.by, Act::ManageJob(chosen.job)) {
                results.push((name, Err(why)));
                continue;
            }
            if cancel.step.is_none() && waits_with_others(chosen.job, &selected) {
                results.push((name, Err(Refusal::HetPendingComponent(chosen.job.id))));
                continue;
            }
            match cancel.signal {
                None if cancel.step.is_none() => {
                    events.extend(self.cancelled(&chosen, context));
                    results.push((name, Ok(())));
                }
                signal => match signal_of(&chosen, cancel, signal) {
                    Some(signal) => {
                        if signal.signal == SIGKILL && cancel.step.is_none() && cancel.full {
                            events.extend(aborting(chosen.job));
                        }
                        signals.push(signal);
                        results.push((name, Ok(())));
                    }
                    None => results.push((name, Err(Refusal::JobNotRunning(chosen.job.id)))),
                },
            }
        }
        Decision { events, reply: Reply::Signals { signals, results } }
    }

    fn cancelled(&self, chosen: &SelectedJob<'_>, context: &Context) -> Vec<Event> {
        let job = chosen.job;
        let outcome = Outcome::Cancelled { by: context.by.uid };
        if job.is_waiting() {
            let ended = Box::new(ended_unstarted(outcome, context.now));
            return match &job.pending {
                Some(pending) => vec![Event::TasksCancelled {
                    array: job.id,
                    indices: chosen.tasks.clone().unwrap_or_else(|| pending.indices.clone()),
                    ended,
                }],
                None => vec![Event::Ended { job: job.id, ended }],
            };
        }
        let event = ending_for_good(job, outcome)
            .or_else(|| ending(job, outcome, ExitStatus::default(), context.now, None));
        event.into_iter().collect()
    }

    pub(super) fn decide_relinquish(
        &self,
        id: JobId,
        exit: ExitStatus,
        context: &Context,
    ) -> Result<Decision, Refusal> {
        let job = self.jobs.get(&id).ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
        authorise(self, &context.by, Act::ActAsOwner(job))?;
        if job.spec.launch.kind != LaunchKind::Interactive {
            return Err(Refusal::AccessDenied);
        }
        if job.is_waiting() {
            let ended = ended_unstarted(Outcome::Cancelled { by: context.by.uid }, context.now);
            return Ok(vec![Event::Ended { job: id, ended: Box::new(ended) }].into());
        }
        let outcome = if exit.is_success() { Outcome::Completed } else { Outcome::Failed };
        let event = ending(job, outcome, exit, context.now, None);
        Ok(event.into_iter().collect::<Vec<_>>().into())
    }

    /// Ends the attempt for good, and with it all groups of its task; one that is over, or ending already, is left as it is.
    pub(super) fn decide_end_by_policy(
        &self,
        id: AttemptId,
        cause: EndCause,
        context: &Context,
    ) -> Decision {
        let judged = self.jobs.get(&id.job).filter(|job| job.attempt_id() == Some(id));
        let goes_on = |job: &&Arc<Job>| job.attempt().is_some_and(|active| active.ending.is_none());
        let Some(judged) = judged.filter(goes_on) else { return Decision::default() };
        let ids = judged.het.map_or(vec![id.job], |het| het.jobs().collect());
        let outcome = Outcome::Cancelled { by: 0 };
        let end = |id: &JobId| {
            let job = self.jobs.get(id)?;
            let mut event = ending(job, outcome, ExitStatus::default(), context.now, None)?;
            if let Event::Ending { ending, .. } = &mut event {
                ending.cause = cause;
            }
            Some(event)
        };
        ids.iter().filter_map(end).collect::<Vec<_>>().into()
    }

    pub(super) fn decide_client_lost(&self, id: JobId, context: &Context) -> Decision {
        let Some(job) = self.jobs.get(&id).filter(|j| !j.has_ended()) else {
            return Decision::default();
        };
        // An `srun` that had nothing left to do, and found no server to say so, has ended as its step did. Killed tasks do
        // not count: they may have been killed because their `srun` was lost.
        let by_itself =
            |exit: &ExitStatus| *exit != ExitStatus::NOT_LAUNCHED && exit.signal != SIGKILL;
        if let Some(exit) = job.finished_step().filter(by_itself) {
            let outcome = if exit.is_success() { Outcome::Completed } else { Outcome::Failed };
            let event = ending(job, outcome, exit, context.now, None);
            return event.into_iter().collect::<Vec<_>>().into();
        }
        self.cancelled(&SelectedJob { job, tasks: None }, context).into()
    }
}

fn signal_of(
    chosen: &SelectedJob<'_>,
    cancel: &CancelJobs,
    signal: Option<i32>,
) -> Option<SignalJob> {
    let attempt = chosen.job.attempt()?;
    let signal = signal.unwrap_or(SIGKILL);
    // As in Slurm, a plain signal goes to the steps alone, even if there are none; SIGKILL goes to all.
    let plain = !cancel.batch_only && !cancel.full && cancel.step.is_none();
    Some(SignalJob {
        attempt: AttemptId { job: chosen.job.id, number: attempt.number },
        step: cancel.step,
        signal,
        // As in Slurm, both options together mean all processes.
        leader_only: cancel.batch_only && !cancel.full,
        steps_only: plain && signal != SIGKILL,
    })
}

/// Why nothing that the reference names can be cancelled, if that is so.
fn why_not(viewer: &Viewer<'_>, wanted: &JobRef) -> Option<Refusal> {
    let found = viewer.resolve(wanted);
    match found.first() {
        None => Some(Refusal::UnknownJob(shown(wanted))),
        Some(_) if found.iter().any(|chosen| !chosen.job.has_ended()) => None,
        Some(chosen) => Some(Refusal::JobEnded(chosen.job.id)),
    }
}

/// The tasks of an array, gathered once: a list may name each of them, again and again.
struct ArrayTasks {
    known: IndexSet,
    not_ended: IndexSet,
}

impl ArrayTasks {
    fn of(viewer: &Viewer<'_>, array: JobId) -> Self {
        let (mut known, mut not_ended) = (IndexSet::new(), IndexSet::new());
        for SelectedJob { job, .. } in viewer.resolve(&JobRef::whole(array)) {
            let indices = match (&job.pending, &job.task) {
                (Some(pending), _) => pending.indices.clone(),
                (None, Some(task)) => IndexSet::from_range(task.index, task.index),
                (None, None) => continue,
            };
            indices.ranges().for_each(|(first, last)| known.insert_range(first, last));
            if !job.has_ended() {
                indices.ranges().for_each(|(first, last)| not_ended.insert_range(first, last));
            }
        }
        Self { known, not_ended }
    }

    /// As [`why_not`], for a reference to tasks.
    fn why_not(&self, wanted: &JobRef, tasks: &IndexSet) -> Option<Refusal> {
        if !self.known.intersects(tasks) {
            return Some(Refusal::UnknownJob(shown(wanted)));
        }
        (!self.not_ended.intersects(tasks)).then_some(Refusal::JobEnded(wanted.id))
    }
}

/// Whether the job is a pending component whose leader is not selected with it.
fn waits_with_others(job: &Job, selected: &HashSet<JobId>) -> bool {
    let others = job.het.filter(|of| !of.is_leader() && job.is_waiting());
    others.is_some_and(|het| !selected.contains(&het.first))
}

fn shown(wanted: &JobRef) -> String {
    match &wanted.tasks {
        None => wanted.shown_id(),
        Some(tasks) if tasks.len() == 1 => {
            format!("{}_{}", wanted.id, tasks.first().unwrap_or_default())
        }
        Some(tasks) => format!("{}_[{}]", wanted.id, model::array::format_pending(tasks, None)),
    }
}

/// An array that was named by id is shown by its id, one that a filter found by its tasks.
fn shown_chosen(chosen: &SelectedJob<'_>, found: bool) -> String {
    match &chosen.tasks {
        Some(tasks) => shown(&JobRef::tasks(chosen.job.id, tasks.clone())),
        None if chosen.job.pending.is_some() && !found => chosen.job.id.to_string(),
        None => chosen.job.shown_id(),
    }
}

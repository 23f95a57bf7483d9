//! Cancelling and signalling jobs: `scancel`, `dstack stop`, and a client that gives up its allocation.

use super::end::{ended_unstarted, ending, ending_for_good};
use crate::authorise::{Act, authorise};
use crate::command::{CancelJobs, Context, Decision, Reply, SignalJob};
use crate::event::Event;
use crate::job_selection::SelectedJob;
use crate::state::State;
use crate::visibility::Viewer;
use model::change::JobRef;
use model::id::{AttemptId, JobId};
use model::reason::Refusal;
use model::run::{ExitStatus, LaunchKind, Outcome};

const SIGKILL: i32 = 9;

impl State {
    pub(super) fn decide_cancel(&self, cancel: &CancelJobs, context: &Context) -> Decision {
        let mut events = Vec::new();
        let mut signals = Vec::new();
        let mut results = Vec::new();
        let viewer = Viewer::new(self, &context.by);
        for wanted in &cancel.filter.jobs {
            let found = viewer.resolve(wanted);
            if found.iter().all(|c| c.job.has_ended()) {
                let why = match found.first() {
                    Some(chosen) => Refusal::JobEnded(chosen.job.id),
                    None => Refusal::UnknownJob(shown(wanted)),
                };
                results.push((shown(wanted), Err(why)));
            }
        }
        for chosen in viewer.matching(&cancel.filter) {
            if chosen.job.has_ended() {
                continue;
            }
            // A step id belongs to the component that was named, and to no other component of its het job.
            let is_named = || cancel.filter.jobs.iter().any(|named| named.id == chosen.job.id);
            if cancel.step.is_some() && chosen.job.het.is_some() && !is_named() {
                continue;
            }
            let name = shown_chosen(&chosen, cancel.filter.jobs.is_empty());
            if let Err(why) = authorise(self, &context.by, Act::ManageJob(chosen.job)) {
                results.push((name, Err(why)));
                continue;
            }
            if cancel.step.is_none() && self.waits_with_others(chosen.job, &cancel.filter) {
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

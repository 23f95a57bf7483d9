//! The events that end an attempt: the one that begins its end, and the one that closes it.

use crate::config::Parameters;
use crate::event::Event;
use crate::requeue::{self, RequeuedWait};
use crate::state::State;
use crate::state::job::{EndRecord, Job};
use crate::view::priority::Ranking;
use model::attempt::{Attempt, EndCause, Ending, RequeueAs};
use model::id::StepId;
use model::reason::Reason;
use model::run::{ExitStatus, LaunchKind, Outcome, Step};
use model::time::Timestamp;
use std::cell::OnceCell;

/// Begins the end of a job's attempt; `None` if it is ending already.
pub(super) fn ending(
    job: &Job,
    outcome: Outcome,
    exit: ExitStatus,
    at: Timestamp,
    requeue: Option<RequeueAs>,
) -> Option<Event> {
    let attempt = job.attempt()?;
    if attempt.ending.is_some() {
        return None;
    }
    let ending = Box::new(Ending::new(outcome, at, requeue));
    Some(Event::Ending { job: job.id, ending, exit, failed_node: None })
}

/// An attempt that was to be requeued ends its job after all.
pub(super) fn ending_for_good(job: &Job, outcome: Outcome) -> Option<Event> {
    let attempt = job.attempt()?;
    let ending = attempt.ending.filter(|ending| ending.requeue.is_some())?;
    let ending = Box::new(ending.without_requeue(outcome));
    Some(Event::Ending { job: job.id, ending, exit: attempt.exit, failed_node: None })
}

/// A cancelled attempt is killed before its time to stop is over; `None` for any other.
pub(super) fn aborting(job: &Job) -> Option<Event> {
    let attempt = job.attempt()?;
    let is_cancelled = |ending: &Ending| {
        matches!(ending.outcome, Outcome::Cancelled { .. }) && ending.cause == EndCause::Usual
    };
    let ending = attempt.ending.filter(is_cancelled)?;
    let ending = Box::new(Ending { cause: EndCause::Aborted, ..ending });
    Some(Event::Ending { job: job.id, ending, exit: attempt.exit, failed_node: None })
}

/// Closes an attempt of which nothing is left: the job ends, or waits again.
pub(super) fn closing(
    parameters: &Parameters,
    job: &Job,
    attempt: Attempt,
    ending: &Ending,
    at: Timestamp,
) -> Event {
    let outcome = match requeue::recorded_outcome(job, ending) {
        // An `srun` knows only that its task failed; the nodes have said why.
        Outcome::Failed if is_out_of_memory(job, &attempt) => Outcome::OutOfMemory,
        other => other,
    };
    let exit = match outcome {
        Outcome::OutOfMemory => ExitStatus::OUT_OF_MEMORY,
        Outcome::LaunchFailed => ExitStatus::NOT_LAUNCHED,
        Outcome::Completed | Outcome::Failed | Outcome::Requeued | Outcome::Cancelled { .. } => {
            attempt.exit
        }
        _ => ExitStatus::default(),
    };
    let end = ending.own_end(at).max(attempt.start);
    let derived = attempt.steps.iter().filter(|s| matches!(s.id, StepId::Number(_)));
    let ended = Box::new(EndRecord {
        outcome,
        exit,
        derived_exit: derived.map(|s| s.exit).max().unwrap_or_default(),
        start: Some(attempt.start),
        end,
        steps: changed_steps(job, &attempt),
        reason: match ending.cause {
            EndCause::UserRefused(fault) => Reason::UserRefused(fault),
            EndCause::GpusUnderused => Reason::GpusUnderused,
            EndCause::Inactive => Reason::Inactive,
            EndCause::Aborted => Reason::Aborted,
            EndCause::RequeueRequested { by } if outcome == Outcome::Requeued => {
                Reason::RequeuedBy(by)
            }
            _ => match &attempt.launch_failure {
                Some(why)
                    if matches!(outcome, Outcome::LaunchFailed | Outcome::Requeued)
                        || ending.cause == EndCause::LaunchFailed =>
                {
                    Reason::NotLaunched(Box::new(why.clone()))
                }
                _ => reason_of(outcome),
            },
        },
        suspended_ms: attempt.suspended_total_ms(end),
        priority: None,
        failed_node: attempt.failed_node.filter(|_| is_failure(outcome)),
        allocation: Some(attempt.allocation),
        usage: attempt.usage,
    });
    let Some(requeue) = ending.requeue else {
        return Event::Ended { job: job.id, ended };
    };
    let RequeuedWait { begin, hold, reason, special_exit, retries } =
        RequeuedWait::after(parameters, job, ending, requeue, at);
    Event::Requeued { job: job.id, ended, begin, hold, reason, special_exit, retries }
}

/// Whether what ran of the job made this its outcome.
fn is_failure(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Failed | Outcome::OutOfMemory)
}

/// Whether a step of an allocation without a script was killed for its memory.
fn is_out_of_memory(job: &Job, attempt: &Attempt) -> bool {
    let killed =
        |step: &Step| step.end.as_ref().is_some_and(|end| end.outcome == Outcome::OutOfMemory);
    job.spec.launch.kind == LaunchKind::Interactive && attempt.steps.iter().any(killed)
}

/// The steps whose ends the state does not have yet. The record's event carries these alone, and `apply` adds the others:
/// an event with every step of a job could be larger than a commit.
fn changed_steps(job: &Job, closed: &Attempt) -> Vec<Step> {
    let stored = job.attempt().map_or(&[][..], |attempt| &attempt.steps);
    let changed = closed.steps.iter().enumerate().filter(|(n, step)| stored.get(*n) != Some(*step));
    changed.map(|(_, step)| step.clone()).collect()
}

/// The reason that an ended job shows.
pub(super) fn reason_of(outcome: Outcome) -> Reason {
    match outcome {
        Outcome::Failed => Reason::NonZeroExit,
        Outcome::Timeout => Reason::TimeLimit,
        Outcome::OutOfMemory => Reason::OutOfMemory,
        Outcome::NodeFail => Reason::NodeFail,
        Outcome::Deadline => Reason::Deadline,
        Outcome::LaunchFailed => Reason::LaunchFailed,
        Outcome::NoCapacity => Reason::NoCapacity,
        Outcome::Preempted => Reason::Preempted,
        _ => Reason::None,
    }
}

/// The end of a job that never started.
pub(super) fn ended_unstarted(outcome: Outcome, at: Timestamp) -> EndRecord {
    EndRecord {
        outcome,
        exit: ExitStatus::default(),
        derived_exit: ExitStatus::default(),
        start: None,
        end: at,
        allocation: None,
        steps: Vec::new(),
        usage: Default::default(),
        reason: reason_of(outcome),
        suspended_ms: 0,
        priority: None,
        failed_node: None,
    }
}

impl State {
    /// Notes in the ends of jobs that wait the priority which each waited with, where it is computed: the job itself has its place in
    /// the queue until its start, which is no priority then. A job that is held has none.
    pub(super) fn note_waited_priorities(&self, events: &mut [Event], now: Timestamp) {
        if !self.config.parameters.priority.is_computed() {
            return;
        }
        let ranking = OnceCell::new();
        for event in events {
            let (id, ended) = match event {
                Event::Ended { job, ended } => (*job, ended),
                Event::TasksCancelled { array, ended, .. } => (*array, ended),
                _ => continue,
            };
            let Some(job) = self.job(id).filter(|job| job.is_waiting() && !job.priority_set) else {
                continue;
            };
            let shown = || ranking.get_or_init(|| Ranking::new(self, now)).shown(job, now);
            ended.priority = Some(if job.hold.is_some() { 0 } else { shown() });
        }
    }
}

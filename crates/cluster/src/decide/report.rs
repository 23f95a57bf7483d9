//! What agents report of their parts of attempts: each taken in once, however often it is said.

use super::{closing, ending, requeue_after};
use crate::command::PartReport;
use crate::config::Parameters;
use crate::event::Event;
use crate::job::Job;
use crate::state::State;
use model::attempt::{Attempt, EndCause, Ending, RequeueAs};
use model::id::{AttemptId, StepId};
use model::run::{ExitStatus, LaunchKind, Outcome, Step, StepEnd, Usage};
use model::time::Timestamp;
use std::time::Duration;

/// Slurm's pair for what was never started.
pub(super) const NOT_LAUNCHED: ExitStatus = ExitStatus { code: 0, signal: 53 };

/// What a node's clock may be off by. Who runs out so shortly before the limit is taken to be at it, as all soon are.
const CLOCKS_APART: Duration = Duration::from_secs(10);

impl State {
    pub(super) fn decide_report(
        &self,
        node: &str,
        attempt: AttemptId,
        at: Timestamp,
        what: &PartReport,
    ) -> Vec<Event> {
        let stale = self.nodes.get(node).is_some_and(|n| n.stale.contains(&attempt));
        let over = matches!(
            what,
            PartReport::Ended { .. } | PartReport::Missing | PartReport::LaunchFailed { .. }
        );
        if stale && over {
            return vec![Event::StaleGone { node: node.to_string(), attempt }];
        }
        let Some(job) = self.jobs.get(&attempt.job) else { return Vec::new() };
        let Some(active) = job.attempt().filter(|a| a.number == attempt.number) else {
            return Vec::new();
        };
        if !active.held_nodes.iter().any(|n| n == node) {
            return Vec::new();
        }
        let parameters = &self.config.parameters;
        let part = Part { parameters, job, active, node, attempt, at };
        match what {
            PartReport::Started => part.ready().into_iter().collect(),
            PartReport::ScriptEnded { exit, oom, timed_out } => {
                part.script_ended(*exit, *oom, *timed_out)
            }
            PartReport::StepEnded { step, exit, usage, oom } => {
                part.step_ended(*step, *exit, usage, *oom).into_iter().collect()
            }
            PartReport::Unfit { why } => self.drained(node, why, at).into_iter().collect(),
            PartReport::LaunchFailed { unfit: None, .. } => part.not_launched(None),
            PartReport::LaunchFailed { unfit: Some(why), hold, .. } => {
                let mut events: Vec<Event> = self.drained(node, why, at).into_iter().collect();
                let again = part.requeue_after(Outcome::NodeFail, ExitStatus::default());
                let again = again.map(|how| RequeueAs { hold: how.hold || *hold, ..how });
                events.extend(part.not_launched(again));
                events
            }
            PartReport::Missing => part.lost(),
            PartReport::Ended { lost: true, .. } => part.lost(),
            PartReport::Ended { exit, usage, oom, timed_out, lost: false } => {
                let mut events = part.batch_step_ended(*exit, usage, *oom, *timed_out);
                let outcome = outcome_of(*exit, *oom, *timed_out);
                let requeue = part.requeue_after(outcome, *exit);
                events.extend(part.over(Verdict { outcome, exit: *exit, usage, requeue }));
                events
            }
        }
    }
}

/// One node's part of an attempt, at the time of a report.
struct Part<'a> {
    parameters: &'a Parameters,
    job: &'a Job,
    active: &'a Attempt,
    node: &'a str,
    attempt: AttemptId,
    at: Timestamp,
}

struct Verdict<'a> {
    outcome: Outcome,
    exit: ExitStatus,
    usage: &'a Usage,
    requeue: Option<RequeueAs>,
}

impl Part<'_> {
    fn requeue_after(&self, outcome: Outcome, exit: ExitStatus) -> Option<RequeueAs> {
        requeue_after(self.parameters, self.job, outcome, exit, self.at)
    }

    /// Whether the end of the script here is the end of the job.
    fn leads(&self) -> bool {
        let first = self.active.allocation.node_names().next() == Some(self.node);
        match self.job.spec.launch.kind {
            LaunchKind::Batch => first,
            LaunchKind::Task => true,
            LaunchKind::Interactive => false,
        }
    }

    /// The site's program before the job is over here, if somebody waits for that.
    fn ready(&self) -> Option<Event> {
        let waited = self.active.prolog_nodes.iter().any(|node| node == self.node);
        waited.then(|| Event::PartReady { attempt: self.attempt, node: self.node.to_string() })
    }

    /// The limit of time comes to all nodes at once; one that ends for time before it has used up its own CPU time.
    fn ran_out_alone(&self, outcome: Outcome) -> bool {
        let before_limit = self.active.end_limit.is_none_or(|end| self.at + CLOCKS_APART < end);
        outcome == Outcome::Timeout && before_limit
    }

    fn end_cause(&self, outcome: Outcome) -> EndCause {
        if self.ran_out_alone(outcome) { EndCause::CpuTimeExhausted } else { EndCause::Usual }
    }

    fn script_ended(&self, exit: ExitStatus, oom: bool, timed_out: bool) -> Vec<Event> {
        if !self.leads() {
            return Vec::new();
        }
        let outcome = outcome_of(exit, oom, timed_out);
        // A task of several nodes ends early only by failing.
        if self.job.spec.launch.kind == LaunchKind::Task && outcome == Outcome::Completed {
            return Vec::new();
        }
        let how = self.requeue_after(outcome, exit);
        let mut event = ending(self.job, outcome, exit, self.at, how);
        if let Some(Event::Ending { ending, .. }) = &mut event {
            ending.cause = self.end_cause(outcome);
        }
        event.into_iter().collect()
    }

    fn step_ended(&self, id: StepId, exit: ExitStatus, usage: &Usage, oom: bool) -> Option<Event> {
        let step = self.active.steps.iter().find(|s| s.id == id)?;
        step.waiting.iter().any(|n| n == self.node).then(|| {
            let worst = step.exit.max(exit);
            let outcome = of_step(outcome_of(worst, oom, false), worst);
            self.step_part(step, exit, usage, outcome)
        })
    }

    fn step_part(&self, step: &Step, exit: ExitStatus, usage: &Usage, outcome: Outcome) -> Event {
        let last = step.waiting.iter().all(|n| n == self.node);
        Event::StepPartEnded {
            job: self.job.id,
            step: step.id,
            node: self.node.to_string(),
            exit: shown_exit(outcome, exit),
            usage: usage.clone(),
            end: last.then_some(StepEnd { time: self.end_of(step), outcome }),
        }
    }

    /// The batch step is over with its script.
    fn end_of(&self, step: &Step) -> Timestamp {
        match &self.active.ending {
            Some(ending) if step.id == StepId::Batch => ending.own_end(self.at),
            _ => self.at,
        }
    }

    /// The batch step ends with its node's part; numbered steps that never reported do too.
    fn batch_step_ended(
        &self,
        exit: ExitStatus,
        usage: &Usage,
        oom: bool,
        timed_out: bool,
    ) -> Vec<Event> {
        let (own, nothing) = (usage.without_steps(), Usage::default());
        let open = self.active.steps.iter().filter(|s| s.waiting.iter().any(|n| n == self.node));
        open.map(|step| {
            let cancelled = timed_out || self.active.ending.as_ref().is_some_and(is_forced);
            let outcome = match (cancelled, step.id) {
                (true, _) => Outcome::Cancelled { by: 0 },
                (false, StepId::Batch) => of_step(outcome_of(exit, oom, false), exit),
                (false, _) => Outcome::Completed,
            };
            let (exit, usage) = match step.id {
                StepId::Batch => (exit, &own),
                _ => (ExitStatus::default(), &nothing),
            };
            self.step_part(step, exit, usage, outcome)
        })
        .collect()
    }

    /// Nothing is left here. Others are told to end; the last closes the attempt.
    fn over(&self, verdict: Verdict<'_>) -> Vec<Event> {
        let mut events = Vec::new();
        let fatal = matches!(verdict.outcome, Outcome::LaunchFailed | Outcome::NodeFail);
        let leads = self.leads()
            || fatal
            || verdict.requeue.is_some()
            || self.ran_out_alone(verdict.outcome);
        let going = self.active.ending;
        let task_done = self.job.spec.launch.kind == LaunchKind::Task
            && verdict.outcome == Outcome::Completed
            && self.active.held_nodes.len() > 1;
        let mut active = self.active.clone();
        let ending = match going {
            Some(ending) => Some(ending),
            None if leads && !task_done => {
                // Only an attempt that was never launched is requeued by its own part.
                let cause = match verdict.outcome {
                    Outcome::Requeued => EndCause::LaunchFailed,
                    outcome => self.end_cause(outcome),
                };
                let ending =
                    Ending { cause, ..Ending::new(verdict.outcome, self.at, verdict.requeue) };
                active.exit = verdict.exit;
                events.push(Event::Ending {
                    job: self.job.id,
                    ending: Box::new(ending),
                    exit: verdict.exit,
                });
                Some(ending)
            }
            None => None,
        };
        // An end that somebody forced has its own exit status; a signal of ours is not the job's.
        let forced = ending.as_ref().is_some_and(is_forced);
        let exit = if forced { ExitStatus::default() } else { verdict.exit };
        events.push(Event::PartEnded {
            attempt: self.attempt,
            node: self.node.to_string(),
            exit,
            usage: verdict.usage.without_tasks(),
            at: self.at,
        });
        let last = self.active.held_nodes.iter().all(|n| n == self.node);
        if last {
            active.usage.absorb(&verdict.usage.without_tasks());
            active.exit = active.exit.max(exit);
            self.finish_steps(&mut active, &verdict, forced);
            // A part that ends unasked, as the last, ends the job by what it says of itself.
            let ending = ending.unwrap_or(Ending::new(verdict.outcome, self.at, None));
            events.push(closing(self.parameters, self.job, &active, &ending, self.at));
        }
        events
    }

    /// The copy of the steps that the closing record carries has their ends filled in.
    fn finish_steps(&self, active: &mut Attempt, verdict: &Verdict<'_>, forced: bool) {
        for step in active.steps.iter_mut().filter(|s| s.end.is_none()) {
            let batch = step.id == StepId::Batch;
            step.waiting.clear();
            if batch {
                step.exit = step.exit.max(shown_exit(verdict.outcome, verdict.exit));
                step.usage.absorb(&verdict.usage.without_steps());
            }
            let timed_out = verdict.outcome == Outcome::Timeout;
            let outcome = match (forced || timed_out, batch) {
                (true, _) => Outcome::Cancelled { by: 0 },
                (false, true) => of_step(verdict.outcome, verdict.exit),
                (false, false) => Outcome::Completed,
            };
            step.end = Some(StepEnd { time: self.end_of(step), outcome });
        }
    }

    /// Nothing was started here. Where that was the node's fault the job waits for another, if it may.
    fn not_launched(&self, requeue: Option<RequeueAs>) -> Vec<Event> {
        let (outcome, exit) = match requeue {
            Some(_) => (Outcome::Requeued, ExitStatus::default()),
            None => (Outcome::LaunchFailed, NOT_LAUNCHED),
        };
        self.over(Verdict { outcome, exit, usage: &Usage::default(), requeue })
    }

    /// The part is gone without an end of its own: as a node's failure.
    fn lost(&self) -> Vec<Event> {
        self.over(Verdict {
            outcome: Outcome::NodeFail,
            exit: ExitStatus::default(),
            usage: &Usage::default(),
            requeue: self.requeue_after(Outcome::NodeFail, ExitStatus::default()),
        })
    }
}

/// Whether the end came from outside the job.
fn is_forced(ending: &Ending) -> bool {
    !matches!(
        ending.outcome,
        Outcome::Completed | Outcome::Failed | Outcome::OutOfMemory | Outcome::LaunchFailed
    )
}

/// Nodes that failed: their parts are given up, and the rest of the attempt is ended.
pub(super) fn nodes_failed(
    parameters: &Parameters,
    job: &Job,
    failed: &[&str],
    at: Timestamp,
) -> Vec<Event> {
    let Some(active) = job.attempt() else { return Vec::new() };
    let attempt = AttemptId { job: job.id, number: active.number };
    let mut events = Vec::new();
    let how = requeue_after(parameters, job, Outcome::NodeFail, ExitStatus::default(), at);
    let begun = ending(job, Outcome::NodeFail, ExitStatus::default(), at, how);
    let ending = match &begun {
        Some(Event::Ending { ending, .. }) => **ending,
        _ => active.ending.expect("an attempt that cannot begin to end is ending"),
    };
    events.extend(begun);
    let (gone, left): (Vec<&String>, Vec<&String>) =
        active.held_nodes.iter().partition(|held| failed.contains(&held.as_str()));
    events.extend(gone.into_iter().map(|node| Event::PartGivenUp { attempt, node: node.clone() }));
    if left.is_empty() {
        let mut closed = active.clone();
        for step in closed.steps.iter_mut().filter(|s| s.end.is_none()) {
            step.waiting.clear();
            step.end = Some(StepEnd { time: at, outcome: Outcome::Cancelled { by: 0 } });
        }
        events.push(closing(parameters, job, &closed, &ending, at));
    }
    events
}

fn outcome_of(exit: ExitStatus, oom: bool, timed_out: bool) -> Outcome {
    match (oom, timed_out, exit.is_success()) {
        (_, true, _) => Outcome::Timeout,
        (true, false, _) => Outcome::OutOfMemory,
        (false, false, true) => Outcome::Completed,
        (false, false, false) => Outcome::Failed,
    }
}

/// A step that a signal ended is cancelled, as in Slurm's books, whoever sent it; its job has failed.
fn of_step(outcome: Outcome, exit: ExitStatus) -> Outcome {
    match outcome {
        Outcome::Failed if exit.signal > 0 && exit != NOT_LAUNCHED => Outcome::Cancelled { by: 0 },
        other => other,
    }
}

/// Slurm's pair for what the kernel killed for its memory, whatever the process made of it.
fn shown_exit(outcome: Outcome, exit: ExitStatus) -> ExitStatus {
    match outcome {
        Outcome::OutOfMemory => ExitStatus { code: 0, signal: 125 },
        _ => exit,
    }
}

//! `decide`: from a command and the state to events, or to a refusal that changes nothing.

mod account;
mod cancel;
mod change;
mod field;
mod limits;
mod node;
mod preempt;
mod probe;
mod report;
mod reservation;
mod slice;
mod start;
mod step;
mod submit;
mod tick;
mod together;
mod top;

use crate::command::{Command, Context, Decision};
use crate::config::Parameters;
use crate::event::Event;
use crate::job::{Ended, Job};
use crate::state::State;
use model::attempt::{Attempt, EndCause, Ending, RequeueAs};
use model::priority::UsageReset;
use model::reason::{Reason, Refusal};
use model::run::{ExitStatus, Hold, LaunchKind, Outcome};
use model::time::Timestamp;
use std::time::Duration;

impl State {
    /// Looks, and never changes.
    pub fn decide(&self, command: &Command, context: &Context) -> Result<Decision, Refusal> {
        let mut decision = self.decide_alone(command, context)?;
        self.end_together(&mut decision.events, context.now);
        Ok(decision)
    }

    /// What becomes of those that were started together comes after.
    fn decide_alone(&self, command: &Command, context: &Context) -> Result<Decision, Refusal> {
        match command {
            Command::StartTerm { term } => {
                Ok(vec![Event::TermStarted { term: *term, at: context.now }].into())
            }
            Command::Configure(config) => Ok(self.decide_configure(config, context)),
            Command::Submit(submit) => self.decide_submit(submit, context),
            Command::Start(start) => self.decide_start(start, context),
            Command::StartTogether(starts) => self.decide_start_together(starts, context),
            Command::Preempt(preempt) => self.decide_preempt(preempt, context),
            Command::Resume { job } => self.decide_resume(*job, context),
            Command::Cancel(cancel) => Ok(self.decide_cancel(cancel, context)),
            Command::ChangeJob { job, change } => self.decide_change_job(job, change, context),
            Command::Relinquish { job, exit } => self.decide_relinquish(*job, *exit, context),
            Command::HolderLost { job } => Ok(self.decide_holder_lost(*job, context)),
            Command::CreateStep { job, ask } => self.decide_step(*job, ask, context),
            Command::Report { node, attempt, at, what } => {
                Ok(self.decide_report(node, *attempt, *at, what).into())
            }
            Command::NodeHello { node, facts, held } => {
                self.decide_hello(node, facts, held, context)
            }
            Command::NodeLost { node } => Ok(self.decide_node_lost(node, context)),
            Command::Tick { booked } => Ok(self.decide_tick(*booked, context).into()),
            Command::UseToken { hash, fingerprint } => {
                self.decide_use_token(hash, fingerprint, context)
            }
            Command::CreateReservation(ask) => self.decide_create_reservation(ask, context),
            Command::UpdateReservation { name, ask } => {
                self.decide_update_reservation(name, ask, context)
            }
            Command::RemoveReservation { name } => self.decide_remove_reservation(name, context),
            _ => {
                self.authorise_administration(command, &context.by)?;
                self.decide_administration(command, context)
            }
        }
    }

    fn decide_configure(&self, config: &crate::ClusterConfig, context: &Context) -> Decision {
        let mut events = Vec::new();
        if *self.config != *config {
            events.push(Event::Configured { config: Box::new(config.clone()), at: context.now });
        }
        let used = !self.spending.associations.is_empty() || !self.spending.qos.is_empty();
        if config.parameters.priority.reset == UsageReset::Now && used {
            events.push(Event::UsageSettled { at: context.now, reset: true });
        }
        events.into()
    }
}

/// An attempt that is to end with this outcome; nothing if it is ending already.
pub(crate) fn ending(
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
    Some(Event::Ending { job: job.id, ending: Box::new(Ending::new(outcome, at, requeue)), exit })
}

/// Whether an attempt that ended so by itself, or by its node's failure, is followed by another, and how.
pub(crate) fn requeue_after(
    parameters: &Parameters,
    job: &Job,
    outcome: Outcome,
    exit: ExitStatus,
    at: Timestamp,
) -> Option<RequeueAs> {
    let lost = outcome == Outcome::NodeFail;
    let batch = job.spec.launch.kind == LaunchKind::Batch;
    if lost && job.spec.requeue && batch {
        return Some(RequeueAs::default());
    }
    let exited = batch && matches!(outcome, Outcome::Completed | Outcome::Failed);
    let among = |codes: &[(i32, i32)]| {
        let held = |(from, to): &(i32, i32)| (*from..=*to).contains(&exit.code);
        exited && exit.signal == 0 && codes.iter().any(held)
    };
    if among(&parameters.requeue_exits) {
        return Some(RequeueAs::default());
    }
    if among(&parameters.requeue_exits_held) {
        return Some(RequeueAs { hold: true, special_exit: true });
    }
    let retry = job.spec.retry.as_ref()?;
    let wanted = (lost && retry.on_interruption) || (outcome == Outcome::Failed && retry.on_error);
    let in_time = retry.duration_s.is_none_or(|s| at.since(job.submit).as_secs() < s);
    (wanted && in_time).then_some(RequeueAs::default())
}

/// The closing of an attempt of which nothing is left: the end of the job, or a new wait.
pub(crate) fn closing(
    parameters: &Parameters,
    job: &Job,
    attempt: &Attempt,
    ending: &Ending,
    at: Timestamp,
) -> Event {
    // A script whose exit makes it run again was requeued, whatever its exit.
    let by_exit = matches!(ending.outcome, Outcome::Completed | Outcome::Failed);
    let outcome =
        match ending.requeue.is_some() && by_exit && job.spec.launch.kind == LaunchKind::Batch {
            true => Outcome::Requeued,
            false => ending.outcome,
        };
    let exit = match outcome {
        Outcome::OutOfMemory => ExitStatus { code: 0, signal: 125 },
        Outcome::LaunchFailed => report::NOT_LAUNCHED,
        Outcome::Completed | Outcome::Failed | Outcome::Requeued | Outcome::Cancelled { .. } => {
            attempt.exit
        }
        _ => ExitStatus::default(),
    };
    let end = ending.own_end(at).max(attempt.start);
    let derived = attempt.steps.iter().filter(|s| matches!(s.id, model::id::StepId::Number(_)));
    let ended = Box::new(Ended {
        outcome,
        exit,
        derived_exit: derived.map(|s| s.exit).max().unwrap_or_default(),
        start: Some(attempt.start),
        end,
        allocation: Some(attempt.allocation.clone()),
        steps: attempt.steps.clone(),
        usage: attempt.usage.clone(),
        reason: reason_of(outcome),
        suspended_ms: attempt.suspended_total_ms(end),
    });
    let Some(RequeueAs { hold, special_exit }) = ending.requeue else {
        return Event::Ended { job: job.id, ended };
    };
    let (hold, reason) = if hold && ending.cause == EndCause::LaunchFailed {
        (Some(Hold::Admin), Some(Reason::LaunchFailedHeld))
    } else {
        held_again(hold)
    };
    let reason = reason.filter(|_| !by_exit);
    let begin = requeue_begin(parameters, job, at);
    Event::Requeued { job: job.id, ended, begin, hold, reason, special_exit }
}

/// A job that waits again, held: its owner may release it.
pub(crate) fn held_again(hold: bool) -> (Option<Hold>, Option<Reason>) {
    (hold.then_some(Hold::User), hold.then_some(Reason::RequeuedHeld))
}

/// When a job of Slurm's that waits again may start: after a pause. dstack's tasks have none.
pub(crate) fn requeue_begin(parameters: &Parameters, job: &Job, at: Timestamp) -> Timestamp {
    match job.spec.launch.kind {
        LaunchKind::Task => at,
        LaunchKind::Batch | LaunchKind::Interactive => {
            at + Duration::from_secs(u64::from(parameters.requeue_wait_s))
        }
    }
}

/// The reason that an ended job shows.
pub(crate) fn reason_of(outcome: Outcome) -> Reason {
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
pub(crate) fn ended_unstarted(outcome: Outcome, at: Timestamp) -> Ended {
    Ended {
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
    }
}

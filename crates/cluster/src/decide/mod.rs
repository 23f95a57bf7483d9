//! `decide`: from a command and the state to events, or to a refusal that changes nothing.

mod account;
mod cancel;
mod change;
mod limits;
mod node;
mod report;
mod start;
mod step;
mod submit;
mod tick;

use crate::authorise::{Act, authorise};
use crate::command::{Command, Context, Decision};
use crate::event::Event;
use crate::job::{Ended, Job};
use crate::state::State;
use model::priority::UsageReset;
use model::reason::{Reason, Refusal};
use model::run::{Attempt, Ending, ExitStatus, Hold, LaunchKind, Outcome};
use model::time::Timestamp;

impl State {
    /// Looks, and never changes.
    pub fn decide(&self, command: &Command, context: &Context) -> Result<Decision, Refusal> {
        match command {
            Command::StartTerm { term } => {
                Ok(vec![Event::TermStarted { term: *term, at: context.now }].into())
            }
            Command::Configure(config) => Ok(self.decide_configure(config, context)),
            Command::Submit(submit) => self.decide_submit(submit, context),
            Command::Start(start) => self.decide_start(start, context),
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
            _ => {
                authorise(self, &context.by, Act::Administer)?;
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
    Some(Event::Ending {
        job: job.id,
        ending: Box::new(Ending {
            outcome,
            since: at,
            requeue: requeue.is_some(),
            hold: requeue.is_some_and(|r| r.hold),
            launch_failed: false,
        }),
        exit,
    })
}

/// The attempt is to be followed by another, held or not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RequeueAs {
    pub hold: bool,
}

/// Whether an attempt that ended so by itself, or by its node's failure, is followed by another.
pub(crate) fn follows(job: &Job, outcome: Outcome, at: Timestamp) -> bool {
    let lost = outcome == Outcome::NodeFail;
    if lost && job.spec.requeue && job.spec.launch.kind == LaunchKind::Batch {
        return true;
    }
    let Some(retry) = &job.spec.retry else { return false };
    let wanted = (lost && retry.on_interruption) || (outcome == Outcome::Failed && retry.on_error);
    let in_time = retry.duration_s.is_none_or(|s| at.since(job.submit).as_secs() < s);
    wanted && in_time
}

/// The closing of an attempt of which nothing is left: the end of the job, or a new wait.
pub(crate) fn closing(job: &Job, attempt: &Attempt, ending: &Ending, at: Timestamp) -> Event {
    let outcome = ending.outcome;
    let exit = match outcome {
        Outcome::OutOfMemory => ExitStatus { code: 0, signal: 125 },
        Outcome::LaunchFailed => report::NOT_LAUNCHED,
        Outcome::Completed | Outcome::Failed | Outcome::Cancelled { .. } => attempt.exit,
        _ => ExitStatus::default(),
    };
    let derived = attempt.steps.iter().filter(|s| matches!(s.id, model::id::StepId::Number(_)));
    let ended = Box::new(Ended {
        outcome,
        exit,
        derived_exit: derived.map(|s| s.exit).max().unwrap_or_default(),
        start: Some(attempt.start),
        end: at,
        allocation: Some(attempt.allocation.clone()),
        steps: attempt.steps.clone(),
        usage: attempt.usage.clone(),
        reason: reason_of(outcome),
    });
    if !ending.requeue {
        return Event::Ended { job: job.id, ended };
    }
    let hold = ending.hold.then_some(Hold::Admin);
    let reason = (ending.hold && ending.launch_failed).then_some(Reason::LaunchFailedHeld);
    Event::Requeued { job: job.id, ended, begin: at, hold, reason }
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
    }
}

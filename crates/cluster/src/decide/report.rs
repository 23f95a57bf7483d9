//! Reports of agents about attempts on their nodes. Each is taken in once, however often it is sent.

use super::end::{closing, ending};
use crate::command::AttemptReport;
use crate::config::Parameters;
use crate::event::Event;
use crate::requeue;
use crate::state::State;
use crate::state::job::Job;
use model::attempt::{Attempt, EndCause, Ending, RequeueAs};
use model::container::ContainerNetwork;
use model::id::{AttemptId, StepId};
use model::reason::{LaunchFailure, LaunchFault, UserFault};
use model::run::{ExitStatus, HetComponent, LaunchKind, Outcome, Step, StepEnd, Usage};
use model::time::Timestamp;
use std::time::Duration;

/// How much a node's clock may differ. An attempt that times out so shortly before its limit counts as at its limit.
const CLOCKS_APART: Duration = Duration::from_secs(10);

impl State {
    /// A node has ended an attempt that was given up while it was silent.
    fn stale_attempt_gone(
        &self,
        node: &str,
        attempt: AttemptId,
        what: &AttemptReport,
    ) -> Option<Event> {
        let over = matches!(
            what,
            AttemptReport::Ended { .. }
                | AttemptReport::Missing
                | AttemptReport::LaunchFailed { .. }
        );
        let is_stale = || self.nodes.get(node).is_some_and(|n| n.stale.contains(&attempt));
        (over && is_stale()).then(|| Event::StaleAttemptGone { node: node.to_string(), attempt })
    }

    pub(super) fn decide_report(
        &self,
        node: &str,
        attempt: AttemptId,
        at: Timestamp,
        what: &AttemptReport,
        now: Timestamp,
    ) -> Vec<Event> {
        let job = self.jobs.get(&attempt.job);
        let held = job.and_then(|job| {
            let active = job.attempt().filter(|active| active.number == attempt.number)?;
            active.held_nodes.iter().any(|held| held == node).then_some((job, active))
        });
        // An attempt that a node still holds was not given up there.
        let Some((job, active)) = held else {
            return self.stale_attempt_gone(node, attempt, what).into_iter().collect();
        };
        let parameters = &self.config.parameters;
        // A node's clock may be off, or the node may lie: nothing of an attempt happens before it.
        let at = at.max(active.start);
        let share =
            ReportedShare { parameters, job, active, node, attempt, at, user: None, failure: None };
        match what {
            AttemptReport::Started => share.prolog_ended(now).into_iter().collect(),
            AttemptReport::Network(network) => share.network_made(network).into_iter().collect(),
            AttemptReport::ScriptEnded { exit, oom, timed_out } => {
                share.script_ended(*exit, *oom, *timed_out)
            }
            AttemptReport::StepEnded { step, exit, usage, oom } => {
                share.step_ended(*step, *exit, usage, *oom).into_iter().collect()
            }
            AttemptReport::Unfit { why } => self.drained(node, why, at).into_iter().collect(),
            AttemptReport::LaunchFailed { unfit: None, user: None, what, fault, .. } => {
                let requeue = requeue::after_own_failed_launch(job, at);
                ReportedShare { failure: Some((*fault, what)), ..share }.not_launched(requeue)
            }
            AttemptReport::LaunchFailed { unfit: None, user: Some(fault), .. } => {
                let requeue = requeue::after_failed_launch(parameters, job, true, at);
                ReportedShare { user: Some(*fault), ..share }.not_launched(requeue)
            }
            AttemptReport::LaunchFailed { unfit: Some(why), hold, what, fault, .. } => {
                let mut events: Vec<Event> = self.drained(node, why, at).into_iter().collect();
                let requeue = requeue::after_failed_launch(parameters, job, *hold, at);
                let share = ReportedShare { failure: Some((*fault, what)), ..share };
                events.extend(share.not_launched(requeue));
                events
            }
            AttemptReport::Missing => share.lost(),
            AttemptReport::Ended { lost: true, .. } => share.lost(),
            AttemptReport::Ended { exit, usage, oom, timed_out, lost: false } => {
                let mut events = share.batch_step_ended(*exit, usage, *oom, *timed_out);
                let outcome = outcome_of(*exit, *oom, *timed_out);
                let requeue = share.requeue_after(outcome, *exit);
                events.extend(share.ended_on_node(Verdict {
                    outcome,
                    exit: *exit,
                    usage,
                    requeue,
                }));
                events
            }
        }
    }
}

/// An attempt's share of one node, at the time of a report.
struct ReportedShare<'a> {
    parameters: &'a Parameters,
    job: &'a Job,
    active: &'a Attempt,
    node: &'a str,
    attempt: AttemptId,
    at: Timestamp,
    /// Why the node refuses the job's owner.
    user: Option<UserFault>,
    /// Why the node could not start it.
    failure: Option<(LaunchFault, &'a str)>,
}

/// How much of a node's words on a failed launch is kept, characters.
const FAILURE_MAX: usize = 240;

struct Verdict<'a> {
    outcome: Outcome,
    exit: ExitStatus,
    usage: &'a Usage,
    requeue: Option<RequeueAs>,
}

impl ReportedShare<'_> {
    fn requeue_after(&self, outcome: Outcome, exit: ExitStatus) -> Option<RequeueAs> {
        requeue::after_end(self.parameters, self.job, outcome, exit, self.at)
    }

    /// Whether the end of the script on this node is the end of the job.
    fn decides_the_end(&self) -> bool {
        match self.job.spec.launch.kind {
            LaunchKind::Batch => self.is_first(),
            LaunchKind::Task => true,
            LaunchKind::Interactive => false,
        }
    }

    fn is_first(&self) -> bool {
        self.active.allocation.node_names().next() == Some(self.node)
    }

    /// Whether this is the first node of its run: the groups of a task are one.
    fn is_master(&self) -> bool {
        self.is_first() && self.job.het.is_none_or(HetComponent::is_leader)
    }

    /// Whether a success on this node is the success of the job. A task on several nodes is done with the last of them, or with
    /// its first.
    fn is_enough(&self) -> bool {
        let launch = &self.job.spec.launch;
        launch.kind != LaunchKind::Task || (launch.ends_with_first_node && self.is_master())
    }

    /// The prolog is over on this node, if something waits for that.
    fn prolog_ended(&self, now: Timestamp) -> Option<Event> {
        let waited = self.active.preparing_nodes.iter().any(|node| node == self.node);
        waited.then(|| Event::PrologEndedOnNode {
            attempt: self.attempt,
            node: self.node.to_string(),
            pull_credit_ms: self.taken_pull_credit_ms(now),
        })
    }

    /// How much of its pull credit the attempt has taken once the last of its nodes has the image.
    fn taken_pull_credit_ms(&self, now: Timestamp) -> Option<u64> {
        let granted_ms = self.active.pull_credit_ms;
        if granted_ms == 0 || self.active.preparing_nodes.len() > 1 {
            return None;
        }
        // A node whose clock is ahead, or that lies, gains nothing.
        let waited = self.at.min(now).since(self.active.start);
        let waited_ms = u64::try_from(waited.as_millis()).unwrap_or(u64::MAX);
        // Suspended time has moved the end already.
        Some(waited_ms.saturating_sub(self.active.suspended_ms).min(granted_ms))
    }

    /// The network of the container, which only an attempt on one node has.
    fn network_made(&self, network: &ContainerNetwork) -> Option<Event> {
        let is_new = self.active.network.is_none() && self.active.allocation.nodes.len() == 1;
        is_new.then(|| Event::NetworkMade { attempt: self.attempt, network: network.clone() })
    }

    /// Whether the share has used up its CPU time. The time limit comes to all nodes at once: a share that times out before
    /// it has met a limit of its own.
    fn has_exhausted_cpu_time(&self, outcome: Outcome) -> bool {
        let before_limit = self.active.end_limit.is_none_or(|end| self.at + CLOCKS_APART < end);
        outcome == Outcome::Timeout && before_limit
    }

    fn end_cause(&self, outcome: Outcome) -> EndCause {
        if self.has_exhausted_cpu_time(outcome) {
            EndCause::CpuTimeExhausted
        } else {
            EndCause::Usual
        }
    }

    /// This node, where it is one of several and its part ended so that it failed.
    fn failed_with(&self, exit: ExitStatus) -> Option<String> {
        let is_one_of_several = self.active.allocation.nodes.len() > 1;
        (is_one_of_several && !exit.is_success()).then(|| self.node.to_owned())
    }

    fn script_ended(&self, exit: ExitStatus, oom: bool, timed_out: bool) -> Vec<Event> {
        if !self.decides_the_end() {
            return Vec::new();
        }
        let outcome = outcome_of(exit, oom, timed_out);
        if outcome == Outcome::Completed && !self.is_enough() {
            return Vec::new();
        }
        let requeue = self.requeue_after(outcome, exit);
        let mut event = ending(self.job, outcome, exit, self.at, requeue);
        if let Some(Event::Ending { ending, failed_node, .. }) = &mut event {
            ending.cause = self.end_cause(outcome);
            *failed_node = self.failed_with(exit);
        }
        event.into_iter().collect()
    }

    fn step_ended(&self, id: StepId, exit: ExitStatus, usage: &Usage, oom: bool) -> Option<Event> {
        let step = self.active.steps.iter().find(|s| s.id == id)?;
        step.waiting.iter().any(|n| n == self.node).then(|| {
            let worst = step.exit.max(exit);
            let outcome = of_step(outcome_of(worst, oom, false), worst);
            self.step_ended_on_node(step, exit, usage, outcome)
        })
    }

    fn step_ended_on_node(
        &self,
        step: &Step,
        exit: ExitStatus,
        usage: &Usage,
        outcome: Outcome,
    ) -> Event {
        let last = step.waiting.iter().all(|n| n == self.node);
        Event::StepEndedOnNode {
            job: self.job.id,
            step: step.id,
            node: self.node.to_string(),
            exit: shown_exit(outcome, exit),
            usage: usage.clone(),
            end: last.then_some(StepEnd { time: self.end_of(step), outcome }),
        }
    }

    /// When the step ended: the batch step ends with its script.
    fn end_of(&self, step: &Step) -> Timestamp {
        match &self.active.ending {
            Some(ending) if step.id == StepId::Batch => ending.own_end(self.at),
            _ => self.at,
        }
    }

    /// Ends the steps that are still open on this node: the batch step, and numbered steps that never reported.
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
            self.step_ended_on_node(step, exit, usage, outcome)
        })
        .collect()
    }

    /// Nothing of the attempt is left on this node. The other nodes are told to end, and the last one closes the attempt.
    fn ended_on_node(&self, verdict: Verdict<'_>) -> Vec<Event> {
        let mut events = Vec::new();
        let fatal = matches!(verdict.outcome, Outcome::LaunchFailed | Outcome::NodeFail);
        let decides = self.decides_the_end()
            || fatal
            || verdict.requeue.is_some()
            || self.has_exhausted_cpu_time(verdict.outcome);
        let under_way = self.active.ending;
        let task_done = verdict.outcome == Outcome::Completed
            && self.active.held_nodes.len() > 1
            && !self.is_enough();
        let failure = self.failure.map(|(fault, words)| LaunchFailure {
            fault,
            what: words.chars().take(FAILURE_MAX).collect(),
        });
        // The exit status that the attempt has once this report is taken in.
        let mut exit_so_far = self.active.exit;
        let ending = match under_way {
            Some(ending) => Some(ending),
            None if decides && !task_done => {
                // A share reports the outcome `Requeued` only if it was never launched.
                let cause = match (self.user, verdict.outcome) {
                    (Some(fault), _) => EndCause::UserRefused(fault),
                    (None, Outcome::Requeued) => EndCause::LaunchFailed,
                    (None, outcome) => self.end_cause(outcome),
                };
                let ending =
                    Ending { cause, ..Ending::new(verdict.outcome, self.at, verdict.requeue) };
                exit_so_far = verdict.exit;
                events.push(Event::Ending {
                    job: self.job.id,
                    ending: Box::new(ending),
                    exit: verdict.exit,
                    failed_node: self.failed_with(verdict.exit),
                });
                Some(ending)
            }
            None => None,
        };
        // The signal of an end that was forced, or that followed the first node's, is not the job's exit status.
        let followed = self.job.spec.launch.ends_with_first_node && !self.is_master();
        let forced = ending
            .as_ref()
            .is_some_and(|e| is_forced(e) || (followed && e.outcome == Outcome::Completed));
        let exit = if forced { ExitStatus::default() } else { verdict.exit };
        events.push(Event::AttemptEndedOnNode {
            attempt: self.attempt,
            node: self.node.to_string(),
            exit,
            usage: verdict.usage.without_tasks(),
            at: self.at,
            failure: failure.clone(),
        });
        let last = self.active.held_nodes.iter().all(|n| n == self.node);
        if last {
            // Only the last report copies the attempt: it has a share for every node.
            let mut active = self.active.clone();
            let decided_here = under_way.is_none();
            active.launch_failure = active.launch_failure.take().or(failure);
            active.usage.absorb(&verdict.usage.without_tasks());
            active.exit = exit_so_far.max(exit);
            if decided_here {
                active.failed_node = self.failed_with(verdict.exit);
            }
            self.finish_steps(&mut active, &verdict, forced);
            // The last share to end unasked decides the job's outcome.
            let ending = ending.unwrap_or(Ending::new(verdict.outcome, self.at, None));
            events.push(closing(self.parameters, self.job, active, &ending, self.at));
        }
        events
    }

    /// Fills in the ends of steps in the copy that the closing record carries.
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

    /// Nothing was started on this node. With `requeue` the job waits for another node.
    fn not_launched(&self, requeue: Option<RequeueAs>) -> Vec<Event> {
        let (outcome, exit) = match requeue {
            Some(_) => (Outcome::Requeued, ExitStatus::default()),
            None => (Outcome::LaunchFailed, ExitStatus::NOT_LAUNCHED),
        };
        self.ended_on_node(Verdict { outcome, exit, usage: &Usage::default(), requeue })
    }

    /// The share is gone without a reported end, which counts as a node's failure.
    fn lost(&self) -> Vec<Event> {
        self.ended_on_node(Verdict {
            outcome: Outcome::NodeFail,
            exit: ExitStatus::default(),
            usage: &Usage::default(),
            requeue: self.requeue_after(Outcome::NodeFail, ExitStatus::default()),
        })
    }
}

/// Whether the attempt was ended from outside the job.
fn is_forced(ending: &Ending) -> bool {
    !matches!(
        ending.outcome,
        Outcome::Completed | Outcome::Failed | Outcome::OutOfMemory | Outcome::LaunchFailed
    )
}

/// Gives up a job's shares of nodes that failed, and ends the rest of the attempt.
pub(super) fn nodes_failed(
    parameters: &Parameters,
    job: &Job,
    failed: &[&str],
    at: Timestamp,
) -> Vec<Event> {
    let Some(active) = job.attempt() else { return Vec::new() };
    let attempt = AttemptId { job: job.id, number: active.number };
    let mut events = Vec::new();
    let requeue = requeue::after_end(parameters, job, Outcome::NodeFail, ExitStatus::default(), at);
    let begun = ending(job, Outcome::NodeFail, ExitStatus::default(), at, requeue);
    let ending = match &begun {
        Some(Event::Ending { ending, .. }) => **ending,
        _ => active.ending.expect("an attempt that cannot begin to end is ending"),
    };
    events.extend(begun);
    let (gone, left): (Vec<&String>, Vec<&String>) =
        active.held_nodes.iter().partition(|held| failed.contains(&held.as_str()));
    events.extend(
        gone.into_iter().map(|node| Event::AttemptAbandonedOnNode { attempt, node: node.clone() }),
    );
    if left.is_empty() {
        let mut closed = active.clone();
        for step in closed.steps.iter_mut().filter(|s| s.end.is_none()) {
            step.waiting.clear();
            step.end = Some(StepEnd { time: at, outcome: Outcome::Cancelled { by: 0 } });
        }
        events.push(closing(parameters, job, closed, &ending, at));
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

/// A step that a signal ended counts as cancelled, whoever sent it, while its job has failed; so does the script of a job that a
/// node could not start.
fn of_step(outcome: Outcome, exit: ExitStatus) -> Outcome {
    match outcome {
        Outcome::LaunchFailed => Outcome::Cancelled { by: 0 },
        Outcome::Failed if exit.signal > 0 && exit != ExitStatus::NOT_LAUNCHED => {
            Outcome::Cancelled { by: 0 }
        }
        other => other,
    }
}

/// A process that the kernel killed for its memory has one exit status, whatever it returned.
fn shown_exit(outcome: Outcome, exit: ExitStatus) -> ExitStatus {
    match outcome {
        Outcome::OutOfMemory => ExitStatus::OUT_OF_MEMORY,
        _ => exit,
    }
}

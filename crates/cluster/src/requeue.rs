//! How a job's end becomes a requeue. Every case is stated here, and here alone.
//!
//! | what ends the attempt | when another attempt follows |
//! |---|---|
//! | its own exit | [`after_end`]: an exit code of the site's lists, or `retry` on errors |
//! | a lack of memory | [`after_end`]: `retry` on errors |
//! | its node fails | [`after_end`]: `--requeue` of a batch script, or `retry` on interruptions or on errors |
//! | its own exit, its time limit, a lack of memory, its node's failure | [`after_end`]: `schedule`, at its next time, where nothing above holds |
//! | its launch fails by no fault of the node | [`after_own_failed_launch`]: `retry` on errors; `schedule`, at its next time |
//! | its node cannot launch it | [`after_failed_launch`]: as if the node had failed |
//! | its node refuses its owner | [`after_failed_launch`]: the same, and it is held |
//! | a node of its het job fails, or a group of a task | [`after_component_failure`]: as if it were the leader's; a group that was done begins again too |
//! | preemption | [`after_preemption`], for a job that [`is_preempted_by_requeue`] |
//! | `scontrol requeue` | [`on_request`], for a job that passes [`check_request`] |
//!
//! A cancel and a deadline end the job; so does a time limit, unless it has a schedule. A cancel also takes back a requeue that is under way.

use crate::config::Parameters;
use crate::state::job::{Job, Retries};
use model::attempt::{Attempt, EndCause, Ending, RequeueAs};
use model::change::Requeue;
use model::reason::{Reason, Refusal};
use model::run::{ExitStatus, Hold, LaunchKind, Outcome};
use model::time::Timestamp;
use std::time::Duration;

/// Whether an attempt that ended by itself or by its node's failure is followed by another, and how.
pub(crate) fn after_end(
    parameters: &Parameters,
    job: &Job,
    outcome: Outcome,
    exit: ExitStatus,
    at: Timestamp,
) -> Option<RequeueAs> {
    let node_failed = outcome == Outcome::NodeFail;
    let is_batch = job.spec.launch.kind == LaunchKind::Batch;
    if node_failed && job.spec.requeue && is_batch {
        return Some(RequeueAs::default());
    }
    let exited = is_batch && is_own_exit(outcome);
    let is_listed = |codes: &[(i32, i32)]| {
        let contains = |(from, to): &(i32, i32)| (*from..=*to).contains(&exit.code);
        exited && exit.signal == 0 && codes.iter().any(contains)
    };
    if is_listed(&parameters.requeue_exits) {
        return Some(RequeueAs::default());
    }
    if is_listed(&parameters.requeue_exits_held) {
        return Some(RequeueAs { hold: true, special_exit: true });
    }
    // A schedule without a further time has had its last.
    let next = job.spec.schedule.as_ref().and_then(|schedule| schedule.next_after(at));
    (is_retried(job, outcome, at) || next.is_some()).then_some(RequeueAs::default())
}

/// How long a task waits before its second attempt, its third and so on, where `retry` makes it; before all further ones as
/// long as before the last of these.
const RETRY_PAUSES_S: [u64; 6] = [15, 30, 60, 120, 300, 600];

/// Whether `retry` covers an attempt that ended so. Its duration bounds the wait for the next attempt, which begins with this
/// end (`retry_deadline`); for a job with a schedule it counts from the attempt's start.
fn is_retried(job: &Job, outcome: Outcome, at: Timestamp) -> bool {
    let Some(retry) = &job.spec.retry else { return false };
    let started =
        job.attempt().filter(|_| job.spec.schedule.is_some()).map(|attempt| attempt.start);
    let is_in_time = |most_s: u64| at.since(started.unwrap_or(at)).as_secs() < most_s;
    retry.covers(outcome)
        && retry.attempts_max.is_none_or(|most| job.retries.count + 1 < most)
        && retry.duration_s.is_none_or(is_in_time)
}

/// Until when a job may wait for the attempt that `retry` makes, once the pause before it is over; `None` for one that waits for
/// another, or for a time of its schedule, and for one that somebody holds.
pub(crate) fn retry_deadline(job: &Job) -> Option<Timestamp> {
    let (retry, requeued) = (job.spec.retry.as_ref()?, job.requeued?);
    let duration = Duration::from_secs(retry.duration_s?);
    let waits = job.retries.waits && job.hold.is_none() && job.spec.schedule.is_none();
    waits.then(|| job.begin.map_or(requeued, |begin| begin.max(requeued)) + duration)
}

/// The pause before the attempt that `retry` makes after one that ended so.
fn retry_pause(job: &Job, ending: &Ending, at: Timestamp) -> Option<Duration> {
    if job.spec.launch.kind != LaunchKind::Task || !is_retried(job, ended_as(ending), at) {
        return None;
    }
    let earlier = job.retries.count;
    let last = RETRY_PAUSES_S.len() - 1;
    Some(Duration::from_secs(RETRY_PAUSES_S[last.min(earlier as usize)]))
}

/// A launch that failed counts as a failure of the node, and the end of one group as that of all.
fn ended_as(ending: &Ending) -> Outcome {
    match (ending.outcome, ending.cause) {
        (Outcome::Requeued, EndCause::LaunchFailed | EndCause::UserRefused(_)) => Outcome::NodeFail,
        (Outcome::Requeued, EndCause::OtherGroup(outcome)) => outcome,
        (outcome, _) => outcome,
    }
}

/// Whether the job has had this time of its schedule, and waits for the next. A retry, a requeue on request and a preemption
/// leave it its turn.
fn has_had_its_turn(job: &Job, ending: &Ending, at: Timestamp) -> bool {
    match ended_as(ending) {
        Outcome::Requeued | Outcome::Preempted => false,
        outcome => !is_retried(job, outcome, at),
    }
}

/// A launch that failed by no fault of the node, as for files that cannot be placed or an image that cannot be had: `retry`
/// counts it among the errors, and a schedule goes on.
pub(crate) fn after_own_failed_launch(job: &Job, at: Timestamp) -> Option<RequeueAs> {
    let next = job.spec.schedule.as_ref().and_then(|schedule| schedule.next_after(at));
    (is_retried(job, Outcome::LaunchFailed, at) || next.is_some()).then(RequeueAs::default)
}

/// A node that cannot launch the attempt counts as failed; `hold` keeps the job for somebody to look at.
pub(crate) fn after_failed_launch(
    parameters: &Parameters,
    job: &Job,
    hold: bool,
    at: Timestamp,
) -> Option<RequeueAs> {
    let requeue = after_end(parameters, job, Outcome::NodeFail, ExitStatus::default(), at)?;
    Some(RequeueAs { hold: requeue.hold || hold, ..requeue })
}

/// A node's failure under one component is a failure of the whole het job, and so is that of a task's commands: the leader's
/// own rule applies to all.
pub(crate) fn after_component_failure(
    parameters: &Parameters,
    leader: &Job,
    outcome: Outcome,
    at: Timestamp,
) -> Option<RequeueAs> {
    let is_of_all = outcome == Outcome::NodeFail || leader.spec.launch.kind == LaunchKind::Task;
    is_of_all.then(|| after_end(parameters, leader, outcome, ExitStatus::default(), at))?
}

/// Whether preemption may requeue the job. An allocation that a client holds has nothing to run again.
pub(crate) fn is_preempted_by_requeue(job: &Job) -> bool {
    job.spec.requeue && job.spec.launch.kind != LaunchKind::Interactive
}

/// `requeue`: what the plan chose among the modes that the job allows.
pub(crate) fn after_preemption(requeue: bool) -> Option<RequeueAs> {
    requeue.then(RequeueAs::default)
}

/// Whether somebody may ask for a requeue of the job. Components are requeued through their leader.
pub(crate) fn check_request(job: &Job) -> Result<(), Refusal> {
    match job.spec.launch.kind {
        _ if job.het.is_some_and(|of| !of.is_leader()) => Err(Refusal::NotHetLeader(job.id)),
        LaunchKind::Interactive => Err(Refusal::NotRequeueable(job.id)),
        LaunchKind::Batch if !job.spec.requeue => Err(Refusal::RequeueDisabled(job.id)),
        LaunchKind::Batch | LaunchKind::Task => Ok(()),
    }
}

/// A job that somebody suspended does not start again unasked: it is held.
pub(crate) fn on_request(attempt: &Attempt, asked: Requeue) -> RequeueAs {
    let stopped_by_hand = attempt.has_released_cores() && !attempt.auto_resume;
    RequeueAs { hold: asked.hold || stopped_by_hand, special_exit: asked.special_exit }
}

/// The outcome that the books record. A script whose exit code makes it run again was requeued, whatever the code.
pub(crate) fn recorded_outcome(job: &Job, ending: &Ending) -> Outcome {
    let is_batch = job.spec.launch.kind == LaunchKind::Batch;
    let by_exit = ending.requeue.is_some() && is_own_exit(ending.outcome);
    if by_exit && is_batch { Outcome::Requeued } else { ending.outcome }
}

fn is_own_exit(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Completed | Outcome::Failed)
}

/// How a requeued job waits.
pub(crate) struct RequeuedWait {
    pub begin: Timestamp,
    pub hold: Option<Hold>,
    pub reason: Option<Reason>,
    pub special_exit: bool,
    pub retries: Retries,
}

impl RequeuedWait {
    /// Slurm's jobs wait for a while before they may start again; dstack's tasks only where `retry` makes them (`after`). The
    /// owner may release a hold.
    pub fn new(parameters: &Parameters, job: &Job, requeue: RequeueAs, at: Timestamp) -> Self {
        let pause = match job.spec.launch.kind {
            LaunchKind::Task => Duration::ZERO,
            LaunchKind::Batch | LaunchKind::Interactive => {
                Duration::from_secs(u64::from(parameters.requeue_wait_s))
            }
        };
        // A hold that the job had while it ran stays that of its owner, an administrator or an update.
        let earlier = job.hold.filter(|_| !job.has_ended());
        Self {
            begin: at + pause,
            hold: requeue.hold.then_some(earlier.unwrap_or(Hold::User)),
            reason: requeue.hold.then_some(Reason::RequeuedHeld),
            special_exit: requeue.special_exit,
            retries: Retries { waits: false, ..job.retries },
        }
    }

    /// After an attempt that ended so: a failed launch is held by the administrator, and one held for its exit code shows
    /// no reason.
    pub fn after(
        parameters: &Parameters,
        job: &Job,
        ending: &Ending,
        requeue: RequeueAs,
        at: Timestamp,
    ) -> Self {
        let mut wait = Self::new(parameters, job, requeue, at);
        let next = job.spec.schedule.as_ref().and_then(|schedule| schedule.next_after(at));
        if let Some(next) = next.filter(|_| has_had_its_turn(job, ending, at)) {
            wait.begin = next;
            wait.retries = Retries::default();
        } else if let Some(pause) = retry_pause(job, ending, at) {
            wait.begin = at + pause;
            wait.retries =
                Retries { count: job.retries.count + 1, waits: true, ..Retries::default() };
        }
        let by_launch = match ending.cause {
            EndCause::LaunchFailed => Some(Reason::LaunchFailedHeld),
            EndCause::UserRefused(fault) => Some(Reason::UserRefused(fault)),
            EndCause::Usual
            | EndCause::CpuTimeExhausted
            | EndCause::GpusUnderused
            | EndCause::Inactive
            | EndCause::Aborted
            | EndCause::OtherGroup(_)
            | EndCause::RequeueRequested { .. } => None,
        };
        if requeue.hold && by_launch.is_some() {
            (wait.hold, wait.reason) = (Some(Hold::Admin), by_launch);
        }
        if is_own_exit(ending.outcome) {
            wait.reason = None;
        }
        wait
    }
}

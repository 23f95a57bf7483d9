//! A job as the state holds it: waiting, active with one attempt, or ended until its record is purged.

use super::intern::Interner;
use model::allocation::Allocation;
use model::array::IndexSet;
use model::attempt::Attempt;
use model::id::{AttemptId, JobId, RunId, StepId};
use model::priority::PriorityPolicy;
use model::reason::Reason;
use model::run::{
    ArrayTask, ExitStatus, HetComponent, Hold, JobSpec, JobState, Outcome, Step, Usage,
};
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Job {
    pub id: JobId,
    pub run: RunId,
    /// Set for one task of an array.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<ArrayTask>,
    /// Set for the record that holds an array's pending tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<Box<PendingTasks>>,
    /// The `%N` of an array no task of which is pending any more, on the record that has the array's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<u32>,
    pub spec: Arc<JobSpec>,
    pub account: Arc<str>,
    pub qos: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    pub priority: u64,
    /// Somebody set the priority: it is not computed.
    #[serde(default)]
    pub priority_set: bool,
    /// Added to the computed priority.
    #[serde(default)]
    pub site_factor: i32,
    pub submit: Timestamp,
    /// The earliest start: `--begin`, or the pause after the last requeue.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timestamp>,
    /// Attempts made so far.
    pub attempts: u32,
    /// A reason that holds until somebody releases the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fixed_reason: Option<Box<Reason>>,
    /// When it was last requeued.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub requeued: Option<Timestamp>,
    /// What `retry` has done for it.
    #[serde(default, skip_serializing_if = "Retries::is_none")]
    pub retries: Retries,
    /// Held after an end that somebody should look at: JobState::SpecialExit.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub special_exit: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin_comment: Option<Arc<str>>,
    /// Since when its age counts towards its priority; none: since it could start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accrues_from: Option<Timestamp>,
    /// How long its owner's jobs before it ran, under `priority/sluice`: what it is expected to take. It is never ended by it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_s: Option<u32>,
    /// The job's place in a het job.
    #[serde(default, rename = "together", skip_serializing_if = "Option::is_none")]
    pub het: Option<HetComponent>,
    /// The run was deleted: lists of runs leave it out.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
    pub phase: Phase,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PendingTasks {
    pub indices: IndexSet,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<u32>,
    /// The last time at which `%N` came to let more tasks start: one of them ended, or it was changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle_eased: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    Waiting,
    Active(Box<Attempt>),
    Ended(Box<EndRecord>),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct EndRecord {
    pub outcome: Outcome,
    pub exit: ExitStatus,
    #[serde(default)]
    pub derived_exit: ExitStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    pub end: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Arc<Allocation>>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    #[serde(default)]
    pub usage: Usage,
    #[serde(default)]
    pub reason: Reason,
    /// How long it was suspended, milliseconds.
    #[serde(default)]
    pub suspended_ms: u64,
    /// The computed priority that the job waited with, where it ended as it waited.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub priority: Option<u64>,
    /// The node that failed first, of an attempt that failed on one of several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_node: Option<String>,
}

/// The attempts that `retry` made of a job, at one time of its schedule where it has one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Retries {
    pub count: u32,
    /// It waits for one, and not after a requeue by somebody or a preemption.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub waits: bool,
    /// Somebody held it and released it before its first attempt.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub was_held: bool,
}

impl Retries {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Job {
    /// What dstack's `priority` of a run adds to the job's own: where it is no factor among others, it comes first.
    pub(crate) fn run_precedence(&self, policy: &PriorityPolicy) -> u64 {
        let asked = u64::from(self.spec.dstack_priority.unwrap_or(0));
        if policy.multifactor { 0 } else { asked << 32 }
    }

    /// The priority that stays with the job: by its place in the queue, as somebody set it, or as it was computed at its start or
    /// at the end of its wait.
    pub(crate) fn kept_priority(&self, policy: &PriorityPolicy) -> u64 {
        // What was computed has the run's in it.
        if policy.is_computed() && !self.priority_set {
            return self.ended().and_then(|ended| ended.priority).unwrap_or(self.priority);
        }
        self.run_precedence(policy) + self.priority.min(u64::from(u32::MAX))
    }

    /// A job as it is when it was just submitted.
    pub(crate) fn waiting(
        id: JobId,
        run: RunId,
        spec: &Arc<JobSpec>,
        (account, qos): (&Arc<str>, &Arc<str>),
        priority: u64,
        submit: Timestamp,
    ) -> Self {
        Self {
            id,
            run,
            task: None,
            pending: None,
            throttle: None,
            account: account.clone(),
            qos: qos.clone(),
            hold: None,
            priority,
            priority_set: false,
            site_factor: 0,
            submit,
            begin: spec.request().begin,
            attempts: 0,
            fixed_reason: None,
            requeued: None,
            retries: Retries::default(),
            special_exit: false,
            admin_comment: None,
            accrues_from: None,
            expected_s: None,
            het: None,
            deleted: false,
            phase: Phase::Waiting,
            spec: spec.clone(),
        }
    }

    /// The wait of a job that somebody held and released has a bound no longer: its duration may have passed meanwhile.
    pub(crate) fn release(&mut self) {
        let was_held = self.hold.take().is_some();
        self.retries.waits &= !was_held;
        self.retries.was_held |= was_held;
    }

    /// Shares in memory what equal jobs hold.
    pub(crate) fn intern(&mut self, interner: &mut Interner) {
        self.spec = interner.spec(&self.spec);
        self.account = interner.text(&self.account);
        self.qos = interner.text(&self.qos);
    }

    pub fn state(&self) -> JobState {
        match &self.phase {
            Phase::Waiting if self.special_exit => JobState::SpecialExit,
            Phase::Waiting if self.lost_reservation() => JobState::ReservationGone,
            Phase::Waiting => JobState::Pending,
            Phase::Active(a) if a.ending.is_some() => JobState::Completing,
            Phase::Active(a) if a.suspended => JobState::Suspended,
            Phase::Active(a) if !a.booting_nodes.is_empty() => JobState::Configuring,
            Phase::Active(_) => JobState::Running,
            Phase::Ended(e) => e.outcome.state(),
        }
    }

    /// The reservations that the job asks for, and the one that it runs in.
    pub fn reservation_names(&self) -> impl Iterator<Item = &str> {
        let asked = self.spec.request().reservation.as_deref().unwrap_or_default();
        let used = self.attempt().and_then(|attempt| attempt.reservation.as_deref());
        model::reservation::split_names(asked).chain(used)
    }

    /// Whether the job is held because its reservation is gone.
    pub fn lost_reservation(&self) -> bool {
        matches!(self.fixed_reason.as_deref(), Some(Reason::ReservationGone(_)))
    }

    pub fn attempt(&self) -> Option<&Attempt> {
        match &self.phase {
            Phase::Active(attempt) => Some(attempt),
            _ => None,
        }
    }

    /// The allocation of the present attempt, or of the last one when the job ended.
    pub fn allocation(&self) -> Option<&Allocation> {
        match &self.phase {
            Phase::Waiting => None,
            Phase::Active(attempt) => Some(&*attempt.allocation),
            Phase::Ended(ended) => ended.allocation.as_deref(),
        }
    }

    /// The submit time to show: that of the last requeue, if there was one.
    pub fn shown_submit(&self) -> Timestamp {
        self.requeued.unwrap_or(self.submit)
    }

    pub fn attempt_id(&self) -> Option<AttemptId> {
        self.attempt().map(|a| AttemptId { job: self.id, number: a.number })
    }

    pub fn ended(&self) -> Option<&EndRecord> {
        match &self.phase {
            Phase::Ended(ended) => Some(ended),
            _ => None,
        }
    }

    pub fn is_waiting(&self) -> bool {
        matches!(self.phase, Phase::Waiting)
    }

    pub fn has_ended(&self) -> bool {
        matches!(self.phase, Phase::Ended(_))
    }

    /// The exit of the step that an `srun` started with its job, once all steps of the job have ended.
    pub fn finished_step(&self) -> Option<ExitStatus> {
        self.spec.launch.first_step.as_ref()?;
        let steps = &self.attempt()?.steps;
        let first = steps.iter().find(|step| step.id == StepId::Number(0))?;
        steps.iter().all(|step| step.end.is_some()).then_some(first.exit)
    }

    /// `12`, `12_3`, `12_[4-7]` or `12+1`.
    pub fn shown_id(&self) -> String {
        match (&self.task, &self.pending) {
            (Some(task), _) => format!("{}_{}", task.array, task.index),
            (None, Some(p)) => {
                format!("{}_[{}]", self.id, model::array::format_pending(&p.indices, p.throttle))
            }
            (None, None) => match self.het {
                Some(of) => format!("{}+{}", of.first, of.offset),
                None => self.id.to_string(),
            },
        }
    }

    /// The restart count: attempts after the first.
    pub fn restarts(&self) -> u32 {
        let made = self.attempts;
        if self.is_waiting() { made } else { made.saturating_sub(1) }
    }
}

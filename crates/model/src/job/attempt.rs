//! One attempt of a job: its allocation, whether it is suspended, how it ends.

use crate::allocation::Allocation;
use crate::container::ContainerNetwork;
use crate::id::JobId;
use crate::reason::{LaunchFailure, UserFault};
use crate::run::{ExitStatus, Outcome, Step, Usage};
use crate::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// One launch of a job on its allocation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attempt {
    /// Counts from 1; durable before the order goes out.
    pub number: u32,
    /// Shared with the event that started it and with the record of its end: a job on many nodes has a share of each.
    pub allocation: Arc<Allocation>,
    pub start: Timestamp,
    /// When the time limit ends the attempt; `None` without a limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_limit: Option<Timestamp>,
    /// The reservation that the attempt runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<String>,
    /// Nodes that have not reported the end of their part.
    pub held_nodes: Vec<String>,
    /// Nodes that are not ready: their prolog is not over, where the job or its client waits for the prologs of all
    /// nodes, or they get the image of a task.
    #[serde(default, rename = "preparing", skip_serializing_if = "Vec::is_empty")]
    pub preparing_nodes: Vec<String>,
    /// Nodes that were powered down when it was granted them and are not up yet: nothing of it is started before they are.
    #[serde(default, rename = "booting", skip_serializing_if = "Vec::is_empty")]
    pub booting_nodes: Vec<String>,
    /// The network of its container, where that is not the node's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network: Option<ContainerNetwork>,
    /// How the end will be recorded; set once the attempt is being ended.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ending: Option<Ending>,
    /// Up to when usage was charged; `None` before the first charge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub charged_until: Option<Timestamp>,
    #[serde(default)]
    pub suspended: bool,
    /// When the suspension began; suspended time does not count against the time limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspended_since: Option<Timestamp>,
    /// It is resumed by the scheduler when its cores are free again: it was suspended by preemption, or resumed by a user
    /// while others had its cores.
    #[serde(default, rename = "resumes_itself", skip_serializing_if = "std::ops::Not::not")]
    pub auto_resume: bool,
    /// It is suspended by gang scheduling until its time slice on shared cores comes; the cores still count as its own.
    #[serde(default, rename = "waits_turn", skip_serializing_if = "std::ops::Not::not")]
    pub gang_suspended: bool,
    /// Milliseconds of all suspensions but the current one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub suspended_ms: u64,
    /// Milliseconds by which `end_limit` is later because the image of a task is pulled first: how long that took, and until it
    /// is over how long it may take.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub pull_credit_ms: u64,
    /// Time of the last suspend or resume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend_changed: Option<Timestamp>,
    /// Set while it has been told of its preemption and its grace time runs.
    #[serde(default, rename = "leaving", skip_serializing_if = "Option::is_none")]
    pub preemption_grace: Option<PreemptionGrace>,
    /// Why a node could not start it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_failure: Option<LaunchFailure>,
    /// The node whose part of it failed and so ended the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_node: Option<String>,
    #[serde(default)]
    pub exit: ExitStatus,
    #[serde(default)]
    pub usage: Usage,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    #[serde(default)]
    pub next_step: u32,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

impl Attempt {
    /// Milliseconds of all suspensions until `now`.
    pub fn suspended_total_ms(&self, now: Timestamp) -> u64 {
        let open = self.suspended_since.filter(|_| self.suspended);
        let open = open.map_or(0, |since| now.since(since).as_millis() as u64);
        self.suspended_ms.saturating_add(open)
    }

    /// Whether it is suspended and others may use its cores.
    pub fn has_released_cores(&self) -> bool {
        self.suspended && !self.gang_suspended
    }

    /// Whether it is being ended, or its grace time before preemption runs.
    pub fn is_ending_or_preempted(&self) -> bool {
        self.ending.is_some() || self.preemption_grace.is_some()
    }
}

/// Whole suspended seconds between two times, rounded so that they and the seconds run add up to the seconds between.
pub fn suspended_whole_s(start: Timestamp, end: Timestamp, suspended_ms: u64) -> u64 {
    if suspended_ms == 0 {
        return 0;
    }
    let all_s = (end.secs() - start.secs()).max(0) as u64;
    let ran_ms = (end.since(start).as_millis() as u64).saturating_sub(suspended_ms);
    all_s.saturating_sub(ran_ms / 1000)
}

/// The grace time of a job that is preempted: it was told at `since`, and ends at `until`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct PreemptionGrace {
    pub since: Timestamp,
    pub until: Timestamp,
    /// The job that preempts it.
    pub by: JobId,
    /// A new attempt follows.
    pub requeue: bool,
}

/// How an attempt that is being ended will be recorded, and whether another attempt follows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "StoredEnding", into = "StoredEnding")]
pub struct Ending {
    pub outcome: Outcome,
    pub since: Timestamp,
    /// How the job is requeued; `None` if the job ends.
    pub requeue: Option<RequeueAs>,
    pub cause: EndCause,
}

/// The state in which a requeued job waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RequeueAs {
    /// The job is held until somebody releases it.
    pub hold: bool,
    /// Slurm's state SPECIAL_EXIT instead of PENDING.
    pub special_exit: bool,
}

/// A cause of the end that the outcome does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum EndCause {
    #[default]
    Usual,
    /// A node could not start the attempt.
    LaunchFailed,
    /// A node refused to run processes of the job's owner.
    UserRefused(UserFault),
    /// The attempt's CPU time on a node is used up.
    CpuTimeExhausted,
    /// Its GPUs did less than its `utilization_policy` asks for.
    GpusUnderused,
    /// Nobody was connected to it for its `inactivity_duration`.
    Inactive,
    /// Somebody cancelled it, and had it killed before its time to stop was over.
    Aborted,
    /// Another group of its task ended so.
    OtherGroup(Outcome),
    /// Somebody asked for its requeue: the user's number.
    RequeueRequested { by: u32 },
}

impl Ending {
    pub fn new(outcome: Outcome, since: Timestamp, requeue: Option<RequeueAs>) -> Self {
        Self { outcome, since, requeue, cause: EndCause::Usual }
    }

    /// The end of an attempt that was to be requeued, and no longer is.
    pub fn without_requeue(self, outcome: Outcome) -> Self {
        let cause = match self.cause {
            EndCause::RequeueRequested { .. } => EndCause::Usual,
            cause => cause,
        };
        Self { outcome, requeue: None, cause, ..self }
    }

    /// The recorded end of an attempt that is gone from its nodes at `now`. The epilog after the script's own exit, or
    /// after the time limit, is not the job's time; a cancelled job's time lasts until it is gone.
    pub fn own_end(&self, now: Timestamp) -> Timestamp {
        match self.outcome {
            Outcome::Completed | Outcome::Failed | Outcome::OutOfMemory | Outcome::Timeout => {
                self.since.min(now)
            }
            _ => now,
        }
    }
}

/// [`Ending`] as journals and snapshots hold it: a flag for each case.
#[derive(Serialize, Deserialize)]
struct StoredEnding {
    outcome: Outcome,
    since: Timestamp,
    #[serde(default)]
    requeue: bool,
    #[serde(default)]
    hold: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    special_exit: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    launch_failed: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    out_of_cpu_time: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    gpus_underused: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    inactive: bool,
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    aborted: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    other_group: Option<Outcome>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_refused: Option<UserFault>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    requeued_by: Option<u32>,
}

impl From<Ending> for StoredEnding {
    fn from(ending: Ending) -> Self {
        let Ending { outcome, since, requeue, cause } = ending;
        let RequeueAs { hold, special_exit } = requeue.unwrap_or_default();
        Self {
            outcome,
            since,
            requeue: requeue.is_some(),
            hold,
            special_exit,
            launch_failed: cause == EndCause::LaunchFailed,
            out_of_cpu_time: cause == EndCause::CpuTimeExhausted,
            gpus_underused: cause == EndCause::GpusUnderused,
            inactive: cause == EndCause::Inactive,
            aborted: cause == EndCause::Aborted,
            other_group: match cause {
                EndCause::OtherGroup(outcome) => Some(outcome),
                _ => None,
            },
            user_refused: match cause {
                EndCause::UserRefused(fault) => Some(fault),
                _ => None,
            },
            requeued_by: match cause {
                EndCause::RequeueRequested { by } => Some(by),
                _ => None,
            },
        }
    }
}

impl From<StoredEnding> for Ending {
    fn from(stored: StoredEnding) -> Self {
        let StoredEnding { outcome, since, hold, special_exit, .. } = stored;
        let cause = match (stored.user_refused, stored.launch_failed, stored.out_of_cpu_time) {
            (Some(fault), _, _) => EndCause::UserRefused(fault),
            (None, true, _) => EndCause::LaunchFailed,
            (None, false, true) => EndCause::CpuTimeExhausted,
            (None, false, false) if stored.gpus_underused => EndCause::GpusUnderused,
            (None, false, false) if stored.inactive => EndCause::Inactive,
            (None, false, false) if stored.aborted => EndCause::Aborted,
            (None, false, false) => match (stored.other_group, stored.requeued_by) {
                (Some(outcome), _) => EndCause::OtherGroup(outcome),
                (None, Some(by)) => EndCause::RequeueRequested { by },
                (None, None) => EndCause::Usual,
            },
        };
        let requeue = stored.requeue.then_some(RequeueAs { hold, special_exit });
        Self { outcome, since, requeue, cause }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ending_is_stored_as_flags_and_read_back() {
        let since = Timestamp(5);
        let held = RequeueAs { hold: true, special_exit: true };
        let table = [
            (
                Ending::new(Outcome::Completed, since, None),
                r#"{"outcome":"completed","since":5,"requeue":false,"hold":false}"#,
            ),
            (
                Ending::new(Outcome::Failed, since, Some(held)),
                r#"{"outcome":"failed","since":5,"requeue":true,"hold":true,"special_exit":true}"#,
            ),
            (
                Ending {
                    cause: EndCause::LaunchFailed,
                    ..Ending::new(Outcome::Requeued, since, Some(RequeueAs::default()))
                },
                r#"{"outcome":"requeued","since":5,"requeue":true,"hold":false,"launch_failed":true}"#,
            ),
            (
                Ending {
                    cause: EndCause::UserRefused(UserFault::Locked),
                    ..Ending::new(Outcome::LaunchFailed, since, None)
                },
                r#"{"outcome":"launch_failed","since":5,"requeue":false,"hold":false,"user_refused":"locked"}"#,
            ),
            (
                Ending {
                    cause: EndCause::CpuTimeExhausted,
                    ..Ending::new(Outcome::Timeout, since, None)
                },
                r#"{"outcome":"timeout","since":5,"requeue":false,"hold":false,"out_of_cpu_time":true}"#,
            ),
            (
                Ending {
                    cause: EndCause::GpusUnderused,
                    ..Ending::new(Outcome::Cancelled { by: 0 }, since, None)
                },
                r#"{"outcome":{"cancelled":{"by":0}},"since":5,"requeue":false,"hold":false,"gpus_underused":true}"#,
            ),
            (
                Ending {
                    cause: EndCause::OtherGroup(Outcome::Failed),
                    ..Ending::new(Outcome::Requeued, since, Some(RequeueAs::default()))
                },
                r#"{"outcome":"requeued","since":5,"requeue":true,"hold":false,"other_group":"failed"}"#,
            ),
            (
                Ending {
                    cause: EndCause::RequeueRequested { by: 1001 },
                    ..Ending::new(Outcome::Requeued, since, Some(RequeueAs::default()))
                },
                r#"{"outcome":"requeued","since":5,"requeue":true,"hold":false,"requeued_by":1001}"#,
            ),
        ];
        for (ending, stored) in table {
            assert_eq!(serde_json::to_string(&ending).unwrap(), stored);
            assert_eq!(serde_json::from_str::<Ending>(stored).unwrap(), ending);
        }
        let shortest = serde_json::from_str::<Ending>(r#"{"outcome":"completed","since":5}"#);
        assert_eq!(shortest.unwrap(), Ending::new(Outcome::Completed, since, None));
    }

    #[test]
    fn epilog_counts_to_a_job_only_where_somebody_ended_it() {
        let (script_end, gone) = (Timestamp(5), Timestamp(9));
        for (outcome, end) in [
            (Outcome::Completed, script_end),
            (Outcome::Timeout, script_end),
            (Outcome::Cancelled { by: 0 }, gone),
            (Outcome::NodeFail, gone),
        ] {
            assert_eq!(Ending::new(outcome, script_end, None).own_end(gone), end, "{outcome:?}");
        }
    }
}

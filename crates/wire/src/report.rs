//! Reports from an agent to the server; kept in the node's spool until the server has them on disk.

use model::container::ContainerNetwork;
use model::id::{AttemptId, StepId};
use model::reason::{LaunchFault, UserFault};
use model::run::{ExitStatus, Usage};
use model::time::Timestamp;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Grows within one connection; the server acknowledges it by number.
    pub serial: u64,
    pub node: String,
    pub attempt: AttemptId,
    pub at: Timestamp,
    pub event: ReportEvent,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReportEvent {
    Started,
    /// The script's container has a network of its own.
    Network(ContainerNetwork),
    /// Nothing was started, and nothing is left.
    LaunchFailed {
        what: String,
        /// The part of the launch that failed.
        #[serde(default, skip_serializing_if = "LaunchFault::is_other")]
        fault: LaunchFault,
        /// Why this node cannot start any job now: it is drained with this reason.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        unfit: Option<String>,
        /// Another attempt of the job waits until somebody releases it.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        hold: bool,
        /// The job's owner may not run here. The job waits until somebody releases it; the node is not at fault.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<UserFault>,
    },
    /// The node cannot be trusted with jobs any more, though this one goes on: it is drained with this reason.
    Unfit {
        why: String,
    },
    StepEnded {
        step: StepId,
        exit: ExitStatus,
        usage: Usage,
        oom: bool,
    },
    /// The script (or the client's hold) is over and its group is being emptied.
    /// The job's other nodes may be told to end.
    ScriptEnded {
        exit: ExitStatus,
        oom: bool,
        timed_out: bool,
    },
    /// The group is empty: nothing of the attempt is left on the node.
    Ended(AttemptEnd),
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AttemptEnd {
    pub exit: ExitStatus,
    pub usage: Usage,
    pub oom: bool,
    pub timed_out: bool,
    /// The supervisor was killed: the job ends as a node failure would.
    pub supervisor_lost: bool,
}

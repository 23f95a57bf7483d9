//! `sdiag`: what the server has counted; `scontrol setdebug`: how much it logs.

use model::time::Timestamp;
use serde::{Deserialize, Serialize};

/// How much a daemon logs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    Error,
    Info,
    Debug,
    Trace,
}

/// Counted since the server started, or since somebody set the counters back.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct DiagnosticsView {
    pub now: Timestamp,
    pub since: Timestamp,
    /// Calls that are being answered.
    pub calls_open: u64,
    /// Commits whose orders wait to be sent.
    pub orders_queued: u64,
    /// Agents that are connected.
    pub agents: u64,
    /// Batches of records that wait for the books.
    pub books_queued: u64,
    pub jobs: JobCounts,
    pub pending: u64,
    pub running: u64,
    pub plans: PlanCounts,
    /// A thousand readings of the clock, in microseconds.
    pub clock_us: u64,
    pub calls: Vec<CallCount>,
    pub users: Vec<UserCount>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobCounts {
    pub submitted: u64,
    pub started: u64,
    pub completed: u64,
    pub cancelled: u64,
    pub failed: u64,
}

/// The plans that were made; times in microseconds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlanCounts {
    pub made: u64,
    pub last_us: u64,
    pub max_us: u64,
    pub total_us: u64,
    pub last_at: Option<Timestamp>,
    /// Entries of the queue that were looked at.
    pub last_queue: u64,
    pub total_queue: u64,
    /// Of these such as might have started, had there been room.
    pub last_tried: u64,
    pub total_tried: u64,
    /// Places that were kept for later.
    #[serde(rename = "last_kept")]
    pub last_slots: u64,
    #[serde(rename = "total_kept")]
    pub total_slots: u64,
    /// Jobs that overtook another, and the same since the server started.
    pub backfilled: u64,
    #[serde(rename = "backfilled_ever")]
    pub backfilled_since_start: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallCount {
    pub kind: CallKind,
    pub count: u64,
    pub total_us: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserCount {
    pub uid: u32,
    pub name: String,
    pub count: u64,
    pub total_us: u64,
}

/// What was asked, as far as it is counted apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallKind {
    Ping,
    SubmitBatch,
    Allocate,
    TestSubmit,
    AwaitStart,
    AwaitEnd,
    Jobs,
    OneJob,
    Cluster,
    Config,
    Cancel,
    CancelStep,
    UpdateJob,
    UpdateNode,
    UpdatePartition,
    Reconfigure,
    History,
    Script,
    CreateStep,
    LaunchStep,
    Relinquish,
    Accounts,
    ChangeAccounts,
    Shares,
    Priorities,
    Diagnostics,
    Explain,
    Token,
    Offers,
    Other,
}

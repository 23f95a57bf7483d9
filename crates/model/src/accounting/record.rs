//! The books' record of an attempt, which `sacct` shows, for running and ended jobs.

use crate::amount::Bytes;
use crate::change::JobRef;
use crate::cpu_frequency::CpuFrequency;
use crate::id::{BlobRef, JobId, RunId, StepId};
use crate::reason::Reason;
use crate::run::{BlobBytes, ExitStatus, JobState, LaunchKind, Outcome, Retry, Usage};
use crate::streams::Streams;
use crate::time::{TimeLimit, Timestamp};
use crate::tres::Tres;
use serde::{Deserialize, Serialize};

/// One attempt of one job. `(job, attempt)` is its key: writing it twice changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobRecord {
    pub job: JobId,
    /// Counts from 1; a job that waits has the number that its next start would have.
    pub attempt: u32,
    pub run: RunId,
    pub array_job: Option<JobId>,
    pub array_task: Option<u32>,
    /// The pending indices of an array that is still waiting, as squeue prints them.
    pub array_pending: Option<String>,
    /// Set for a component of a het job.
    #[serde(default, rename = "together", skip_serializing_if = "Option::is_none")]
    pub het: Option<crate::run::HetComponent>,
    pub name: String,
    pub user: String,
    pub uid: u32,
    pub gid: u32,
    pub group: String,
    pub account: String,
    pub partition: String,
    pub qos: String,
    pub state: RecordState,
    pub exit: ExitStatus,
    pub derived_exit: ExitStatus,
    pub submit: Timestamp,
    pub eligible: Option<Timestamp>,
    pub start: Option<Timestamp>,
    pub end: Option<Timestamp>,
    pub suspended_s: u64,
    pub time_limit: TimeLimit,
    pub nodes: Vec<String>,
    pub node_count: u32,
    pub cpus: u32,
    pub tasks: u32,
    pub req_cpus: u32,
    pub req_nodes: u32,
    /// The memory requested for each node, CPU or GPU; zero for whole nodes. Stored as text: `8G`, `1000M`.
    #[serde(with = "crate::amount::mebibytes_text")]
    pub req_mem: Bytes,
    pub req_tres: Tres,
    pub alloc_tres: Tres,
    pub priority: u64,
    pub restarts: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Retry>,
    pub work_dir: String,
    /// The files of a batch job; records of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub streams: Option<Streams>,
    pub submit_line: String,
    pub comment: Option<String>,
    pub wckey: Option<String>,
    pub reservation: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_id: Option<u32>,
    pub constraint: Option<String>,
    /// `afterok:11`; records of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
    /// The image that its script ran in, as it was named; records of earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    pub reason: Reason,
    pub kind: LaunchKind,
    /// Where `AccountingStoreFlags` has them kept.
    pub script: Option<BlobRef>,
    pub environment: Option<BlobRef>,
    /// What a run of dstack's language was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<BlobRef>,
    #[serde(default)]
    pub blob_bytes: BlobBytes,
    /// The kernel's limit on a node for a job that ran out of memory, where that is not what the job was granted there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_limit: Option<Bytes>,
    /// The node that failed first, of an attempt that failed on one of several nodes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub failed_node: Option<String>,
    /// The GPUs of the nodes where a kind of them is known, which `alloc_tres` does not say; records of earlier versions have none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gpus: Vec<GpusOfNodes>,
    pub usage: Usage,
    pub steps: Vec<StepRecord>,
}

/// What an attempt had of the GPUs of each of these nodes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GpusOfNodes {
    /// As a list of hosts: `gpu[1-4]`.
    pub nodes: String,
    /// A kind, which may be empty, and how many of it.
    pub kinds: Vec<(String, u64)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepRecord {
    pub id: StepId,
    pub name: String,
    pub state: RecordState,
    pub exit: ExitStatus,
    pub start: Timestamp,
    pub end: Option<Timestamp>,
    pub nodes: Vec<String>,
    pub cpus: u32,
    pub tasks: u32,
    pub usage: Usage,
    pub submit_line: String,
    /// `--cpu-freq`, as it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_frequency: Option<CpuFrequency>,
    /// The image of its container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
}

/// The recorded state of an attempt or a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordState {
    Pending,
    Running,
    Suspended,
    Ended(Outcome),
}

/// Selects the attempts that `sacct` shows.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct HistoryFilter {
    #[serde(default)]
    pub jobs: Vec<JobRef>,
    #[serde(default)]
    pub users: Vec<String>,
    #[serde(default)]
    pub accounts: Vec<String>,
    #[serde(default)]
    pub partitions: Vec<String>,
    #[serde(default)]
    pub names: Vec<String>,
    #[serde(default)]
    pub qos: Vec<String>,
    #[serde(default)]
    pub nodes: Vec<String>,
    #[serde(default)]
    pub states: Vec<JobState>,
    #[serde(default)]
    pub from: Option<Timestamp>,
    #[serde(default)]
    pub until: Option<Timestamp>,
    /// Earlier attempts too (`-D`).
    #[serde(default)]
    pub duplicates: bool,
    #[serde(default)]
    pub limit: Option<u32>,
    /// Jobs of these runs; of all where empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub runs: Vec<RunId>,
    /// Runs that were deleted are left out; `sacct` shows them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_deleted: bool,
    /// Jobs that have ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ended: bool,
    /// A number names the record that has it, and not those of all tasks of its array, or of all components of its job.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_records: bool,
    /// Jobs that were submitted then or later.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitted_from: Option<Timestamp>,
    #[serde(default)]
    pub order: HistoryOrder,
}

/// Which records a limit leaves, and their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HistoryOrder {
    /// The records that ended last, ordered by their ends.
    #[default]
    LastEnded,
    /// The records that were submitted first, ordered by their submits.
    FirstSubmitted,
    /// The records that were submitted last, ordered by their submits.
    LastSubmitted,
}

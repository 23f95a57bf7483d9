//! What calls of clients and the answers to them carry, where it has a type of its own.

use crate::byte_text::ByteText;
use crate::listing::ListingQuery;
use crate::step::StepLaunch;
use crate::workspace::Workspace;
use model::amount::Bytes;
use model::array::ArraySpec;
use model::change::JobFilter;
use model::id::{JobId, StepId};
use model::load::Load;
use model::reason::Refusal;
use model::run::{Hold, JobSpec};
use model::secret::{GitCredentials, RegistryAuth};
use model::time::Timestamp;
use model::usage::TaskUsage;
use serde::{Deserialize, Serialize};

/// A port of a job for a browser.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebLinkQuery {
    pub job: JobId,
    /// The node's place in the allocation.
    #[serde(default)]
    pub rank: u32,
    pub port: u16,
    /// The job's server is told the whole path.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub whole_path: bool,
}

/// Parts of jobs, each on one node, whose load one answer shows.
pub const LOADS_MAX: usize = 128;

/// The running steps of a job, its own and administrators' alone to see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobUsage {
    pub job: JobId,
    /// `12`, `14_3`.
    pub shown: String,
    pub steps: Vec<StepUsage>,
    /// By node, if it was asked for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loads: Vec<(String, Load)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepUsage {
    pub step: StepId,
    /// The nodes that `used` refers to by index.
    pub nodes: Vec<String>,
    pub tasks: u32,
    pub used: TaskUsage,
    pub pids: Vec<(String, Vec<i32>)>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_frequency: Option<model::cpu_frequency::CpuFrequency>,
}

/// A share of a host that would satisfy a request now.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Offer {
    pub node: String,
    pub fleet: String,
    pub cpus: u32,
    pub memory: Bytes,
    pub gpus: Vec<(String, u64)>,
    /// Free now, or only once something ends.
    pub available: bool,
    /// The node that a machine would be, where it is not there yet and would be made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Box<model::node::NodeConfig>>,
    /// Why the node takes no jobs, whatever is free there.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outage: Option<NodeOutage>,
}

/// Why a node takes no jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeOutage {
    Down,
    Drained,
    /// It has not answered for a little while.
    Silent,
}

impl Offer {
    /// Free nodes come first, then machines that would be made, then nodes that are taken, then those that take no jobs.
    pub fn turn(&self) -> u8 {
        match (self.available, &self.machine, self.outage) {
            (true, ..) => 0,
            (false, Some(_), _) => 1,
            (false, None, None) => 2,
            (false, None, Some(_)) => 3,
        }
    }
}

/// The script and the environment of a further group of replicas; stored by content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupTexts {
    pub script: ByteText,
    /// `NAME=value`, each ended by NUL.
    pub environment: String,
    /// How its replicas are prepared, without what the run brings along.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Box<Workspace>>,
}

impl GroupTexts {
    /// The workspace of the group, with the files and the repository that the run brings along for all groups.
    pub fn workspace_with(&self, of_run: Option<&Workspace>) -> Option<Workspace> {
        let own = self.workspace.as_deref()?;
        Some(Workspace {
            files: of_run.map(|of_run| of_run.files.clone()).unwrap_or_default(),
            repository: of_run.and_then(|of_run| of_run.repository.clone()),
            ..own.clone()
        })
    }
}

/// A new job, with its script and environment beside it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Submission {
    /// `spec.owner` is overwritten by who the connection says is asking,
    /// unless that is root submitting for another (`--uid`).
    pub spec: JobSpec,
    /// The other components of a het job, which have no script; the other groups of a task, or of the replicas of a service.
    #[serde(default, rename = "with", skip_serializing_if = "Vec::is_empty")]
    pub het_components: Vec<JobSpec>,
    #[serde(default)]
    pub array: Option<ArraySpec>,
    #[serde(default)]
    pub hold: Option<Hold>,
    #[serde(default)]
    pub priority: Option<u64>,
    /// Neither `--requeue` nor `--no-requeue` was given: the server's `JobRequeue` decides.
    #[serde(default)]
    pub requeue_unsaid: bool,
    /// The script's bytes; stored by content.
    #[serde(default)]
    pub script: Option<ByteText>,
    /// `NAME=value`, each ended by NUL; stored by content.
    #[serde(default)]
    pub environment: Option<String>,
    /// Of a service with several groups of replicas: those of each group after the first, in their order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub group_texts: Vec<GroupTexts>,
    /// `srun` outside an allocation: the step that starts with the job, without a second round trip.
    #[serde(default)]
    pub first_step: Option<Box<StepLaunch>>,
    /// The configuration that it was made from, in its dialect's own form; stored by content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<String>,
    /// Refused while the owner has a run of this name that has not ended.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unique_name: bool,
    /// For the registry of its image; kept encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_auth: Option<RegistryAuth>,
    /// The files and the repository that it brings along; stored by content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Box<Workspace>>,
    /// For its repository; kept encrypted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_credentials: Option<GitCredentials>,
    /// The call's id stands for this submission and no other: it may come again, under that id.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_only_of_call: bool,
    /// Set by the server for [`Call::Resubmit`](crate::client::Call::Resubmit).
    #[serde(skip)]
    pub is_repeat: bool,
}

/// One of several servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerView {
    pub name: String,
    /// Where its clients' port is found.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    pub version: String,
    pub is_leader: bool,
    /// How long ago it was heard of.
    pub seen_ms: u64,
    /// The events that it had not taken in then.
    pub events_behind: u64,
    /// The term of the history.
    pub term: u64,
}

/// A server that was not heard of for so long is taken for down.
pub const SERVER_SILENCE_MS: u64 = 10_000;

impl ServerView {
    pub fn is_up(&self) -> bool {
        self.is_leader || self.seen_ms < SERVER_SILENCE_MS
    }

    /// Its name, and where it is found if another of `all` has the same: several may be on one machine.
    pub fn shown_among(&self, all: &[Self]) -> String {
        let is_alone = all.iter().filter(|other| other.name == self.name).count() <= 1;
        match self.addresses.first() {
            Some(address) if !is_alone => format!("{} ({address})", self.name),
            _ => self.name.clone(),
        }
    }
}

/// The header of an answer that a standby has made from its own state: how many milliseconds ago that state was the cluster's.
pub const STANDBY_LAG_HEADER: &str = "sluice-standby-lag-ms";

/// `squeue`: which jobs, and how much of each.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct JobsQuery {
    #[serde(default)]
    pub filter: JobFilter,
    /// One view for each pending array task (`squeue -r`).
    #[serde(default)]
    pub expand_arrays: bool,
    #[serde(default)]
    pub steps: bool,
    #[serde(default)]
    pub detail: Detail,
    /// How long the answer may wait for estimates of when the jobs start; zero: what is known is enough.
    #[serde(default)]
    pub estimates_ms: u64,
    /// Answered with text instead of JSON; with views all the same by a server that cannot make these lines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lines: Option<Box<ListingQuery>>,
}

/// How much of each job the answer holds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Detail {
    #[default]
    Full,
    /// What the usual columns show: not how it is launched, nor from where it came.
    Listing,
}

/// `sluice top`: the first jobs in an order, or the last ones, for a screen that shows no more of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueueHead {
    /// Whose; empty for all.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub users: Vec<String>,
    pub rows: u32,
    /// What is found in what a list shows of each; empty for all.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub filter: String,
    #[serde(default, skip_serializing_if = "QueueOrder::is_queue")]
    pub order: QueueOrder,
    /// The last rows instead of the first, in the same order.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub from_end: bool,
}

/// By what the first jobs are the first.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueOrder {
    /// Running jobs first, then waiting jobs by their priority.
    #[default]
    Queue,
    Id,
    User,
    Name,
    /// A job whose start nobody knows comes last.
    Start,
}

impl QueueOrder {
    fn is_queue(&self) -> bool {
        *self == Self::Queue
    }
}

/// `scancel`: by job, or everything that the filter matches.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Cancel {
    pub filter: JobFilter,
    /// A step of the one job named.
    #[serde(default)]
    pub step: Option<StepId>,
    /// None: end the job. Else only send this.
    #[serde(default)]
    pub signal: Option<i32>,
    /// Signal the batch shell only.
    #[serde(default)]
    pub batch_only: bool,
    /// Signal the batch shell and all steps.
    #[serde(default)]
    pub full: bool,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct CancelResult {
    pub job: String,
    pub refusal: Option<Refusal>,
}

/// When and where a job would start that was not submitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitForecast {
    pub job: Option<JobId>,
    pub start: Timestamp,
    /// None for those to whom nodes are private.
    pub nodes: Vec<String>,
    pub cpus: u32,
    pub partition: String,
}

/// `srun` in an allocation.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CreateStep {
    pub job: JobId,
    pub launch: StepLaunch,
    /// How long it may wait for other steps of the job; the server waits a shorter while, and is asked again.
    #[serde(default)]
    pub wait_ms: u64,
}

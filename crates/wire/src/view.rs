//! Views of the server's state; both dialects render from these.

use model::account::{Account, Association, Qos};
use model::allocation::Allocation;
use model::container::ContainerNetwork;
use model::deleted::DeletedEntries;
use model::id::{JobId, RunId};
use model::node::{AdminState, NodeConfig, NodeFacts, SlotState};
use model::node_reason::NodeReason;
use model::partition::Partition;
use model::priority::{Factors, Weights};
use model::range::Range;
use model::raw_usage::RawUsage;
use model::reason::Reason;
use model::run::{ExitStatus, HetComponent, Hold, JobSpec, JobState, Step, Usage};
use model::service::{ProbeProgress, Service};
use model::time::{TimeLimit, Timestamp};
use model::topology::Topology;
use model::tres::Tres;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One job, or all the pending tasks of an array in one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct JobView {
    pub id: JobId,
    /// Not in a listing.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunId>,
    pub name: Arc<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<Box<ArrayView>>,
    /// Set for a component of a het job.
    #[serde(default, rename = "together", skip_serializing_if = "Option::is_none")]
    pub het: Option<HetComponent>,
    /// In a listing only what its columns show: no name, no launch.
    pub spec: Arc<JobSpec>,
    pub state: JobState,
    pub reason: Reason,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<Hold>,
    /// The one it runs in, or all that it asks for, with commas.
    pub partition: Arc<str>,
    pub account: Arc<str>,
    pub qos: Arc<str>,
    pub priority: u64,
    pub submit: Timestamp,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub eligible: Option<Timestamp>,
    /// When it started, or is expected to.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<Timestamp>,
    /// When it ended, or will be ended by its limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
    pub time_limit: TimeLimit,
    pub restarts: u32,
    #[serde(default)]
    pub exit: ExitStatus,
    #[serde(default)]
    pub derived_exit: ExitStatus,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub allocation: Option<Box<Allocation>>,
    pub nodes: Range<u32>,
    pub cpus: u32,
    pub tasks: u32,
    /// Asked while pending, granted afterwards; `billing` filled in.
    pub tres: Arc<Tres>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<Step>,
    #[serde(default)]
    pub usage: Usage,
    #[serde(default)]
    pub suspended_s: u64,
    /// The dependency as squeue prints it: only what is not yet met.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_planned: Option<Timestamp>,
    /// The memory that a default resolved to, MiB: per CPU or per node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub default_memory: Option<model::partition::DefaultMemory>,
    /// Who cancelled it, for a job that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancelled_by: Option<u32>,
    /// Fields that few jobs have.
    #[serde(default, rename = "further", skip_serializing_if = "Option::is_none")]
    pub extras: Option<Box<JobExtras>>,
    /// The nodes on which it is expected to start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sched_nodes: Option<Arc<str>>,
}

/// Fields that few jobs have, for `scontrol show job`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct JobExtras {
    /// When it was last suspended or resumed, and how long it had run before that, seconds.
    pub suspend_time: Option<Timestamp>,
    #[serde(rename = "ran_before_s")]
    pub pre_suspend_s: u64,
    /// When its grace time before preemption began.
    pub preempt_time: Option<Timestamp>,
    pub admin_comment: Option<Arc<str>>,
    /// The magnetic reservation that it runs in without having asked for it.
    #[serde(rename = "drawn_into")]
    pub magnetic_reservation: Option<String>,
    /// The network of its container, where that is not its node's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub network: Option<ContainerNetwork>,
    /// It waits for a machine that is being made.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub provisioning: bool,
    /// Where clients find the service, where that is not its path at the server.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service_url: Option<String>,
    /// How each probe of a replica goes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub probes: Vec<ProbeProgress>,
}

impl JobView {
    /// The reservation that it runs in, or those that it asks for.
    pub fn reservation(&self) -> Option<&str> {
        let drawn = self.extras.as_ref().and_then(|extras| extras.magnetic_reservation.as_deref());
        drawn.or(self.spec.request().reservation.as_deref())
    }

    /// Where clients find the service that it is a replica of: an address, or a path at the server.
    pub fn service_url(&self) -> Option<String> {
        self.spec.launch.service.as_ref()?;
        let said = self.extras.as_ref().and_then(|extras| extras.service_url.clone());
        Some(said.unwrap_or_else(|| Service::path(self.spec.project(), &self.spec.name)))
    }

    /// Seconds that it has run, without the time it was suspended.
    pub fn elapsed_s(&self, now: Timestamp) -> u64 {
        let Some(start) = self.start.filter(|_| !self.state.is_waiting()) else { return 0 };
        let end = if self.state.is_ended() { self.end.unwrap_or(now) } else { now };
        ((end.secs() - start.secs()).max(0) as u64).saturating_sub(self.suspended_s)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ArrayView {
    pub array: JobId,
    /// The task, for one that has a record of its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub index: Option<u32>,
    /// The pending indices as squeue prints them (without brackets), for the record that holds them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending: Option<model::array::IndexSet>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub throttle: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct NodeView {
    pub config: NodeConfig,
    pub slot: SlotState,
    #[serde(default, skip_serializing_if = "model::power::PowerState::is_on")]
    pub power: model::power::PowerState,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub admin: Option<AdminState>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<NodeReason>,
    pub facts: NodeFacts,
    pub cpus_allocated: u32,
    pub memory_allocated: model::amount::Bytes,
    /// Allocated units of each GRES line of the configuration, by index.
    pub gres_used: Vec<model::allocation::GresShare>,
    /// Jobs that hold a part of it (also those that are ending).
    pub job_count: u32,
    /// Some of those jobs are only waiting for their last processes to end.
    pub completing: bool,
    pub partitions: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_busy: Option<Timestamp>,
    /// Set while a reservation of the node is active.
    #[serde(default, rename = "kept_for", skip_serializing_if = "Option::is_none")]
    pub reserved_for: Option<crate::reservation::ReservationPurpose>,
    /// The machine became this FUTURE node, which it is like.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub dynamic_future: bool,
}

/// The whole cluster as `sinfo` and `scontrol` need it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClusterView {
    pub name: String,
    pub now: Timestamp,
    pub nodes: Vec<NodeView>,
    pub partitions: Vec<Partition>,
    /// The network between the nodes, where there is one to show.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topology: Option<Arc<Topology>>,
    /// What everybody should know of the server itself, a sentence each.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<String>,
    /// Where services and web pages of jobs are found, without a path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_url: Option<String>,
}

/// `scontrol show config`: canonical key to value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ConfigView {
    pub now: Timestamp,
    pub values: BTreeMap<String, String>,
}

/// `sshare`: every association, an account before what is below it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SharesView {
    pub cluster: String,
    /// Priorities are not worked out from shares here.
    pub basic: bool,
    /// Generic resources that are counted.
    pub gres: Vec<String>,
    pub rows: Vec<ShareView>,
    /// What each QOS has used, by name; nothing where that is hidden from the caller.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub qos: BTreeMap<String, RawUsage>,
}

/// One association.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ShareView {
    pub association: Association,
    /// Its place in the listing of all, from one.
    pub id: u32,
    /// How far below the root.
    pub depth: u32,
    /// Its part of the shares of its level, and of the usage.
    pub shares: f64,
    pub effective_usage: f64,
    /// Its part of all usage; none where nothing has run yet.
    pub usage: Option<f64>,
    /// The one over the other; none: infinite.
    pub level: Option<f64>,
    /// For users only.
    pub fair_share: Option<f64>,
    #[serde(rename = "spent")]
    pub raw_usage: RawUsage,
    /// What the time limits of running jobs still allow.
    pub run_minutes: Tres,
}

/// `sprio`: the pending jobs, once for each partition.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PrioritiesView {
    pub cluster: String,
    /// `priority/basic`: there are no factors.
    pub basic: bool,
    pub weights: Weights,
    pub jobs: Vec<PriorityView>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PriorityView {
    pub job: JobId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub array: Option<ArrayView>,
    pub user: String,
    pub account: String,
    pub qos: String,
    pub partition: String,
    pub priority: u64,
    /// The sum that it is cut from.
    pub sum: f64,
    /// Somebody set it: there are no factors.
    pub set: bool,
    pub factors: Factors,
}

/// The names that a user may give at a submit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubmitChoices {
    pub partitions: Vec<String>,
    pub accounts: Vec<String>,
    pub qos: Vec<String>,
}

/// The account, the QOS and the jobs that a submission names and that are not known, and for which it is not refused.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnknownNames {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// The first few that its dependency names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub jobs: Vec<String>,
}

impl UnknownNames {
    pub fn is_empty(&self) -> bool {
        self.account.is_none() && self.qos.is_none() && self.jobs.is_empty()
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AccountsView {
    pub cluster: String,
    pub accounts: Vec<Account>,
    pub associations: Vec<Association>,
    pub qos: Vec<Qos>,
    /// Names with an operator's or administrator's rights.
    #[serde(default)]
    pub roles: BTreeMap<String, model::principal::Role>,
    /// The one user that is listed, where `PrivateData` hides the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub only_user: Option<String>,
    /// Accounts, associations and QOS that are no more.
    #[serde(default, skip_serializing_if = "DeletedEntries::is_empty")]
    pub deleted: DeletedEntries,
}

impl AccountsView {
    /// The view with what was deleted at the end of each list.
    pub fn with_deleted(mut self) -> Self {
        self.accounts.extend(self.deleted.accounts.iter().cloned());
        self.associations.extend(self.deleted.associations.iter().cloned());
        self.qos.extend(self.deleted.qos.iter().cloned());
        self
    }
}

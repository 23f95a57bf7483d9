//! `sluice explain`: why a job waits, as data; the commands have the words.

use crate::view::JobView;
use model::change::JobRef;
use model::id::JobId;
use model::machine::MachineAnswer;
use model::node_reason::NodeReason;
use model::reason::{Limit, Reason};
use model::run::JobState;
use model::shortage::{MissingResource, NodeClassReport};
use model::time::{TimeLimit, Timestamp};
use serde::{Deserialize, Serialize};

/// The most jobs that are explained at once.
pub const EXPLAINED_MAX: usize = 64;

/// Which jobs: by number, or runs by name.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ExplainQuery {
    #[serde(default)]
    pub jobs: Vec<JobRef>,
    #[serde(default)]
    pub names: Vec<String>,
}

/// One job, or the pending tasks of an array.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ExplainedJob {
    /// `12`, `12_3` or `12_[4-7]`.
    pub shown: String,
    pub job: JobView,
    /// Only for a job that waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wait: Option<Box<WaitView>>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct WaitView {
    /// `None` when nothing holds it back.
    pub reason: Option<Reason>,
    /// How many are before it in the first of its partitions, and the first few of them.
    pub ahead: u32,
    pub ahead_first: Vec<NamedJob>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<LimitHolders>,
    /// The limit that it breaks by itself: it does not start until it or the limit is changed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_never_met: Option<Limit>,
    /// The slot that backfill keeps for it, and its expected start.
    #[serde(default, rename = "kept", skip_serializing_if = "Option::is_none")]
    pub backfill_slot: Option<ExpectedStart>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedStart>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub classes: Vec<NodeClassReport>,
    /// Who is on the nodes that lack something for it, the first to end first; and how many more there are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub occupants: Vec<Occupant>,
    #[serde(default)]
    pub more_occupants: u32,
    /// Some of them have no time limit.
    #[serde(default)]
    pub endless_occupants: bool,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dependency: Vec<UnmetTerm>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub begin: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub licenses: Vec<LicenseShortage>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationWindow>,
    /// Reservations that keep nodes from it, the first to begin first; the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub node_reservations: Vec<NodeReservation>,
    /// Nodes that it names and that the cluster does not have any more.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gone_nodes: Vec<String>,
    /// What its partitions give a job, where that is what it waits for.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub partition_limits: Vec<PartitionLimits>,
    /// Why nodes are out of service that it could use, as far as somebody said it; the first few.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub unavailable: Vec<UnavailableNode>,
    /// Whether a machine is made for it, where its partitions take machines in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<MachineAnswer>,
}

/// The most that a partition gives a job.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartitionLimits {
    pub partition: String,
    pub time: TimeLimit,
    pub nodes: u32,
}

/// A reservation that has nodes which a job could use otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeReservation {
    pub name: String,
    pub nodes: Vec<String>,
    pub start: Timestamp,
    pub end: Timestamp,
}

/// A node that is drained or down.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnavailableNode {
    pub node: String,
    pub reason: NodeReason,
}

/// A job that holds a part of nodes that another waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Occupant {
    pub job: String,
    pub user: String,
    /// When its time limit ends it; none: it has no limit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Timestamp>,
    /// What it holds there of what is lacking; nothing where that is no amount.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub held: Vec<HeldResource>,
}

/// An amount of a resource on all nodes that lack it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HeldResource {
    pub what: MissingResource,
    pub amount: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedJob {
    pub job: String,
    pub user: String,
}

/// A limit that holds a job back, and the jobs that use it up.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct LimitHolders {
    pub limit: Limit,
    /// The running jobs that hold the most of it.
    pub holders: Vec<ResourceHolder>,
    /// How many more there are, and what they hold together.
    pub others: u32,
    pub others_amount: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceHolder {
    pub job: String,
    pub user: String,
    pub amount: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExpectedStart {
    pub start: Timestamp,
    pub partition: String,
    pub nodes: Vec<String>,
}

/// A term of a dependency that is not met.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnmetTerm {
    /// `afterok:12`
    pub term: String,
    /// It can never be met any more.
    pub failed: bool,
    /// The first of the jobs that it is about, and how many there are.
    pub jobs: Vec<TermJob>,
    pub count: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TermJob {
    pub job: String,
    pub id: JobId,
    pub state: JobState,
    /// When it ended, or is to end at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Timestamp>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LicenseShortage {
    pub name: String,
    pub asked: u64,
    pub free: u64,
    /// Running jobs that hold the most of them.
    pub holders: Vec<ResourceHolder>,
    pub others: u32,
    pub others_amount: u64,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReservationWindow {
    pub name: String,
    /// None: there is no such reservation any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<(Timestamp, Timestamp)>,
}

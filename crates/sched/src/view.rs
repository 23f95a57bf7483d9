//! What the scheduler is shown, and what it answers.

use model::account::Qos;
use model::allocation::{Allocation, GresShare, NodeShare};
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::id::JobId;
use model::node::NodeConfig;
use model::partition::Partition;
use model::reason::Reason;
use model::run::{Hold, JobSpec};
use model::time::{TimeLimit, Timestamp};
use std::sync::Arc;

/// The cluster at one instant. Indices of nodes and partitions are positions in these lists.
///
/// Whatever did not change since the last view should be the same `Arc`: a plan with a [`Memo`]
/// takes what is pointed to by the same pointer as known, and works out only the rest. Lists that
/// keep their order (by job id, say) are compared fastest.
///
/// [`Memo`]: crate::Memo
#[derive(Debug, Clone, Default)]
pub struct View {
    pub nodes: Vec<Arc<NodeInfo>>,
    pub partitions: Vec<PartitionInfo>,
    pub running: Vec<Arc<Running>>,
    /// In any order; `plan` sorts.
    pub queue: Vec<Arc<Waiting>>,
    pub qos: Vec<Arc<Qos>>,
    pub policy: SchedulerPolicy,
}

#[derive(Debug, Clone)]
pub struct NodeInfo {
    pub config: Arc<NodeConfig>,
    pub availability: Availability,
    /// What running and ending jobs hold of it.
    pub used: NodeUse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Available,
    /// It answers, but something on it must end first (an attempt that was given up).
    Reconciling,
    Drained,
    Down,
    /// It has not answered for a little while; nothing new is started there.
    Silent,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeUse {
    pub cpus: CpuSet,
    pub memory: Bytes,
    pub gres: Vec<GresShare>,
    /// A job has the whole node.
    pub exclusive: bool,
    pub jobs: u32,
    /// The users whose jobs are here, for `--exclusive=user`; sorted.
    pub users: Vec<u32>,
    /// Jobs here that run with `--exclusive=user`, each with its user: while they do, no other
    /// user's job may join.
    pub user_exclusive: Vec<(JobId, u32)>,
}

#[derive(Debug, Clone)]
pub struct PartitionInfo {
    pub partition: Arc<Partition>,
    /// Indices into `View::nodes`.
    pub nodes: Vec<u32>,
}

/// A job that holds resources, one that is ending included: what it holds is in its nodes' `used`
/// as well.
#[derive(Debug, Clone)]
pub struct Running {
    pub job: JobId,
    pub uid: u32,
    pub account: String,
    pub qos: String,
    pub partition: u32,
    pub shares: Vec<(u32, NodeShare)>,
    /// When its time limit ends it; none: never.
    pub end: Option<Timestamp>,
    pub exclusive: bool,
}

/// A job, or the pending tasks of one array, that wait.
#[derive(Debug, Clone)]
pub struct Waiting {
    pub job: JobId,
    /// Pending tasks of the array; 1 for a plain job.
    pub tasks: u32,
    /// How many more tasks of it may run now (`%N`); none: all.
    pub tasks_allowed: Option<u32>,
    pub spec: Arc<JobSpec>,
    pub priority: u64,
    pub submit: Timestamp,
    pub hold: Option<Hold>,
    pub dependency: DependencyState,
    /// Not before this (`--begin`, the pause after a requeue).
    pub begin: Option<Timestamp>,
    /// Indices into `View::partitions`, in the order asked.
    pub partitions: Vec<u32>,
    /// Effective in each of `partitions`: what was asked, or the partition's default.
    pub account: String,
    pub qos: String,
    /// A reason that holds whatever the resources (a failed launch, a bad account).
    pub fixed_reason: Option<Reason>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependencyState {
    Met,
    Waiting,
    Never,
}

#[derive(Debug, Clone)]
pub struct SchedulerPolicy {
    /// `sched/backfill`; else strictly in order within each partition.
    pub backfill: bool,
    /// Waiting jobs that get a reservation, in order.
    pub reservations: u32,
    pub default_memory: Option<model::partition::DefaultMemory>,
    /// With no configuration: the node's memory over its cores, for each core.
    pub memory_by_core: bool,
    /// Beyond a limit (`over_time_limit`), minutes.
    pub over_time_min: u32,
}

impl Default for SchedulerPolicy {
    fn default() -> Self {
        Self {
            backfill: true,
            reservations: 1,
            default_memory: None,
            memory_by_core: false,
            over_time_min: 0,
        }
    }
}

/// The answer: who starts where, and why the others wait.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub starts: Vec<Start>,
    /// One for each entry of the queue that has something left waiting, in queue order.
    pub reasons: Vec<(JobId, Reason)>,
    /// Expected starts of those that hold a reservation, with the nodes they wait for.
    pub estimates: Vec<Estimate>,
}

/// One job, or one task of an array, to start now.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    pub job: JobId,
    pub allocation: Allocation,
    pub time_limit: TimeLimit,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    pub job: JobId,
    pub start: Timestamp,
    pub nodes: Vec<String>,
}

//! What the scheduler is shown, and what it answers.

use crate::accounting::Accounting;
use model::account::Qos;
use model::allocation::{Allocation, GresShare, NodeShare};
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::id::JobId;
use model::node::NodeConfig;
use model::partition::Partition;
use model::preempt::PreemptMode;
use model::reason::Reason;
use model::reservation::Reservation;
use model::run::{HetComponent, Hold, JobSpec};
use model::time::{TimeLimit, Timestamp};
use model::topology::Topology;
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
    /// The associations that jobs are charged to.
    pub accounting: Arc<Accounting>,
    pub reservations: Vec<Arc<Reservation>>,
    /// Licences by name: how many are free.
    pub licenses: Vec<(String, u64)>,
    pub topology: Option<Arc<Topology>>,
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
    /// Of `cpus` those that jobs share: the CPUs of each such job, and how many may be on them.
    pub shared: Vec<(CpuSet, u32)>,
    /// A job has the whole node.
    pub exclusive: bool,
    pub jobs: u32,
    /// The users whose jobs are here, for `--exclusive=user`; sorted.
    pub users: Vec<u32>,
    /// Jobs here that run with `--exclusive=user`, each with its user: while they do, no other
    /// user's job may join.
    pub user_exclusive: Vec<(JobId, u32)>,
}

impl NodeUse {
    /// Whether a share's CPUs are nobody's, or those of jobs that share them with so many.
    pub fn admits_cpus(&self, share: &NodeShare) -> bool {
        !self.cpus.intersects(&share.cpus)
            || share
                .cpus
                .iter()
                .all(|cpu| !self.cpus.contains(cpu) || may_join(&self.shared, cpu, share.sharers))
    }

    pub fn take_cpus(&mut self, share: &NodeShare) {
        self.cpus.union(&share.cpus);
        if share.sharers > 1 {
            self.shared.push((share.cpus.clone(), share.sharers));
        }
    }
}

/// Whether one more job, which shares with so many, may be on a CPU that these have.
pub fn may_join(shared: &[(CpuSet, u32)], cpu: u32, sharers: u32) -> bool {
    let there = || shared.iter().filter(|(cpus, _)| cpus.contains(cpu));
    let most = there().map(|(_, sharers)| *sharers).fold(sharers, u32::min);
    let count = there().count() as u32;
    count > 0 && count < most
}

#[derive(Debug, Clone)]
pub struct PartitionInfo {
    pub partition: Arc<Partition>,
    /// Indices into `View::nodes`.
    pub nodes: Vec<u32>,
}

/// A job that holds resources, one that is ending included: what it holds is in its nodes' `used`
/// as well.
#[derive(Debug, Clone, PartialEq)]
pub struct Running {
    pub job: JobId,
    pub uid: u32,
    pub account: String,
    pub qos: String,
    /// Index into the members of `View::accounting`.
    pub association: Option<u32>,
    pub partition: u32,
    pub shares: Vec<(u32, NodeShare)>,
    /// When its time limit ends it; none: never.
    pub end: Option<Timestamp>,
    pub exclusive: bool,
    /// The reservation that it runs in.
    pub reservation: Option<String>,
    pub start: Timestamp,
    pub priority: u64,
    /// It may wait again if it must make room.
    pub requeue: bool,
    /// It is being ended, by whatever.
    pub is_ending: bool,
    /// Suspended: its cores are not in the nodes' `used`, nor is it counted among their jobs; all else is.
    pub suspended: bool,
    /// Suspended, and to go on when its cores are free.
    pub goes_on: bool,
    /// Licences that come free when it ends.
    pub licenses: Vec<(String, u32)>,
}

/// A job, or the pending tasks of one array, that wait.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiting {
    pub job: JobId,
    /// Pending tasks of the array; 1 for a plain job.
    pub tasks: u32,
    /// How many more tasks of it may run now (`%N`); none: all.
    pub tasks_allowed: Option<u32>,
    pub spec: Arc<JobSpec>,
    pub priority: u64,
    /// The priority in each of `partitions`, where they differ; empty: `priority` in all.
    pub priorities: Vec<u64>,
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
    /// Index into the members of `View::accounting`.
    pub association: Option<u32>,
    /// A reason that holds whatever the resources (a failed launch, a bad account).
    pub fixed_reason: Option<Reason>,
    /// What must come about with other jobs first, as far as it can be foreseen: a dependency's terms, or the ends of
    /// an array's own tasks where its throttle holds it. For estimates only.
    pub awaits: Vec<Awaited>,
    /// One of them is enough.
    pub awaits_any: bool,
    /// It starts with others or not at all; the first of them has the turn for all.
    pub het: Option<HetComponent>,
}

/// What a job waits for of another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Awaited {
    EndOf(JobId),
    /// So many minutes after it has started.
    StartOf {
        job: JobId,
        minutes: u32,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DependencyState {
    Met,
    Waiting,
    Never,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SchedulerPolicy {
    /// `sched/backfill`; else strictly in order within each partition.
    pub backfill: bool,
    /// Waiting jobs of each partition that keep a place for later, in order (`bf_max_job_test`,
    /// `bf_max_job_part`). Whether one can start now is asked for every job, however long the queue.
    pub reservations: u32,
    pub reserve: ReservePolicy,
    pub preempt: PreemptPolicy,
    pub default_memory: Option<model::partition::DefaultMemory>,
    /// With no configuration: the node's memory over its cores, for each core.
    pub memory_by_core: bool,
    /// The most that a job may have, where its partition says nothing.
    pub max_memory: Option<model::partition::DefaultMemory>,
    /// `DefCpuPerGPU`
    pub cpus_per_gpu: Option<u32>,
    pub select: model::select::Select,
    /// `max_switch_wait`: so long at most a job waits for few switches.
    pub switch_wait_s: u32,
    /// Beyond a limit (`over_time_limit`), minutes.
    pub over_time_min: u32,
}

impl Default for SchedulerPolicy {
    fn default() -> Self {
        Self {
            backfill: true,
            reservations: 1_000,
            reserve: ReservePolicy::default(),
            preempt: PreemptPolicy::default(),
            default_memory: None,
            memory_by_core: false,
            max_memory: None,
            cpus_per_gpu: None,
            select: model::select::Select::default(),
            switch_wait_s: 300,
            over_time_min: 0,
        }
    }
}

/// Who may keep a place: `SchedulerParameters=bf_…`, as far as they make sense where the whole queue
/// is looked at each time.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct ReservePolicy {
    /// `bf_window`: no place is kept that begins later than this.
    pub window_min: Option<u32>,
    /// `bf_max_job_user`: places kept for one user.
    pub per_user: Option<u32>,
    /// `bf_max_job_array_resv`: places kept for tasks of one array.
    pub per_array: u32,
    /// `bf_min_prio_reserve`
    pub priority_min: Option<u64>,
    /// `bf_min_age_reserve`: a job keeps a place once it has waited so long.
    pub age_min_s: u32,
    /// `bf_max_job_start`: starts in one plan.
    pub starts_max: Option<u32>,
}

impl Default for ReservePolicy {
    fn default() -> Self {
        Self {
            window_min: None,
            per_user: None,
            per_array: 20,
            priority_min: None,
            age_min_s: 0,
            starts_max: None,
        }
    }
}

pub use model::preempt::{PreemptBy, PreemptPolicy};

/// The answer: who starts where, and why the others wait.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub starts: Vec<Start>,
    /// One for each entry of the queue that has something left waiting, in queue order.
    pub reasons: Vec<(JobId, Reason)>,
    /// Expected starts of those that hold a reservation, with the nodes they wait for.
    pub estimates: Vec<Estimate>,
    /// Who must make room; those for whom they do start in a later plan.
    pub preemptions: Vec<Preemption>,
    /// Suspended jobs whose cores are free again.
    pub resumes: Vec<JobId>,
    /// How many of the starts overtook a job that waits for resources in the same partition.
    pub backfilled: u32,
}

/// A running job that makes room for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preemption {
    pub victim: JobId,
    pub mode: PreemptMode,
    /// It is told now, and ends this much later.
    pub grace_s: u32,
    /// The job that needs the room.
    pub by: JobId,
}

/// One job, or one task of an array, to start now.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    pub job: JobId,
    pub allocation: Allocation,
    pub time_limit: TimeLimit,
    /// The others of these follow or precede it in the plan without a gap.
    pub het: Option<HetComponent>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    pub job: JobId,
    /// Position in `View::partitions`.
    pub partition: u32,
    pub start: Timestamp,
    pub nodes: Vec<String>,
    pub cpus: u32,
}

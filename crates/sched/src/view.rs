//! The scheduler's input, [`View`], and its answer, [`Plan`].

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
use smallvec::SmallVec;
use std::sync::Arc;

/// The cluster at one instant. Indices of nodes and partitions are positions in these lists.
///
/// Whatever did not change since the last view should be the same `Arc`: a plan with a [`Memo`] works out again only
/// what is behind another pointer. Lists that keep their order (by job id, say) are compared fastest.
///
/// [`Memo`]: crate::Memo
#[derive(Debug, Clone, Default)]
pub struct View {
    pub nodes: Vec<Arc<NodeInfo>>,
    pub partitions: Vec<PartitionInfo>,
    pub running: Vec<Arc<RunningJob>>,
    /// In any order; `plan` sorts.
    pub queue: Vec<Arc<PendingJob>>,
    pub qos: Vec<Arc<Qos>>,
    /// The associations that jobs are charged to.
    pub accounting: Arc<Accounting>,
    pub reservations: Vec<Arc<Reservation>>,
    /// Free licenses by name.
    pub licenses: Vec<(String, u64)>,
    pub topology: Option<Arc<Topology>>,
    /// What jobs of this cluster ask for: among equal fits a job gets the node on which the least becomes unusable for these.
    /// Empty where the nodes have no GPUs, or none that a job has asked for.
    pub typical_jobs: Arc<Vec<TypicalJob>>,
    pub policy: SchedulerPolicy,
}

/// What many jobs of the cluster ask for on one node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct TypicalJob {
    pub cpus: u32,
    pub memory_mib: u64,
    pub gpus: TypicalGpus,
    /// The kinds of GPUs that serve; empty: any.
    pub kinds: Vec<String>,
    /// How many jobs ask for it, times the GPUs of the cluster for each that serves it: just as many where all do.
    pub weight: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum TypicalGpus {
    /// This many whole GPUs.
    Whole(u64),
    /// This many shares of one GPU.
    Shares(u64),
}

#[derive(Debug, Clone)]
pub struct NodeInfo {
    pub config: Arc<NodeConfig>,
    pub availability: Availability,
    /// The sum of what running and ending jobs hold of the node.
    pub used: NodeUse,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    Available,
    /// The node answers, but an attempt that was given up must end on it first.
    Reconciling,
    Drained,
    Down,
    /// The node has not answered for a little while; nothing new is started there.
    Silent,
    /// Jobs may have it, and start once it is up; it is being powered up.
    PoweringUp,
    /// The same; it has to be powered up first.
    PoweredDown,
}

impl Availability {
    /// Whether jobs may be granted the node now.
    pub fn takes_jobs(self) -> bool {
        matches!(self, Self::Available | Self::PoweringUp | Self::PoweredDown)
    }

    /// A node that is silent, or ends something first, is expected back.
    pub fn is_in_service(self) -> bool {
        !matches!(self, Self::Drained | Self::Down)
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NodeUse {
    pub cpus: CpuSet,
    pub memory: Bytes,
    pub gres: Vec<GresShare>,
    /// Jobs that share their CPUs: the CPUs of each, all of them in `cpus`, and how many jobs may be on them.
    pub shared: Vec<(CpuSet, u32)>,
    /// A job has the whole node.
    pub exclusive: bool,
    pub jobs: u32,
    /// The users whose jobs are here, for `--exclusive=user`; sorted.
    pub users: SmallVec<[u32; 2]>,
    /// Jobs on the node that run with `--exclusive=user`, each with its user. While one runs, no other user's job may
    /// join.
    pub user_exclusive: Vec<(JobId, u32)>,
}

impl NodeUse {
    /// Whether every CPU of the share is free, or may be shared with the jobs that are on it.
    pub fn admits_cpus(&self, share: &NodeShare) -> bool {
        !self.cpus.intersects(&share.cpus)
            || share.cpus.iter().all(|cpu| {
                !self.cpus.contains(cpu) || may_share_cpu(&self.shared, cpu, share.sharers)
            })
    }

    /// Whether nobody may join those on the node: one has it whole, or each of several users keeps the others off. The second comes
    /// about where the configuration changes under running jobs.
    pub fn is_closed_to_all(&self) -> bool {
        let owners = || self.user_exclusive.iter().map(|(_, uid)| uid);
        self.exclusive || owners().zip(owners().skip(1)).any(|(one, next)| one != next)
    }

    pub fn take_cpus(&mut self, share: &NodeShare) {
        self.cpus.union(&share.cpus);
        if share.sharers > 1 {
            self.shared.push((share.cpus.clone(), share.sharers));
        }
    }

    /// Puts the lists whose order carries no meaning into one order, so that equal uses compare as equal.
    pub fn sort_lists(&mut self) {
        self.user_exclusive.sort_unstable();
        self.gres.sort_by_cached_key(|gres| (gres.name.clone(), gres.indices.clone(), gres.count));
        self.shared.sort_by_cached_key(|(cpus, jobs)| (cpus.to_string(), *jobs));
    }
}

/// Whether a job that shares its CPUs with up to `sharers` jobs may join those on this CPU.
pub fn may_share_cpu(shared: &[(CpuSet, u32)], cpu: u32, sharers: u32) -> bool {
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
pub struct RunningJob {
    pub job: JobId,
    pub uid: u32,
    pub account: String,
    pub qos: String,
    /// Index into the members of `View::accounting`.
    pub association: Option<u32>,
    pub partition: u32,
    pub shares: HeldShares,
    /// When its time limit ends it; `None` without a limit.
    pub end: Option<Timestamp>,
    pub exclusive: bool,
    /// The reservation that it runs in.
    pub reservation: Option<String>,
    pub start: Timestamp,
    pub priority: u64,
    /// The job may be requeued when it is preempted.
    pub requeue: bool,
    /// The job is being ended, for whatever reason.
    pub is_ending: bool,
    /// The job is suspended: its cores and the job itself are not counted in its nodes' `used`; memory and devices are.
    pub suspended: bool,
    /// The job was suspended by a preemption and resumes when its cores are free.
    pub resume_when_free: bool,
    /// Licenses that come free when it ends.
    pub licenses: Vec<(String, u32)>,
}

/// The shares of its allocation that a running job still holds. The allocation is the very one that the state has: its names and sets
/// are not copied for each view.
#[derive(Debug, Clone, PartialEq)]
pub struct HeldShares {
    allocation: Arc<Allocation>,
    /// For each share that is held the position of its node in `View::nodes`, and its own in the allocation.
    held: Vec<(u32, u32)>,
}

impl HeldShares {
    /// Those shares of the allocation for which `position` gives the node's position in `View::nodes`.
    pub fn of(
        allocation: &Arc<Allocation>,
        mut position: impl FnMut(&NodeShare) -> Option<u32>,
    ) -> Self {
        let shares = allocation.nodes.iter().zip(0u32..);
        let held = shares.filter_map(|(share, at)| Some((position(share)?, at))).collect();
        Self { allocation: allocation.clone(), held }
    }

    /// Each with the position of its node.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &NodeShare)> + Clone {
        let shares = &self.allocation.nodes;
        self.held.iter().map(move |(node, at)| (*node, &shares[*at as usize]))
    }

    /// The positions of the nodes.
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.held.iter().map(|(node, _)| *node)
    }

    /// The share at this index.
    pub fn get(&self, index: u32) -> &NodeShare {
        let (_, at) = self.held[index as usize];
        &self.allocation.nodes[at as usize]
    }

    pub fn count(&self) -> usize {
        self.held.len()
    }
}

/// A job, or the pending tasks of one array, that wait.
#[derive(Debug, Clone, PartialEq)]
pub struct PendingJob {
    pub job: JobId,
    /// Pending tasks of the array; 1 for a plain job.
    pub tasks: u32,
    /// How many more tasks of it may run now (`%N`); `None` without a throttle.
    pub tasks_allowed: Option<u32>,
    pub spec: Arc<JobSpec>,
    pub priority: u64,
    /// The priority in each of `partitions`, where they differ; empty: `priority` in all.
    pub priorities: Vec<u64>,
    pub submit: Timestamp,
    pub hold: Option<Hold>,
    pub dependency: DependencyState,
    /// The earliest start: `--begin`, or the pause after a requeue.
    pub begin: Option<Timestamp>,
    /// Indices into `View::partitions`, in the order asked.
    pub partitions: Vec<u32>,
    pub account: String,
    pub qos: String,
    /// Index into the members of `View::accounting`.
    pub association: Option<u32>,
    /// A reason that keeps the job waiting whatever is free: a failed launch, a bad account.
    pub fixed_reason: Option<Reason>,
    /// Events of other jobs that this one waits for, as far as they can be foreseen: the terms of its dependency, or the
    /// ends of its array's running tasks where the throttle holds it back. Used for estimates only.
    pub awaits: Vec<AwaitedEvent>,
    /// One of the events in `awaits` is enough.
    pub awaits_any: bool,
    /// The job is a component of a heterogeneous job: all components start together, when the first has its turn.
    pub het: Option<HetComponent>,
}

impl PendingJob {
    /// Whether the other entry is this one, with another priority at most.
    pub fn differs_in_priority_at_most(&self, other: &Self) -> bool {
        let Self {
            job,
            tasks,
            tasks_allowed,
            spec,
            priority: _,
            priorities: _,
            submit,
            hold,
            dependency,
            begin,
            partitions,
            account,
            qos,
            association,
            fixed_reason,
            awaits,
            awaits_any,
            het,
        } = self;
        *job == other.job
            && Arc::ptr_eq(spec, &other.spec)
            && (tasks, tasks_allowed, submit) == (&other.tasks, &other.tasks_allowed, &other.submit)
            && (hold, dependency, begin) == (&other.hold, &other.dependency, &other.begin)
            && (partitions, association) == (&other.partitions, &other.association)
            && (account, qos) == (&other.account, &other.qos)
            && (fixed_reason, het) == (&other.fixed_reason, &other.het)
            && (awaits, awaits_any) == (&other.awaits, &other.awaits_any)
    }
}

/// An event of another job that a job waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AwaitedEvent {
    EndOf(JobId),
    /// The moment `minutes` after the job's start.
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
    /// `sched/backfill`. Without it jobs start strictly in order within each partition.
    pub backfill: bool,
    /// How many waiting jobs of each partition get a backfill slot, in queue order (`bf_max_job_test`,
    /// `bf_max_job_part`). Beyond it a job is still tried for a start now.
    pub backfill_slots_max: u32,
    pub backfill_limits: BackfillLimits,
    pub preempt: PreemptPolicy,
    pub default_memory: Option<model::partition::DefaultMemory>,
    /// Without a configured default a job gets the node's memory in proportion to its cores.
    pub memory_by_core: bool,
    /// The cluster's `MaxMemPer…`, for partitions without one.
    pub max_memory: Option<model::partition::DefaultMemory>,
    /// `DefCpuPerGPU`
    pub cpus_per_gpu: Option<u32>,
    pub select: model::select::Select,
    /// `pack_serial_at_end`: jobs of one CPU get the last nodes that serve.
    pub pack_serial_at_end: bool,
    /// `max_switch_wait`: the longest that a job waits for its `--switches`.
    pub switch_wait_s: u32,
    /// `OverTimeLimit`: the minutes that a job may run beyond its time limit.
    pub over_time_min: u32,
    /// `ResumeTimeout`: how much later a job may begin on a node that is powered down.
    pub resume_timeout_s: u32,
}

impl Default for SchedulerPolicy {
    fn default() -> Self {
        Self {
            backfill: true,
            backfill_slots_max: 1_000,
            backfill_limits: BackfillLimits::default(),
            preempt: PreemptPolicy::default(),
            default_memory: None,
            memory_by_core: false,
            max_memory: None,
            cpus_per_gpu: None,
            select: model::select::Select::default(),
            pack_serial_at_end: false,
            switch_wait_s: 300,
            over_time_min: 0,
            resume_timeout_s: 0,
        }
    }
}

/// Which jobs may reserve a backfill slot: `SchedulerParameters=bf_…`, as far as the options make sense in a plan that
/// looks at the whole queue each time.
#[derive(Debug, Clone, PartialEq, serde::Serialize, serde::Deserialize)]
#[serde(default)]
pub struct BackfillLimits {
    /// `bf_window`: no slot begins later than this.
    pub window_min: Option<u32>,
    /// `bf_max_job_user`: slots for one user.
    pub per_user: Option<u32>,
    /// `bf_max_job_array_resv`: slots for tasks of one array.
    pub per_array: u32,
    /// `bf_min_prio_reserve`
    pub priority_min: Option<u64>,
    /// `bf_min_age_reserve`: a job gets a slot once it has waited so long.
    pub age_min_s: u32,
    /// `bf_max_job_start`: starts in one plan.
    pub starts_max: Option<u32>,
    /// Narrow jobs count as ended before wide ones that are expected to end at the same moment: a slot that begins then takes no
    /// node of a wider one as long as the others suffice. Replays of traces count so; no site's configuration sets it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub narrow_jobs_end_first: bool,
}

impl Default for BackfillLimits {
    fn default() -> Self {
        Self {
            window_min: None,
            per_user: None,
            per_array: 20,
            priority_min: None,
            age_min_s: 0,
            starts_max: None,
            narrow_jobs_end_first: false,
        }
    }
}

pub use model::preempt::{PreemptBy, PreemptPolicy};

/// The scheduler's answer: which jobs start where, and why the others wait.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub starts: Vec<Start>,
    /// One for each entry of the queue with tasks that still wait, in queue order.
    pub reasons: Vec<(JobId, Reason)>,
    /// Expected starts of the jobs with a backfill slot, with the nodes of the slot.
    pub estimates: Vec<Estimate>,
    /// Jobs to preempt. The jobs that they are preempted for start in a later plan.
    pub preemptions: Vec<Preemption>,
    /// Suspended jobs whose cores are free again.
    pub resumes: Vec<JobId>,
    /// How many of the starts overtook a job that waits for resources in the same partition.
    pub backfilled: u32,
}

/// A running job that is preempted for another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preemption {
    pub victim: JobId,
    pub mode: PreemptMode,
    /// The victim is warned now, and ended this much later.
    pub grace_s: u32,
    /// The job that needs the resources.
    pub by: JobId,
}

/// One job, or one task of an array, to start now.
#[derive(Debug, Clone, PartialEq)]
pub struct Start {
    pub job: JobId,
    pub allocation: Arc<Allocation>,
    pub time_limit: TimeLimit,
    /// A component of a heterogeneous job. The starts of the other components are next to it in the plan.
    pub het: Option<HetComponent>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Estimate {
    pub job: JobId,
    /// Position in `View::partitions`.
    pub partition: u32,
    pub start: Timestamp,
    pub nodes: EstimatedNodes,
    pub cpus: u32,
}

/// The nodes of an estimate. Every plan makes some, and few are read: names are looked up when somebody asks.
#[derive(Clone)]
pub enum EstimatedNodes {
    /// Those at these positions, of all the names.
    Reserved { names: Arc<[String]>, nodes: Vec<u32> },
    /// Those that the job starts on now.
    Granted(Arc<Allocation>),
}

impl EstimatedNodes {
    /// Their names, in the order of the nodes.
    pub fn names(&self) -> Vec<&str> {
        match self {
            Self::Reserved { names, nodes } => {
                nodes.iter().map(|node| names[*node as usize].as_str()).collect()
            }
            Self::Granted(allocation) => allocation.node_names().collect(),
        }
    }

    /// The same, each a copy.
    pub fn to_names(&self) -> Vec<String> {
        self.names().into_iter().map(str::to_owned).collect()
    }
}

impl std::fmt::Debug for EstimatedNodes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

impl PartialEq for EstimatedNodes {
    fn eq(&self, other: &Self) -> bool {
        self.names() == other.names()
    }
}

//! The state as the scheduler is shown it.

pub mod accounting;
pub mod builder;
pub mod priority;
mod typical;

use crate::dependency;
use crate::requeue;
use crate::state::State;
use crate::state::hardware::Hardware;
use crate::state::job::Job;
use crate::state::node::Node;
use model::attempt::Attempt;
use model::dependency::DependencyState;
use model::partition::{Access, OverSubscribe, Partition};
use model::reason::{PartitionDenial, Reason};
use model::request::Sharing;
use model::reservation::ReservationFlag;
use model::select::Select;
use model::time::Timestamp;
use priority::Ranking;
use sched::view::{
    Availability, DependencyState as JobDependency, HeldShares, NodeInfo, NodeUse, PartitionInfo,
    PendingJob, RunningJob, SchedulerPolicy, View,
};
use std::sync::Arc;
use std::time::Duration;

/// Builds the whole view. Held jobs are not in the queue: nothing but a release can start them.
pub fn view(state: &State, now: Timestamp) -> View {
    let mut view = resources(state);
    let ranking = Ranking::new(state, now);
    view.queue = state
        .queue
        .iter()
        .filter_map(|id| state.job(*id))
        .filter_map(|job| waiting(state, &ranking, job, now).map(Arc::new))
        .collect();
    view
}

/// Nodes, partitions and running jobs, without the queue.
pub fn resources(state: &State) -> View {
    let nodes = state.nodes.values().map(|of| Arc::new(node(of))).collect();
    View { nodes, ..running_jobs(state) }
}

/// Running jobs and partitions, as limits count them, without nodes and queue.
pub fn running_jobs(state: &State) -> View {
    let index = node_index(state);
    let active = state.active.iter().filter_map(|id| state.job(*id));
    let shown = |job| Arc::new(running(state, job, &|name| index.get(name)));
    View { partitions: partitions(state), running: active.map(shown).collect(), ..site(state) }
}

/// The names of the nodes in the order of the view, which is that of their names.
pub(crate) struct NodeIndex<'a>(Vec<&'a str>);

impl NodeIndex<'_> {
    /// The position of a node in the view.
    fn get(&self, name: &str) -> Option<u32> {
        self.0.binary_search(&name).ok().map(|at| at as u32)
    }
}

pub(crate) fn node_index(state: &State) -> NodeIndex<'_> {
    NodeIndex(state.nodes.keys().map(String::as_str).collect())
}

pub(crate) fn node(node: &Node) -> NodeInfo {
    NodeInfo {
        config: node.config.clone(),
        availability: node.availability(),
        used: node.used.clone(),
    }
}

pub(crate) fn partitions(state: &State) -> Vec<PartitionInfo> {
    let index = node_index(state);
    let info = |partition: &Arc<Partition>| PartitionInfo {
        partition: partition.clone(),
        nodes: partition.nodes.iter().filter_map(|name| index.get(name)).collect(),
    };
    state.partitions.iter().map(info).collect()
}

/// The parts of the view that are neither nodes, partitions nor jobs.
pub(crate) fn site(state: &State) -> View {
    let mut view = View::default();
    set_site(&mut view, state);
    view
}

/// Brings those parts of a view up to date.
pub(crate) fn set_site(view: &mut View, state: &State) {
    let View {
        nodes: _,
        partitions: _,
        running: _,
        queue: _,
        qos,
        accounting,
        reservations,
        licenses,
        topology,
        typical_jobs,
        policy: of_site,
    } = view;
    qos.clear();
    qos.extend(state.qos.values().cloned());
    reservations.clear();
    reservations.extend(state.reservations.values().cloned());
    *licenses = state.licenses_free();
    *accounting = state.accounting();
    *topology = state.topology();
    *typical_jobs = state.typical_jobs();
    *of_site = policy(state);
}

pub(crate) fn policy(state: &State) -> SchedulerPolicy {
    let parameters = &state.config.parameters;
    SchedulerPolicy {
        backfill: parameters.backfill,
        backfill_slots_max: parameters.backfill_slots_max,
        backfill_limits: parameters.backfill_limits.clone(),
        preempt: parameters.preempt,
        default_memory: parameters.default_memory,
        memory_by_core: parameters.memory_by_core,
        max_memory: parameters.max_memory,
        cpus_per_gpu: parameters.cpus_per_gpu,
        select: parameters.select,
        pack_serial_at_end: parameters.pack_serial_at_end,
        switch_wait_s: parameters.switch_wait_s,
        over_time_min: parameters.over_time_limit_min,
        resume_timeout_s: parameters.power.resume_timeout_s,
    }
}

impl State {
    /// Nodes and partitions with nothing on them, for what is checked at submit.
    pub(crate) fn hardware(&self) -> Arc<Hardware> {
        self.hardware.get(|| {
            let empty = |config| {
                let availability = Availability::Available;
                Arc::new(NodeInfo { config, availability, used: NodeUse::default() })
            };
            let mut nodes: Vec<Arc<NodeInfo>> =
                self.nodes.values().map(|node| empty(node.config.clone())).collect();
            let mut partitions = partitions(self);
            // Machines that could be made hold jobs that no node could.
            for config in self.offered_nodes() {
                let takes_in =
                    |info: &PartitionInfo| info.partition.dynamic_members.admits(&config.features);
                let at = nodes.len() as u32;
                partitions.iter_mut().filter(|info| takes_in(info)).for_each(|i| i.nodes.push(at));
                nodes.push(empty(Arc::new(config)));
            }
            let view = View {
                nodes,
                partitions,
                topology: self.topology(),
                policy: policy(self),
                ..View::default()
            };
            Hardware::new(view)
        })
    }
}

/// Whether the job has its nodes to itself, by its request or by the partition's configuration.
pub fn is_exclusive(job: &Job, partition: Option<&Partition>, select: Select) -> bool {
    let sharing = partition.map_or(OverSubscribe::No, |p| p.over_subscribe);
    sched::is_whole_node(job.spec.request(), sharing, select)
}

/// Whether other users' jobs are kept off the job's nodes.
pub fn is_user_exclusive(job: &Job, partition: Option<&Partition>) -> bool {
    job.spec.request().sharing == Sharing::User || partition.is_some_and(|p| p.exclusive_user)
}

fn resume_timeout_s(state: &State, partition: &str) -> u32 {
    let of_partition = state.partition(partition).and_then(|p| p.power.resume_timeout_s);
    of_partition.unwrap_or(state.config.parameters.power.resume_timeout_s)
}

/// The latest end of an attempt: by its time limit, by preemption, or with the window of its reservation.
fn end_of(state: &State, attempt: &Attempt) -> Option<Timestamp> {
    let leaving = attempt.preemption_grace.map(|leaving| leaving.until);
    let window = attempt.reservation.as_ref().and_then(|name| {
        let over_run = state.config.parameters.reservation_over_run_min?;
        let r = state.reservations.get(name)?;
        let bound = !r.has(ReservationFlag::Flex) && r.ahead_ms.is_none();
        let over_run = Duration::from_secs(60 * u64::from(over_run));
        bound.then(|| r.end_of_window_at(attempt.start) + over_run)
    });
    // The time limit begins when all nodes are up, which may take them as long as they are given.
    let boot_s = if attempt.booting_nodes.is_empty() {
        0
    } else {
        resume_timeout_s(state, &attempt.allocation.partition)
    };
    let boot = Duration::from_secs(boot_s.into());
    // What a pull may still take is not counted: most are short, and the plan would give away what becomes free.
    let pull_ms = if attempt.preparing_nodes.is_empty() { 0 } else { attempt.pull_credit_ms };
    let pull = Duration::from_millis(pull_ms);
    let limit = attempt.end_limit.map(|end| end + boot - pull);
    [limit, leaving, window].into_iter().flatten().min()
}

/// A job that holds resources; `position` is that of a node in the view.
pub(crate) fn running(
    state: &State,
    job: &Job,
    position: &dyn Fn(&str) -> Option<u32>,
) -> RunningJob {
    let attempt = job.attempt().expect("an active job has an attempt");
    // Most jobs hold all their nodes until they end.
    let holds_all = attempt.held_nodes.len() == attempt.allocation.nodes.len();
    let held = |node: &str| holds_all || attempt.held_nodes.iter().any(|n| n == node);
    let partition = &attempt.allocation.partition;
    RunningJob {
        job: job.id,
        uid: job.spec.owner.uid,
        account: job.account.to_string(),
        qos: job.qos.to_string(),
        association: state.tree().find(&job.account, &job.spec.owner.name, Some(partition)),
        partition: state.partitions.iter().position(|p| p.name == *partition).unwrap_or(0) as u32,
        shares: HeldShares::of(&attempt.allocation, |share| {
            position(&share.node).filter(|_| held(&share.node))
        }),
        end: end_of(state, attempt),
        exclusive: is_exclusive(
            job,
            state.partition(partition).map(|p| &**p),
            state.config.parameters.select,
        ),
        reservation: attempt.reservation.clone(),
        start: attempt.start,
        priority: job.kept_priority(&state.config.parameters.priority),
        requeue: requeue::is_preempted_by_requeue(job),
        is_ending: attempt.is_ending_or_preempted(),
        suspended: attempt.has_released_cores(),
        resume_when_free: attempt.suspended && attempt.auto_resume,
        licenses: job.spec.request().licenses.clone(),
    }
}

/// The partitions that are open to the job's account and QOS. If none is: all of them, with the reason.
fn open_partitions(state: &State, job: &Job, asked: Vec<u32>) -> (Vec<u32>, Option<Reason>) {
    let closed = |at: &u32| {
        let partition = &state.partitions[*at as usize];
        let account = Some(&*job.account).filter(|account| !account.is_empty());
        let by_account = account.and_then(|a| not_allowed(partition, &partition.allow_accounts, a));
        by_account.map(Reason::AccountNotAllowed).or_else(|| {
            not_allowed(partition, &partition.allow_qos, &job.qos).map(Reason::QosNotAllowed)
        })
    };
    let open: Vec<u32> = asked.iter().copied().filter(|at| closed(at).is_none()).collect();
    if !open.is_empty() {
        return (open, None);
    }
    let why = asked.first().and_then(closed);
    (asked, why)
}

fn not_allowed(partition: &Partition, access: &Access, name: &str) -> Option<Box<PartitionDenial>> {
    let (list, denies) = match access {
        Access::All => return None,
        Access::Only(list) => (list, false),
        Access::Except(list) => (list, true),
    };
    (!access.admits(name)).then(|| {
        Box::new(PartitionDenial {
            partition: partition.name.clone(),
            list: list.clone(),
            denies,
            name: name.to_owned(),
        })
    })
}

/// The priority of an entry, and that in each of its partitions where they differ.
pub(crate) fn shown_priorities(in_partitions: Vec<u64>) -> (u64, Vec<u64>) {
    let highest = in_partitions.iter().copied().max().unwrap_or(1);
    (highest, if in_partitions.len() > 1 { in_partitions } else { Vec::new() })
}

/// One entry of the queue.
pub fn waiting(
    state: &State,
    ranking: &Ranking<'_>,
    job: &Job,
    now: Timestamp,
) -> Option<PendingJob> {
    let pending = job.pending.as_deref();
    // Tasks that wait for `aftercorr` are not counted: they could not start.
    let ready = pending.map_or(1, |p| ranking.dependencies.tasks_ready(job, &p.indices));
    // With no task ready the dependency is the reason that the array waits.
    let tasks = ready.clamp(1, u64::from(u32::MAX)) as u32;
    let throttle = state.throttle(job);
    let tasks_allowed =
        throttle.map(|(array, most)| most.saturating_sub(state.running_tasks(array)));
    let dependency_state = match ranking.dependencies.state_of(job) {
        DependencyState::Fulfilled => JobDependency::Met,
        DependencyState::Unfulfilled => JobDependency::Waiting,
        DependencyState::Failed => JobDependency::Never,
    };
    let asked = state.known_partition_indices(&job.spec.request().partitions)?;
    let (partitions, closed) = open_partitions(state, job, asked);
    let unreported = state.may_run_unknown(job).then_some(Reason::RestoredNodesAwaited);
    let has_volumes = !job.spec.launch.volumes.is_empty();
    let disk = (has_volumes && state.awaits_disk_of_others(job)).then_some(Reason::Resources);
    let (priority, priorities) = shown_priorities(ranking.priorities(job, &partitions, now));
    let first = partitions.first().map(|at| state.partitions[*at as usize].name.as_str());
    let (awaits, awaits_any) = match dependency_state {
        JobDependency::Waiting => ranking.dependencies.awaited_events(job),
        _ if tasks_allowed == Some(0) => (dependency::own_tasks(state, job), true),
        _ => (Vec::new(), false),
    };
    Some(PendingJob {
        job: job.id,
        tasks,
        tasks_allowed,
        spec: job.spec.clone(),
        priority,
        priorities,
        submit: job.submit,
        hold: job.hold,
        dependency: dependency_state,
        begin: job.begin,
        partitions,
        account: job.account.to_string(),
        qos: job.qos.to_string(),
        association: ranking.association(job, first),
        fixed_reason: job.fixed_reason.as_deref().cloned().or(unreported).or(closed).or(disk),
        awaits,
        awaits_any,
        het: job.het,
    })
}

//! The demand of a request in one partition, before any node is looked at.

use super::memory::MemoryRule;
use crate::free::node_free::ShareHolder;
use crate::topology::Switches;
use crate::view::SchedulerPolicy;
use model::amount::Bytes;
use model::constraint::Constraint;
use model::gres::GPU;
use model::partition::{DefaultMemory, OverSubscribe, Partition};
use model::range::Range;
use model::request::{DeviceMake, Grant, GresRequest, Per, Request, Sharing};
use model::select::{Select, Unit};
use model::tres::{Tres, TresKind};
use std::collections::HashSet;
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Demand<'a> {
    pub request: &'a Request,
    /// Nodes that will not do.
    pub excluded: HashSet<&'a str>,
    /// The only nodes that will do, where there are any.
    pub pool: HashSet<&'a str>,
    pub tasks: Tasks,
    pub nodes_min: u32,
    pub nodes_max: u32,
    /// The most particular first.
    pub gres: Vec<GresDemand>,
    pub memory: MemoryRule,
    /// `MaxMemPerNode`
    pub memory_max: Option<Bytes>,
    /// `MaxMemPerCPU`: a job that wants more memory gets the CPUs that go with it.
    pub memory_per_cpu_max: Option<Bytes>,
    /// `MaxCPUsPerNode`, for one job.
    pub cpus_max: Option<u32>,
    /// `MaxCPUsPerSocket`, for one job.
    pub cpus_per_socket_max: Option<u32>,
    pub cpus_per_task: u32,
    pub cpus_per_gpu: Option<u32>,
    pub constraint: Option<&'a Constraint>,
    pub select: Select,
    /// How many jobs may be on its CPUs at once, itself included.
    pub sharers: u32,
    pub holder: ShareHolder,
    /// The job's account, which is its project. `None` where it is not known, or no node is for one project alone.
    pub project: Option<&'a str>,
    /// The network between the nodes, where it decides which nodes the job gets.
    pub switches: Option<Arc<Switches>>,
    /// The most leaf switches that the job may span.
    pub switches_max: Option<u32>,
    /// The level of the one switch that all nodes must be below; [`NO_LEVEL`] where none is large enough.
    pub switch_level: Option<u32>,
}

/// The level of no switch.
pub const NO_LEVEL: u32 = u32::MAX;

/// How the tasks are spread over the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tasks {
    /// `count` in all, at most `per_node_max` on a node.
    Total { count: u32, per_node_max: u32 },
    /// The same number on every node.
    PerNode(u32),
}

/// The demand for one resource. The forms of a request are bounds on the same units, not sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresDemand {
    pub name: String,
    pub kinds: Vec<String>,
    /// The kinds are models.
    pub by_model: bool,
    pub device_memory: Option<Range<Bytes>>,
    /// The memory of all units of a node together.
    pub total_memory: Option<Range<Bytes>>,
    pub make: DeviceMake,
    pub per_node: u64,
    pub per_task: u64,
    pub per_socket: u64,
    /// The total over all nodes, where no other form fixes each node's count.
    pub per_job: u64,
    /// The most that an offer may give a node.
    pub most: Option<u64>,
}

impl<'a> Demand<'a> {
    pub fn new(
        request: &'a Request,
        partition: &Partition,
        policy: &SchedulerPolicy,
        uid: u32,
    ) -> Self {
        let mut gres = gather(&request.gres);
        let tasks = tasks_of(request, &mut gres);
        let (nodes_min, nodes_max) = nodes_of(request, partition, tasks, &gres);
        // Beside a count for each node or task, the job's total only says how many nodes or tasks there are.
        for demand in gres.iter_mut().filter(|g| g.is_fixed_by_node()) {
            demand.per_job = 0;
        }
        let (memory_max, memory_per_cpu_max) = match partition.max_memory.or(policy.max_memory) {
            Some(DefaultMemory::PerNode(most)) => (Some(most), None),
            Some(DefaultMemory::PerCpu(most)) => (None, Some(most)),
            _ => (None, None),
        };
        let select = select_of(partition, policy);
        let sharers = sharers_of(request, partition.over_subscribe, select);
        let whole_node = is_whole_node(request, partition.over_subscribe, select);
        let default_per_gpu = partition.cpus_per_gpu.or(policy.cpus_per_gpu);
        let (memory, cpus_per_task) = within_cpus(
            MemoryRule::of(request, partition, policy),
            request.cpus_per_task.min,
            memory_per_cpu_max,
        );
        Self {
            excluded: request.exclude.iter().map(String::as_str).collect(),
            pool: request.node_pool.iter().map(String::as_str).collect(),
            request,
            tasks,
            nodes_min,
            nodes_max,
            gres,
            memory,
            memory_max,
            memory_per_cpu_max,
            cpus_max: partition.max_cpus_per_node,
            cpus_per_socket_max: partition.max_cpus_per_socket,
            cpus_per_task,
            // The site's default gives way to a number of the user's own.
            cpus_per_gpu: request
                .cpus_per_gpu
                .or(default_per_gpu.filter(|_| !request.cpus_per_task_given)),
            constraint: request.constraint.as_ref(),
            select,
            sharers,
            holder: ShareHolder {
                uid,
                whole_node,
                user_exclusive: request.sharing == Sharing::User || partition.exclusive_user,
            },
            project: None,
            switches: None,
            switches_max: None,
            switch_level: None,
        }
    }

    /// The same demand of a job of this project.
    pub fn of_project(self, project: &'a str) -> Self {
        Self { project: Some(project), ..self }
    }

    /// Slurm gives as many nodes of `-N 2-4` as there are, and as few as will do where no count was given.
    pub fn wants_many_nodes(&self) -> bool {
        (self.request.nodes_given && !self.request.fewest_nodes) || self.request.spread
    }

    /// Whether the job is of one CPU.
    pub fn is_serial(&self) -> bool {
        self.nodes_min == 1 && self.task_count() == 1 && self.cpus_per_task == 1
    }

    /// Whether tasks are distributed evenly over the nodes. They are packed where a node gives only what its tasks take.
    pub fn is_even(&self) -> bool {
        self.request.spread || (self.holder.whole_node && !self.select.pack_nodes)
    }

    /// Whether the job's list of node counts, if it has one, contains this number.
    pub fn admits_count(&self, nodes: usize) -> bool {
        let listed = &self.request.node_counts;
        listed.is_empty() || listed.iter().any(|count| *count as usize == nodes)
    }

    /// Whether the nodes must match each other, and not only the demand.
    pub fn needs_matching_nodes(&self) -> bool {
        let together = |c: &Constraint| c.has_counts() || c.alternatives().len() > 1;
        self.request.prefer.is_some()
            || self.request.segment.is_some()
            || self.constraint.is_some_and(together)
    }

    /// The total over all nodes for each demand; zero where each node's count is fixed.
    pub fn job_totals(&self) -> Vec<u64> {
        self.gres.iter().map(|g| g.per_job).collect()
    }

    pub fn has_job_totals(&self) -> bool {
        self.gres.iter().any(|g| g.per_job > 0)
    }

    /// The fewest tasks that each node must be able to hold.
    pub fn tasks_on_each(&self) -> u32 {
        match self.tasks {
            Tasks::Total { .. } => 1,
            Tasks::PerNode(count) => count,
        }
    }

    pub fn task_count(&self) -> u32 {
        match self.tasks {
            Tasks::Total { count, .. } => count,
            Tasks::PerNode(count) => count.saturating_mul(self.nodes_min),
        }
    }

    /// The least that the job will be charged for. Limits are checked against it before nodes are looked for.
    pub fn least(&self) -> Tres {
        let nodes = u64::from(self.nodes_min);
        let tasks = u64::from(self.task_count());
        let cpus = if self.request.overcommit {
            nodes
        } else {
            tasks.saturating_mul(u64::from(self.cpus_per_task))
        };
        let mut least = Tres::new();
        least.add(TresKind::Cpu, cpus.max(nodes));
        least.add(TresKind::Node, nodes);
        match self.memory {
            MemoryRule::PerNode(amount) => {
                least.add(TresKind::Mem, amount.mib().saturating_mul(nodes))
            }
            MemoryRule::PerCpu(each) => least.add(TresKind::Mem, each.mib().saturating_mul(cpus)),
            _ => {}
        }
        for gres in &self.gres {
            let count = gres
                .per_job
                .max(gres.per_node.saturating_mul(nodes))
                .max(gres.per_task.saturating_mul(tasks));
            least.add(TresKind::gres(&gres.name, None), count);
            if let [kind] = gres.kinds.as_slice() {
                least.add(TresKind::gres(&gres.name, Some(kind)), count);
            }
        }
        least
    }
}

/// The cluster's `SelectTypeParameters`, with the partition's own.
fn select_of(partition: &Partition, policy: &SchedulerPolicy) -> Select {
    let mut select = policy.select;
    if let (Some(own), Unit::Core | Unit::Socket) = (partition.select, select.unit) {
        (select.unit, select.memory) = (own.unit, own.memory);
    }
    select.least_loaded |= partition.least_loaded;
    select
}

/// How many jobs share CPUs where CPUs are not consumed (`CR_Memory`) and the partition sets no number.
const SHARERS_DEFAULT: u32 = 4;

/// Whether a job has its nodes to itself. Where sharing is forced, no job of Slurm's can ask for that; an offer of whole hosts
/// is one everywhere.
pub fn is_whole_node(request: &Request, partition: OverSubscribe, select: Select) -> bool {
    let forced = matches!(partition, OverSubscribe::Force(_));
    (request.sharing == Sharing::Node && !forced)
        || is_offer_of_hosts(request)
        || partition == OverSubscribe::Exclusive
        || (select.unit == Unit::Node && sharers_of(request, partition, select) == 1)
}

/// Whether the request is one of dstack's on several nodes.
fn is_offer_of_hosts(request: &Request) -> bool {
    request.sharing == Sharing::Node && request.grant == Grant::Offer
}

fn sharers_of(request: &Request, partition: OverSubscribe, select: Select) -> u32 {
    let may = request.sharing == Sharing::Oversubscribe;
    match partition {
        _ if is_offer_of_hosts(request) => 1,
        OverSubscribe::Force(jobs) => jobs.max(1),
        OverSubscribe::Yes(jobs) if may || select.shares_cpus => jobs.max(1),
        OverSubscribe::No if select.shares_cpus => SHARERS_DEFAULT,
        OverSubscribe::No | OverSubscribe::Yes(_) | OverSubscribe::Exclusive => 1,
    }
}

/// A `--mem-per-cpu` beyond `MaxMemPerCPU` becomes less memory for each of more CPUs.
fn within_cpus(memory: MemoryRule, cpus: u32, most: Option<Bytes>) -> (MemoryRule, u32) {
    match (memory, most) {
        (MemoryRule::PerCpu(each), Some(most)) if most.0 > 0 && each > most => {
            let times = each.0.div_ceil(most.0);
            let each = Bytes::from_mib(each.mib().div_ceil(times));
            let times = u32::try_from(times).unwrap_or(u32::MAX);
            (MemoryRule::PerCpu(each), cpus.saturating_mul(times))
        }
        _ => (memory, cpus),
    }
}

impl GresDemand {
    fn is_fixed_by_node(&self) -> bool {
        self.per_node > 0 || self.per_task > 0 || self.per_socket > 0
    }

    /// The count on a node with so many tasks and so many units of the job's total, without the count for each socket.
    pub fn on_node(&self, tasks: u32, of_total: u64) -> u64 {
        self.per_node.max(self.per_task.saturating_mul(u64::from(tasks))).max(of_total)
    }
}

/// Requests for the same units become one demand. Demands for a kind come before those that take any kind.
fn gather(requests: &[GresRequest]) -> Vec<GresDemand> {
    let mut demands: Vec<GresDemand> = Vec::new();
    for request in requests {
        let same = |d: &GresDemand| {
            d.name == request.name
                && d.kinds == request.kinds
                && d.by_model == request.by_model
                && d.device_memory == request.device_memory
                && d.total_memory == request.total_memory
                && d.make == request.make
        };
        let at = demands.iter().position(same).unwrap_or_else(|| {
            demands.push(GresDemand {
                name: request.name.clone(),
                kinds: request.kinds.clone(),
                by_model: request.by_model,
                device_memory: request.device_memory,
                total_memory: request.total_memory,
                make: request.make,
                per_node: 0,
                per_task: 0,
                per_socket: 0,
                per_job: 0,
                most: None,
            });
            demands.len() - 1
        });
        let demand = &mut demands[at];
        let slot = match request.per {
            Per::Node => &mut demand.per_node,
            Per::Job => &mut demand.per_job,
            Per::Task => &mut demand.per_task,
            Per::Socket => &mut demand.per_socket,
        };
        *slot = (*slot).max(request.count.min);
        demand.most = request.count.max;
    }
    demands.sort_by_key(|d| {
        (d.kinds.is_empty(), d.device_memory.is_none(), d.make.is_any(), d.kinds.len())
    });
    demands
}

/// The tasks as asked for, or as the GPUs and `--ntasks-per-gpu` or `--gpus-per-task` imply. `-n` with
/// `--ntasks-per-gpu` and no GPUs asks for the GPUs.
fn tasks_of(request: &Request, gres: &mut Vec<GresDemand>) -> Tasks {
    let per_node_max = request.tasks_per_node.unwrap_or(u32::MAX);
    let total = |count: u64| Tasks::Total {
        count: u32::try_from(count).unwrap_or(u32::MAX).max(1),
        per_node_max,
    };
    let per_gpu = u64::from(request.tasks_per_gpu.unwrap_or(0));
    if let Some(count) = request.tasks {
        if per_gpu > 0 && !gres.iter().any(|g| g.name == GPU) {
            let gpus = Range::exactly(u64::from(count).div_ceil(per_gpu));
            let implied = GresRequest {
                per: Per::Job,
                name: GPU.to_string(),
                kinds: Vec::new(),
                by_model: false,
                make: DeviceMake::default(),
                count: gpus,
                device_memory: None,
                total_memory: None,
            };
            gres.extend(gather(&[implied]));
        }
        return total(u64::from(count));
    }
    if let Some(count) = request.tasks_per_node {
        return Tasks::PerNode(count.max(1));
    }
    let gpus = gres.iter().find(|g| g.name == GPU);
    match gpus {
        Some(g) if per_gpu > 0 && g.per_job > 0 => total(g.per_job.saturating_mul(per_gpu)),
        Some(g) if per_gpu > 0 && g.per_node > 0 => {
            let count = g.per_node.saturating_mul(per_gpu);
            Tasks::PerNode(u32::try_from(count).unwrap_or(u32::MAX))
        }
        Some(g) if g.per_task > 0 && g.per_job > 0 => total(g.per_job / g.per_task),
        _ => Tasks::PerNode(1),
    }
}

fn nodes_of(
    request: &Request,
    partition: &Partition,
    tasks: Tasks,
    gres: &[GresDemand],
) -> (u32, u32) {
    let (mut min, mut max) = match (request.nodes_given, tasks) {
        (true, Tasks::PerNode(_)) => (request.nodes.min, request.nodes.max.unwrap_or(u32::MAX)),
        (true, Tasks::Total { count, .. }) => {
            let max = request.nodes.max.unwrap_or(u32::MAX);
            (request.nodes.min, max.min(count.max(request.nodes.min)))
        }
        (false, Tasks::Total { count, per_node_max }) => {
            // A job that is spread has no node without a task.
            (count.div_ceil(per_node_max.max(1)), if request.spread { count } else { u32::MAX })
        }
        (false, Tasks::PerNode(_)) => (request.nodes.min, request.nodes.min),
    };
    if !request.nodes_given {
        for g in gres.iter().filter(|g| g.per_job > 0) {
            if g.per_node > 0 {
                let nodes = u32::try_from(g.per_job.div_ceil(g.per_node)).unwrap_or(u32::MAX);
                (min, max) = (min.max(nodes), max.max(nodes));
            } else if !g.is_fixed_by_node() {
                // A total may need more nodes than the tasks do.
                max = u32::MAX;
            }
        }
    }
    let counted: u32 = request.constraint.iter().flat_map(|c| c.counts()).map(|(_, n)| n).sum();
    if !request.nodes_given {
        min = min.max(counted);
    }
    min = min.max(1).max(request.node_list.len() as u32).max(partition.min_nodes);
    max = max.max(min);
    if let Some(most) = partition.max_nodes {
        // A minimum beyond it is held back by the partition's gate, unless the QOS lifts the limit.
        max = max.min(most).max(min);
    }
    (min, max)
}

//! What a request comes to in one partition, before any node is looked at.

use super::gres::GPU;
use super::memory::MemoryRule;
use crate::free::Holder;
use crate::topology::Switches;
use crate::view::SchedulerPolicy;
use model::amount::Bytes;
use model::partition::{DefaultMemory, OverSubscribe, Partition};
use model::range::Range;
use model::request::{GresRequest, Per, Request, Sharing};
use model::tres::{Tres, TresKind};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct Demand<'a> {
    pub request: &'a Request,
    pub tasks: Tasks,
    pub nodes_min: u32,
    pub nodes_max: u32,
    /// The most particular first.
    pub gres: Vec<GresDemand>,
    pub memory: MemoryRule,
    /// `MaxMemPerNode`
    pub memory_max: Option<Bytes>,
    /// `MaxCPUsPerNode`, for one job.
    pub cpus_max: Option<u32>,
    pub holder: Holder,
    /// The network between the nodes, where it matters.
    pub switches: Option<Arc<Switches>>,
    /// The most leaf switches.
    pub switches_max: Option<u32>,
}

/// How tasks spread over the nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tasks {
    /// So many in all, at most so many on a node.
    Total { count: u32, per_node_max: u32 },
    /// So many on every node.
    PerNode(u32),
}

/// What is asked of one resource; the forms are bounds on the same units, not sums.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GresDemand {
    pub name: String,
    pub kinds: Vec<String>,
    pub device_memory: Option<Range<Bytes>>,
    pub per_node: u64,
    pub per_task: u64,
    pub per_socket: u64,
    /// Over all nodes, where no other form fixes each node's count.
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
        let per_job: u64 = gres.iter().filter(|g| g.name == GPU).map(|g| g.per_job).sum();
        let tasks = tasks_of(request, &mut gres);
        let (nodes_min, nodes_max) = nodes_of(request, partition, tasks, &gres);
        // With a count for each node (or task) said as well, the job's total only told how many
        // nodes or tasks.
        for demand in gres.iter_mut().filter(|g| g.is_fixed_by_node()) {
            demand.per_job = 0;
        }
        let has_gpus = per_job > 0 || gres.iter().any(|g| g.name == GPU && g.is_fixed_by_node());
        let memory_max = match partition.max_memory {
            Some(DefaultMemory::PerNode(most)) => Some(most),
            _ => None,
        };
        Self {
            request,
            tasks,
            nodes_min,
            nodes_max,
            gres,
            memory: MemoryRule::of(request, partition, policy, has_gpus),
            memory_max,
            cpus_max: partition.max_cpus_per_node,
            holder: Holder {
                uid,
                whole_node: request.sharing == Sharing::Node
                    || partition.over_subscribe == OverSubscribe::Exclusive,
                user_exclusive: request.sharing == Sharing::User || partition.exclusive_user,
            },
            switches: None,
            switches_max: None,
        }
    }

    /// Slurm gives as many nodes of `-N 2-4` as there are, and as few as will do where no count was
    /// said.
    pub fn wants_many_nodes(&self) -> bool {
        self.request.nodes_given
    }

    /// Totals over all nodes, one for each demand; zero where the nodes' own counts say it all.
    pub fn job_totals(&self) -> Vec<u64> {
        self.gres.iter().map(|g| g.per_job).collect()
    }

    pub fn has_job_totals(&self) -> bool {
        self.gres.iter().any(|g| g.per_job > 0)
    }

    /// Tasks that any node must be able to hold at least.
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

    /// The least that it will be charged for: what limits are held against before nodes are looked
    /// for.
    pub fn least(&self) -> Tres {
        let nodes = u64::from(self.nodes_min);
        let tasks = u64::from(self.task_count());
        let cpus = match self.request.overcommit {
            true => nodes,
            false => tasks.saturating_mul(u64::from(self.request.cpus_per_task.min)),
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

impl GresDemand {
    fn is_fixed_by_node(&self) -> bool {
        self.per_node > 0 || self.per_task > 0 || self.per_socket > 0
    }

    /// On a node with so many tasks and of the job's total so many units, sockets apart.
    pub fn on_node(&self, tasks: u32, of_total: u64) -> u64 {
        self.per_node.max(self.per_task.saturating_mul(u64::from(tasks))).max(of_total)
    }
}

/// Requests for the same units become one demand; typed ones come before those that take any kind.
fn gather(requests: &[GresRequest]) -> Vec<GresDemand> {
    let mut demands: Vec<GresDemand> = Vec::new();
    for request in requests {
        let same = |d: &GresDemand| {
            d.name == request.name
                && d.kinds == request.kinds
                && d.device_memory == request.device_memory
        };
        let at = demands.iter().position(same).unwrap_or_else(|| {
            demands.push(GresDemand {
                name: request.name.clone(),
                kinds: request.kinds.clone(),
                device_memory: request.device_memory,
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
    demands.sort_by_key(|d| (d.kinds.is_empty(), d.device_memory.is_none(), d.kinds.len()));
    demands
}

/// Tasks as said, or as the GPUs and `--ntasks-per-gpu` or `--gpus-per-task` imply; `-n` with
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
                count: gpus,
                device_memory: None,
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
            (count.div_ceil(per_node_max.max(1)), u32::MAX)
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
    min = min.max(1).max(request.node_list.len() as u32).max(partition.min_nodes);
    max = max.max(min);
    if let Some(most) = partition.max_nodes {
        // More than that at least is refused by the partition's gate, unless the QOS lifts it.
        max = max.min(most).max(min);
    }
    (min, max)
}

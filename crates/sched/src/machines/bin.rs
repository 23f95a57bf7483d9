//! The size of a machine, and machines as bins that jobs are put in.

use crate::free::node_free::{NodeFree, ShareHolder};
use crate::place::demand::{Demand, Tasks};
use crate::place::memory::MemoryRule;
use crate::place::{FreeNodes, fit};
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::gres::GPU;
use model::id::JobId;
use model::machine::Offer;
use model::node::NodeConfig;
use model::partition::Partition;
use model::request::Memory;
use std::borrow::Cow;
use std::iter::repeat_n;
use std::rc::Rc;

/// Whole amounts of a machine, or the least of them that a job's node must have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) cpus: u32,
    memory: Bytes,
    gpus: u64,
}

impl Size {
    pub(super) fn of(offer: &Offer) -> Self {
        let gpus = offer.gpus.as_ref().map_or(0, |gpus| u64::from(gpus.count));
        Self { cpus: offer.cpus, memory: offer.memory, gpus }
    }

    pub(super) fn least(demand: &Demand<'_>) -> Self {
        let memory = match demand.memory {
            MemoryRule::PerNode(asked) => asked,
            _ => Bytes(0),
        };
        // The tasks that each node has, or the one that there is.
        let tasks = match demand.tasks {
            Tasks::PerNode(count) => count.max(1),
            Tasks::Total { count, .. } if demand.nodes_max == 1 => count.max(1),
            Tasks::Total { .. } => 1,
        };
        let gpus = demand.gres.iter().filter(|gres| gres.name == GPU);
        let of_tasks = |each: u64| each.saturating_mul(tasks.into());
        let gpus = gpus.map(|gres| gres.per_node.max(of_tasks(gres.per_task))).sum();
        let cpus = demand.cpus_per_task.saturating_mul(tasks);
        let cpus = if demand.request.overcommit { 1 } else { cpus };
        Self { cpus, memory, gpus }
    }

    /// The part of an offer that a pod for one of the job's nodes is: what the job asks for there, and no more.
    pub(super) fn pod(offer: &Offer, demand: &Demand<'_>) -> Offer {
        let nodes = demand.nodes_min.max(1);
        let tasks = match demand.tasks {
            Tasks::PerNode(count) => count.max(1),
            Tasks::Total { count, per_node_max } => count.div_ceil(nodes).min(per_node_max).max(1),
        };
        let gpus = demand.gres.iter().filter(|gres| gres.name == GPU).map(|gres| {
            let of_job = gres.per_job.div_ceil(nodes.into());
            gres.per_node.max(gres.per_task.saturating_mul(tasks.into())).max(of_job)
        });
        let gpus = u32::try_from(gpus.sum::<u64>()).unwrap_or(u32::MAX);
        let of_gpus = demand.cpus_per_gpu.unwrap_or(0).saturating_mul(gpus);
        let cpus = demand.cpus_per_task.saturating_mul(tasks).max(of_gpus).max(1);
        let cpus = if demand.request.overcommit { 1.max(of_gpus) } else { cpus };
        let whole = offer.node("", &[]);
        // Where nobody says how much memory, the pod has the node's in proportion to its CPUs.
        let is_unsaid =
            demand.memory == MemoryRule::WholeNode && demand.request.memory != Memory::WholeNode;
        let rule = if is_unsaid { MemoryRule::NodeOverCpus } else { demand.memory };
        let memory = rule.on_node(&whole, cpus, gpus.into());
        offer.part(cpus, memory, gpus, demand.request.disk.unwrap_or_default())
    }

    pub(super) fn holds(self, least: Self) -> bool {
        self.cpus >= least.cpus && self.memory >= least.memory && self.gpus >= least.gpus
    }
}

/// A machine that does not serve yet, with the jobs that were put on it.
#[derive(Clone)]
pub(super) struct Bin {
    pub(super) config: Rc<NodeConfig>,
    pub(super) free: NodeFree,
    /// The fleet that it is an instance of.
    pub(super) fleet: Option<Rc<str>>,
    /// For one that is on its way: the job that it was made for.
    pub(super) owner: Option<JobId>,
    /// For a new pod: the part of the offer that it is.
    pub(super) part: Option<Rc<Offer>>,
}

impl Bin {
    pub(super) fn of(config: NodeConfig) -> Self {
        let free = NodeFree::empty(&config);
        Self { config: Rc::new(config), free, fleet: None, owner: None, part: None }
    }

    /// Whether it would be in the partition.
    pub(super) fn is_in(&self, partition: &Partition) -> bool {
        match &self.fleet {
            Some(fleet) => partition.name == **fleet,
            None => partition.dynamic_members.admits(&self.config.features),
        }
    }

    /// Whether a node of the job fits on what is free: one that does not is in no placement of several nodes.
    pub(super) fn holds_node(&self, demand: &Demand<'_>) -> bool {
        let nothing = vec![0; demand.gres.len()];
        fit::is_of_sort(demand, &self.config)
            && fit::fits(demand, &self.config, &self.free, demand.tasks_on_each(), &nothing)
    }

    /// Whether the whole job, or at least a node of it, fits on what is free.
    pub(super) fn holds_part(&self, demand: &Demand<'_>) -> bool {
        let (tasks, totals) = (demand.task_count(), demand.job_totals());
        self.holds_node(demand)
            || (fit::is_of_sort(demand, &self.config)
                && fit::fits(demand, &self.config, &self.free, tasks, &totals))
    }
}

/// The amounts that are free on a machine. Those of all machines are in one place: each job is compared with each.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) cpus: u32,
    gpus: u64,
    memory: Bytes,
}

impl Room {
    pub(super) fn of(bin: &Bin) -> Self {
        let lines = bin.config.gres.iter().zip(&bin.free.gres);
        let gpus = lines.filter(|(line, _)| line.name == GPU).map(|(_, free)| free.count);
        Self {
            cpus: if bin.free.exclusive { 0 } else { bin.free.cpus.len() },
            gpus: gpus.sum(),
            memory: bin.free.memory,
        }
    }

    /// Whether what is free could be enough: its CPUs where the job shares none, its memory where memory is given out.
    pub(super) fn may_hold(self, demand: &Demand<'_>, least: Size) -> bool {
        let counts_cpus = demand.sharers == 1 && !demand.request.overcommit;
        (!counts_cpus || self.cpus >= least.cpus)
            && (!demand.select.memory || self.memory >= least.memory)
            && self.gpus >= least.gpus
    }
}

/// The machines that do not serve yet, in the order in which jobs take them.
pub(super) struct Bins {
    all: Vec<Bin>,
    rooms: Vec<Room>,
}

impl Bins {
    pub(super) fn new(all: Vec<Bin>) -> Self {
        let rooms = all.iter().map(Room::of).collect();
        Self { all, rooms }
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    pub(super) fn rooms(&self) -> &[Room] {
        &self.rooms
    }

    pub(super) fn get(&self, at: u32) -> &Bin {
        &self.all[at as usize]
    }

    /// Adds so many machines that are alike.
    pub(super) fn add(&mut self, bin: &Bin, count: u32) {
        self.all.extend(repeat_n(bin.clone(), count as usize));
        self.rooms.extend(repeat_n(Room::of(bin), count as usize));
    }

    /// A job takes its share of a machine.
    pub(super) fn take(&mut self, at: u32, share: &NodeShare, holder: ShareHolder) {
        let bin = &mut self.all[at as usize];
        bin.free.take(&bin.config, share, holder);
        self.rooms[at as usize] = Room::of(bin);
    }
}

/// The bins, and after them any number of new ones that are alike.
pub(super) struct Trial<'a> {
    pub(super) bins: &'a Bins,
    pub(super) new: Option<&'a Bin>,
}

impl Trial<'_> {
    fn bin(&self, at: u32) -> &Bin {
        match self.new {
            Some(new) if at as usize >= self.bins.len() => new,
            _ => self.bins.get(at),
        }
    }
}

impl FreeNodes for Trial<'_> {
    fn config(&self, node: u32) -> &NodeConfig {
        &self.bin(node).config
    }

    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>> {
        Some(Cow::Borrowed(&self.bin(node).free))
    }
}

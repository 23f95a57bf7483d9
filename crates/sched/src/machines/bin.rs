//! The size of a machine, and machines as bins that jobs are put in.

use crate::free::node_free::{NodeFree, ShareHolder};
use crate::place::FreeNodes;
use crate::place::demand::{Demand, Tasks};
use crate::place::memory::MemoryRule;
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::gres::GPU;
use model::id::JobId;
use model::machine::Offer;
use model::node::NodeConfig;
use model::partition::Partition;
use model::request::Memory;
use std::borrow::Cow;
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
pub(super) struct Bin {
    pub(super) config: Rc<NodeConfig>,
    pub(super) free: NodeFree,
    pub(super) free_cpus: u32,
    pub(super) free_gpus: u64,
    /// The fleet that it is an instance of.
    pub(super) fleet: Option<Rc<str>>,
    /// For one that is on its way: the job that it was made for.
    pub(super) owner: Option<JobId>,
    /// For a new one: the positions of its source and of its offer.
    pub(super) new: Option<(usize, usize)>,
    /// For a new pod: the part of the offer that it is.
    pub(super) part: Option<Rc<Offer>>,
}

impl Bin {
    pub(super) fn of(config: Rc<NodeConfig>) -> Self {
        let free = NodeFree::empty(&config);
        let (free_cpus, free_gpus) = (free.cpus.len(), gpus_free(&config, &free));
        Self { config, free, free_cpus, free_gpus, fleet: None, owner: None, new: None, part: None }
    }

    /// A job takes its share of the machine.
    pub(super) fn take(&mut self, share: &NodeShare, holder: ShareHolder) {
        self.free.take(&self.config, share, holder);
        self.free_cpus = if self.free.exclusive { 0 } else { self.free.cpus.len() };
        self.free_gpus = gpus_free(&self.config, &self.free);
    }

    /// Whether it would be in the partition.
    pub(super) fn is_in(&self, partition: &Partition) -> bool {
        match &self.fleet {
            Some(fleet) => partition.name == **fleet,
            None => partition.dynamic_members.admits(&self.config.features),
        }
    }

    /// Whether what is free could be enough: its CPUs where the job shares none, its memory where memory is given out.
    pub(super) fn may_hold(&self, demand: &Demand<'_>, least: Size) -> bool {
        let counts_cpus = demand.sharers == 1 && !demand.request.overcommit;
        (!counts_cpus || self.free_cpus >= least.cpus)
            && (!demand.select.memory || self.free.memory >= least.memory)
            && self.free_gpus >= least.gpus
    }
}

fn gpus_free(config: &NodeConfig, free: &NodeFree) -> u64 {
    let lines = config.gres.iter().zip(&free.gres);
    lines.filter(|(line, _)| line.name == GPU).map(|(_, free)| free.count).sum()
}

/// The bins, and after them those that are tried.
pub(super) struct Trial<'a> {
    pub(super) bins: &'a [Bin],
    pub(super) more: &'a [Bin],
}

impl Trial<'_> {
    pub(super) fn bin(&self, at: u32) -> &Bin {
        let at = at as usize;
        self.bins.get(at).unwrap_or_else(|| &self.more[at - self.bins.len()])
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

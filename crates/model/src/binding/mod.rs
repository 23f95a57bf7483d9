//! Bindings of a step's tasks to CPUs and memory domains: the request, and its result on one node.
//!
//! Like the limits of a job, a binding is a pure function of what the step has on the node: [`bind`].

mod distribution;
mod policy;
pub mod text;

use crate::cpuset::CpuSet;
pub use policy::BindPolicy;
use serde::{Deserialize, Serialize};

/// A part of a machine that a task can be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Level {
    Threads,
    Cores,
    Sockets,
    /// Domains of memory.
    Ldoms,
}

/// How tasks are bound to CPUs. Lists are used again from their beginning where there are more tasks.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuBind {
    None,
    To(Level),
    Rank,
    RankLdom,
    /// The kernel's numbers.
    MapCpu(Vec<u32>),
    MaskCpu(Vec<CpuSet>),
    MapLdom(Vec<u32>),
    MaskLdom(Vec<CpuSet>),
}

/// How neighbouring tasks are dealt to the sockets, and inside each to its cores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CpuDistribution {
    /// One socket is filled before the next.
    Block,
    /// Each task goes to the next socket.
    #[default]
    Cyclic,
    /// Each CPU of a task goes to the next socket.
    Fcyclic,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct CpuBinding {
    /// None: by the numbers of tasks, sockets, cores and threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<CpuBind>,
    /// Each task says what it is bound to.
    #[serde(default)]
    pub verbose: bool,
    #[serde(default, rename = "spread")]
    pub distribution: CpuDistribution,
    /// The same over the cores of a socket; none: one core is filled before the next.
    #[serde(default, rename = "core_spread", skip_serializing_if = "Option::is_none")]
    pub core_distribution: Option<CpuDistribution>,
    /// Of each core only the first thread is used.
    #[serde(default)]
    pub one_thread: bool,
    /// The level to bind to when no level has exactly as many parts as the tasks need.
    #[serde(default, rename = "otherwise", skip_serializing_if = "Option::is_none")]
    pub fallback: Option<Level>,
}

/// From which domains a task gets its memory.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MemBind {
    None,
    Local,
    Rank,
    Map(Vec<u32>),
    Mask(Vec<CpuSet>),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct MemBinding {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<MemBind>,
    #[serde(default)]
    pub verbose: bool,
    /// Others may be used where these are full.
    #[serde(default)]
    pub prefer: bool,
    #[serde(default)]
    pub sort: bool,
}

/// Where one CPU of a node is in the machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CpuPlace {
    /// As the allocation counts it.
    pub id: u32,
    /// The kernel's numbers: several where a core is one CPU of the node.
    pub kernel: Vec<u32>,
    pub socket: u32,
    /// Counted over the whole machine.
    pub core: u32,
    pub ldom: u32,
}

/// The CPUs that a step has on a node, which its tasks can be bound to.
#[derive(Debug, Clone, Copy)]
pub struct BindableCpus<'a> {
    /// Sorted by socket, core and thread.
    pub places: &'a [CpuPlace],
    /// Whether these are all CPUs of the node.
    pub whole: bool,
    /// How many CPUs the machine has, for the width of masks.
    pub cpus: u32,
}

/// The bindings of all tasks of a step on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeBindings {
    /// `MASK`, `MAP `, …
    label: &'static str,
    /// The level that was asked for and could not be had.
    missed: Option<Level>,
    /// For each task in turn; empty: not bound.
    masks: Vec<CpuSet>,
    /// As the variables have it: `mask_cpu:` and a list.
    kind: String,
    list: String,
    verbose: bool,
}

/// Why tasks cannot be bound as asked.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BindRefusal {
    #[error("CPU binding outside of job step allocation, allocated CPUs are: {0}.")]
    Outside(String),
    #[error("Entire node must be allocated for {0}")]
    NotWhole(String),
}

/// Binds `tasks` tasks of `cpus_per_task` CPUs each.
pub fn bind(
    binding: &CpuBinding,
    ground: BindableCpus<'_>,
    tasks: u32,
    cpus_per_task: u32,
) -> Result<NodeBindings, BindRefusal> {
    let threads = distribution::threads(ground.places, binding.one_thread);
    let all: CpuSet = threads.iter().map(|thread| thread.cpu).collect();
    let each = cpus_per_task.max(1);
    let maker = Maker { binding, ground, all: &all };
    match &binding.kind {
        Some(CpuBind::None) if ground.whole => Ok(maker.plain("NONE", "none", Vec::new())),
        Some(CpuBind::None) => Ok(maker.all_together(None)),
        Some(CpuBind::To(level)) => Ok(maker.to_level(*level, &threads, tasks, each)),
        None => {
            match distribution::fitting(&threads, tasks.saturating_mul(each)).or(binding.fallback) {
                Some(level) => Ok(maker.to_level(level, &threads, tasks, each)),
                None => Ok(maker.all_together(None)),
            }
        }
        Some(CpuBind::Rank) => {
            maker.check_whole()?;
            let cpus: Vec<u32> = all.iter().collect();
            let of = |task: u32| cpus.get(task as usize % cpus.len().max(1)).copied();
            let masks = (0..tasks).map(|task| of(task).into_iter().collect()).collect();
            Ok(maker.plain("RANK", "rank", masks))
        }
        Some(CpuBind::RankLdom) => {
            maker.check_whole()?;
            let ldoms = maker.ldoms();
            let of = |task: u32| maker.of_ldoms(&ldoms[task as usize % ldoms.len()..][..1]);
            Ok(maker.plain("LDRANK", "rank_ldom", (0..tasks).map(of).collect()))
        }
        Some(CpuBind::MapCpu(list)) => {
            let masks = list.iter().map(|cpu| CpuSet::from_iter([*cpu]));
            maker.listed("MAP ", "map_cpu:", masks.collect(), tasks)
        }
        Some(CpuBind::MaskCpu(list)) => maker.listed("MASK", "mask_cpu:", list.clone(), tasks),
        Some(CpuBind::MapLdom(list)) => {
            maker.check_whole()?;
            let masks = list.iter().map(|ldom| maker.of_ldoms(&[*ldom])).collect();
            maker.listed("LDMAP ", "map_ldom:", masks, tasks)
        }
        Some(CpuBind::MaskLdom(list)) => {
            maker.check_whole()?;
            let of = |mask: &CpuSet| maker.of_ldoms(&mask.iter().collect::<Vec<_>>());
            maker.listed("LDMASK", "mask_ldom:", list.iter().map(of).collect(), tasks)
        }
    }
}

struct Maker<'a> {
    binding: &'a CpuBinding,
    ground: BindableCpus<'a>,
    all: &'a CpuSet,
}

impl Maker<'_> {
    fn plain(&self, label: &'static str, kind: &str, masks: Vec<CpuSet>) -> NodeBindings {
        let (kind, list) = (kind.to_owned(), String::new());
        NodeBindings { label, missed: None, masks, kind, list, verbose: self.binding.verbose }
    }

    fn masks(&self, masks: Vec<CpuSet>) -> NodeBindings {
        let list = masks.iter().map(|mask| text::mask_wide(mask, self.ground.cpus));
        let list = list.collect::<Vec<_>>().join(",");
        NodeBindings { list, ..self.plain("MASK", "mask_cpu:", masks) }
    }

    /// Binds every task to all CPUs of the step.
    fn all_together(&self, missed: Option<Level>) -> NodeBindings {
        let bound = self.masks(vec![self.all.clone()]);
        match missed {
            Some(level) => {
                NodeBindings { missed, kind: format!("{level},{}", bound.kind), ..bound }
            }
            None => bound,
        }
    }

    fn to_level(
        &self,
        level: Level,
        threads: &[distribution::Thread],
        tasks: u32,
        each: u32,
    ) -> NodeBindings {
        let distribution = (
            self.binding.distribution,
            self.binding.core_distribution.unwrap_or(CpuDistribution::Block),
        );
        match distribution::deal(threads, level, distribution, tasks, each) {
            Some(masks) => self.masks(masks),
            None => self.all_together(Some(level)),
        }
    }

    fn check_whole(&self) -> Result<(), BindRefusal> {
        if self.ground.whole && !self.all.is_empty() {
            return Ok(());
        }
        let one_thread = self.ground.places.iter().all(|place| place.kernel.len() == 1)
            && self.ground.places.windows(2).all(|two| two[0].core != two[1].core);
        Err(BindRefusal::NotWhole(text::asked(self.binding, one_thread)))
    }

    fn ldoms(&self) -> Vec<u32> {
        let mut ldoms: Vec<u32> = self.ground.places.iter().map(|place| place.ldom).collect();
        ldoms.sort_unstable();
        ldoms.dedup();
        ldoms
    }

    /// The CPUs of these domains. Domains that do not exist are skipped; if none exists, all CPUs.
    fn of_ldoms(&self, wanted: &[u32]) -> CpuSet {
        let places = self.ground.places.iter().filter(|place| wanted.contains(&place.ldom));
        let cpus: CpuSet = places.flat_map(|place| place.kernel.iter().copied()).collect();
        if cpus.is_empty() { self.all.clone() } else { cpus }
    }

    /// Binds to the listed masks as far as the step has their CPUs. An empty mask means all CPUs.
    fn listed(
        &self,
        label: &'static str,
        kind: &str,
        named: Vec<CpuSet>,
        tasks: u32,
    ) -> Result<NodeBindings, BindRefusal> {
        let mut masks = Vec::new();
        for mask in named.iter().cycle().take(if named.is_empty() { 0 } else { tasks as usize }) {
            let had: CpuSet = if mask.is_empty() {
                self.all.clone()
            } else {
                mask.iter().filter(|cpu| self.all.contains(*cpu)).collect()
            };
            if had.is_empty() {
                let all = text::mask_wide(self.all, self.ground.cpus);
                return Err(BindRefusal::Outside(all));
            }
            masks.push(had);
        }
        let list = self.binding.kind.as_ref().map(text::list).unwrap_or_default();
        Ok(NodeBindings { list, ..self.plain(label, kind, masks) })
    }
}

impl NodeBindings {
    /// The CPUs of a task; `None` when it is not bound.
    pub fn mask(&self, local_rank: u32) -> Option<&CpuSet> {
        let last = self.masks.len().checked_sub(1)?;
        self.masks.get((local_rank as usize).min(last))
    }

    pub fn is_verbose(&self) -> bool {
        self.verbose
    }
}

#[cfg(test)]
mod tests;

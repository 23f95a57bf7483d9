//! What the other steps of a job leave free of its share of one node.

use super::demand::StepDemand;
use model::allocation::{GresShare, NodeShare};
use model::amount::Bytes;
use model::cpuset::CpuSet;
use model::request::{GresRequest, Memory, Per};
use model::step::StepRefusal;

/// A job's share of one node, and what of it no step uses.
#[derive(Debug, Clone)]
pub(super) struct FreeShare<'a> {
    pub share: &'a NodeShare,
    pub cpus: CpuSet,
    pub memory: Bytes,
    pub gres: Vec<GresShare>,
    /// No step uses the share.
    pub idle: bool,
}

impl<'a> FreeShare<'a> {
    pub fn whole(share: &'a NodeShare) -> Self {
        let NodeShare { cpus, memory, gres, .. } = share;
        Self { share, cpus: cpus.clone(), memory: *memory, gres: gres.clone(), idle: true }
    }

    /// Subtracts what a running step holds.
    pub fn take(&mut self, taken: &NodeShare) {
        self.idle = false;
        self.cpus.subtract(&taken.cpus);
        self.memory = Bytes(self.memory.0.saturating_sub(taken.memory.0));
        for used in &taken.gres {
            let same = |g: &&mut GresShare| g.name == used.name && g.kind == used.kind;
            if let Some(left) = self.gres.iter_mut().find(same) {
                if !is_in_shares(left) {
                    left.indices.retain(|index| !used.indices.contains(index));
                }
                left.count = left.count.saturating_sub(used.count);
            }
        }
    }

    /// How many tasks fit into what is free.
    pub fn tasks(&self, demand: &StepDemand<'_>) -> u32 {
        let all_free = self.cpus == self.share.cpus;
        // A step that takes all CPUs waits until all are free.
        if !demand.ask.shape.exact && !all_free {
            return 0;
        }
        let mut tasks = self.cpus.len() / demand.cpus_per_task;
        for wanted in demand.gres_of(Per::Task) {
            let each = wanted.count.min.max(1);
            tasks = tasks.min(u32::try_from(self.free_units(wanted) / each).unwrap_or(u32::MAX));
        }
        tasks
    }

    pub fn free_units(&self, wanted: &GresRequest) -> u64 {
        units(&self.gres, wanted)
    }

    /// The step's share of this node for `tasks` tasks; `part` gives this node's part of a total for the whole step, by the place of what
    /// is asked for among the step's GRES.
    pub fn grant(
        &self,
        demand: &StepDemand<'_>,
        tasks: u32,
        part: impl Fn(usize) -> u64,
    ) -> Result<NodeShare, StepRefusal> {
        let shape = &demand.ask.shape;
        let needed = tasks.saturating_mul(demand.cpus_per_task);
        let cpus = if shape.exact {
            self.cpus.iter().take(needed.max(1) as usize).collect()
        } else {
            self.cpus.clone()
        };
        let gres = match &shape.gres {
            None => self.units_unsaid(demand, part)?,
            Some(wanted) => self.units_for(wanted, tasks, part)?,
        };
        // Tasks that share CPUs need no more memory than the CPUs bring.
        let needed = needed.min(self.share.cpus.len());
        let memory = self.memory_for(demand, &cpus, needed, &gres)?;
        // All steps use the job's scratch folder.
        let (node, sharers, disk) = (self.share.node.clone(), self.share.sharers, self.share.disk);
        // The price of the share is the job's: its steps cost nothing beside it.
        Ok(NodeShare { node, cpus, memory, gres, tasks, sharers, disk, price: None })
    }

    fn memory_for(
        &self,
        demand: &StepDemand<'_>,
        cpus: &CpuSet,
        needed: u32,
        gres: &[GresShare],
    ) -> Result<Bytes, StepRefusal> {
        let all = self.share.memory;
        // Zero means that memory is not counted: the step has as much as its job.
        if all.0 == 0 {
            return Ok(all);
        }
        let per_cpu = |each: Bytes, count: u32| Bytes(each.0.saturating_mul(u64::from(count)));
        let (asked, least) = match &demand.ask.shape.memory {
            Some(Memory::PerNode(range)) => (range.min, range.min),
            Some(Memory::PerCpu(each)) => (per_cpu(*each, cpus.len()), per_cpu(*each, needed)),
            Some(Memory::PerGpu(each)) => {
                let gpus: u64 = gres.iter().filter(|g| g.name == "gpu").map(|g| g.count).sum();
                let asked = Bytes(each.0.saturating_mul(gpus));
                (asked, asked)
            }
            Some(Memory::WholeNode) => (all, Bytes(0)),
            Some(Memory::Default) | None => match demand.memory_per_cpu {
                Some(each) if demand.ask.shape.exact => (per_cpu(each, cpus.len()), Bytes(0)),
                _ => (all, Bytes(0)),
            },
        };
        if least > all {
            return Err(StepRefusal::Memory { asked_mib: least.mib(), most_mib: all.mib() });
        }
        let granted = asked.min(all);
        if granted > self.memory { Err(StepRefusal::Busy) } else { Ok(granted) }
    }

    /// The devices of a step that names none.
    fn units_unsaid(
        &self,
        demand: &StepDemand<'_>,
        part: impl Fn(usize) -> u64,
    ) -> Result<Vec<GresShare>, StepRefusal> {
        let tasks_of_job = self.share.tasks;
        let all = Self::whole(self.share);
        match &demand.gres_unsaid {
            // Shares of a GPU are not there where the GPU was granted whole, nor is a total for several nodes on each of them.
            Some(asked) if all.units_for(asked, tasks_of_job, &part).is_ok() => {
                self.units_for(asked, tasks_of_job, part)
            }
            _ if self.gres == self.share.gres => Ok(self.gres.clone()),
            _ => Err(StepRefusal::Busy),
        }
    }

    fn units_for(
        &self,
        wanted: &[GresRequest],
        tasks: u32,
        part: impl Fn(usize) -> u64,
    ) -> Result<Vec<GresShare>, StepRefusal> {
        let mut left = self.gres.clone();
        let mut granted: Vec<GresShare> = Vec::new();
        for (at, one) in wanted.iter().enumerate() {
            let mut missing = match one.per {
                Per::Node | Per::Socket => one.count.min,
                Per::Task => one.count.min.saturating_mul(u64::from(tasks)),
                Per::Job => part(at),
            };
            for from in left.iter_mut().filter(|g| matches(g, one)) {
                let count = missing.min(from.count);
                let indices = if is_in_shares(from) {
                    from.indices.clone()
                } else {
                    let keep = from.indices.split_off((count as usize).min(from.indices.len()));
                    std::mem::replace(&mut from.indices, keep)
                };
                from.count -= count;
                missing -= count;
                if count > 0 {
                    let (name, kind) = (from.name.clone(), from.kind.clone());
                    granted.push(GresShare { name, kind, count, indices });
                }
            }
            if missing > 0 {
                return Err(StepRefusal::Busy);
            }
        }
        Ok(granted)
    }
}

/// Whether the units are shares of one GPU, which all have its index.
fn is_in_shares(gres: &GresShare) -> bool {
    gres.indices.len() == 1 && gres.count > 1
}

pub(super) fn units(of: &[GresShare], wanted: &GresRequest) -> u64 {
    of.iter().filter(|g| matches(g, wanted)).map(|g| g.count).sum()
}

pub(super) fn matches(have: &GresShare, wanted: &GresRequest) -> bool {
    let kind = have.kind.as_deref().unwrap_or_default();
    have.name == wanted.name
        && (wanted.kinds.is_empty() || wanted.kinds.iter().any(|k| k.eq_ignore_ascii_case(kind)))
}

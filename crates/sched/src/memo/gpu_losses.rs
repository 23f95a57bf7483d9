//! What jobs on nodes make unusable for typical jobs.
//!
//! It depends on what a node has free, on what the job takes of it and on the typical jobs, and on nothing else. So it is worked out
//! once for all nodes of a class with as much free, and again in later plans only for nodes that changed since, as long as the same
//! jobs are typical.

use super::Baseline;
use crate::free::needs::NodeNeeds;
use crate::index::ClassIndex;
use crate::place::fragmentation::{TypicalOnClass, gpus_left};
use crate::view::TypicalJob;
use foldhash::fast::RandomState;
use model::node::NodeConfig;
use std::collections::HashMap;
use std::sync::{Arc, Weak};

/// All is forgotten once there are so many states for each node: most of them are of before.
const STATES_PER_NODE_MAX: usize = 4;
/// The fewest states at which all is forgotten.
const STATES_KEPT: usize = 1_024;
/// All is forgotten once so many answers are kept for all needs together: 32 MiB.
const ANSWERS_MAX: usize = 1 << 21;
/// All is forgotten once so many needs were asked for.
const NEEDS_MAX: usize = 4_096;

/// What a placement on a node costs typical jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLoss {
    /// By how much more is lost to typical jobs if the job takes its part of the node now; less than zero where the job takes what
    /// was lost already.
    pub added: i64,
    /// What the node has left of its GPUs before that: among equals, nodes with many free GPUs stay whole.
    pub gpus_left: u64,
}

#[derive(Debug, Clone, Default)]
pub struct GpuLosses {
    typical: Arc<Vec<TypicalJob>>,
    /// For each class of nodes the typical jobs on it; made when first asked for.
    on_class: Vec<Option<TypicalOnClass>>,
    /// For each class the numbers of the states in which its nodes were, by what was free, by column.
    numbers: Vec<HashMap<Box<[u64]>, u32, RandomState>>,
    states: Vec<NodeState>,
    /// For each node the number of its state before any plan takes of it; `None` if it changed since it was asked for.
    of_nodes: Vec<Option<u32>>,
    /// What is added by jobs with these needs, by their address.
    by_needs: HashMap<usize, AddedByJob, RandomState>,
    /// The answers that are kept for all needs.
    answers: usize,
}

/// What is free of a node of some class.
#[derive(Debug, Clone, Copy)]
struct NodeState {
    lost: i64,
    gpus_left: u64,
}

#[derive(Debug, Clone)]
struct AddedByJob {
    /// Keeps the address from being used again. It is weak, so that needs that no job has any more are dropped elsewhere.
    _needs: Weak<NodeNeeds>,
    /// By the number of the node's state before the job.
    added: Vec<Option<i64>>,
}

/// A node as a plan finds it.
#[derive(Clone, Copy)]
pub struct NodeNow<'n> {
    pub node: u32,
    /// Nothing was taken of it in this plan.
    pub is_unchanged: bool,
    pub class: ClassIndex,
    /// By column of its timeline.
    pub free: &'n [u64],
}

impl GpuLosses {
    /// Forgets what does not hold any more: with other typical jobs everything, else the states of the nodes that changed.
    pub fn refresh(
        &mut self,
        typical: &Arc<Vec<TypicalJob>>,
        baseline: &Baseline,
        changed: &[u32],
    ) {
        let is_same = Arc::ptr_eq(&self.typical, typical) || self.typical == *typical;
        self.typical.clone_from(typical);
        if !is_same || self.of_nodes.len() != baseline.nodes.len() {
            self.forget(baseline);
        }
        changed.iter().for_each(|node| self.of_nodes[*node as usize] = None);
    }

    fn forget(&mut self, baseline: &Baseline) {
        let classes = baseline.classes.samples.len();
        *self = Self {
            typical: self.typical.clone(),
            on_class: vec![None; classes],
            numbers: vec![HashMap::default(); classes],
            of_nodes: vec![None; baseline.nodes.len()],
            ..Self::default()
        };
    }

    fn is_full(&self) -> bool {
        let states_max = STATES_KEPT.max(STATES_PER_NODE_MAX * self.of_nodes.len());
        self.states.len() >= states_max
            || self.answers >= ANSWERS_MAX
            || self.by_needs.len() >= NEEDS_MAX
    }

    /// What a job with these needs costs typical jobs if it takes its part of the node now.
    pub fn on_node(
        &mut self,
        now: NodeNow<'_>,
        needs: &Arc<NodeNeeds>,
        baseline: &Baseline,
    ) -> NodeLoss {
        if self.is_full() {
            self.forget(baseline);
        }
        let at = self.state(now, baseline) as usize;
        let NodeState { lost, gpus_left } = self.states[at];
        let Self { typical, on_class, states, by_needs, answers, .. } = self;
        let of_job = by_needs
            .entry(Arc::as_ptr(needs).addr())
            .or_insert_with(|| AddedByJob { _needs: Arc::downgrade(needs), added: Vec::new() });
        if of_job.added.len() <= at {
            *answers += states.len() - of_job.added.len();
            of_job.added.resize(states.len(), None);
        }
        let added = *of_job.added[at].get_or_insert_with(|| {
            let taken = needs.amounts(now.class, now.free);
            let config = &baseline.classes.samples[now.class.at()];
            let typical = typical_on(on_class, typical, now.class, config);
            typical.lost_after(config, now.free, &taken) - lost
        });
        NodeLoss { added, gpus_left }
    }

    /// How many answers have been worked out.
    #[cfg(test)]
    pub fn worked_out(&self) -> usize {
        let of_needs = self.by_needs.values().flat_map(|of_job| &of_job.added);
        of_needs.filter(|added| added.is_some()).count()
    }

    /// The number of the node's state.
    fn state(&mut self, now: NodeNow<'_>, baseline: &Baseline) -> u32 {
        let known = &mut self.of_nodes[now.node as usize];
        if let Some(number) = known.filter(|_| now.is_unchanged) {
            return number;
        }
        let numbers = &mut self.numbers[now.class.at()];
        let number = numbers.get(now.free).copied().unwrap_or_else(|| {
            let config = &baseline.classes.samples[now.class.at()];
            let typical = typical_on(&mut self.on_class, &self.typical, now.class, config);
            let lost = typical.lost(config, now.free);
            let number = self.states.len() as u32;
            self.states.push(NodeState { lost, gpus_left: gpus_left(config, now.free) });
            numbers.insert(now.free.into(), number);
            number
        });
        if now.is_unchanged {
            *known = Some(number);
        }
        number
    }
}

fn typical_on<'c>(
    on_class: &'c mut [Option<TypicalOnClass>],
    typical: &[TypicalJob],
    class: ClassIndex,
    config: &NodeConfig,
) -> &'c TypicalOnClass {
    on_class[class.at()].get_or_insert_with(|| TypicalOnClass::new(config, typical))
}

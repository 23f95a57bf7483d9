//! What a job, or one node's part of it, takes of a node of each class; and the nodes of its partition in the order in
//! which they come free for it.
//!
//! The order considers only what runs, and nothing that a plan adds. So it holds from plan to plan as long as the nodes
//! do not change, and its times are lower bounds within a plan, which only takes.

use crate::free::class::NodeClasses;
use crate::free::cores;
use crate::free::node_free::{NodeFree, ShareHolder};
use crate::free::timeline::{
    CORES, Columns, GRES, MEMORY, Millis, Occupancy, Timeline, columns_free, cores_shared,
};
use crate::index::{ClassIndex, Rank};
use crate::place::demand::{Demand, GresDemand};
use crate::place::{fit, gres};
use crate::view::NodeInfo;
use model::cpuset::CpuSet;
use model::node::NodeConfig;
use std::collections::HashSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

#[derive(Debug, Clone)]
pub struct NodeNeeds {
    pub holder: ShareHolder,
    gres: Vec<GresDemand>,
    /// For each class of nodes; `None` where a node of the class can never serve.
    needs: Vec<Option<ClassNeed>>,
    /// The nodes named by `-w`, where the job may use no others, or by dstack's `instances`. Sorted.
    only: Option<Vec<u32>>,
    /// The nodes named by `-x`. Sorted.
    excluded: Vec<u32>,
    /// The partition's nodes in the order in which they are tried.
    pub candidates: Arc<[u32]>,
    taken_hash: u64,
}

/// When each candidate is first free, with its rank among the candidates; sorted.
pub type FreeOrder = Vec<(Millis, Rank)>;

#[derive(Debug, Clone)]
struct ClassNeed {
    /// By column of the timeline.
    amounts: Box<[u64]>,
    /// The counts of the GRES demands, where several lines can serve one of them. How they divide over the lines depends
    /// on what is free.
    divided: Option<Box<[u64]>>,
    /// The lines that can serve shares of one GPU, and how many shares: where these are all that is divided, they are free where one
    /// line has as many.
    of_one_gpu: Option<(Box<[usize]>, u64)>,
    config: Arc<NodeConfig>,
}

/// Which part of a job must fit on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NeedsScope {
    /// All of the job.
    WholeJob,
    /// The least that each of the job's nodes must hold.
    EachNode,
}

impl NodeNeeds {
    pub fn new(
        demand: &Demand<'_>,
        scope: NeedsScope,
        classes: &NodeClasses,
        candidates: &Arc<[u32]>,
        nodes: &[Arc<NodeInfo>],
    ) -> Self {
        let (tasks, totals) = match scope {
            NeedsScope::WholeJob => (demand.task_count(), demand.job_totals()),
            NeedsScope::EachNode => (demand.tasks_on_each(), vec![0; demand.gres.len()]),
        };
        let need = |config: &Arc<NodeConfig>| need(demand, config, tasks, &totals);
        let named = |names: &[String]| -> Vec<u32> {
            let names: HashSet<&str> = names.iter().map(String::as_str).collect();
            let listed = |node: &Arc<NodeInfo>| names.contains(node.config.name.as_str());
            (0u32..).zip(nodes).filter(|(_, node)| listed(node)).map(|(at, _)| at).collect()
        };
        let request = demand.request;
        // A job of more nodes than were named may use others for the rest.
        let listed = match (scope, request.node_list.len()) {
            (_, 0) => None,
            (NeedsScope::EachNode, listed) if listed < demand.nodes_min as usize => None,
            _ => Some(named(&request.node_list)),
        };
        let pool = (!request.node_pool.is_empty()).then(|| named(&request.node_pool));
        let only = match (pool, listed) {
            (Some(mut pool), Some(listed)) => {
                pool.retain(|node| listed.binary_search(node).is_ok());
                Some(pool)
            }
            (pool, listed) => pool.or(listed),
        };
        let excluded =
            if request.exclude.is_empty() { Vec::new() } else { named(&request.exclude) };
        let needs: Vec<Option<ClassNeed>> = classes.samples.iter().map(need).collect();
        Self {
            taken_hash: taken_hash(&needs, only.as_deref(), &excluded),
            only,
            excluded,
            holder: demand.holder,
            gres: demand.gres.clone(),
            needs,
            candidates: candidates.clone(),
        }
    }

    /// Whether both take the same of the same nodes, whoever the users are.
    pub fn takes_the_same_as(&self, other: &Self) -> bool {
        let sharing = |needs: &Self| (needs.holder.whole_node, needs.holder.user_exclusive);
        sharing(self) == sharing(other)
            && self.needs == other.needs
            && self.gres == other.gres
            && (&self.only, &self.excluded) == (&other.only, &other.excluded)
            && Arc::ptr_eq(&self.candidates, &other.candidates)
    }

    /// A hash that is equal for needs that take the same.
    pub fn taken_hash(&self) -> u64 {
        self.taken_hash
    }

    pub fn fits(&self, class: ClassIndex, free: &[u64], presence: &Occupancy) -> bool {
        self.needs[class.at()].as_ref().is_some_and(|need| self.has(need, free, presence))
    }

    fn has(&self, need: &ClassNeed, free: &[u64], presence: &Occupancy) -> bool {
        need.amounts.iter().zip(free).all(|(amount, free)| amount <= free)
            && presence.admits(self.holder)
            && need.divided.as_ref().is_none_or(|counts| self.may_divide(need, counts, free))
    }

    fn may_divide(&self, need: &ClassNeed, counts: &[u64], free: &[u64]) -> bool {
        let can_divide = || self.divide(need, counts, free).is_some();
        let Some((lines, count)) = &need.of_one_gpu else { return can_divide() };
        let is_free = lines.iter().any(|line| free[GRES + line] >= *count);
        debug_assert_eq!(is_free, can_divide(), "one line gives all shares");
        is_free
    }

    fn divide(&self, need: &ClassNeed, counts: &[u64], free: &[u64]) -> Option<Vec<u64>> {
        gres::divide(&need.config, |line| free[GRES + line], &self.gres, counts, &CpuSet::new())
    }

    /// Whether the job takes a core of every node that can serve it.
    pub fn takes_cores(&self) -> bool {
        self.needs.iter().flatten().all(|need| need.amounts[CORES] > 0)
    }

    pub fn is_for_any_name(&self) -> bool {
        self.only.is_none() && self.excluded.is_empty()
    }

    /// What the job takes of a node with so much free, by column.
    pub fn amounts(&self, class: ClassIndex, free: &[u64]) -> Columns {
        let Some(need) = &self.needs[class.at()] else { return Columns::new() };
        let mut amounts = Columns::from_slice(&need.amounts);
        if let Some(counts) = &need.divided
            && let Some(units) = self.divide(need, counts, free)
        {
            amounts[GRES..].copy_from_slice(&units);
        }
        amounts
    }

    /// When the node is first free for the job, if only what runs is considered.
    pub fn first_free(&self, class: ClassIndex, timeline: &Timeline) -> Option<Millis> {
        let need = self.needs[class.at()].as_ref()?;
        let free = |at: &usize| self.has(need, timeline.free(*at), timeline.presence(*at));
        (0..timeline.segments()).find(free).map(|at| timeline.start(at))
    }

    /// Whether an empty node of the class could hold the job.
    pub fn fits_empty(&self, class: ClassIndex) -> bool {
        let Some(need) = &self.needs[class.at()] else { return false };
        let empty = columns_free(&NodeFree::empty(&need.config), &need.config);
        self.has(need, &empty, &Occupancy::default())
    }

    /// The candidates sorted by a key. Candidates without one are left out.
    pub fn sorted(&self, key: impl Fn(&Self, u32) -> Option<Millis>) -> FreeOrder {
        let ranked = self.candidates.iter().zip(Rank::all());
        let mut order: FreeOrder =
            ranked.filter_map(|(&node, rank)| Some((key(self, node)?, rank))).collect();
        order.sort_unstable();
        order
    }

    /// The node of this rank.
    pub fn candidate(&self, rank: Rank) -> u32 {
        self.candidates[rank.at()]
    }

    /// Whether `-w`, `-x` and `instances` let the job use the node.
    pub fn admits(&self, node: u32) -> bool {
        let is_in = |nodes: &[u32]| nodes.binary_search(&node).is_ok();
        self.only.as_ref().is_none_or(|only| is_in(only)) && !is_in(&self.excluded)
    }
}

/// Takes the stale entries, which are there, out of the order, and puts the fresh ones in. Few of many change: what lies between them
/// is moved as a whole.
pub fn resort(order: &mut FreeOrder, mut stale: FreeOrder, mut fresh: FreeOrder) {
    stale.sort_unstable();
    let (mut kept, mut from) = (0, 0);
    for gone in &stale {
        let found = order[from..].binary_search(gone);
        debug_assert!(found.is_ok(), "{gone:?} is not in the order");
        let Ok(at) = found.map(|at| from + at) else { continue };
        order.copy_within(from..at, kept);
        (kept, from) = (kept + at - from, at + 1);
    }
    let end = order.len();
    order.copy_within(from..end, kept);
    order.truncate(kept + end - from);
    fresh.sort_unstable();
    merge(order, &fresh);
}

fn taken_hash(needs: &[Option<ClassNeed>], only: Option<&[u32]>, excluded: &[u32]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for need in needs {
        need.as_ref().map(|need| (&need.amounts, &need.divided)).hash(&mut hasher);
    }
    (only, excluded).hash(&mut hasher);
    hasher.finish()
}

/// Puts the new times, which are sorted, into the order.
fn merge(order: &mut FreeOrder, fresh: &[(Millis, Rank)]) {
    let mut end = order.len();
    order.extend_from_slice(fresh);
    // The last one first: what comes behind it moves up at once, by one place for it and one for each new one before it.
    for (before, new) in fresh.iter().enumerate().rev() {
        let first_behind = order[..end].partition_point(|known| known < new);
        order.copy_within(first_behind..end, first_behind + before + 1);
        order[first_behind + before] = *new;
        end = first_behind;
    }
}

/// Needs of one class: its configuration is the same.
impl PartialEq for ClassNeed {
    fn eq(&self, other: &Self) -> bool {
        (&self.amounts, &self.divided) == (&other.amounts, &other.divided)
    }
}

fn need(
    demand: &Demand<'_>,
    config: &Arc<NodeConfig>,
    tasks: u32,
    totals: &[u64],
) -> Option<ClassNeed> {
    if !fit::is_of_class(demand, config) || tasks > fit::tasks_max(demand, config) {
        return None;
    }
    let amounts = fit::amounts(demand, config, tasks, totals)?;
    if !fit::is_within_partition(demand, config, &amounts) {
        return None;
    }
    let mut columns = vec![0; GRES + config.gres.len()];
    let cores_there = cores::count(&config.usable_cpus(), cores::threads(config));
    if demand.sharers > 1 && amounts.cores > cores_there {
        return None;
    }
    columns[CORES] = cores_shared(amounts.cores, demand.sharers);
    columns[MEMORY] = amounts.memory.0;
    let serving = |wanted: &GresDemand| {
        let lines = config.gres.iter().enumerate();
        lines.filter(|(_, line)| gres::serves(line, wanted)).map(|(at, _)| at).collect::<Vec<_>>()
    };
    let (mut several, mut of_one_gpu) = (false, None);
    let demands = || demand.gres.iter().zip(&amounts.gres).filter(|(_, count)| **count > 0);
    let is_alone = demands().count() == 1;
    for (wanted, &count) in demands() {
        match serving(wanted).as_slice() {
            [] => return None,
            [line] => columns[GRES + line] += count,
            lines => {
                several = true;
                let is_of_one = is_alone
                    && wanted.per_socket == 0
                    && wanted.total_memory.is_none()
                    && lines.iter().all(|line| config.gres[*line].share_of.is_some());
                of_one_gpu = is_of_one.then(|| (lines.into(), count));
            }
        }
    }
    if several {
        columns[GRES..].fill(0);
    }
    let divided = several.then(|| amounts.gres.clone().into_boxed_slice());
    Some(ClassNeed { amounts: columns.into(), divided, of_one_gpu, config: config.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// These times, with ranks from `first` on.
    fn order(times: &[i64], first: u32) -> FreeOrder {
        times.iter().copied().zip((first..).map(Rank)).collect()
    }

    #[test]
    fn new_times_come_where_they_belong() {
        let sets: [&[i64]; 5] = [&[], &[3], &[1, 5], &[4, 4, 9], &[-2, 0, 7, 8]];
        for known in sets {
            for new in sets {
                let (mut merged, fresh) = (order(known, 0), order(new, 10));
                let mut expected = [merged.clone(), fresh.clone()].concat();
                expected.sort_unstable();
                merge(&mut merged, &fresh);
                assert_eq!(merged, expected);
            }
        }
    }

    #[test]
    fn stale_times_leave_the_order_and_fresh_ones_come_in() {
        let known = order(&[1, 2, 2, 5, 7], 0);
        for chosen in 0..1_u32 << known.len() {
            let is_stale = |at: &usize| (chosen >> *at) & 1 == 1;
            let of = |stale: bool| -> FreeOrder {
                (0..known.len()).filter(|at| is_stale(at) == stale).map(|at| known[at]).collect()
            };
            let moved: FreeOrder = of(true).iter().map(|(time, rank)| (8 - *time, *rank)).collect();
            let mut expected = [of(false), moved.clone()].concat();
            expected.sort_unstable();
            let mut resorted = known.clone();
            resort(&mut resorted, of(true).into_iter().rev().collect(), moved);
            assert_eq!(resorted, expected, "{chosen:b}");
        }
    }
}

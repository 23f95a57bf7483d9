//! The choice of nodes for a job of several: sets to try, the likeliest first.
//!
//! For each number of nodes the first set is the first nodes in order, then the nodes with the most capacity of the
//! lowest weights, then those with the most capacity of all; with `--contiguous`, neighbours only. Named nodes are in
//! every set.

use super::FreeNodes;
use super::demand::{Demand, Tasks};
use model::constraint::Constraint;
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

/// How many numbers of nodes are tried before the largest.
const SIZES_MAX: usize = 8;

/// What one candidate could hold of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeCapacity {
    pub node: u32,
    pub weight: u32,
    pub tasks: u32,
    /// Units of each of the job's totals.
    pub of_totals: Vec<u64>,
}

/// The result of `attempt` for the first set whose capacities add up to what is asked, and for which it returns one.
/// `capacities` are in the order of the candidates.
pub fn first_set<'r, T>(
    demand: &Demand<'_>,
    space: &impl FreeNodes,
    capacities: &'r [NodeCapacity],
    mut attempt: impl FnMut(Vec<&'r NodeCapacity>) -> Option<T>,
) -> Option<T> {
    let named = named(demand, space, capacities)?;
    let mut try_set = |set: Vec<&'r NodeCapacity>| {
        let has_named =
            named.iter().all(|capacity| set.iter().any(|chosen| chosen.node == capacity.node));
        let enough =
            has_named && suffices(demand, &set) && has_counts(demand.constraint, space, &set);
        if enough { attempt(set) } else { None }
    };
    sizes(demand, capacities).into_iter().find_map(|size| {
        if demand.request.contiguous {
            return neighbours(capacities, size).into_iter().find_map(&mut try_set);
        }
        ORDERS.iter().find_map(|order| {
            let mut first = named.clone();
            first.extend(counted(demand, space, &named, &order(capacities)));
            try_set(choose(&first, order(capacities), size))
        })
    })
}

/// The nodes of `-w`; `None` if one of them can hold nothing.
fn named<'r>(
    demand: &Demand<'_>,
    space: &impl FreeNodes,
    capacities: &'r [NodeCapacity],
) -> Option<Vec<&'r NodeCapacity>> {
    let listed = &demand.request.node_list;
    let name_of = |capacity: &NodeCapacity| space.config(capacity.node).name.as_str();
    if listed.len() <= FEW_NAMES {
        let find = |name: &String| capacities.iter().find(|capacity| name_of(capacity) == *name);
        return listed.iter().map(find).collect();
    }
    // A list may name all nodes.
    let wanted: HashSet<&str> = listed.iter().map(String::as_str).collect();
    let of_list = capacities.iter().filter(|capacity| wanted.contains(name_of(capacity)));
    let found: HashMap<&str, &NodeCapacity> =
        of_list.map(|capacity| (name_of(capacity), capacity)).collect();
    listed.iter().map(|name| found.get(name.as_str()).copied()).collect()
}

/// So many names are looked for one by one among the nodes; more are looked up.
const FEW_NAMES: usize = 8;

/// The numbers of nodes worth trying: as many as there are where a range was asked for, otherwise the fewest that can
/// do.
fn sizes(demand: &Demand<'_>, capacities: &[NodeCapacity]) -> Vec<usize> {
    let most = capacities.len().min(demand.nodes_max as usize);
    let least = demand.nodes_min as usize;
    if most < least {
        return Vec::new();
    }
    if !demand.request.node_counts.is_empty() {
        let listed = demand.request.node_counts.iter().map(|count| *count as usize);
        let mut sizes: Vec<usize> = listed.filter(|size| (least..=most).contains(size)).collect();
        sizes.sort_unstable();
        sizes.dedup();
        if demand.wants_many_nodes() {
            sizes.reverse();
        }
        sizes.truncate(SIZES_MAX);
        return sizes;
    }
    if demand.wants_many_nodes() {
        return vec![most];
    }
    let fewest = |mut amounts: Vec<u64>, wanted: u64| {
        amounts.sort_unstable_by_key(|amount| Reverse(*amount));
        let mut sum = 0u64;
        let enough = |amount: &u64| {
            sum = sum.saturating_add(*amount);
            sum >= wanted
        };
        amounts.iter().position(enough).map(|at| at + 1)
    };
    let by_tasks = match demand.tasks {
        Tasks::PerNode(_) => Some(1),
        Tasks::Total { count, .. } => {
            fewest(capacities.iter().map(|r| u64::from(r.tasks)).collect(), u64::from(count))
        }
    };
    let by_totals = demand.job_totals().into_iter().enumerate().filter(|(_, total)| *total > 0);
    let by_totals = by_totals
        .map(|(at, total)| fewest(capacities.iter().map(|r| r.of_totals[at]).collect(), total));
    let enough: Option<usize> = std::iter::once(by_tasks)
        .chain(by_totals)
        .try_fold(least, |size, more| Some(size.max(more?)));
    match enough {
        // Tasks and totals may each fit by itself and not together: some more nodes are tried, then all.
        Some(size) if size <= most => (size..most).take(SIZES_MAX).chain([most]).collect(),
        _ => Vec::new(),
    }
}

type SetOrder = for<'r> fn(&'r [NodeCapacity]) -> Vec<&'r NodeCapacity>;

const ORDERS: [SetOrder; 4] = [
    |capacities| capacities.iter().collect(),
    |capacities| {
        sorted(capacities, |capacity| {
            (capacity.weight, Reverse((capacity.of_totals.iter().sum(), capacity.tasks)))
        })
    },
    |capacities| {
        sorted(capacities, |capacity| {
            (0, Reverse((capacity.of_totals.iter().sum(), capacity.tasks)))
        })
    },
    |capacities| sorted(capacities, |capacity| (0, Reverse((u64::from(capacity.tasks), 0)))),
];

/// By weight where it counts, then the most capacity first.
type SetRank = (u32, Reverse<(u64, u32)>);

fn sorted(capacities: &[NodeCapacity], key: fn(&NodeCapacity) -> SetRank) -> Vec<&NodeCapacity> {
    let mut order: Vec<&NodeCapacity> = capacities.iter().collect();
    order.sort_by_key(|capacity| key(capacity));
    order
}

fn choose<'r>(
    named: &[&'r NodeCapacity],
    order: Vec<&'r NodeCapacity>,
    size: usize,
) -> Vec<&'r NodeCapacity> {
    let others =
        order.into_iter().filter(|capacity| !named.iter().any(|n| n.node == capacity.node));
    named.iter().copied().chain(others).take(size).collect()
}

/// Runs of nodes that are next to each other.
fn neighbours(capacities: &[NodeCapacity], size: usize) -> Vec<Vec<&NodeCapacity>> {
    let mut by_node: Vec<&NodeCapacity> = capacities.iter().collect();
    by_node.sort_unstable_by_key(|capacity| capacity.node);
    by_node
        .windows(size.max(1))
        .filter(|run| run.windows(2).all(|pair| pair[1].node == pair[0].node + 1))
        .map(<[&NodeCapacity]>::to_vec)
        .collect()
}

fn suffices(demand: &Demand<'_>, set: &[&NodeCapacity]) -> bool {
    let tasks: u64 = set.iter().map(|capacity| u64::from(capacity.tasks)).sum();
    let tasks_wanted = match demand.tasks {
        Tasks::PerNode(_) => 0,
        Tasks::Total { count, .. } => u64::from(count),
    };
    let totals_suffice =
        demand.job_totals().into_iter().enumerate().all(|(at, total)| {
            set.iter().map(|capacity| capacity.of_totals[at]).sum::<u64>() >= total
        });
    tasks >= tasks_wanted && totals_suffice
}

/// The first nodes for each count of the constraint, beginning with the counts that the fewest nodes meet. A node serves
/// one count.
fn counted<'r>(
    demand: &Demand<'_>,
    space: &impl FreeNodes,
    named: &[&'r NodeCapacity],
    order: &[&'r NodeCapacity],
) -> Vec<&'r NodeCapacity> {
    let mut counts = demand.constraint.map_or(Vec::new(), |c| c.counts());
    let has = |of: &Constraint, capacity: &NodeCapacity| {
        of.matches(&space.config(capacity.node).features)
    };
    counts.sort_by_key(|(of, _)| order.iter().filter(|capacity| has(of, capacity)).count());
    let mut chosen: Vec<&NodeCapacity> = Vec::new();
    for (of, nodes) in counts {
        let there = named.iter().filter(|capacity| has(of, capacity)).count();
        let missing = (nodes as usize).saturating_sub(there);
        let is_new = |capacity: &&&NodeCapacity| {
            !chosen.iter().chain(named).any(|other| other.node == capacity.node)
        };
        let more: Vec<&NodeCapacity> = order
            .iter()
            .filter(|capacity| has(of, capacity))
            .filter(is_new)
            .take(missing)
            .copied()
            .collect();
        chosen.extend(more);
    }
    chosen
}

/// `a*2`: whether at least so many nodes of the set have the feature.
fn has_counts(
    constraint: Option<&Constraint>,
    space: &impl FreeNodes,
    set: &[&NodeCapacity],
) -> bool {
    let counts = constraint.map_or(Vec::new(), |c| c.counts());
    let all: u32 = counts.iter().map(|(_, nodes)| nodes).sum();
    let having = |of: &Constraint| {
        set.iter().filter(|capacity| of.matches(&space.config(capacity.node).features)).count()
    };
    all as usize <= set.len() && counts.iter().all(|(of, nodes)| having(of) >= *nodes as usize)
}

//! Placement: the whole of a job at once, or nothing.
//!
//! Candidates come lowest weight first, then in the order of the nodes. A job that fits on one node and did not ask for
//! more gets the first that holds it. Otherwise a set of nodes is chosen ([`node_set`]) and the tasks are distributed in
//! blocks: each node is filled before the next, but one task is left for every node that follows.

mod amounts;
pub mod demand;
pub mod fit;
pub mod fragmentation;
pub mod gres;
pub mod memory;
mod node_set;
pub mod offer;

use crate::free::cores;
use crate::free::node_free::NodeFree;
use crate::view::View;
use demand::{Demand, NO_LEVEL, Tasks};
use model::allocation::NodeShare;
use model::constraint::Constraint;
use model::node::NodeConfig;
use model::price::Price;
use node_set::NodeCapacity;
use std::borrow::Cow;
use std::cmp::Reverse;
use std::sync::Arc;

/// Nodes with what is free of each, at one moment or throughout a period.
pub trait FreeNodes {
    fn config(&self, node: u32) -> &NodeConfig;
    /// `None` if nothing may be placed on the node.
    fn free(&self, node: u32) -> Option<Cow<'_, NodeFree>>;
}

/// The shares of a job, in the order of the nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct Placement {
    pub shares: Vec<(u32, NodeShare)>,
}

/// The nodes of a partition in the order in which they are tried: lowest weight first, then lowest price, then in the order of
/// the nodes.
pub fn candidates(view: &View, partition: u32) -> Arc<[u32]> {
    let members = view.partitions.get(partition as usize).map_or(&[][..], |p| &p.nodes);
    let key = |&node: &u32| {
        let config = &view.nodes.get(node as usize)?.config;
        Some((config.weight, config.price.unwrap_or_default(), node))
    };
    let mut keyed: Vec<(u32, Price, u32)> = members.iter().filter_map(key).collect();
    keyed.sort_unstable();
    keyed.dedup();
    keyed.into_iter().map(|(_, _, node)| node).collect()
}

/// Places the job on some of these nodes, if it can be done.
pub fn place(demand: &Demand<'_>, space: &impl FreeNodes, nodes: &[u32]) -> Option<Placement> {
    let Some(prefer) = &demand.request.prefer else {
        return place_by_features(demand, space, nodes);
    };
    let having = |constraint: Option<&Constraint>| -> Vec<u32> {
        let has = |node: &u32| {
            constraint.is_none_or(|wanted| wanted.matches(&space.config(*node).features))
        };
        nodes.iter().copied().filter(has).collect()
    };
    // `--prefer` replaces the constraint where it can be met.
    let wished = Demand { constraint: Some(prefer), ..demand.clone() };
    place_by_features(&wished, space, &having(Some(prefer)))
        .or_else(|| place_by_features(demand, space, &having(demand.constraint)))
}

fn place_by_features(
    demand: &Demand<'_>,
    space: &impl FreeNodes,
    nodes: &[u32],
) -> Option<Placement> {
    let choices = demand.constraint.map_or(Vec::new(), |c| c.alternatives());
    if choices.len() < 2 {
        return place_among(demand, space, nodes);
    }
    // `[a|b]`: all nodes share one of the features.
    choices.into_iter().find_map(|choice| {
        let of_choice = |node: &u32| choice.matches(&space.config(*node).features);
        let narrowed: Vec<u32> = nodes.iter().copied().filter(of_choice).collect();
        place_among(demand, space, &narrowed)
    })
}

/// Places the job below the smallest switch that will do, where there are switches.
fn place_among(demand: &Demand<'_>, space: &impl FreeNodes, nodes: &[u32]) -> Option<Placement> {
    let Some(switches) = demand.switches.as_ref().filter(|_| demand.nodes_max > 1) else {
        return place_anywhere(demand, space, nodes);
    };
    let in_segments;
    let nodes = match demand.request.segment {
        Some(segment) => {
            let serving: Vec<u32> =
                capacities(demand, space, nodes).iter().map(|r| r.node).collect();
            in_segments = switches.in_segments(&serving, segment as usize);
            &in_segments
        }
        None => nodes,
    };
    let is_near = |placement: &Placement| {
        let on = || placement.shares.iter().map(|(node, _)| *node);
        let few = demand.switches_max.is_none_or(|most| switches.leaves(on()) <= most);
        few && switches.are_joined(on())
            && demand.request.segment.is_none_or(|each| switches.is_in_segments(on(), each))
    };
    let least = demand.nodes_min as usize;
    let level = demand.switch_level;
    let mut narrowed = switches.narrowed(nodes, level).filter(|nodes| nodes.len() >= least);
    let below_one =
        narrowed.find_map(|nodes| place_anywhere(demand, space, &nodes).filter(is_near));
    if level.is_some() {
        return below_one;
    }
    below_one.or_else(|| place_anywhere(demand, space, nodes).filter(is_near))
}

/// Settles below which switches a job may be that is to be below one: those of the lowest level at which one could hold it
/// if its nodes were empty. It waits for such a switch rather than lie below a higher one.
pub fn settle_switch_level(demand: &mut Demand<'_>, empty: &impl FreeNodes, nodes: &[u32]) {
    let Some(switches) = demand.switches.clone().filter(|_| demand.request.one_switch) else {
        return;
    };
    let holds = |level: &u32| {
        let within = Demand { switch_level: Some(*level), ..demand.clone() };
        place(&within, empty, nodes).is_some()
    };
    let found = switches.levels().into_iter().find(holds);
    demand.switch_level = match found {
        None if switches.are_blocks() => None,
        found => found.or(Some(NO_LEVEL)),
    };
}

fn place_anywhere(demand: &Demand<'_>, space: &impl FreeNodes, nodes: &[u32]) -> Option<Placement> {
    if demand.nodes_min > demand.nodes_max {
        return None;
    }
    let by_load;
    let nodes = if demand.select.least_loaded {
        by_load = idlest_first(space, nodes);
        &by_load
    } else {
        nodes
    };
    let counted = demand.constraint.is_some_and(Constraint::has_counts);
    let fewest = (!demand.wants_many_nodes() || demand.nodes_max == 1) && !counted;
    if fewest && demand.nodes_min == 1 && demand.admits_count(1) {
        if let Some(placement) = on_one_node(demand, space, nodes) {
            return Some(placement);
        }
        if demand.nodes_max == 1 {
            return None;
        }
    }
    let capacities = capacities(demand, space, nodes);
    node_set::first_set(demand, space, &capacities, |set| distribute(demand, space, set))
}

/// Nodes by weight, then by the most idle CPUs.
fn idlest_first(space: &impl FreeNodes, nodes: &[u32]) -> Vec<u32> {
    let idle = |node: u32| space.free(node).map_or(0, |free| free.cpus.len());
    let mut keyed: Vec<(u32, Reverse<u32>, u32)> =
        nodes.iter().map(|&node| (space.config(node).weight, Reverse(idle(node)), node)).collect();
    keyed.sort_unstable();
    keyed.into_iter().map(|(_, _, node)| node).collect()
}

fn on_one_node(demand: &Demand<'_>, space: &impl FreeNodes, nodes: &[u32]) -> Option<Placement> {
    let tasks = demand.task_count();
    let totals = demand.job_totals();
    nodes.iter().find_map(|&node| {
        let config = space.config(node);
        if !fit::is_of_sort(demand, config) || !is_allowed_alone(demand, config) {
            return None;
        }
        let share = fit::grant(demand, config, &*space.free(node)?, tasks, &totals)?;
        Some(Placement { shares: vec![(node, share)] })
    })
}

/// With `-w` the one node must be the named one.
fn is_allowed_alone(demand: &Demand<'_>, config: &NodeConfig) -> bool {
    demand.request.node_list.iter().all(|name| *name == config.name)
}

/// What each candidate could hold. Candidates that could hold nothing are left out.
fn capacities(
    demand: &Demand<'_>,
    space: &impl FreeNodes,
    candidates: &[u32],
) -> Vec<NodeCapacity> {
    let totals = demand.job_totals();
    let nothing = vec![0; totals.len()];
    // Where the job's totals have a unit for each node, every node must give some.
    let one_each =
        demand.has_job_totals() && totals.iter().sum::<u64>() >= u64::from(demand.nodes_min);
    let each = demand.tasks_on_each();
    let limit = match demand.tasks {
        Tasks::Total { count, .. } => count.max(demand.nodes_min),
        Tasks::PerNode(count) => count,
    };
    candidates
        .iter()
        .filter_map(|&node| {
            let config = space.config(node);
            if !fit::is_of_sort(demand, config) {
                return None;
            }
            let free = space.free(node)?;
            let tasks = fit::capacity(demand, config, &free, limit, &nothing);
            if tasks < each {
                return None;
            }
            let of_totals = (0..totals.len()).map(|at| {
                fit::most_that(totals[at], |count| {
                    let mut part = nothing.clone();
                    part[at] = count;
                    fit::fits(demand, config, &free, each, &part)
                })
            });
            let of_totals: Vec<u64> = of_totals.collect();
            let useless = one_each && of_totals.iter().all(|count| *count == 0);
            (!useless).then_some(NodeCapacity { node, weight: config.weight, tasks, of_totals })
        })
        .collect()
}

/// Distributes tasks and totals over the nodes of a set. Returns `None` if the two together do not fit.
fn distribute(
    demand: &Demand<'_>,
    space: &impl FreeNodes,
    mut set: Vec<&NodeCapacity>,
) -> Option<Placement> {
    set.sort_unstable_by_key(|capacity| capacity.node);
    let tasks = match demand.tasks {
        Tasks::PerNode(count) => vec![count; set.len()],
        Tasks::Total { count, .. } => {
            let capacities: Vec<u64> =
                set.iter().map(|capacity| u64::from(capacity.tasks)).collect();
            let count = u64::from(count).max(set.len() as u64);
            let counts = if demand.is_even() {
                spread_evenly(&capacities, count)
            } else {
                fill_in_blocks(&capacities, count, tasks_of_a_core(demand, space, &set))
            };
            counts?.into_iter().map(|count| count as u32).collect()
        }
    };
    let mut parts = vec![vec![0; demand.gres.len()]; set.len()];
    for (at, total) in demand.job_totals().into_iter().enumerate().filter(|(_, total)| *total > 0) {
        let capacities: Vec<u64> = set.iter().map(|capacity| capacity.of_totals[at]).collect();
        for (part, count) in parts.iter_mut().zip(fill_in_blocks(&capacities, total, 1)?) {
            part[at] = count;
        }
    }
    let shares: Option<Vec<(u32, NodeShare)>> = set
        .iter()
        .zip(tasks.iter().zip(&parts))
        .map(|(capacity, (&tasks, part))| {
            let free = space.free(capacity.node)?;
            let share = fit::grant(demand, space.config(capacity.node), &free, tasks, part)?;
            Some((capacity.node, share))
        })
        .collect();
    shares.map(|shares| Placement { shares })
}

/// How many tasks one core of any of the nodes can hold. A node gets a whole core at least, and with fewer tasks would
/// leave some of it idle.
fn tasks_of_a_core(demand: &Demand<'_>, space: &impl FreeNodes, set: &[&NodeCapacity]) -> u64 {
    let threads = set.iter().map(|capacity| cores::threads(space.config(capacity.node))).min();
    let used = demand.request.threads_per_core.unwrap_or(u32::MAX).min(threads.unwrap_or(1));
    let one_each = demand.select.one_task_per_core.then_some(1);
    let by_core = demand.request.tasks_per_core.or(one_each).unwrap_or(u32::MAX);
    u64::from((used / demand.cpus_per_task.max(1)).min(by_core).max(1))
}

/// Fills each node in turn and leaves `kept` for each that follows, if there are as many for each.
fn fill_in_blocks(capacities: &[u64], count: u64, kept: u64) -> Option<Vec<u64>> {
    let each = if count >= kept * capacities.len() as u64 { kept } else { 1 };
    let mut left = count;
    let counts: Vec<u64> = capacities
        .iter()
        .enumerate()
        .map(|(at, &capacity)| {
            let after: u64 = capacities[at + 1..].iter().map(|capacity| each.min(*capacity)).sum();
            let part = capacity.min(left.saturating_sub(after).max(left.min(1)));
            left -= part;
            part
        })
        .collect();
    (left == 0).then_some(counts)
}

/// The same number for each node, as far as it has capacity. The first get one more where it does not come out even.
fn spread_evenly(capacities: &[u64], count: u64) -> Option<Vec<u64>> {
    if capacities.iter().sum::<u64>() < count {
        return None;
    }
    let mut counts = vec![0u64; capacities.len()];
    let mut left = count;
    // Each round fills a node or distributes all that is left, so the loop ends.
    for _ in 0..=capacities.len() {
        let open: Vec<usize> =
            (0..capacities.len()).filter(|&at| counts[at] < capacities[at]).collect();
        if left == 0 || open.is_empty() {
            break;
        }
        let (each, more) = (left / open.len() as u64, left % open.len() as u64);
        for (nth, at) in open.into_iter().enumerate() {
            let part = (each + u64::from((nth as u64) < more)).min(capacities[at] - counts[at]);
            counts[at] += part;
            left -= part;
        }
    }
    (left == 0).then_some(counts)
}

#[cfg(test)]
mod tests {
    use super::{fill_in_blocks, spread_evenly};

    #[test]
    fn an_even_distribution_fills_no_node_before_the_others() {
        type Case<'a> = (&'a [u64], u64, Option<&'a [u64]>);
        let table: [Case<'_>; 5] = [
            (&[8, 8], 10, Some(&[5, 5])),
            (&[8, 8], 11, Some(&[6, 5])),
            (&[2, 16], 10, Some(&[2, 8])),
            (&[1, 3, 16], 12, Some(&[1, 3, 8])),
            (&[2, 2], 5, None),
        ];
        for (capacities, count, counts) in table {
            assert_eq!(
                spread_evenly(capacities, count).as_deref(),
                counts,
                "{count} over {capacities:?}"
            );
        }
    }

    #[test]
    fn blocks_fill_the_first_node_and_leave_one_task_for_each_of_the_rest() {
        type Case<'a> = (&'a [u64], u64, Option<&'a [u64]>);
        let table: [Case<'_>; 6] = [
            (&[16, 16], 4, Some(&[3, 1])),
            (&[2, 16], 4, Some(&[2, 2])),
            (&[8, 8, 8], 17, Some(&[8, 8, 1])),
            (&[8, 8], 17, None),
            (&[8, 0, 8], 9, Some(&[8, 0, 1])),
            (&[8, 8], 1, Some(&[1, 0])),
        ];
        for (capacities, count, counts) in table {
            assert_eq!(
                fill_in_blocks(capacities, count, 1).as_deref(),
                counts,
                "{count} over {capacities:?}"
            );
        }
        // With two threads to a core, each node gets two tasks from the start.
        assert_eq!(fill_in_blocks(&[16, 16], 4, 2).as_deref(), Some(&[2, 2][..]));
        assert_eq!(fill_in_blocks(&[16, 16], 20, 2).as_deref(), Some(&[16, 4][..]));
        assert_eq!(fill_in_blocks(&[16, 16], 3, 2).as_deref(), Some(&[2, 1][..]));
    }
}

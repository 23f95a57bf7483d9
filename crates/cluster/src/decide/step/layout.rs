//! Which ranks run on which node. Checked rank by rank against a real Slurm (`layout_tests.rs`).

use model::step::TaskDistribution;

/// How tasks are spread over nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct LayoutPolicy {
    pub distribution: TaskDistribution,
    /// Fill a node before the next; for block distribution only.
    pub pack: bool,
    /// More tasks than the nodes have slots for are allowed.
    pub overcommit: bool,
}

/// The ranks of each node, where node `i` has `slots[i]` task slots; `None` if there are too few for all tasks.
/// Every node gets a task while there are as many tasks as nodes.
pub(super) fn lay_out(slots: &[u32], tasks: u32, how: LayoutPolicy) -> Option<Vec<Vec<u32>>> {
    let all: u64 = slots.iter().map(|r| u64::from(*r)).sum();
    if slots.is_empty() || (all < u64::from(tasks) && !how.overcommit) {
        return None;
    }
    match how.distribution {
        TaskDistribution::Cyclic => Some(in_turn(slots, tasks, 1)),
        TaskDistribution::Plane(size) => Some(in_turn(slots, tasks, size.max(1))),
        TaskDistribution::Block | TaskDistribution::Arbitrary => {
            let counts = if how.pack { packed(slots, tasks) } else { even(slots, tasks) };
            Some(blocks(&counts))
        }
    }
}

/// Round robin: each node gets up to `at_once` ranks a round, and one a round when all slots are full.
fn in_turn(slots: &[u32], tasks: u32, at_once: u32) -> Vec<Vec<u32>> {
    let mut nodes: Vec<Vec<u32>> = vec![Vec::new(); slots.len()];
    let (mut next, mut first) = (0, true);
    while next < tasks {
        let full = nodes.iter().zip(slots).all(|(ranks, slots)| ranks.len() as u32 >= *slots);
        for (index, ranks) in nodes.iter_mut().enumerate() {
            let left = tasks - next;
            // In the first round a task is kept for every node that is still to come.
            let behind = if first { (slots.len() - index - 1) as u32 } else { 0 };
            let free = slots[index].saturating_sub(ranks.len() as u32);
            let spared = left.saturating_sub(behind).max(1);
            let most = if full { 1 } else { at_once.min(free).min(spared) };
            let here = most.min(left);
            ranks.extend(next..next + here);
            next += here;
        }
        first = false;
    }
    nodes
}

/// As many tasks for each node as round robin gives it.
fn even(slots: &[u32], tasks: u32) -> Vec<u32> {
    in_turn(slots, tasks, 1).iter().map(|ranks| ranks.len() as u32).collect()
}

/// Every node has one task; the rest fill the first nodes.
fn packed(slots: &[u32], tasks: u32) -> Vec<u32> {
    let mut left = tasks;
    let mut counts = Vec::with_capacity(slots.len());
    for (index, free) in slots.iter().enumerate() {
        let behind = (slots.len() - index - 1) as u32;
        let here = left.saturating_sub(behind).max(left.min(1)).min(*free);
        counts.push(here);
        left -= here;
    }
    // Tasks beyond all slots go round robin.
    for index in (0..counts.len()).cycle().take(left as usize) {
        counts[index] += 1;
    }
    counts
}

fn blocks(counts: &[u32]) -> Vec<Vec<u32>> {
    let mut next = 0;
    let block = |count: &u32| {
        let ranks = (next..next + count).collect();
        next += count;
        ranks
    };
    counts.iter().map(block).collect()
}

/// Puts each rank on the node that `hosts` names for it, by index among the step's nodes.
pub(super) fn arbitrary(hosts: &[usize], nodes: usize) -> Vec<Vec<u32>> {
    let mut ranks = vec![Vec::new(); nodes];
    for (rank, host) in hosts.iter().enumerate() {
        ranks[*host].push(rank as u32);
    }
    ranks
}

#[cfg(test)]
#[path = "layout_tests.rs"]
mod tests;

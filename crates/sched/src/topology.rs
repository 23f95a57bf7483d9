//! The network between nodes: a job of several nodes gets nodes that are close to each other.

use crate::view::View;
use model::request::Request;
use model::time::Timestamp;
use model::topology::Topology;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Switches {
    topology: Option<Arc<Topology>>,
    /// The nodes below each switch, the smallest set first.
    sets: Vec<Vec<bool>>,
    /// The leaf switch of each node, counted from one.
    leaf: Vec<u32>,
    /// The tree of each node, counted from one; zero for a node on no switch. A job does not span two trees.
    tree: Vec<u32>,
}

impl Switches {
    pub fn of(view: &View) -> Option<Arc<Self>> {
        let topology = view.topology.as_ref()?;
        let index: HashMap<&str, usize> =
            view.nodes.iter().enumerate().map(|(at, n)| (n.config.name.as_str(), at)).collect();
        let mut leaf = vec![0; view.nodes.len()];
        let mut sets = Vec::new();
        for (switch, number) in topology.switches.iter().zip(1u32..) {
            for node in switch.nodes.iter().filter_map(|name| index.get(name.as_str())) {
                leaf[*node] = number;
            }
            let mut set = vec![false; view.nodes.len()];
            for node in topology.nodes_below(switch) {
                index.get(node).into_iter().for_each(|node| set[*node] = true);
            }
            sets.push(set);
        }
        sets.sort_by_key(|set| set.iter().filter(|is_in| **is_in).count());
        let tree = trees(topology, &sets, view.nodes.len());
        Some(Arc::new(Self { topology: Some(topology.clone()), sets, leaf, tree }))
    }

    /// Whether the network decides which nodes the job gets. It does not for a job that is spread, nor with
    /// `TopoOptional` for one that asks for nothing.
    pub fn matter_to(&self, request: &Request) -> bool {
        let optional = self.topology.as_ref().is_some_and(|topology| topology.optional);
        let asked = request.switches.is_some() || request.segment.is_some();
        !request.spread && (asked || !optional)
    }

    /// Whether these are the switches of the view.
    pub fn is_of(&self, view: &View) -> bool {
        match (&self.topology, &view.topology) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }

    /// For each switch those of the nodes that are below it.
    pub fn narrowed<'n>(&'n self, nodes: &'n [u32]) -> impl Iterator<Item = Vec<u32>> + 'n {
        let within = |set: &'n Vec<bool>| {
            nodes.iter().copied().filter(|node| set[*node as usize]).collect::<Vec<u32>>()
        };
        self.sets.iter().map(within)
    }

    /// Whether one network joins the nodes. A node on no switch is joined to no other.
    pub fn are_joined(&self, mut nodes: impl Iterator<Item = u32>) -> bool {
        let Some(first) = nodes.next().map(|node| self.tree[node as usize]) else { return true };
        nodes.all(|node| first != 0 && self.tree[node as usize] == first)
    }

    /// The nodes by block, as many of each block as make whole segments; the blocks with the most nodes first.
    pub fn in_segments(&self, nodes: &[u32], segment: usize) -> Vec<u32> {
        let mut blocks: BTreeMap<u32, Vec<u32>> = BTreeMap::new();
        for &node in nodes {
            blocks.entry(self.leaf[node as usize]).or_default().push(node);
        }
        let mut blocks: Vec<Vec<u32>> = blocks.into_values().collect();
        blocks.iter_mut().for_each(|nodes| nodes.truncate(nodes.len() / segment.max(1) * segment));
        blocks.sort_by_key(|nodes| std::cmp::Reverse(nodes.len()));
        blocks.into_iter().flatten().collect()
    }

    pub fn is_in_segments(&self, nodes: impl Iterator<Item = u32>, segment: u32) -> bool {
        let mut counts: BTreeMap<u32, u32> = BTreeMap::new();
        nodes.for_each(|node| *counts.entry(self.leaf[node as usize]).or_default() += 1);
        counts.values().all(|count| segment > 0 && count % segment == 0)
    }

    /// How many leaf switches the nodes are on.
    pub fn leaves(&self, nodes: impl Iterator<Item = u32>) -> u32 {
        let mut leaves: Vec<u32> = nodes.map(|node| self.leaf[node as usize]).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves.len() as u32
    }
}

/// For each node the number of the largest set that it is in. In a topology of blocks all nodes are joined.
fn trees(topology: &Topology, sets: &[Vec<bool>], nodes: usize) -> Vec<u32> {
    let largest = |node: usize| {
        let numbered = sets.iter().zip(1u32..).filter(|(set, _)| set[node]);
        numbered.last().map_or(0, |(_, number)| if topology.is_blocks() { 1 } else { number })
    };
    (0..nodes).map(largest).collect()
}

/// Whether the job has waited for its `--switches` as long as it asked to, or as long as the site lets it.
pub fn is_waived(request: &Request, submit: Timestamp, now: Timestamp, most_s: u32) -> bool {
    request.switches.is_some_and(|switches| {
        let wait = switches.wait_s.unwrap_or(most_s).min(most_s);
        now.since(submit).as_secs() >= u64::from(wait)
    })
}

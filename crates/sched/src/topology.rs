//! The network between nodes: a job of several nodes gets nodes that are close to each other.

use crate::view::View;
use model::fleet::STATIC;
use model::request::Request;
use model::time::Timestamp;
use model::topology::Topology;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Switches {
    topology: Option<Arc<Topology>>,
    /// The nodes below each switch, the smallest set first.
    sets: Vec<SwitchNodes>,
    /// The leaf switch of each node, counted from one.
    leaf: Vec<u32>,
    /// The tree of each node, counted from one; zero for a node on no switch. A job does not span two trees.
    tree: Vec<u32>,
}

/// The nodes below a switch, or those of a fleet over SSH, which topology.conf cannot name: they are one network.
#[derive(Debug, Clone, PartialEq, Eq)]
struct SwitchNodes {
    /// The height of the switch above the leaves.
    level: u32,
    /// For each node of the view.
    is_below: Vec<bool>,
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
            let mut is_below = vec![false; view.nodes.len()];
            for node in topology.nodes_below(switch) {
                index.get(node).into_iter().for_each(|node| is_below[*node] = true);
            }
            sets.push(SwitchNodes { level: topology.level(switch), is_below });
        }
        for (nodes, number) in fleets(view, &leaf).into_iter().zip(sets.len() as u32 + 1..) {
            let mut is_below = vec![false; view.nodes.len()];
            for node in nodes {
                (is_below[node], leaf[node]) = (true, number);
            }
            sets.push(SwitchNodes { level: 0, is_below });
        }
        sets.sort_by_key(|set| set.is_below.iter().filter(|is_below| **is_below).count());
        let tree = trees(topology, &sets, view.nodes.len());
        Some(Arc::new(Self { topology: Some(topology.clone()), sets, leaf, tree }))
    }

    /// Whether the network decides which nodes the job gets. It does not for a job that is spread, nor with
    /// `TopoOptional` for one that asks for nothing.
    pub fn matter_to(&self, request: &Request) -> bool {
        let optional = self.topology.as_ref().is_some_and(|topology| topology.optional);
        let asked = request.switches.is_some() || request.segment.is_some();
        request.one_switch || (!request.spread && (asked || !optional))
    }

    /// The levels of the switches, the leaves first.
    pub fn levels(&self) -> Vec<u32> {
        let mut levels: Vec<u32> = self.sets.iter().map(|set| set.level).collect();
        levels.sort_unstable();
        levels.dedup();
        levels
    }

    /// For each switch of a level whether each node of the view is below it.
    pub fn below_each(&self, level: u32) -> impl Iterator<Item = &[bool]> {
        let of_level = self.sets.iter().filter(move |set| set.level == level);
        of_level.map(|set| set.is_below.as_slice())
    }

    /// A job that is larger than every block may lie in several: all of them are one network.
    pub fn are_blocks(&self) -> bool {
        self.topology.as_ref().is_some_and(|topology| topology.is_blocks())
    }

    /// Whether these are the switches of the view.
    pub fn is_of(&self, view: &View) -> bool {
        match (&self.topology, &view.topology) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }

    /// For each switch, or each of one level, those of the nodes that are below it.
    pub fn narrowed<'n>(
        &'n self,
        nodes: &'n [u32],
        level: Option<u32>,
    ) -> impl Iterator<Item = Vec<u32>> + 'n {
        let within = |set: &'n SwitchNodes| {
            nodes.iter().copied().filter(|node| set.is_below[*node as usize]).collect::<Vec<u32>>()
        };
        self.sets.iter().filter(move |set| level.is_none_or(|level| set.level == level)).map(within)
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

/// The nodes of each fleet over SSH that are on no switch.
fn fleets(view: &View, leaf: &[u32]) -> Vec<Vec<usize>> {
    let mut fleets: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (at, node) in view.nodes.iter().enumerate() {
        if leaf[at] == 0 && node.config.fleet != STATIC {
            fleets.entry(node.config.fleet.as_str()).or_default().push(at);
        }
    }
    fleets.into_values().collect()
}

/// For each node the number of the largest set that it is in. In a topology of blocks all nodes are joined.
fn trees(topology: &Topology, sets: &[SwitchNodes], nodes: usize) -> Vec<u32> {
    let largest = |node: usize| {
        let numbered = sets.iter().zip(1u32..).filter(|(set, _)| set.is_below[node]);
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

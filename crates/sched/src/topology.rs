//! The network between nodes: a job of several nodes gets those that are close to each other.

use crate::view::View;
use model::request::Request;
use model::time::Timestamp;
use model::topology::Topology;
use std::collections::HashMap;
use std::sync::Arc;

/// A job waits so long for its switches where it did not say (`max_switch_wait`).
const SWITCH_WAIT_S: u64 = 300;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Switches {
    topology: Option<Arc<Topology>>,
    /// The nodes below each switch, the smallest set first.
    sets: Vec<Vec<bool>>,
    /// The leaf of each node, counted from one.
    leaf: Vec<u32>,
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
        Some(Arc::new(Self { topology: Some(topology.clone()), sets, leaf }))
    }

    /// Whether it is of this view's network.
    pub fn is_of(&self, view: &View) -> bool {
        match (&self.topology, &view.topology) {
            (Some(a), Some(b)) => Arc::ptr_eq(a, b) || a == b,
            _ => false,
        }
    }

    /// These nodes as far as they are below one switch, for each switch.
    pub fn narrowed<'n>(&'n self, nodes: &'n [u32]) -> impl Iterator<Item = Vec<u32>> + 'n {
        let within = |set: &'n Vec<bool>| {
            nodes.iter().copied().filter(|node| set[*node as usize]).collect::<Vec<u32>>()
        };
        self.sets.iter().map(within)
    }

    /// Leaf switches that these nodes hang on.
    pub fn leaves(&self, nodes: impl Iterator<Item = u32>) -> u32 {
        let mut leaves: Vec<u32> = nodes.map(|node| self.leaf[node as usize]).collect();
        leaves.sort_unstable();
        leaves.dedup();
        leaves.len() as u32
    }
}

/// Whether the job has waited long enough for few switches.
pub fn is_waived(request: &Request, submit: Timestamp, now: Timestamp) -> bool {
    request.switches.is_some_and(|switches| {
        let wait = switches.wait_s.map_or(SWITCH_WAIT_S, u64::from);
        now.since(submit).as_secs() >= wait
    })
}

//! The network between nodes: `topology.conf`'s tree of switches, or its blocks.

use crate::hostlist;
use serde::{Deserialize, Serialize};

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Topology {
    pub switches: Vec<Switch>,
    /// `BlockSizes`, the smallest first; empty for a tree.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub block_sizes: Vec<u32>,
    /// `TopoOptional`: the topology matters only to jobs that ask for switches.
    #[serde(default)]
    pub optional: bool,
}

/// A switch or block with its nodes and switches.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Switch {
    pub name: String,
    /// Directly connected nodes.
    #[serde(default)]
    pub nodes: Vec<String>,
    #[serde(default)]
    pub switches: Vec<String>,
    /// `LinkSpeed`, shown and otherwise unused.
    #[serde(default)]
    pub link_speed: u32,
}

impl Topology {
    pub fn is_blocks(&self) -> bool {
        !self.block_sizes.is_empty()
    }

    pub fn switch(&self, name: &str) -> Option<&Switch> {
        self.switches.iter().find(|switch| switch.name == name)
    }

    /// Whether nodes may be connected to the switch or block of this name.
    pub fn takes_nodes(&self, name: &str) -> bool {
        self.switch(name).is_some_and(|switch| switch.switches.is_empty())
    }

    /// The same network with these nodes, each on the switch that it names. A node that has its place already keeps it, and one
    /// whose switch takes no nodes has none.
    pub fn with_nodes<'a>(&self, nodes: impl IntoIterator<Item = (&'a str, &'a str)>) -> Topology {
        let mut topology = self.clone();
        for (node, name) in nodes {
            let is_placed = topology.switches.iter().any(|s| s.nodes.iter().any(|n| n == node));
            if is_placed || !topology.takes_nodes(name) {
                continue;
            }
            let switch = topology.switches.iter_mut().find(|switch| switch.name == name);
            switch.into_iter().for_each(|switch| switch.nodes.push(node.to_owned()));
        }
        topology
    }

    /// A switch's height above the leaves; a switch with nodes is at zero.
    pub fn level(&self, switch: &Switch) -> u32 {
        // No tree is deeper than it has switches, so a circle ends too.
        self.level_within(switch, self.switches.len())
    }

    fn level_within(&self, switch: &Switch, depth: usize) -> u32 {
        let below = switch.switches.iter().filter_map(|name| self.switch(name));
        match depth {
            0 => 0,
            _ => below.map(|s| 1 + self.level_within(s, depth - 1)).max().unwrap_or(0),
        }
    }

    /// The switches from the top down to the node, and the node: `s3.s0.n1`, with what each word is: `switch.switch.node`.
    /// Several switches above one are in one word, as a host list.
    pub fn address(&self, node: &str) -> (String, String) {
        let mut words = vec![node.to_owned()];
        let mut kinds = vec!["node"];
        let kind = if self.is_blocks() { "block" } else { "switch" };
        let is_above = |s: &&Switch| s.nodes.iter().any(|n| n == node);
        let mut above: Vec<&Switch> = self.switches.iter().filter(is_above).collect();
        for _ in 0..self.switches.len() {
            if above.is_empty() {
                break;
            }
            words.push(hostlist::compress(above.iter().map(|s| s.name.as_str())));
            kinds.push(kind);
            let holds = |s: &&Switch| above.iter().any(|below| s.switches.contains(&below.name));
            above = self.switches.iter().filter(holds).collect();
        }
        words.reverse();
        kinds.reverse();
        (words.join("."), kinds.join("."))
    }

    /// The nodes below a switch. A switch that is below itself is left out the second time.
    pub fn nodes_below<'t>(&'t self, switch: &'t Switch) -> Vec<&'t str> {
        let mut seen: Vec<&str> = Vec::new();
        let mut open = vec![switch];
        let mut nodes = Vec::new();
        while let Some(next) = open.pop() {
            if seen.contains(&next.name.as_str()) {
                continue;
            }
            seen.push(&next.name);
            nodes.extend(next.nodes.iter().map(String::as_str));
            open.extend(self.switches.iter().filter(|s| next.switches.contains(&s.name)));
        }
        nodes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switch(name: &str, nodes: &[&str], switches: &[&str]) -> Switch {
        let owned = |names: &[&str]| names.iter().map(|name| name.to_string()).collect();
        Switch { name: name.into(), nodes: owned(nodes), switches: owned(switches), link_speed: 1 }
    }

    #[test]
    fn a_node_is_found_by_the_switches_above_it() {
        let tree = Topology {
            switches: vec![
                switch("s0", &["n1", "n2"], &[]),
                switch("s1", &["n3"], &[]),
                switch("top", &[], &["s0", "s1"]),
            ],
            ..Topology::default()
        };
        assert_eq!(tree.address("n3"), ("top.s1.n3".into(), "switch.switch.node".into()));
        assert_eq!(tree.address("n9"), ("n9".into(), "node".into()));
        let levels: Vec<u32> = tree.switches.iter().map(|s| tree.level(s)).collect();
        assert_eq!(levels, [0, 0, 1]);
        let mut below = tree.nodes_below(&tree.switches[2]);
        below.sort_unstable();
        assert_eq!(below, ["n1", "n2", "n3"]);
        let more = tree.with_nodes([("d1", "s1"), ("n1", "s1"), ("d2", "top"), ("d3", "none")]);
        assert_eq!(more.address("d1").0, "top.s1.d1");
        assert_eq!(more.address("n1"), tree.address("n1"), "it stays where the file has it");
        assert_eq!((more.address("d2").0, more.address("d3").0), ("d2".into(), "d3".into()));
    }

    #[test]
    fn a_circle_of_switches_ends() {
        let circle = Topology {
            switches: vec![switch("a", &["n1"], &["b"]), switch("b", &[], &["a"])],
            ..Topology::default()
        };
        assert_eq!(circle.nodes_below(&circle.switches[1]), ["n1"]);
        assert!(circle.level(&circle.switches[0]) <= 2);
        assert!(circle.address("n1").0.ends_with(".n1"));
    }
}

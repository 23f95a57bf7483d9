//! topology.conf: the switches that connect the nodes, or the blocks that the nodes are in.

use std::collections::BTreeSet;

use model::topology::{Switch, Topology};

use super::error::{ConfLocation, Findings};
use crate::conf::keys::record::Record;
use crate::conf::keys::record_keys::TOPOLOGY;
use crate::conf::text::lines::ConfLine;

/// The most entries of `BlockSizes`.
const BLOCK_SIZES_MAX: usize = 16;

/// The kinds of topology that `TopologyPlugin` names.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TopologyPlugin {
    /// Nodes in the order in which they are declared.
    Flat,
    Tree,
    Block,
}

impl TopologyPlugin {
    pub fn from_word(word: &str) -> Option<TopologyPlugin> {
        match word.to_ascii_lowercase().trim_start_matches("topology/") {
            "none" | "default" | "flat" | "3d_torus" => Some(TopologyPlugin::Flat),
            "tree" => Some(TopologyPlugin::Tree),
            "block" => Some(TopologyPlugin::Block),
            _ => None,
        }
    }
}

/// Reads the file of one plugin; `nodes` are those that slurm.conf declares.
pub fn read(
    lines: &[ConfLine],
    plugin: TopologyPlugin,
    optional: bool,
    nodes: &BTreeSet<&str>,
    findings: &mut Findings,
) -> Option<Topology> {
    let (leaf, other) = match plugin {
        TopologyPlugin::Flat => return None,
        TopologyPlugin::Tree => ("SwitchName", "BlockName"),
        TopologyPlugin::Block => ("BlockName", "SwitchName"),
    };
    let mut read =
        TopologyReader { topology: Topology { optional, ..Topology::default() }, places: vec![] };
    for line in lines {
        let record = Record::read(TOPOLOGY, line, findings);
        let place = line[0].place.clone();
        if let Some(entry) = record.entry(other) {
            let expected = format!("expected {leaf} lines with this TopologyPlugin");
            findings.wrong(&entry.place, other, &entry.text, expected);
        } else if record.has(leaf) {
            read.add(&record, leaf, place, nodes, findings);
        } else if record.has("BlockSizes") && plugin == TopologyPlugin::Block {
            read.set_sizes(&record, findings);
        } else {
            findings.wrong(&place, leaf, "", format!("expected {leaf}= on the line"));
        }
    }
    read.check_children(findings);
    if plugin == TopologyPlugin::Block && read.topology.block_sizes.is_empty() {
        let smallest = read.topology.switches.iter().map(|block| block.nodes.len()).min();
        read.topology.block_sizes = vec![smallest.unwrap_or(1).max(1) as u32];
    }
    Some(read.topology).filter(|topology| !topology.switches.is_empty())
}

struct TopologyReader {
    topology: Topology,
    /// The place of each switch's declaration.
    places: Vec<ConfLocation>,
}

impl TopologyReader {
    fn add(
        &mut self,
        record: &Record,
        leaf: &'static str,
        place: ConfLocation,
        known: &BTreeSet<&str>,
        findings: &mut Findings,
    ) {
        let name = record.text(leaf).unwrap_or_default();
        if self.topology.switch(&name).is_some() {
            return findings.wrong(&place, leaf, name, "this name is declared already");
        }
        let nodes = match record.text("Nodes") {
            Some(all) if all.eq_ignore_ascii_case("ALL") => {
                known.iter().map(|name| (*name).to_owned()).collect()
            }
            _ => record.hosts("Nodes").unwrap_or_default(),
        };
        let switches = record.hosts("Switches").unwrap_or_default();
        match (record.has("Nodes"), record.has("Switches")) {
            (true, false) | (false, true) => {}
            (true, true) => {
                return findings.wrong(&place, leaf, name, "expected Nodes or Switches, not both");
            }
            (false, false) => {
                return findings.wrong(&place, leaf, name, "expected Nodes= or Switches=");
            }
        }
        let undeclared: Vec<&String> =
            nodes.iter().filter(|node| !known.contains(node.as_str())).collect();
        if !undeclared.is_empty() {
            let text = model::hostlist::compress(undeclared);
            findings.wrong(&place, "Nodes", text, "no NodeName line of slurm.conf declares this");
        }
        let link_speed = record.number("LinkSpeed").unwrap_or(1);
        self.topology.switches.push(Switch { name, nodes, switches, link_speed });
        self.places.push(place);
    }

    /// Reads `BlockSizes`: each is the first times a power of two.
    fn set_sizes(&mut self, record: &Record, findings: &mut Findings) {
        let Some(entry) = record.entry("BlockSizes") else { return };
        let sizes: Option<Vec<u32>> = record
            .words("BlockSizes")
            .iter()
            .map(|word| word.parse().ok().filter(|size| *size > 0))
            .collect();
        let sound = |sizes: &Vec<u32>| {
            sizes.len() <= BLOCK_SIZES_MAX
                && sizes.first().is_some_and(|first| {
                    sizes.iter().all(|size| size % first == 0 && (size / first).is_power_of_two())
                })
        };
        match sizes.filter(sound) {
            Some(sizes) => self.topology.block_sizes = sizes,
            None => {
                let expected = "expected numbers of nodes, each the first times a power of two";
                findings.wrong(&entry.place, "BlockSizes", &entry.text, expected);
            }
        }
    }

    /// Checks that every child switch is declared, has at most one parent, and is not above itself.
    fn check_children(&self, findings: &mut Findings) {
        let mut has_parent: BTreeSet<&str> = BTreeSet::new();
        for (switch, place) in self.topology.switches.iter().zip(&self.places) {
            for child in &switch.switches {
                if self.topology.switch(child).is_none() {
                    let expected = "no SwitchName line declares this";
                    findings.wrong(place, "Switches", child, expected);
                } else if !has_parent.insert(child) {
                    findings.wrong(place, "Switches", child, "is below another switch already");
                }
            }
        }
        for (switch, place) in self.topology.switches.iter().zip(&self.places) {
            if self.is_above_itself(&switch.name) {
                return findings.wrong(place, "Switches", &switch.name, "is below itself");
            }
        }
    }

    fn is_above_itself(&self, name: &str) -> bool {
        let mut open = vec![name];
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        while let Some(next) = open.pop() {
            let Some(switch) = self.topology.switch(next) else { continue };
            for child in &switch.switches {
                if child == name {
                    return true;
                }
                if seen.insert(child) {
                    open.push(child);
                }
            }
        }
        false
    }
}

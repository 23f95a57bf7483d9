//! Lists of nodes in slurm.conf: the members of a `NodeSet`, the nodes of a `DownNodes` line, and those of a
//! partition. All of them name nodes that `NodeName` lines declare.

use std::collections::{BTreeSet, HashMap, HashSet};

use model::hostlist;
use model::partition::DynamicMembers;

use super::node_conf::{NodeConf, admin_state};
use super::partition_conf::PartitionConf;
use super::{DownNodes, NodeSet};
use crate::conf::error::Findings;
use crate::conf::keys::choices::NodeState;
use crate::conf::keys::record::Record;

const UNDECLARED: &str = "no NodeName line declares this";

/// The nodes of all `NodeName` lines.
pub struct DeclaredNodes<'n> {
    /// In the order declared.
    names: Vec<&'n str>,
    known: HashSet<&'n str>,
    by_feature: HashMap<&'n str, Vec<&'n str>>,
}

impl<'n> DeclaredNodes<'n> {
    pub fn new(nodes: &'n [NodeConf]) -> DeclaredNodes<'n> {
        let names: Vec<&str> = nodes.iter().map(|node| node.config.name.as_str()).collect();
        let mut by_feature: HashMap<&str, Vec<&str>> = HashMap::new();
        for config in nodes.iter().map(|node| &node.config) {
            for feature in &config.features {
                by_feature.entry(feature).or_default().push(&config.name);
            }
        }
        DeclaredNodes { known: names.iter().copied().collect(), names, by_feature }
    }

    /// The names that no line declares, in Slurm's short form; `None` if all are declared.
    fn undeclared(&self, names: &[String]) -> Option<String> {
        let strangers: Vec<&String> =
            names.iter().filter(|name| !self.known.contains(name.as_str())).collect();
        (!strangers.is_empty()).then(|| hostlist::compress(strangers))
    }

    pub fn node_sets(&self, records: &[Record], findings: &mut Findings) -> Vec<NodeSet> {
        let mut sets: Vec<NodeSet> = Vec::new();
        for record in records {
            let set = self.node_set(record, &sets, findings);
            sets.extend(set);
        }
        sets
    }

    fn node_set(
        &self,
        record: &Record,
        earlier: &[NodeSet],
        findings: &mut Findings,
    ) -> Option<NodeSet> {
        let entry = record.entry("NodeSet")?;
        let (name, place) = (&entry.text, &entry.place);
        let is_taken = self.known.contains(name.as_str())
            || earlier.iter().any(|set| set.name == *name)
            || name.eq_ignore_ascii_case("ALL");
        if is_taken {
            let expected = "expected a name that no node and no other set has";
            findings.wrong(place, "NodeSet", name, expected);
            return None;
        }
        if !record.has("Feature") && !record.has("Nodes") {
            findings.wrong(place, "NodeSet", name, "expected Feature= or Nodes= on the line");
            return None;
        }
        let mut nodes = record.hosts("Nodes").unwrap_or_default();
        if let Some(nodes_entry) = record.entry("Nodes")
            && let Some(strangers) = self.undeclared(&nodes)
        {
            findings.wrong(&nodes_entry.place, "Nodes", strangers, UNDECLARED);
        }
        let feature = record.text("Feature");
        let featured = feature.as_deref().and_then(|feature| self.by_feature.get(feature));
        nodes.extend(featured.into_iter().flatten().map(|name| (*name).to_owned()));
        let nodes = without_repeats(nodes);
        Some(NodeSet { name: name.clone(), nodes, feature, place: place.clone() })
    }

    pub fn down_nodes(&self, records: &[Record], findings: &mut Findings) -> Vec<DownNodes> {
        records.iter().filter_map(|record| self.down_line(record, findings)).collect()
    }

    fn down_line(&self, record: &Record, findings: &mut Findings) -> Option<DownNodes> {
        const KEY: &str = "DownNodes";
        let entry = record.entry(KEY)?;
        let nodes = if entry.text.eq_ignore_ascii_case("ALL") {
            self.names.iter().map(|name| (*name).to_owned()).collect()
        } else {
            match hostlist::expand(&entry.text) {
                Ok(nodes) => nodes,
                Err(e) => {
                    let expected = format!("expected {}", e.expected);
                    findings.wrong(&entry.place, KEY, &entry.text, expected);
                    return None;
                }
            }
        };
        if let Some(strangers) = self.undeclared(&nodes) {
            findings.wrong(&entry.place, KEY, strangers, UNDECLARED);
        }
        Some(DownNodes {
            nodes,
            state: record.choice("State").unwrap_or(NodeState::Down),
            reason: record.text("Reason"),
            place: entry.place.clone(),
        })
    }

    /// Sets the nodes of each partition.
    pub fn fill_partitions(
        &self,
        partitions: &mut [PartitionConf],
        sets: &[NodeSet],
        findings: &mut Findings,
    ) {
        for conf in partitions {
            let Some(text) = &conf.nodes_text else { continue };
            match hostlist::expand(text) {
                Ok(listed) => {
                    conf.partition.dynamic_members = dynamic_members(&listed, sets);
                    let (nodes, strangers) = self.members(listed, sets);
                    if !strangers.is_empty() {
                        let expected = format!("{UNDECLARED}, and no NodeSet has the name");
                        let strangers = hostlist::compress(strangers);
                        findings.wrong(&conf.place, "Nodes", strangers, expected);
                    }
                    conf.partition.nodes = nodes;
                }
                Err(e) => {
                    let expected = format!("expected {}", e.expected);
                    findings.wrong(&conf.place, "Nodes", text, expected);
                }
            }
        }
    }

    /// The nodes that a partition's list names one by one, by sets or by `ALL`; and the names that are
    /// none of these.
    fn members(&self, listed: Vec<String>, sets: &[NodeSet]) -> (Vec<String>, Vec<String>) {
        let (mut nodes, mut strangers) = (Vec::new(), Vec::new());
        for name in listed {
            if let Some(set) = sets.iter().find(|set| set.name == name) {
                nodes.extend(set.nodes.iter().cloned());
            } else if name.eq_ignore_ascii_case("ALL") {
                nodes.extend(self.names.iter().map(|name| (*name).to_owned()));
            } else if self.known.contains(name.as_str()) {
                nodes.push(name);
            } else {
                strangers.push(name);
            }
        }
        (without_repeats(nodes), strangers)
    }
}

impl DownNodes {
    /// Puts the nodes of the line in its state, in place of their own.
    pub fn apply_to(&self, nodes: &mut [NodeConf]) {
        let listed: BTreeSet<&str> = self.nodes.iter().map(String::as_str).collect();
        for node in nodes.iter_mut().filter(|node| listed.contains(node.config.name.as_str())) {
            node.state = self.state;
            node.reason.clone_from(&self.reason);
            node.config.initial = admin_state(self.state);
            node.config.initial_reason.clone_from(&self.reason);
        }
    }
}

/// The nodes of no file that a partition's list means, by `ALL` or by the features of sets.
fn dynamic_members(listed: &[String], sets: &[NodeSet]) -> DynamicMembers {
    let named = sets.iter().filter(|set| listed.contains(&set.name));
    DynamicMembers {
        all: listed.iter().any(|name| name.eq_ignore_ascii_case("ALL")),
        features: named.filter_map(|set| set.feature.clone()).collect(),
    }
}

/// Each name once, where it stands first.
fn without_repeats(mut names: Vec<String>) -> Vec<String> {
    let mut seen = HashSet::new();
    names.retain(|name| seen.insert(name.clone()));
    names
}

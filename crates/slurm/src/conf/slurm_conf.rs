//! slurm.conf as a whole: single keys, nodes, partitions, node sets, and what ties them together.

use std::collections::{BTreeMap, BTreeSet};

use model::hostlist;

use super::choices::NodeState;
use super::error::{Findings, Place};
use super::global_keys::GLOBAL;
use super::globals::Globals;
use super::lines::{Line, Pair};
use super::node_conf::{NodeConf, NodeLines, admin_state};
use super::partition_conf::{PartitionConf, PartitionLines};
use super::record::Record;
use super::record_keys::{DOWN_NODES, FRONTEND, NODE_SET};

/// `ClusterName` where the file has none.
const CLUSTER_NAME_DEFAULT: &str = "cluster";

#[derive(Debug, Clone, PartialEq)]
pub struct SlurmConf {
    pub cluster_name: String,
    pub globals: Globals,
    /// Each single key that was given, by its name in Slurm's spelling.
    pub raw: BTreeMap<String, RawValue>,
    pub nodes: Vec<NodeConf>,
    pub partitions: Vec<PartitionConf>,
    pub node_sets: Vec<NodeSet>,
    pub down_nodes: Vec<DownNodes>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawValue {
    pub text: String,
    pub place: Place,
}

/// A name for some nodes, to be used in a partition's `Nodes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSet {
    pub name: String,
    pub nodes: Vec<String>,
    pub place: Place,
}

/// Nodes that are out of service for the reason given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownNodes {
    pub nodes: Vec<String>,
    pub state: NodeState,
    pub reason: Option<String>,
    pub place: Place,
}

impl SlurmConf {
    pub fn node(&self, name: &str) -> Option<&NodeConf> {
        self.nodes.iter().find(|node| node.config.name == name)
    }

    pub fn partition(&self, name: &str) -> Option<&PartitionConf> {
        self.partitions.iter().find(|conf| conf.partition.name == name)
    }

    pub fn default_partition(&self) -> Option<&PartitionConf> {
        self.partitions.iter().find(|conf| conf.partition.default)
    }

    /// Builds the configuration from its lines. Errors go to `findings`; what is returned is
    /// meaningful only if there are none.
    pub fn read(lines: &[Line], findings: &mut Findings) -> SlurmConf {
        let mut sorted = SortedLines::default();
        lines.iter().for_each(|line| sorted.add(line, findings));
        let SortedLines { globals, hosts, nodes, partitions, sets, down } = sorted;
        let raw = globals.entries().map(|(name, entry)| {
            let value = RawValue { text: entry.text.clone(), place: entry.place.clone() };
            (name.to_owned(), value)
        });
        let mut conf = SlurmConf {
            cluster_name: globals.text("ClusterName").unwrap_or(CLUSTER_NAME_DEFAULT.into()),
            raw: raw.collect(),
            globals: Globals::read(&globals, hosts, findings),
            nodes: nodes.nodes,
            partitions: partitions.partitions,
            node_sets: Vec::new(),
            down_nodes: Vec::new(),
        };
        conf.check_gres_types(findings);
        sets.iter().for_each(|set| conf.add_node_set(set, findings));
        down.iter().for_each(|record| conf.add_down_nodes(record, findings));
        conf.resolve_partitions(findings);
        conf
    }

    /// With `GresTypes`, every resource of a node must be one of them; without, those of the
    /// nodes are the types.
    fn check_gres_types(&mut self, findings: &mut Findings) {
        if self.globals.gres_types.is_empty() {
            let names = self
                .nodes
                .iter()
                .flat_map(|node| &node.gres)
                .map(|declared| declared.gres.name.clone());
            self.globals.gres_types = names.collect::<BTreeSet<String>>().into_iter().collect();
            return;
        }
        let types = &self.globals.gres_types;
        // One error for a line, not one for each of its nodes.
        let mut told = BTreeSet::new();
        for node in &self.nodes {
            let names = node.gres.iter().map(|declared| &declared.gres.name);
            for name in names.filter(|name| !types.contains(name)) {
                if told.insert((&node.place, name)) {
                    let text = node.gres_text.as_deref().unwrap_or_default();
                    let expected = format!("{name:?} is not among GresTypes={}", types.join(","));
                    findings.wrong(&node.place, "Gres", text, expected);
                }
            }
        }
    }

    fn add_node_set(&mut self, record: &Record, findings: &mut Findings) {
        let Some(name) = record.entry("NodeSet") else { return };
        let taken = self.node(&name.text).is_some()
            || self.node_sets.iter().any(|set| set.name == name.text)
            || name.text.eq_ignore_ascii_case("ALL");
        if taken {
            let expected = "expected a name that no node and no other set has";
            return findings.wrong(&name.place, "NodeSet", &name.text, expected);
        }
        if !record.has("Feature") && !record.has("Nodes") {
            let expected = "expected Feature= or Nodes= on the line";
            return findings.wrong(&name.place, "NodeSet", &name.text, expected);
        }
        let mut nodes = record.hosts("Nodes").unwrap_or_default();
        if let Some(entry) = record.entry("Nodes") {
            self.check_nodes_exist(&nodes, &entry.place, "Nodes", findings);
        }
        if let Some(feature) = record.text("Feature") {
            let having = self.nodes.iter().filter(|node| node.config.features.contains(&feature));
            nodes.extend(having.map(|node| node.config.name.clone()));
        }
        let nodes = without_repeats(nodes);
        self.node_sets.push(NodeSet { name: name.text.clone(), nodes, place: name.place.clone() });
    }

    fn add_down_nodes(&mut self, record: &Record, findings: &mut Findings) {
        let Some(entry) = record.entry("DownNodes") else { return };
        let nodes = match hostlist::expand(&entry.text) {
            _ if entry.text.eq_ignore_ascii_case("ALL") => self.all_names(),
            Ok(nodes) => nodes,
            Err(e) => {
                let expected = format!("expected {}", e.expected);
                return findings.wrong(&entry.place, "DownNodes", &entry.text, expected);
            }
        };
        self.check_nodes_exist(&nodes, &entry.place, "DownNodes", findings);
        let state = record.choice("State").unwrap_or(NodeState::Down);
        let reason = record.text("Reason");
        let listed: BTreeSet<&String> = nodes.iter().collect();
        for node in self.nodes.iter_mut().filter(|node| listed.contains(&node.config.name)) {
            node.state = state;
            node.reason.clone_from(&reason);
            node.config.initial = admin_state(state);
            node.config.initial_reason.clone_from(&reason);
        }
        self.down_nodes.push(DownNodes { nodes, state, reason, place: entry.place.clone() });
    }

    fn check_nodes_exist(
        &self,
        names: &[String],
        place: &Place,
        key: &str,
        findings: &mut Findings,
    ) {
        let known: BTreeSet<&str> = self.nodes.iter().map(|n| n.config.name.as_str()).collect();
        let missing: Vec<&String> =
            names.iter().filter(|name| !known.contains(name.as_str())).collect();
        if !missing.is_empty() {
            let expected = "no NodeName line declares this";
            findings.wrong(place, key, hostlist::compress(missing), expected);
        }
    }

    fn all_names(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.config.name.clone()).collect()
    }

    fn resolve_partitions(&mut self, findings: &mut Findings) {
        let all = self.all_names();
        let known: BTreeSet<&String> = all.iter().collect();
        let sets: BTreeMap<&str, &NodeSet> =
            self.node_sets.iter().map(|set| (set.name.as_str(), set)).collect();
        for conf in &mut self.partitions {
            let Some(text) = conf.nodes_text.as_deref() else { continue };
            let names = hostlist::expand(text).unwrap_or_else(|e| {
                let expected = format!("expected {}", e.expected);
                findings.wrong(&conf.place, "Nodes", text, expected);
                Vec::new()
            });
            let (mut nodes, mut missing) = (Vec::new(), Vec::new());
            for name in names {
                if let Some(set) = sets.get(name.as_str()) {
                    nodes.extend(set.nodes.iter().cloned());
                } else if name.eq_ignore_ascii_case("ALL") {
                    nodes.extend(all.iter().cloned());
                } else if known.contains(&name) {
                    nodes.push(name);
                } else {
                    missing.push(name);
                }
            }
            if !missing.is_empty() {
                let expected = "no NodeName line declares this, and no NodeSet has the name";
                findings.wrong(&conf.place, "Nodes", hostlist::compress(missing), expected);
            }
            conf.partition.nodes = without_repeats(nodes);
        }
        self.check_alternates(findings);
    }

    fn check_alternates(&self, findings: &mut Findings) {
        for conf in &self.partitions {
            if let Some(name) =
                conf.alternate.as_ref().filter(|name| self.partition(name).is_none())
            {
                findings.wrong(&conf.place, "Alternate", name, "no PartitionName line declares it");
            }
        }
    }
}

fn without_repeats(names: Vec<String>) -> Vec<String> {
    let mut seen = BTreeSet::new();
    names.into_iter().filter(|name| seen.insert(name.clone())).collect()
}

/// The lines by their kind. Node sets and down nodes wait until all nodes are known.
struct SortedLines {
    globals: Record,
    hosts: Vec<String>,
    nodes: NodeLines,
    partitions: PartitionLines,
    sets: Vec<Record>,
    down: Vec<Record>,
}

impl Default for SortedLines {
    fn default() -> Self {
        SortedLines {
            globals: Record::new(GLOBAL),
            hosts: Vec::new(),
            nodes: NodeLines::default(),
            partitions: PartitionLines::default(),
            sets: Vec::new(),
            down: Vec::new(),
        }
    }
}

impl SortedLines {
    /// A key that begins a record takes the rest of the line; before it, single keys may stand.
    fn add(&mut self, line: &[Pair], findings: &mut Findings) {
        for (i, pair) in line.iter().enumerate() {
            let rest = &line[i..];
            match pair.key.to_ascii_lowercase().as_str() {
                "nodename" => return self.nodes.add(rest, findings),
                "partitionname" => return self.partitions.add(rest, findings),
                "nodeset" => return self.sets.push(Record::read(NODE_SET, rest, findings)),
                "downnodes" => return self.down.push(Record::read(DOWN_NODES, rest, findings)),
                "frontendname" => {
                    Record::read(FRONTEND, rest, findings);
                    return;
                }
                "slurmctldhost" => self.hosts.push(pair.value.clone()),
                _ => {}
            }
            self.globals.add(pair, findings);
        }
    }
}

//! slurm.conf: single keys, and lines that describe one thing each. A line may have both; the key that
//! begins a description takes every pair after it.

mod controller_hosts;
pub mod globals;
mod memory_keys;
pub mod node_conf;
mod node_lists;
mod node_shape;
pub mod partition_conf;
mod tres_weights;

use model::gres::GPU;
use std::collections::{BTreeMap, BTreeSet};

use self::globals::Globals;
use self::node_conf::{NodeConf, NodeLines};
use self::partition_conf::{PartitionConf, PartitionLines};
use super::error::{ConfLocation, Findings, NoticeKind};
use crate::conf::keys::choices::NodeState;
use crate::conf::keys::global_keys::GLOBAL;
use crate::conf::keys::record::Record;
use crate::conf::keys::record_keys::{DOWN_NODES, FRONTEND, NODE_SET};
use crate::conf::text::lines::{ConfLine, Pair};
use node_lists::DeclaredNodes;

/// The name of a cluster that is given none.
const CLUSTER_NAME_DEFAULT: &str = "cluster";

#[derive(Debug, Clone, PartialEq)]
pub struct SlurmConf {
    pub cluster_name: String,
    pub globals: Globals,
    /// The single keys as written, those without effect too, by their names in the table.
    pub raw: BTreeMap<String, RawValue>,
    pub nodes: Vec<NodeConf>,
    pub partitions: Vec<PartitionConf>,
    pub node_sets: Vec<NodeSet>,
    pub down_nodes: Vec<DownNodes>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RawValue {
    pub text: String,
    pub place: ConfLocation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeSet {
    pub name: String,
    pub nodes: Vec<String>,
    /// Nodes with it that are in no file belong to the set too.
    pub feature: Option<String>,
    pub place: ConfLocation,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DownNodes {
    pub nodes: Vec<String>,
    pub state: NodeState,
    pub reason: Option<String>,
    pub place: ConfLocation,
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

    pub(super) fn read(lines: &[ConfLine], findings: &mut Findings) -> SlurmConf {
        let mut records = Records::default();
        lines.iter().for_each(|line| records.add(line, findings));
        records.finish(findings)
    }
}

/// The keys that begin a description.
#[derive(Debug, Clone, Copy)]
enum Description {
    Node,
    Partition,
    NodeSet,
    DownNodes,
    Frontend,
}

const DESCRIPTIONS: [(&str, Description); 5] = [
    ("NodeName", Description::Node),
    ("PartitionName", Description::Partition),
    ("NodeSet", Description::NodeSet),
    ("DownNodes", Description::DownNodes),
    ("FrontendName", Description::Frontend),
];

impl Description {
    fn beginning_with(pair: &Pair) -> Option<Description> {
        let row = DESCRIPTIONS.iter().find(|(key, _)| key.eq_ignore_ascii_case(&pair.key));
        row.map(|(_, description)| *description)
    }
}

/// What the lines of slurm.conf say, each by itself.
struct Records {
    single: Record,
    controllers: Vec<Pair>,
    nodes: NodeLines,
    partitions: PartitionLines,
    node_sets: Vec<Record>,
    down_nodes: Vec<Record>,
}

impl Default for Records {
    fn default() -> Self {
        Self {
            single: Record::new(GLOBAL),
            controllers: Vec::new(),
            nodes: NodeLines::default(),
            partitions: PartitionLines::default(),
            node_sets: Vec::new(),
            down_nodes: Vec::new(),
        }
    }
}

impl Records {
    fn add(&mut self, line: &ConfLine, findings: &mut Findings) {
        for (at, pair) in line.iter().enumerate() {
            if let Some(description) = Description::beginning_with(pair) {
                return self.add_description(description, &line[at..], findings);
            }
            if pair.key.eq_ignore_ascii_case(controller_hosts::KEY) {
                self.controllers.push(pair.clone());
            }
            self.single.add(pair, findings);
        }
    }

    fn add_description(&mut self, what: Description, pairs: &[Pair], findings: &mut Findings) {
        match what {
            Description::Node => self.nodes.add(pairs, findings),
            Description::Partition => self.partitions.add(pairs, findings),
            Description::NodeSet => self.node_sets.push(Record::read(NODE_SET, pairs, findings)),
            Description::DownNodes => {
                self.down_nodes.push(Record::read(DOWN_NODES, pairs, findings));
            }
            // Front ends do nothing here; their lines are checked.
            Description::Frontend => {
                Record::read(FRONTEND, pairs, findings);
            }
        }
    }

    /// Checks that need all lines: what one says of another.
    fn finish(self, findings: &mut Findings) -> SlurmConf {
        let mut globals = Globals::read(&self.single, findings);
        globals.controllers = controller_hosts::read(&self.controllers, findings);
        let mut nodes = self.nodes.nodes;
        settle_gres_types(&mut globals.gres_types, &mut nodes, findings);
        let declared = DeclaredNodes::new(&nodes);
        let node_sets = declared.node_sets(&self.node_sets, findings);
        let down_nodes = declared.down_nodes(&self.down_nodes, findings);
        let mut partitions = self.partitions.partitions;
        declared.fill_partitions(&mut partitions, &node_sets, findings);
        for conf in &mut partitions {
            conf.partition.disable_root_jobs =
                conf.disable_root_jobs.unwrap_or(globals.disable_root_jobs);
        }
        down_nodes.iter().for_each(|down| down.apply_to(&mut nodes));
        let raw = self.single.entries().map(|(name, entry)| {
            let (text, place) = (entry.text.clone(), entry.place.clone());
            (name.to_owned(), RawValue { text, place })
        });
        SlurmConf {
            cluster_name: self
                .single
                .text("ClusterName")
                .unwrap_or_else(|| CLUSTER_NAME_DEFAULT.to_owned()),
            globals,
            raw: raw.collect(),
            nodes,
            partitions,
            node_sets,
            down_nodes,
        }
    }
}

/// `GresTypes` left out is what the nodes have; given, it names all that they have.
fn settle_gres_types(types: &mut Vec<String>, nodes: &mut [NodeConf], findings: &mut Findings) {
    if types.is_empty() {
        let names: BTreeSet<&String> =
            nodes.iter().flat_map(|node| &node.gres).map(|declared| &declared.gres.name).collect();
        *types = names.into_iter().cloned().collect();
        return;
    }
    let gpus = nodes.iter().find(|node| node.gres.iter().any(|known| known.gres.name == GPU));
    if let Some(node) = gpus.filter(|_| !types.iter().any(|name| name == GPU)) {
        // Without it every job could open them.
        let how = format!("not among GresTypes={}; taken as if it were", types.join(","));
        findings.notice(&node.place, format!("Gres={GPU}"), NoticeKind::Corrected { how });
        types.push(GPU.to_owned());
    }
    for node in nodes {
        let place = &node.place;
        node.gres.retain(|declared| {
            let name = &declared.gres.name;
            let known = types.contains(name);
            if !known {
                let how = format!("not among GresTypes={}; nodes do not have it", types.join(","));
                findings.notice(place, format!("Gres={name}"), NoticeKind::Corrected { how });
            }
            known
        });
    }
}

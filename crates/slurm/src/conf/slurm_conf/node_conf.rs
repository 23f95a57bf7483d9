//! The `NodeName` lines of slurm.conf: defaults, ranges, and the values of each node.

use std::collections::BTreeMap;

use model::amount::Bytes;
use model::array::IndexSet;
use model::gres::{self, DeclaredGres};
use model::hostlist;
use model::node::{AdminState, NodeConfig};
use model::printable::is_unprintable;

use super::node_shape::NodeShape;
use crate::conf::error::{ConfLocation, Findings};
use crate::conf::keys::choices::{Choice, NodeState};
use crate::conf::keys::record::Record;
use crate::conf::keys::record_keys::NODE;
use crate::conf::text::lines::Pair;

/// Keys of the same meaning: one on the line of a node replaces another in the defaults.
const SAME_MEANING: &[&[&str]] = &[
    &["Sockets", "SocketsPerBoard"],
    &["CPUs", "Procs"],
    &["Feature", "Features"],
    &["CoreSpecCount", "CpuSpecList"],
];

/// Keys that cannot be defaults.
const PER_NODE_KEYS: [&str; 3] = ["NodeAddr", "NodeHostname", "Port"];

/// One node as slurm.conf declares it.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeConf {
    /// The node in the words of the model. Its `gres` are filled in when gres.conf has been read.
    pub config: NodeConfig,
    pub state: NodeState,
    pub reason: Option<String>,
    /// The port of the node's agent; `None` for that of the cluster.
    pub port: Option<u16>,
    /// `Gres=`: the counts, before gres.conf says which devices they are.
    pub gres: Vec<DeclaredGres>,
    /// `Gres=` as written, for `scontrol show node`.
    pub gres_text: Option<String>,
    pub cpu_bind: Option<String>,
    pub place: ConfLocation,
}

impl NodeConf {
    /// `State=` as Slurm writes it.
    pub fn state_word(&self) -> &'static str {
        self.state.word()
    }
}

/// The nodes read so far, and the defaults for the nodes that follow.
#[derive(Debug)]
pub struct NodeLines {
    defaults: Record,
    /// The place of the first declaration of each name.
    places: BTreeMap<String, ConfLocation>,
    pub nodes: Vec<NodeConf>,
}

impl Default for NodeLines {
    fn default() -> Self {
        Self { defaults: Record::new(NODE), places: BTreeMap::new(), nodes: Vec::new() }
    }
}

impl NodeLines {
    /// Takes one line in, from its `NodeName=` on.
    pub fn add(&mut self, line: &[Pair], findings: &mut Findings) {
        let record = Record::read(NODE, line, findings);
        let Some(entry) = record.entry("NodeName") else { return };
        let names = match hostlist::expand(&entry.text) {
            Ok(names) => names,
            Err(e) => {
                let expected = format!("expected {}", e.expected);
                return findings.wrong(&entry.place, "NodeName", &entry.text, expected);
            }
        };
        let place = entry.place.clone();
        if let Some(name) = names.iter().find(|name| name.contains(is_unprintable)) {
            return findings.wrong(&place, "NodeName", name, "expected no control characters");
        }
        if names.iter().any(|name| name.eq_ignore_ascii_case("DEFAULT")) {
            return self.add_defaults(record, findings);
        }
        if let Some(all) = names.iter().find(|name| name.eq_ignore_ascii_case("ALL")) {
            let why = "ALL means every node and can name none";
            return findings.wrong(&place, "NodeName", all, why);
        }
        let record = record.with_defaults(&self.defaults, SAME_MEANING);
        let common = common_values(&record, &place, findings);
        let hosts = per_node(&record, "NodeHostname", &names, findings);
        let addresses = per_node(&record, "NodeAddr", &names, findings);
        let ports = ports(&record, names.len(), findings);
        for (i, name) in names.into_iter().enumerate() {
            if let Some(before) = self.places.get(&name) {
                let why = format!("declared already, at {before}");
                findings.wrong(&place, "NodeName", name, why);
                continue;
            }
            let mut node = common.clone();
            // The host name defaults to the name of the node, and the address to the host name.
            node.config.hostname = hosts.as_ref().map_or_else(|| name.clone(), |h| h[i].clone());
            node.config.address =
                addresses.as_ref().map_or_else(|| node.config.hostname.clone(), |a| a[i].clone());
            node.port = ports.as_ref().map(|p| p[i]);
            node.config.name.clone_from(&name);
            self.places.insert(name, place.clone());
            self.nodes.push(node);
        }
    }

    /// `NodeName=DEFAULT`: adds to the defaults; the later of two values counts.
    fn add_defaults(&mut self, record: Record, findings: &mut Findings) {
        for key in PER_NODE_KEYS {
            if let Some(entry) = record.entry(key) {
                let why = "cannot be a default: each node has its own";
                findings.wrong(&entry.place, key, &entry.text, why);
            }
        }
        self.defaults = record.with_defaults(&self.defaults, SAME_MEANING);
    }
}

/// The values that all nodes of a line have in common.
fn common_values(record: &Record, place: &ConfLocation, findings: &mut Findings) -> NodeConf {
    let shape = NodeShape::read(record, findings);
    let mib = |key: &str, default: u64| Bytes::from_mib(record.number(key).unwrap_or(default));
    let state = record.choice("State").unwrap_or(NodeState::Unknown);
    let reason = record.text("Reason");
    let features = record.words(if record.has("Features") { "Features" } else { "Feature" });
    let config = NodeConfig {
        boards: shape.boards,
        sockets: shape.sockets,
        cores_per_socket: shape.cores_per_socket,
        threads_per_core: shape.threads_per_core,
        tmp_disk: mib("TmpDisk", 0),
        features,
        weight: record.number("Weight").unwrap_or(1),
        memory_reserved: mib("MemSpecLimit", 0),
        cpus_reserved: shape.reserved(record, findings),
        initial: admin_state(state),
        price: None,
        initial_reason: reason.clone(),
        cloud: state == NodeState::Cloud,
        topology: record.text("Topology").and_then(|text| switch_of(&text)),
        // The documented default of RealMemory is one megabyte.
        ..NodeConfig::plain("", shape.cpus, mib("RealMemory", 1))
    };
    NodeConf {
        config,
        state,
        reason,
        port: None,
        gres: declared_gres(record, findings),
        gres_text: record.text("Gres"),
        cpu_bind: record.text("CpuBind"),
        place: place.clone(),
    }
}

/// The switch of `Topology=SWITCH` or `Topology=NAME:SWITCH`: there is one topology here, whatever its name.
fn switch_of(text: &str) -> Option<String> {
    let switch = text.rsplit_once(':').map_or(text, |(_, switch)| switch);
    (!switch.is_empty()).then(|| switch.to_owned())
}

/// The administrative state of a node at its first appearance, by the state in the file.
pub fn admin_state(state: NodeState) -> Option<AdminState> {
    match state {
        NodeState::Down => Some(AdminState::Down),
        NodeState::Drain => Some(AdminState::Drain),
        NodeState::Fail | NodeState::Failing => Some(AdminState::Fail),
        NodeState::Future => Some(AdminState::Future),
        NodeState::Unknown | NodeState::Cloud | NodeState::External => None,
    }
}

fn declared_gres(record: &Record, findings: &mut Findings) -> Vec<DeclaredGres> {
    let Some(entry) = record.entry("Gres") else { return Vec::new() };
    gres::parse_node(&entry.text).unwrap_or_else(|e| {
        findings.wrong(&entry.place, "Gres", &entry.text, format!("expected {}", e.expected));
        Vec::new()
    })
}

/// A host for each name. The key has one host for all names, or as many as there are names.
fn per_node(
    record: &Record,
    key: &'static str,
    names: &[String],
    findings: &mut Findings,
) -> Option<Vec<String>> {
    let hosts = record.hosts(key)?;
    if hosts.len() == names.len() {
        return Some(hosts);
    }
    if let [one] = hosts.as_slice() {
        return Some(vec![one.clone(); names.len()]);
    }
    let entry = record.entry(key)?;
    let why = format!("{} hosts for {} nodes; expected as many", hosts.len(), names.len());
    findings.wrong(&entry.place, key, &entry.text, why);
    None
}

/// `Port=7001`, or `Port=[7001-7003]` with one for each node.
fn ports(record: &Record, nodes: usize, findings: &mut Findings) -> Option<Vec<u16>> {
    let entry = record.entry("Port")?;
    let text = entry.text.trim_start_matches('[').trim_end_matches(']');
    let listed = IndexSet::parse(text, u32::from(u16::MAX)).ok().filter(|set| {
        // Zero is not a valid port.
        set.first().is_some_and(|first| first > 0)
            && (set.len() == 1 || usize::try_from(set.len()) == Ok(nodes))
    });
    let Some(listed) = listed else {
        let why = format!("expected one port, or a range of {nodes}");
        findings.wrong(&entry.place, "Port", &entry.text, why);
        return None;
    };
    let numbers: Vec<u16> = listed.iter().filter_map(|port| u16::try_from(port).ok()).collect();
    match numbers.as_slice() {
        [one] => Some(vec![*one; nodes]),
        _ => Some(numbers),
    }
}

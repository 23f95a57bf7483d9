//! A node's line outside slurm.conf: `scontrol create NodeName=…` and `sluice agent --dynamic --conf "…"`.

use std::path::Path;
use std::sync::Arc;

use super::GresConf;
use super::error::{ConfError, ConfLocation, Findings};
use super::gres_conf::node_gres;
use super::keys::choices::NodeState;
use super::slurm_conf::node_conf::{NodeConf, NodeLines};
use super::text::files::MemoryFiles;
use super::text::lines::{self, Pair};
use model::node::NodeConfig;

/// Any of them replaces all that was found of a machine's shape.
const SHAPE: [&str; 7] =
    ["CPUs", "Procs", "Boards", "Sockets", "SocketsPerBoard", "CoresPerSocket", "ThreadsPerCore"];

/// What an agent cannot say of its own node.
const NOT_ITS_OWN: [&str; 5] = ["NodeName", "Port", "State", "Reason", "BcastAddr"];

/// The nodes that the words of `scontrol create` describe, from `NodeName=` on. The error is one line.
pub fn created(words: &[String]) -> Result<Vec<NodeConfig>, String> {
    let pairs: Result<Vec<Pair>, String> = words.iter().map(|word| pair(word)).collect();
    let nodes = read(&pairs?)?;
    if let Some(node) = nodes.iter().find(|node| !is_creatable(node.state)) {
        return Err(format!("State: {:?}: expected CLOUD or FUTURE", node.state_word()));
    }
    Ok(nodes.into_iter().map(|node| node.config).collect())
}

/// This machine as a node of this name: as `machine`, a line like those of slurm.conf, and with what `conf` says otherwise.
/// Without `Gres` in `conf` its devices are to be those that are detected. The error is one line.
pub fn of_machine(name: &str, machine: &str, conf: &str) -> Result<NodeConfig, String> {
    let said = pairs_of(conf)?;
    let says = |key: &str| said.iter().any(|pair| pair.key.eq_ignore_ascii_case(key));
    if let Some(key) = NOT_ITS_OWN.into_iter().find(|key| says(key)) {
        return Err(format!("{key}: not for an agent to say of its node"));
    }
    let has_shape = SHAPE.into_iter().any(says);
    let counts = |key: &str| {
        let is_shape = SHAPE.iter().any(|shape| shape.eq_ignore_ascii_case(key));
        !(says(key) || is_shape && has_shape || ["NodeName", "Gres"].contains(&key))
    };
    let mut pairs = vec![pair(&format!("NodeName={name}"))?];
    pairs.extend(pairs_of(machine)?.into_iter().filter(|pair| counts(&pair.key)));
    let detects = !says("Gres");
    let names_hosts = (says("NodeAddr"), says("NodeHostname"));
    pairs.extend(said);
    let mut node = read(&pairs)?.pop().ok_or("expected one node")?.config;
    node.gpus_detected = detects;
    // The address that it comes from, and the name that it has, are found where nothing else is said.
    if !names_hosts.0 {
        node.address.clear();
    }
    if !names_hosts.1 {
        node.hostname.clear();
    }
    Ok(node)
}

/// Other states are those of nodes with a machine; without one, it is the next agent's that joins.
fn is_creatable(state: NodeState) -> bool {
    matches!(state, NodeState::Cloud | NodeState::Future | NodeState::Unknown)
}

pub(super) fn pair(word: &str) -> Result<Pair, String> {
    let (key, value) = word.split_once('=').ok_or(format!("{word:?}: expected Key=Value"))?;
    Ok(Pair { key: key.to_owned(), value: value.to_owned(), place: place() })
}

fn place() -> ConfLocation {
    ConfLocation { file: Arc::from("node"), line: 1 }
}

fn pairs_of(text: &str) -> Result<Vec<Pair>, String> {
    let mut findings = Findings::default();
    let path = Path::new("node");
    let lines = lines::read_lines(&MemoryFiles::default(), path, text, &mut findings);
    first_error(&findings)?;
    Ok(lines.into_iter().flatten().collect())
}

fn read(pairs: &[Pair]) -> Result<Vec<NodeConf>, String> {
    let mut findings = Findings::default();
    let mut lines = NodeLines::default();
    lines.add(pairs, &mut findings);
    let mut nodes = lines.nodes;
    node_gres::fill(&GresConf::default(), &mut nodes, &mut findings);
    first_error(&findings)?;
    if nodes.is_empty() {
        return Err("NodeName: expected a name, or names as in d[1-4]".to_owned());
    }
    for node in &mut nodes {
        node.config.gres.retain(|line| line.count > 0);
    }
    Ok(nodes)
}

/// The line without its place, which is no file.
pub(super) fn first_error(findings: &Findings) -> Result<(), String> {
    match findings.errors.first() {
        None => Ok(()),
        Some(ConfError::Value { key, value, expected, .. }) => {
            Err(format!("{key}: {value:?}: {expected}"))
        }
        Some(ConfError::UnknownKey { key, of, .. }) => Err(format!("{key}: not a key of {of}")),
        Some(ConfError::Syntax { text, expected, .. }) => Err(format!("{text:?}: {expected}")),
        Some(other) => Err(other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MACHINE: &str = "NodeName=vm CPUs=16 Boards=1 SocketsPerBoard=1 CoresPerSocket=8 \
                           ThreadsPerCore=2 RealMemory=31848 Gres=gpu:h100:2";

    #[test]
    fn machine_is_what_was_found_but_for_what_is_said() {
        let shape = |node: &NodeConfig| {
            (node.cpus, node.sockets, node.cores_per_socket, node.threads_per_core)
        };
        let plain = of_machine("d1", MACHINE, "").expect("a node");
        assert_eq!((plain.name.as_str(), shape(&plain)), ("d1", (16, 1, 8, 2)));
        assert!(plain.gpus_detected && plain.gres.is_empty());
        assert_eq!((plain.memory.mib(), plain.address.as_str()), (31848, ""));
        let node = of_machine("d1", MACHINE, "RealMemory=30000 Gres=gpu:2 Feature=f1,f2 Weight=3");
        let node = node.expect("a node");
        assert_eq!((node.memory.mib(), node.gres_total("gpu"), node.weight), (30000, 2, 3));
        assert!(!node.gpus_detected && node.features == ["f1", "f2"]);
        assert_eq!(shape(&node), (16, 1, 8, 2));
        let cpus = of_machine("d1", MACHINE, "CPUs=4").expect("a node");
        assert_eq!(shape(&cpus), (4, 4, 1, 1), "nothing of what was found is mixed with it");
    }

    #[test]
    fn wrong_lines_are_refused_in_one_line() {
        for (conf, words) in [
            ("NodeName=x", "NodeName: not for an agent"),
            ("State=DOWN", "State: not for an agent"),
            ("Colour=red", "Colour: not a key of a NodeName line"),
            ("CPUs=many", "CPUs: \"many\""),
            ("Gres=gpu:", "Gres"),
            ("Include=/etc/passwd", "Include"),
        ] {
            let said = of_machine("d1", MACHINE, conf).expect_err(conf);
            assert!(said.contains(words) && said.lines().count() == 1, "{conf}: {said}");
        }
        let create =
            |line: &str| created(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
        for (line, words) in [
            ("NodeName=d1 State=DOWN", "expected CLOUD or FUTURE"),
            ("NodeName=d[1-", "NodeName"),
            ("NodeName=DEFAULT CPUs=2", "NodeName"),
            ("NodeName=d1 CPUs", "expected Key=Value"),
        ] {
            let said = create(line).expect_err(line);
            assert!(said.contains(words) && said.lines().count() == 1, "{line}: {said}");
        }
        let nodes =
            create("NodeName=d[1-2] CPUs=2 NodeAddr=10.0.0.[1-2] State=cloud").expect("two");
        let short: Vec<_> = nodes.iter().map(|n| (n.name.as_str(), n.address.as_str())).collect();
        assert_eq!(short, [("d1", "10.0.0.1"), ("d2", "10.0.0.2")]);
        assert!(nodes[0].cloud && nodes[0].hostname == "d1");
    }
}

//! Nodes and partitions: states, and what is granted of them.

use super::exposition::Exposition;
use super::snapshot::Snapshot;
use slurm::words::node::NodeState;
use std::collections::{BTreeMap, HashMap};
use wire::view::NodeView;

/// Nodes with series of their own: the first by name.
const NODES_MAX: usize = 10_000;

const GPU: &str = "gpu";

/// The states that a cluster usually has, so that a graph begins at zero.
const USUAL_STATES: [&str; 6] = ["allocated", "down", "drained", "draining", "idle", "mixed"];

/// An amount of one node: a family of samples, and a sum over the cluster and over each partition.
struct Amount {
    node: &'static str,
    partition: Option<&'static str>,
    cluster: Option<&'static str>,
    help: &'static str,
    of: fn(&NodeView) -> u64,
}

const AMOUNTS: &[Amount] = &[
    Amount {
        node: "sluice_node_cpus",
        partition: Some("sluice_partition_cpus"),
        cluster: Some("sluice_cpus"),
        help: "CPUs that jobs may have",
        of: |node| u64::from(node.config.usable_cpus().len()),
    },
    Amount {
        node: "sluice_node_cpus_allocated",
        partition: Some("sluice_partition_cpus_allocated"),
        cluster: Some("sluice_cpus_allocated"),
        help: "CPUs that jobs have",
        of: |node| u64::from(node.cpus_allocated),
    },
    Amount {
        node: "sluice_node_memory_bytes",
        partition: Some("sluice_partition_memory_bytes"),
        cluster: Some("sluice_memory_bytes"),
        help: "Memory that jobs may have",
        of: |node| node.config.usable_memory().0,
    },
    Amount {
        node: "sluice_node_memory_allocated_bytes",
        partition: Some("sluice_partition_memory_allocated_bytes"),
        cluster: Some("sluice_memory_allocated_bytes"),
        help: "Memory that jobs were granted",
        of: |node| node.memory_allocated.0,
    },
    Amount {
        node: "sluice_node_gpus",
        partition: Some("sluice_partition_gpus"),
        cluster: Some("sluice_gpus"),
        help: "GPUs that jobs may have",
        of: |node| node.config.gres_total(GPU),
    },
    Amount {
        node: "sluice_node_gpus_allocated",
        partition: Some("sluice_partition_gpus_allocated"),
        cluster: Some("sluice_gpus_allocated"),
        help: "GPUs that jobs have",
        of: gpus_allocated,
    },
    Amount {
        node: "sluice_node_jobs",
        partition: None,
        cluster: None,
        help: "Jobs that hold a part of a node",
        of: |node| u64::from(node.job_count),
    },
    Amount {
        node: "sluice_node_memory_free_bytes",
        partition: None,
        cluster: None,
        help: "Memory that the machine reports as free",
        of: |node| node.facts.free_memory.0,
    },
];

fn gpus_allocated(node: &NodeView) -> u64 {
    node.gres_used.iter().filter(|gres| gres.name == GPU).map(|gres| gres.count).sum()
}

pub fn write(text: &mut Exposition, snapshot: &Snapshot) {
    let nodes = &snapshot.cluster.nodes;
    let states: Vec<(&NodeView, NodeState)> =
        nodes.iter().map(|node| (node, NodeState::of(node))).collect();
    let named = if snapshot.names_nodes { NODES_MAX } else { 0 };
    write_states(text, &states, named);
    for amount in AMOUNTS {
        write_amount(text, snapshot, amount);
    }
    let help = "The power of a node's processors and GPUs, in watts.";
    let mut family = text.gauge("sluice_node_power_watts", help);
    for node in shown(snapshot) {
        if let Some(power) = node.facts.power_w {
            family.sample(&[("node", &node.config.name)], power);
        }
    }
    let mut family = text.gauge("sluice_node_load1", "Load average of the last minute.");
    for node in shown(snapshot) {
        family.sample(&[("node", &node.config.name)], f64::from(node.facts.cpu_load) / 100.0);
    }
    let mut family = text.gauge("sluice_node_boot_time_seconds", "When the machine was booted.");
    for node in shown(snapshot) {
        family.sample(&[("node", &node.config.name)], node.facts.boot_time.secs());
    }
}

fn shown(snapshot: &Snapshot) -> impl Iterator<Item = &NodeView> {
    snapshot.named_nodes().iter().take(NODES_MAX)
}

/// `named`: how many of the nodes have series of their own.
fn write_states(text: &mut Exposition, nodes: &[(&NodeView, NodeState)], named: usize) {
    let mut by_state: BTreeMap<String, u64> =
        USUAL_STATES.iter().map(|state| ((*state).to_owned(), 0)).collect();
    for (_, state) in nodes {
        *by_state.entry(word(*state)).or_default() += 1;
    }
    let mut family = text.gauge("sluice_nodes", "Nodes by state.");
    for (state, count) in &by_state {
        family.sample(&[("state", state)], count);
    }
    let mut family = text.gauge("sluice_node_state", "The state of a node.");
    for (node, state) in nodes.iter().take(named) {
        family.sample(&[("node", &node.config.name), ("state", &word(*state))], 1);
    }
    let mut family = text.gauge("sluice_node_available", "1 if a node takes new jobs.");
    for (node, state) in nodes.iter().take(named) {
        family.sample(&[("node", &node.config.name)], u8::from(state.is_available()));
    }
}

/// The long word of `sinfo` without its signs.
fn word(state: NodeState) -> String {
    let mut word = state.long();
    word.truncate(word.trim_end_matches(|c: char| !c.is_ascii_alphabetic()).len());
    word
}

fn write_amount(text: &mut Exposition, snapshot: &Snapshot, amount: &Amount) {
    let nodes = &snapshot.cluster.nodes;
    let mut family = text.gauge(amount.node, &format!("{} on a node.", amount.help));
    for node in shown(snapshot) {
        family.sample(&[("node", &node.config.name)], (amount.of)(node));
    }
    if let Some(name) = amount.cluster {
        let sum: u64 = nodes.iter().map(amount.of).sum();
        text.gauge(name, &format!("{} in the cluster.", amount.help)).sample(&[], sum);
    }
    if let Some(name) = amount.partition {
        let of: HashMap<&str, u64> =
            nodes.iter().map(|node| (node.config.name.as_str(), (amount.of)(node))).collect();
        let mut family = text.gauge(name, &format!("{} in a partition.", amount.help));
        for partition in &snapshot.cluster.partitions {
            let values = partition.nodes.iter().filter_map(|node| of.get(node.as_str()));
            family.sample(&[("partition", &partition.name)], values.sum::<u64>());
        }
    }
}

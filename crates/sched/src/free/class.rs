//! Classes of nodes with equal hardware: what a job takes of a node is worked out once for each class.

use crate::free::node_free::NodeFree;
use crate::free::timeline::columns_free;
use crate::index::ClassIndex;
use crate::view::NodeInfo;
use model::gpu_model;
use model::node::NodeConfig;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct NodeClasses {
    /// The class of each node.
    pub of: Vec<ClassIndex>,
    /// The configuration of one node of each class.
    pub samples: Vec<Arc<NodeConfig>>,
    /// What an empty node of each class has, by column of its timeline.
    pub empty: Vec<Box<[u64]>>,
    /// The same, as the very CPUs, bytes and devices: what is free of a node is this without what is used.
    pub empty_nodes: Vec<NodeFree>,
}

impl NodeClasses {
    pub fn of_nodes(nodes: &[Arc<NodeInfo>]) -> Self {
        let mut classes = Self::default();
        let mut known: HashMap<u64, Vec<ClassIndex>> = HashMap::new();
        for node in nodes {
            let same_hash = known.entry(class_hash(&node.config)).or_default();
            let alike = |class: &&ClassIndex| are_alike(&classes.samples[class.at()], &node.config);
            let class = match same_hash.iter().find(alike) {
                Some(class) => *class,
                None => {
                    let empty = NodeFree::empty(&node.config);
                    classes.empty.push(columns_free(&empty, &node.config).into_boxed_slice());
                    classes.empty_nodes.push(empty);
                    classes.samples.push(node.config.clone());
                    let class = ClassIndex(classes.samples.len() as u32 - 1);
                    same_hash.push(class);
                    class
                }
            };
            classes.of.push(class);
        }
        classes
    }
}

/// A hash that is equal for nodes of one class.
fn class_hash(config: &NodeConfig) -> u64 {
    let mut hasher = DefaultHasher::new();
    (config.cpus, config.sockets, config.cores_per_socket, config.threads_per_core)
        .hash(&mut hasher);
    (config.memory.0, config.memory_reserved.0, config.tmp_disk.0, config.weight).hash(&mut hasher);
    (&config.features, &config.cpus_reserved, config.architecture, config.price).hash(&mut hasher);
    config.machine.hash(&mut hasher);
    for line in &config.gres {
        (&line.name, &line.kind, line.count, line.first_index).hash(&mut hasher);
    }
    hasher.finish()
}

fn are_alike(a: &NodeConfig, b: &NodeConfig) -> bool {
    let lines_alike = || {
        a.gres.len() == b.gres.len()
            && a.gres.iter().zip(&b.gres).all(|(a, b)| {
                (&a.name, &a.kind, a.count, a.first_index, &a.cores, a.device_memory)
                    == (&b.name, &b.kind, b.count, b.first_index, &b.cores, b.device_memory)
                    && (a.no_consume, a.share_of) == (b.no_consume, b.share_of)
                    && a.compute_capability == b.compute_capability
                    && gpu_model::vendor(a.kind.as_deref().unwrap_or_default(), &a.files)
                        == gpu_model::vendor(b.kind.as_deref().unwrap_or_default(), &b.files)
            })
    };
    (a.cpus, a.boards, a.sockets, a.cores_per_socket, a.threads_per_core, a.weight)
        == (b.cpus, b.boards, b.sockets, b.cores_per_socket, b.threads_per_core, b.weight)
        && (a.memory, a.memory_reserved, a.tmp_disk) == (b.memory, b.memory_reserved, b.tmp_disk)
        && a.cpus_reserved == b.cpus_reserved
        && a.architecture == b.architecture
        && a.price == b.price
        && a.machine == b.machine
        && a.features == b.features
        && lines_alike()
}

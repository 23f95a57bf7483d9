//! The totals that priorities are computed against: the cluster's size and the highest priorities that are set.

use super::association_tree::AssociationTree;
use super::node::Node;
use model::account::Qos;
use model::partition::Partition;
use model::tres::Tres;
use sched::order::multifactor::Scale;
use std::collections::BTreeMap;
use std::sync::Arc;

/// The totals change with the configuration and the accounts alone.
#[derive(Debug)]
pub struct PriorityTotals {
    pub scale: Scale,
    /// The resources of each partition.
    pub partitions: Vec<Tres>,
}

impl PriorityTotals {
    pub fn of(
        nodes: &BTreeMap<String, Node>,
        partitions: &[Arc<Partition>],
        qos: &BTreeMap<String, Arc<Qos>>,
        tree: &AssociationTree,
    ) -> Self {
        let associations = tree.members.iter().filter_map(|(a, _)| a.priority);
        Self {
            scale: Scale {
                nodes: nodes.len() as u64,
                cpus: nodes.values().map(|n| u64::from(n.config.cpus)).sum(),
                association: associations.max().unwrap_or(0),
                partition: partitions.iter().map(|p| p.priority_job_factor).max().unwrap_or(0),
                qos: qos.values().map(|q| q.priority).max().unwrap_or(0),
            },
            partitions: partitions.iter().map(|p| partition_tres(nodes, &p.nodes)).collect(),
        }
    }
}

fn partition_tres(known: &BTreeMap<String, Node>, nodes: &[String]) -> Tres {
    let mut tres = Tres::new();
    for node in nodes.iter().filter_map(|name| known.get(name)) {
        tres.merge(&node.tres());
    }
    tres
}

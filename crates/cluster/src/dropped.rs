//! What a configuration would take away from jobs: the nodes and partitions that the last one had, that it does not have,
//! and that jobs are on.

use crate::config::ClusterConfig;
use crate::state::State;
use crate::state::job::{Job, Phase};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DroppedParts {
    /// Nodes that jobs run on.
    pub nodes: BTreeSet<String>,
    /// Partitions that jobs run in, or that they wait for and for no other.
    pub partitions: BTreeSet<String>,
}

impl DroppedParts {
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty() && self.partitions.is_empty()
    }
}

impl State {
    /// Nodes of fleets and dynamic nodes are in no configuration, and are dropped by none.
    pub fn dropped_by(&self, config: &ClusterConfig) -> DroppedParts {
        let names = |of: &ClusterConfig| -> (BTreeSet<String>, BTreeSet<String>) {
            let nodes = of.nodes.iter().map(|node| node.name.clone());
            let partitions = of.partitions.iter().map(|partition| partition.name.clone());
            (nodes.collect(), partitions.collect())
        };
        let ((nodes, mut partitions), (kept_nodes, kept_partitions)) =
            (names(&self.config), names(config));
        // Partitions that were created while the cluster ran are in no file: a changed configuration drops them.
        if *self.config != *config {
            let created = self.partitions.iter().filter(|p| !self.fleets.contains_key(&p.name));
            partitions.extend(created.map(|partition| partition.name.clone()));
        }
        let nodes: BTreeSet<&String> = nodes.difference(&kept_nodes).collect();
        let partitions: BTreeSet<&String> = partitions.difference(&kept_partitions).collect();
        let mut dropped = DroppedParts::default();
        if nodes.is_empty() && partitions.is_empty() {
            return dropped;
        }
        // Where there is another default, jobs that name none wait for that one.
        let has_default = config.partitions.iter().any(|partition| partition.default);
        let default = self.default_partition().filter(|_| !has_default);
        let default = default.map(|partition| partition.name.clone());
        for job in self.jobs.values() {
            let (on, of) = places(job, default.as_slice());
            dropped.nodes.extend(on.iter().filter(|node| nodes.contains(node)).cloned());
            if of.iter().all(|partition| partitions.contains(partition)) {
                dropped.partitions.extend(of.iter().cloned());
            }
        }
        dropped
    }
}

/// The nodes that a job holds, and the partitions that it runs in or waits for: the default one where it names none.
fn places<'a>(job: &'a Job, default: &'a [String]) -> (&'a [String], &'a [String]) {
    match &job.phase {
        Phase::Waiting if job.spec.request().partitions.is_empty() => (&[], default),
        Phase::Waiting => (&[], &job.spec.request().partitions),
        Phase::Active(attempt) => {
            (&attempt.held_nodes, std::slice::from_ref(&attempt.allocation.partition))
        }
        Phase::Ended(_) => (&[], &[]),
    }
}

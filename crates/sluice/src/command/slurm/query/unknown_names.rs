//! Names on a command line that nobody has: what is listed leaves them out without a word, as in Slurm, and a note names them.

use ::slurm::option::Command;
use model::printable::printable;
use wire::view::ClusterView;

/// How many names that nobody has are told.
const TOLD_MAX: usize = 8;

/// Prints a line for each of the first few: `there is no partition gpus`.
pub fn note(command: Command, unknown: impl Iterator<Item = String>) {
    for what in unknown.take(TOLD_MAX) {
        eprintln!("{}: note: there is no {}", command.name(), printable(&what));
    }
}

/// The partitions and nodes that the cluster does not have. A user to whom `PrivateData` shows none of a kind is not told which
/// names exist.
pub fn places(
    cluster: &ClusterView,
    partitions: &[String],
    nodes: &[String],
) -> impl Iterator<Item = String> {
    let (all_partitions, all_nodes) = (&cluster.partitions, &cluster.nodes);
    let may_be_partition = move |name: &&String| {
        all_partitions.is_empty() || all_partitions.iter().any(|p| p.name == **name)
    };
    let may_be_node = move |name: &&String| {
        all_nodes.is_empty() || all_nodes.iter().any(|n| n.config.name == **name)
    };
    let partitions = partitions.iter().filter(move |name| !may_be_partition(name));
    let nodes = nodes.iter().filter(move |name| !may_be_node(name));
    partitions
        .map(|name| format!("partition {name}"))
        .chain(nodes.map(|name| format!("node {name}")))
}

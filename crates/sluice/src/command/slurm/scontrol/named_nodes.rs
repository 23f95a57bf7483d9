//! The nodes that a command names, and a change of all of them.

use super::{show, update_text};
use crate::command::slurm::query::{CommandError, Server};
use model::change::NodeChange;
use model::hostlist;
use wire::client::Call;

/// The nodes of a host list, or `ALL`. `context` begins the text of an error.
pub fn nodes_named(
    server: &mut Server,
    named: &str,
    context: &str,
) -> Result<Vec<String>, CommandError> {
    if named.eq_ignore_ascii_case("ALL") {
        let cluster = show::cluster(server)?;
        return Ok(cluster.nodes.into_iter().map(|node| node.config.name).collect());
    }
    hostlist::expand(named).map_err(|error| CommandError::message(format!("{context}: {error}")))
}

pub fn change_nodes(
    server: &mut Server,
    nodes: Vec<String>,
    change: NodeChange,
    context: &str,
) -> Result<(), CommandError> {
    match server.try_ask(Call::UpdateNode { nodes, change })? {
        Ok(_) => Ok(()),
        Err(why) => Err(CommandError::message(format!("{context}: {}", update_text(&why)))),
    }
}

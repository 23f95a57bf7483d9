//! `scontrol create NodeName=…` and `scontrol delete NodeName=…`: nodes that no configuration file names.

use super::update_text;
use crate::command::slurm::query::{CommandError, Server};
use ::slurm::conf::node_line;
use model::hostlist;
use std::process::ExitCode;
use wire::agent_view::NewNodes;
use wire::client::Call;

const KEY: &str = "NodeName";

/// The nodes that a word names: `NodeName=d[1-3]`.
pub fn named(word: &str) -> Option<&str> {
    let (key, nodes) = word.split_once('=')?;
    key.eq_ignore_ascii_case(KEY).then_some(nodes)
}

pub fn create(names: &str, words: &[String]) -> Result<ExitCode, CommandError> {
    let wrong = |why: String| CommandError::message(format!("scontrol: error: {why}"));
    let nodes = node_line::created(words).map_err(wrong)?;
    let names_key = |key: &str| {
        words.iter().any(|word| {
            word.split_once('=').is_some_and(|(name, _)| name.eq_ignore_ascii_case(key))
        })
    };
    let each = |key: &str, of: &dyn Fn(&model::node::NodeConfig) -> String| {
        if names_key(key) { nodes.iter().map(of).collect() } else { Vec::new() }
    };
    let addresses = each("NodeAddr", &|node| node.address.clone());
    let hostnames = each("NodeHostname", &|node| node.hostname.clone());
    let mut node = nodes[0].clone();
    node.name.clear();
    let new = NewNodes { names: names.to_owned(), addresses, hostnames, node };
    ask(Call::CreateNodes(Box::new(new)), "scontrol_create_node error")
}

pub fn delete(names: &str) -> Result<ExitCode, CommandError> {
    const CONTEXT: &str = "scontrol_delete_node error";
    let nodes = hostlist::expand(names)
        .map_err(|error| CommandError::message(format!("{CONTEXT}: {error}")))?;
    ask(Call::DeleteNodes { nodes }, CONTEXT)
}

fn ask(call: Call, context: &'static str) -> Result<ExitCode, CommandError> {
    match Server::find(context)?.try_ask(call)? {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(why) => Err(CommandError::message(format!("{context}: {}", update_text(&why)))),
    }
}

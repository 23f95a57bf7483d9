//! `scontrol create PartitionName=…` and `scontrol delete PartitionName=…`.

use super::{show, update_text};
use crate::command::slurm::query::{CommandError, Server};
use ::slurm::conf::partition_line;
use std::process::ExitCode;
use wire::client::{Answer, Call};

const KEY: &str = "PartitionName";

/// The partition that a word names: `PartitionName=new`, `partition=new`.
pub fn named(word: &str) -> Option<&str> {
    let (key, name) = word.split_once('=')?;
    ["Partition", KEY].iter().any(|known| known.eq_ignore_ascii_case(key)).then_some(name)
}

pub fn create(name: &str, words: &[String]) -> Result<ExitCode, CommandError> {
    const CONTEXT: &str = "slurm_create_partition error";
    let mut server = Server::find(CONTEXT)?;
    let nodes: Vec<String> =
        show::cluster(&mut server)?.nodes.into_iter().map(|node| node.config.name).collect();
    let values = match server.ask(Call::Config)? {
        Answer::Config(config) => config.values,
        other => return Err(CommandError::unexpected(&other)),
    };
    let mut line = words.to_vec();
    if let Some(first) = line.first_mut() {
        *first = format!("{KEY}={name}");
    }
    let (partition, told) = partition_line::created(&line, &nodes, &values)
        .map_err(|why| CommandError::message(format!("scontrol: error: {why}")))?;
    for line in told {
        eprintln!("scontrol: note: {line}");
    }
    ask(&mut server, Call::CreatePartition(Box::new(partition)), CONTEXT)
}

pub fn delete(name: &str) -> Result<ExitCode, CommandError> {
    const CONTEXT: &str = "slurm_delete_partition error";
    let call = Call::DeletePartition { name: name.to_owned() };
    ask(&mut Server::find(CONTEXT)?, call, CONTEXT)
}

fn ask(server: &mut Server, call: Call, context: &str) -> Result<ExitCode, CommandError> {
    match server.try_ask(call)? {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(why) => Err(CommandError::message(format!("{context}: {}", update_text(&why)))),
    }
}

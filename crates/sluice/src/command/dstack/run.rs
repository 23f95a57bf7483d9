//! `sluice run get`: one run, by its name or its id.

use super::ps::{Entry, entry_json};
use super::service_url::ServerBase;
use super::{
    OfProject, ask, cluster, find_ended, find_in_memory, jobs, nodes_of, print, print_json,
    unexpected,
};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::node_groups::merge_records;
use ::dstack::table;
use clap::{Args, Subcommand};
use model::change::JobFilter;
use model::id::RunId;
use std::process::ExitCode;
use wire::client::{Answer, Call, HistoryFilter};

#[derive(Args)]
pub struct RunArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(flatten)]
    of: OfProject,
    #[command(subcommand)]
    action: RunAction,
}

#[derive(Subcommand)]
enum RunAction {
    /// Show a run
    Get {
        /// The run's name, or a job's number
        #[arg(required_unless_present = "id")]
        name: Option<String>,
        /// The run's id, a UUID
        #[arg(long, value_name = "ID", conflicts_with = "name")]
        id: Option<RunId>,
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
}

pub fn run(args: RunArgs) -> VerbResult {
    let RunArgs { server, of, action: RunAction::Get { name, id, json } } = args;
    let mut client = server.client()?;
    let found = match id {
        Some(id) => by_id(&mut client, id, &of)?,
        None => by_name(&mut client, &name.unwrap_or_default(), &of)?,
    };
    let cluster = cluster(&mut client)?;
    let now = cluster.now;
    let base = ServerBase::for_runs(&mut client, found.job().into_iter())?;
    if json {
        print_json(&entry_json(&found, &of.project, now, &base))?;
        return Ok(ExitCode::SUCCESS);
    }
    print(&table::ps(&found.rows(&nodes_of(cluster), now, &base), true))?;
    Ok(ExitCode::SUCCESS)
}

fn by_name(client: &mut Client, name: &str, of: &OfProject) -> Result<Entry, VerbError> {
    Ok(match find_in_memory(client, name, of)? {
        Some(job) => Entry::Job(Box::new(job)),
        None => Entry::Record(Box::new(find_ended(client, name, of)?)),
    })
}

fn by_id(client: &mut Client, id: RunId, of: &OfProject) -> Result<Entry, VerbError> {
    of.check(client)?;
    let accounts = of.accounts();
    let filter = JobFilter {
        accounts: accounts.clone(),
        all_states: true,
        without_deleted: true,
        ..JobFilter::default()
    };
    let in_memory = jobs(client, filter)?.into_iter().find(|job| job.run == Some(id));
    if let Some(job) = in_memory {
        return Ok(Entry::Job(Box::new(job)));
    }
    let filter = HistoryFilter {
        runs: vec![id],
        accounts,
        without_deleted: true,
        ..HistoryFilter::default()
    };
    let records = match ask(client, Call::History(filter))? {
        Answer::History(records) => merge_records(records),
        other => return Err(unexpected(&other)),
    };
    let last = records.into_iter().max_by_key(|record| (record.submit, record.attempt));
    last.map(|record| Entry::Record(Box::new(record)))
        .ok_or_else(|| VerbError::Message(format!("Run {id} not found")))
}

//! The runs that a task depends on by their names.

use super::ApplyArgs;
use super::active_run::first_of;
use crate::client::Client;
use crate::command::dstack::{ask, jobs, own_name, unexpected};
use crate::command::verb::VerbError;
use ::dstack::configuration::task::Task;
use ::dstack::node_groups::merge_records;
use ::dstack::request::{self, NamedRun};
use ::dstack::run_summary::RunSummary;
use ::dstack::status::RunStatus;
use model::change::JobFilter;
use model::record::{HistoryFilter, JobRecord};
use wire::client::{Answer, Call};

/// The caller's newest run of each name that the task depends on, whether it has ended or not, and has left the queue or not.
pub(super) fn resolve_dependencies(
    client: &mut Client,
    task: &mut Task,
    args: &ApplyArgs,
) -> Result<(), VerbError> {
    let named = task.depends_on.iter().filter_map(|term| Some(term.split_once(':')?.1.to_owned()));
    let names: Vec<String> = named.filter(|run| run.parse::<u32>().is_err()).collect();
    if names.is_empty() {
        return Ok(());
    }
    let users = vec![own_name(client)?];
    let of_names = (names.clone(), users.clone());
    let filter = JobFilter { names, users, all_states: true, ..JobFilter::default() };
    let runs = jobs(client, filter)?;
    let in_queue = |name: &str| {
        let of_name = runs.iter().filter(|job| &*job.spec.name == name);
        of_name.map(|job| first_of(job).0).max()
    };
    let (mut names, users) = of_names;
    names.retain(|name| in_queue(name).is_none());
    let mut booked = Vec::new();
    if !names.is_empty() {
        let filter = HistoryFilter { names, users, ended: true, ..HistoryFilter::default() };
        booked = match ask(client, Call::History(filter))? {
            Answer::History(records) => merge_records(records),
            other => return Err(unexpected(&other)),
        };
    }
    let newest = |name: &str| match in_queue(name) {
        Some(job) => Some(NamedRun::Job(job)),
        None => ended_as(&booked, name).map(NamedRun::Ended),
    };
    request::resolve_dependencies(task, newest)
        .map_err(|error| VerbError::Message(format!("{}: {error}", args.file)))
}

/// How the newest run of this name ended; one with several tasks as the first of them that was not done.
fn ended_as(booked: &[JobRecord], name: &str) -> Option<RunStatus> {
    let of_name = || booked.iter().filter(|record| record.name == name);
    let newest = of_name().max_by_key(|record| (record.submit, record.job))?;
    let of_run = of_name().filter(|record| record.run == newest.run);
    let mut statuses = of_run.map(|record| RunSummary::of_record(record).status);
    Some(statuses.find(|status| *status != RunStatus::Done).unwrap_or(RunStatus::Done))
}

//! `sacctmgr show transactions` and `sacctmgr show event`.

use super::command_line::{CommandLine, Term, unknown_option};
use super::load;
use super::show::layout;
use crate::command::slurm::query::{self, CommandError, Server};
use ::slurm::option::{OptionKey as K, Parsed};
use ::slurm::output::sacctmgr::{Entity, Options, audit};
use model::activity::{Activity, ActivityFilter};
use model::hostlist;
use model::outage::OutageKind;
use model::time::Timestamp;
use model::time_spec::{parse_past_time_spec, start_of_yesterday};
use std::process::ExitCode;
use wire::client::{Answer, Call};

/// Conditions that one of the two tables alone has: the other refuses them, and does not show more than was asked for.
const OF_TRANSACTIONS: &[&str] = &["Account", "Accounts", "Actor", "Actors", "Action", "Actions"];
/// Not formatted by rustfmt: one line.
#[rustfmt::skip]
const OF_EVENTS: &[&str] = &[
    "CondFlags", "Event", "Events", "MaxCPUs", "MinCPUs", "Node", "Nodes", "Reason", "Reasons", "State", "States",
];

pub fn run(line: &CommandLine, parsed: &Parsed) -> Result<ExitCode, CommandError> {
    let mut terms = line.terms.clone();
    let mut take = |keys: &[&str]| CommandLine::take(&mut terms, keys);
    let format = take(&["Format"]);
    let actors = take(&["Actor", "Actors"]);
    let actions = take(&["Action", "Actions"]);
    let accounts = take(&["Account", "Accounts"]);
    let users = take(&["User", "Users"]);
    let nodes = take(&["Node", "Nodes"]);
    let (reasons, states) = (take(&["Reason", "Reasons"]), take(&["State", "States"]));
    let flags = take(&["CondFlags"]);
    let (start, end) = (take(&["Start", "TimeStart"]), take(&["End", "TimeEnd"]));
    let kinds = take(&["Event", "Events"]);
    let (min_cpus, max_cpus) = (take(&["MinCPUs"]), take(&["MaxCPUs"]));
    take(&["Cluster", "Clusters"]);
    if let Some(term) = terms.first() {
        return Err(unknown_option(&term.typed));
    }
    let is_transaction = line.entity == Entity::Transaction;
    let foreign = |term: &&Term| term.is(if is_transaction { OF_EVENTS } else { OF_TRANSACTIONS });
    if let Some(term) = line.terms.iter().find(foreign) {
        return Err(unknown_option(&term.typed));
    }
    if let Some(flag) = flags.iter().find(|flag| !flag.eq_ignore_ascii_case("open")) {
        return Err(CommandError::message(format!(
            "sacctmgr: error: CondFlags={flag}: expected Open"
        )));
    }
    let (min_cpus, max_cpus) = (count("MinCPUs", &min_cpus)?, count("MaxCPUs", &max_cpus)?);
    let states = states.iter().map(|word| state(word)).collect::<Result<Vec<_>, _>>()?;
    let kinds = kinds.iter().map(|word| is_of_nodes(word)).collect::<Result<Vec<_>, _>>()?;
    let has_nodes = kinds.is_empty() || kinds.contains(&true);
    let all_time = line.has("all_time");
    if let Some(name) = line.names.first() {
        return Err(unknown_option(name));
    }
    let mut server = Server::find("sacctmgr: error")?;
    let cluster = load(&mut server)?.cluster;
    let is_here = !line.is_elsewhere(&cluster);
    let now = match server.ask(Call::Ping)? {
        Answer::Pong { now, .. } => now,
        other => return Err(CommandError::unexpected(&other)),
    };
    let tz = timezone::local();
    let time = |given: &[String]| -> Result<Option<Timestamp>, CommandError> {
        let Some(text) = given.last() else { return Ok(None) };
        let read = parse_past_time_spec(text, now, &tz);
        read.map(Some).map_err(|error| CommandError::message(format!("sacctmgr: error: {error}")))
    };
    let (from, until) = (time(&start)?, time(&end)?);
    let options = Options {
        format: (!format.is_empty()).then(|| format.join(",")),
        no_header: parsed.has(K::Noheader),
        layout: layout(parsed),
        ..Options::default()
    };
    let text = if is_transaction {
        let about = ActivityFilter { actors, from, until, ..ActivityFilter::default() };
        let found = if is_here { ask(&mut server, about)? } else { Vec::new() };
        let filter = audit::TransactionFilter { actions, users, accounts };
        audit::transactions(&found, &filter, &tz, &options)
    } else {
        // An event may have begun long before: all that happened to nodes is needed to know it.
        // A comma inside brackets does not end a name: the list is put together again first.
        let named = hostlist::expand(&nodes.join(","));
        let nodes = named.map_err(|error| {
            CommandError::message(format!("sacctmgr: error: Invalid node list: {error}"))
        })?;
        let about = ActivityFilter {
            until,
            about_nodes: true,
            nodes: nodes.clone(),
            ..ActivityFilter::default()
        };
        let found = if is_here && has_nodes { ask(&mut server, about)? } else { Vec::new() };
        let only_open = !flags.is_empty();
        let ever = all_time || only_open;
        let from = from.or_else(|| if ever { None } else { start_of_yesterday(now, &tz) });
        let filter = audit::EventFilter {
            nodes,
            users,
            reasons,
            states,
            min_cpus,
            max_cpus,
            only_open,
            from,
            until,
        };
        let known = match server.ask(Call::Cluster)? {
            Answer::Cluster(view) => view.nodes,
            other => return Err(CommandError::unexpected(&other)),
        };
        let cluster = audit::EventCluster { name: &cluster, nodes: &known, now };
        audit::events(&found, cluster, &filter, &tz, &options)
    };
    query::print(&text.map_err(|error| CommandError::message(error.to_string()))?)?;
    Ok(ExitCode::SUCCESS)
}

fn bad_value(key: &str, value: &str, expected: &str) -> CommandError {
    CommandError::message(format!("sacctmgr: error: {key}={value}: expected {expected}"))
}

fn count(key: &str, given: &[String]) -> Result<Option<u64>, CommandError> {
    let Some(text) = given.last() else { return Ok(None) };
    text.parse().map(Some).map_err(|_| bad_value(key, text, "a number of CPUs"))
}

fn state(word: &str) -> Result<OutageKind, CommandError> {
    let row = audit::EVENT_STATES.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
    row.map(|(_, kind)| *kind).ok_or_else(|| bad_value("State", word, "DOWN, DRAIN or FAIL"))
}

/// Whether the kind of events is that of nodes: of clusters there are none.
fn is_of_nodes(word: &str) -> Result<bool, CommandError> {
    match word.to_ascii_lowercase().as_str() {
        "all" | "node" => Ok(true),
        "cluster" => Ok(false),
        _ => Err(bad_value("Event", word, "All, Cluster or Node")),
    }
}

fn ask(server: &mut Server, filter: ActivityFilter) -> Result<Vec<Activity>, CommandError> {
    match server.ask(Call::ActivityHistory(filter))? {
        Answer::Activities(found) => Ok(found),
        other => Err(CommandError::unexpected(&other)),
    }
}

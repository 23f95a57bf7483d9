//! `sluice ps`: lists runs and all other jobs, in dstack's format.

use super::options::OutputArgs;
use super::service_url::ServerBase;
use super::{OfProject, ask, cluster, nodes_of, unexpected, watch};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::node_groups::{IncompleteRuns, merge_records, merge_views, replace_runs};
use ::dstack::run_summary::{self, Nodes, RunSummary};
use ::dstack::table::{self, PsRow, ago};
use clap::Args;
use model::change::JobFilter;
use model::price::Cost;
use model::record::{HistoryOrder, JobRecord};
use model::time::{Timestamp, format_iso};
use serde_json::{Value, json};
use std::cmp::Reverse;
use std::collections::HashSet;
use std::process::ExitCode;
use wire::client::{Answer, Call, Detail, HistoryFilter, JobsQuery};
use wire::job_list::JobList;
use wire::view::{ArrayView, JobView};

/// The most records that one listing takes from the accounting database, but for those of groups that belong to them.
const HISTORY_MAX: u32 = 1_000;

#[derive(Args)]
pub struct PsArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(flatten)]
    of: OfProject,
    /// Show all runs; without it only those that have not finished, or the last that has
    #[arg(short, long)]
    all: bool,
    /// Show more of each run
    #[arg(short, long)]
    verbose: bool,
    /// Show again and again, until interrupted
    #[arg(short, long)]
    watch: bool,
    /// Show only the last N runs, finished or not
    #[arg(short = 'n', long, value_name = "N")]
    last: Option<usize>,
    #[command(flatten)]
    output: OutputArgs,
}

pub fn run(args: PsArgs) -> VerbResult {
    args.output.check_watch(args.watch)?;
    let mut client = args.server.client()?;
    args.of.check(&mut client)?;
    watch(args.watch, || {
        let listing = Listing::ask(&mut client, &args)?;
        if args.output.is_json() {
            return Ok(format!("{}\n", listing.json(&mut client, &args.of.project)?));
        }
        Ok(table::ps(&listing.rows(&mut client)?, args.verbose))
    })?;
    Ok(ExitCode::SUCCESS)
}

/// A job in the server's memory, or one that only the accounting database has.
pub(super) enum Entry {
    Job(Box<JobView>),
    Record(Box<JobRecord>),
}

impl Entry {
    fn submitted(&self) -> Timestamp {
        match self {
            Self::Job(job) => job.submit,
            Self::Record(record) => record.submit,
        }
    }

    fn id(&self) -> u32 {
        match self {
            Self::Job(job) => job.id.0,
            Self::Record(record) => record.job.0,
        }
    }

    /// By what a listing is sorted: the newest first, and the tasks of one array by their indices. Tasks that wait together have
    /// the place of their first.
    fn order(&self) -> (Reverse<Timestamp>, Reverse<u32>, Option<u32>) {
        let (array, task) = match self {
            Self::Job(job) => {
                let array = job.array.as_deref();
                let waiting = |array: &ArrayView| array.pending.as_ref()?.first();
                (
                    array.map(|array| array.array),
                    array.and_then(|array| array.index.or_else(|| waiting(array))),
                )
            }
            Self::Record(record) => (record.array_job, record.array_task),
        };
        let submitted_as = array.map_or_else(|| self.id(), |array| array.0);
        (Reverse(self.submitted()), Reverse(submitted_as), task)
    }

    /// The job, of an entry that is one.
    pub fn job(&self) -> Option<&JobView> {
        match self {
            Self::Job(job) => Some(job),
            Self::Record(_) => None,
        }
    }

    /// Its lines in the table.
    pub fn rows(&self, nodes: &Nodes, now: Timestamp, base: &ServerBase) -> Vec<PsRow> {
        let submitted = ago(self.submitted(), now);
        let mut rows = match self {
            Self::Job(job) => run_summary::rows(job, nodes, &submitted),
            Self::Record(record) => vec![run_summary::record_row(record, nodes, &submitted)],
        };
        // The lines of a run's nodes follow its own.
        if let (Some(run), Some(cost)) = (rows.first_mut(), self.cost(now)) {
            run.cost = cost.to_string();
        }
        let url = self.job().and_then(JobView::service_url);
        if let (Some(run), Some(url)) = (rows.first_mut(), url) {
            run.url = base.whole(&url);
        }
        rows
    }

    /// What it has cost so far; `None` where its nodes have no price.
    fn cost(&self, now: Timestamp) -> Option<Cost> {
        match self {
            Self::Job(job) => run_summary::job_cost(job, now),
            Self::Record(record) => run_summary::record_cost(record, now),
        }
    }

    fn is_finished(&self) -> bool {
        match self {
            Self::Job(job) => job.state.is_ended(),
            Self::Record(_) => true,
        }
    }
}

struct Listing {
    now: Timestamp,
    /// In [`Entry::order`].
    entries: Vec<Entry>,
}

impl Listing {
    fn ask(client: &mut Client, args: &PsArgs) -> Result<Self, VerbError> {
        let filter = JobFilter {
            accounts: args.of.accounts(),
            all_states: true,
            without_deleted: true,
            ..JobFilter::default()
        };
        let is_full = args.output.is_json() || args.verbose;
        let detail = if is_full { Detail::Full } else { Detail::Listing };
        let wanted = JobsQuery { filter, detail, ..JobsQuery::default() };
        let (now, jobs) = match ask(client, Call::Jobs(wanted))? {
            Answer::Jobs { now, jobs: JobList(jobs) } => (now, merge_views(jobs)),
            other => return Err(unexpected(&other)),
        };
        let all = args.all || args.last.is_some();
        let known: HashSet<u32> = jobs.iter().map(|job| job.id.0).collect();
        let past = match args.last {
            Some(last) => u32::try_from(last).unwrap_or(HISTORY_MAX),
            None if args.all => HISTORY_MAX,
            // The last run that has ended is shown where there is no other.
            None => u32::from(jobs.is_empty()),
        };
        let past = if past > 0 { history(client, past, &args.of, &known)? } else { Vec::new() };
        let mut entries: Vec<Entry> = jobs.into_iter().map(|j| Entry::Job(Box::new(j))).collect();
        entries.extend(past.into_iter().map(|record| Entry::Record(Box::new(record))));
        entries.sort_by_key(Entry::order);
        if !all {
            keep_unfinished(&mut entries);
        }
        entries.truncate(args.last.unwrap_or(usize::MAX));
        Ok(Self { now, entries })
    }

    fn rows(&self, client: &mut Client) -> Result<Vec<PsRow>, VerbError> {
        let nodes = nodes_of(cluster(client)?);
        let base = self.server_base(client)?;
        let rows = |entry: &Entry| entry.rows(&nodes, self.now, &base);
        Ok(self.entries.iter().flat_map(rows).collect())
    }

    fn server_base(&self, client: &mut Client) -> Result<ServerBase, VerbError> {
        ServerBase::for_runs(client, self.entries.iter().filter_map(Entry::job))
    }

    /// The fields of dstack's own answer that are known here, and the job id.
    fn json(&self, client: &mut Client, project: &str) -> Result<Value, VerbError> {
        let base = self.server_base(client)?;
        let run = |entry| entry_json(entry, project, self.now, &base);
        let runs: Vec<Value> = self.entries.iter().map(run).collect();
        Ok(json!({ "project": project, "runs": runs }))
    }
}

/// Keeps the entries that have not finished, or the last one if all have.
fn keep_unfinished(entries: &mut Vec<Entry>) {
    if entries.iter().any(|entry| !entry.is_finished()) {
        entries.retain(|entry| !entry.is_finished())
    } else {
        entries.truncate(1)
    }
}

/// The last `wanted` runs that have ended and are not known yet. Groups of one run, and known ones, make fewer of the
/// records that were asked for: then more are.
fn history(
    client: &mut Client,
    wanted: u32,
    of: &OfProject,
    known: &HashSet<u32>,
) -> Result<Vec<JobRecord>, VerbError> {
    let mut limit = wanted.min(HISTORY_MAX);
    loop {
        let order = HistoryOrder::LastSubmitted;
        let (limit_of_answer, accounts) = (Some(limit), of.accounts());
        let last =
            HistoryFilter { limit: limit_of_answer, accounts, order, ..HistoryFilter::default() };
        let mut found = records(client, last)?;
        let is_all = (found.len() as u64) < u64::from(limit) || limit == HISTORY_MAX;
        let IncompleteRuns { runs, .. } = IncompleteRuns::among(&found);
        if !runs.is_empty() {
            let whole = records(client, HistoryFilter { runs, ..HistoryFilter::default() })?;
            found = replace_runs(found, whole);
        }
        let mut runs = merge_records(found);
        runs.retain(|record| !known.contains(&record.job.0));
        if is_all || runs.len() as u64 >= u64::from(wanted) {
            return Ok(runs);
        }
        limit = limit.saturating_mul(2).min(HISTORY_MAX);
    }
}

fn records(client: &mut Client, filter: HistoryFilter) -> Result<Vec<JobRecord>, VerbError> {
    let filter = HistoryFilter { without_deleted: true, ended: true, ..filter };
    match ask(client, Call::History(filter))? {
        Answer::History(records) => Ok(records),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn entry_json(entry: &Entry, project: &str, now: Timestamp, base: &ServerBase) -> Value {
    let (summary, id, name, user) = match entry {
        Entry::Job(job) => (RunSummary::of_job(job), job.run, &*job.name, &job.spec.owner.name),
        Entry::Record(record) => {
            (RunSummary::of_record(record), Some(record.run), &*record.name, &record.user)
        }
    };
    let utc = |time| format!("{}Z", format_iso(time, &jiff::tz::TimeZone::UTC));
    let nodes: Vec<&str> = match entry {
        Entry::Job(job) => job.allocation.iter().flat_map(|a| a.node_names()).collect(),
        Entry::Record(record) => record.nodes.iter().map(String::as_str).collect(),
    };
    let network = match entry {
        Entry::Job(job) => job.extras.as_ref().and_then(|extras| extras.network.as_ref()),
        Entry::Record(_) => None,
    };
    let ports: Vec<Value> = network
        .iter()
        .flat_map(|network| &network.ports)
        .map(|port| json!({ "container": port.container, "node": port.node }))
        .collect();
    let service = entry.job().and_then(|job| base.service(job));
    let restarts = match entry {
        Entry::Job(job) => job.restarts,
        Entry::Record(record) => record.restarts,
    };
    json!({
        "id": id,
        "project_name": project,
        "user": user,
        "submitted_at": utc(entry.submitted()),
        "status": summary.status.word(),
        "status_message": summary.message,
        "termination_reason": summary.end.map(|end| end.word()),
        "run_termination_reason": summary.run_end.map(|end| end.word()),
        "exit_status": summary.exit,
        "error": summary.run_error(),
        "run_spec": { "run_name": name },
        "job_id": entry.id(),
        "attempts": restarts + 1,
        "cost": entry.cost(now).map(|cost| cost.dollars()),
        "nodes": nodes,
        "ports": ports,
        "service": service,
    })
}

//! dstack's verbs, and what they share.
//!
//! - A file for each verb: `apply`, `ps`, `run`, `logs`, `stop`, `delete`, `event`, `metrics`, `offer`, `fleet`, `project`, `secret`, `volume`.
//! - Of `apply`: `task_file` (the configuration), `workspace` (what a run brings along), `fleet_apply` and `fleet_changes`, `attach` (following a run), `service_url`.
//! - Of `logs`: `all_logs`, `log_source`, `log_output`.
//! - Options: `options`, `profile_options`, `published_options` (those of dstack's client that are not here). `offer_json`: offers as JSON.

mod all_logs;
pub mod apply;
mod attach;
pub mod delete;
pub mod event;
pub mod fleet;
mod fleet_apply;
mod fleet_changes;
mod log_output;
mod log_source;
pub mod logs;
pub mod metrics;
pub mod offer;
mod offer_json;
pub mod options;
mod profile_options;
pub mod project;
pub mod ps;
pub mod published_options;
pub mod run;
pub mod secret;
mod service_url;
pub mod stop;
mod task_file;
pub mod volume;
mod workspace;

use crate::client::Client;
use crate::command::slurm::query::job_names;
use crate::command::verb::VerbError;
pub(super) use crate::command::verb::{ask, unexpected};
use ::dstack::node_groups::{merge_records, merge_views};
use ::dstack::occurrence::run_name;
use ::dstack::run_summary::{Nodes, RunSummary};
use clap::Args;
use model::change::{JobFilter, JobRef};
use model::fleet::MAIN_PROJECT;
use model::id::JobId;
use model::reason::Refusal;
use model::record::JobRecord;
use std::io::{self, BufRead, IsTerminal, Write};
use std::time::Duration;
use wire::client::{Answer, Call, HistoryFilter, JobsQuery};
use wire::fleet::FleetView;
use wire::job_list::JobList;
use wire::view::{ClusterView, JobView};

/// The runs: the groups of a task are one.
fn jobs(client: &mut Client, filter: JobFilter) -> Result<Vec<JobView>, VerbError> {
    Ok(merge_views(each_group(client, filter)?))
}

fn each_group(client: &mut Client, filter: JobFilter) -> Result<Vec<JobView>, VerbError> {
    let wanted = JobsQuery { filter, ..JobsQuery::default() };
    match ask(client, Call::Jobs(wanted))? {
        Answer::Jobs { jobs: JobList(jobs), .. } => Ok(jobs),
        other => Err(unexpected(&other)),
    }
}

fn cluster(client: &mut Client) -> Result<ClusterView, VerbError> {
    match ask(client, Call::Cluster)? {
        Answer::Cluster(view) => Ok(view),
        other => Err(unexpected(&other)),
    }
}

/// How often the hosts of a fleet are looked at while something is done there.
const PROGRESS_PAUSE: Duration = Duration::from_millis(300);

/// The fleets over SSH.
fn fleets(client: &mut Client) -> Result<Vec<FleetView>, VerbError> {
    match ask(client, Call::Fleets)? {
        Answer::Fleets(fleets) => Ok(fleets),
        other => Err(unexpected(&other)),
    }
}

fn nodes_of(cluster: ClusterView) -> Nodes {
    let nodes = cluster.nodes.into_iter().map(|node| node.config);
    nodes.map(|config| (config.name.clone(), config)).collect()
}

// The project that a verb is about.
#[derive(Args)]
pub struct OfProject {
    /// Only what is of this project; the main one has the runs of all
    #[arg(long, env = "DSTACK_PROJECT", default_value = MAIN_PROJECT, value_name = "NAME")]
    project: String,
}

impl OfProject {
    /// The one that has the runs of all.
    pub fn main() -> Self {
        Self { project: MAIN_PROJECT.to_owned() }
    }

    pub fn is_main(&self) -> bool {
        self.project == MAIN_PROJECT
    }

    /// The accounts whose runs are the project's; empty for those of all.
    fn accounts(&self) -> Vec<String> {
        let own = Some(&self.project).filter(|project| *project != MAIN_PROJECT);
        own.into_iter().cloned().collect()
    }

    /// Refuses one that is not there, or not the caller's: a list of its runs would be empty and look as if it had none.
    fn check(&self, client: &mut Client) -> Result<(), VerbError> {
        if self.is_main() {
            return Ok(());
        }
        match ask(client, Call::Projects)? {
            Answer::Projects(all) if all.iter().any(|one| one.name == self.project) => Ok(()),
            Answer::Projects(_) => {
                let text = format!("project {} does not exist, or you are no member", self.project);
                Err(VerbError::Message(text))
            }
            other => Err(unexpected(&other)),
        }
    }
}

/// Whom the server takes the caller for.
pub(super) fn own_name(client: &mut Client) -> Result<String, VerbError> {
    match ask(client, Call::Ping)? {
        Answer::Pong { user, .. } => Ok(user),
        other => Err(unexpected(&other)),
    }
}

/// A job by its number: `13`, a task of an array `13_2`, or the job of a step `13.0`. `None` for the name of a run.
pub(super) fn job_ref(word: &str) -> Option<JobRef> {
    job_names::parse_job(word).map(|named| named.job)
}

/// The job of `NAME-NUMBER`, by which dstack's client and the SSH endpoint know one that is no task.
fn job_behind_name(word: &str) -> Option<JobRef> {
    let (_, number) = word.rsplit_once('-')?;
    number.parse().ok().map(|number| JobRef::whole(JobId(number)))
}

/// The run with this name or job id: the caller's own before those of others, then the newest that has not ended, or else the
/// newest.
pub(super) fn find_run(
    client: &mut Client,
    word: &str,
    of: &OfProject,
) -> Result<JobView, VerbError> {
    let found = find_in_memory(client, word, of)?;
    found.ok_or_else(|| VerbError::Message(format!("Run {word} not found")))
}

/// The same, of a run that something is to be done with while it runs: for one that has ended, how, and where its log is.
pub(super) fn find_unended(
    client: &mut Client,
    word: &str,
    of: &OfProject,
) -> Result<JobView, VerbError> {
    let summary = match find_in_memory(client, word, of)? {
        Some(run) if !run.state.is_ended() => return Ok(run),
        Some(run) => RunSummary::of_job(&run),
        None => RunSummary::of_record(&find_ended(client, word, of)?),
    };
    Err(has_ended(word, &summary))
}

fn has_ended(word: &str, summary: &RunSummary) -> VerbError {
    let how = &summary.message;
    VerbError::Message(format!("run {word} has ended ({how}): `sluice logs {word}` has its log"))
}

/// The same as [`find_run`]; `None` for a run that only the books may have.
fn find_in_memory(
    client: &mut Client,
    word: &str,
    of: &OfProject,
) -> Result<Option<JobView>, VerbError> {
    of.check(client)?;
    let all = |jobs: Vec<JobRef>, names: Vec<String>| {
        let accounts = of.accounts();
        JobFilter { jobs, names, accounts, all_states: true, ..JobFilter::default() }
    };
    let found = match job_ref(word) {
        Some(job) => in_memory(client, all(vec![job], Vec::new()))?,
        None => {
            let mut found = in_memory(client, all(Vec::new(), vec![word.to_owned()]))?;
            if found.is_empty()
                && let Some(job) = job_behind_name(word)
            {
                found = in_memory(client, all(vec![job], Vec::new()))?;
                found.retain(|job| run_name(job.spec.launch.kind, &job.name, job.id) == word);
            }
            found
        }
    };
    let runs = merge_views(found);
    // Most names are one user's.
    let owner = |job: &JobView| job.spec.owner.uid;
    let is_shared = runs.iter().any(|job| owner(job) != owner(&runs[0]));
    let own = if is_shared { own_name(client)? } else { String::new() };
    Ok(newest(runs, &own))
}

/// The jobs in the server's memory; none for a number that it does not know.
fn in_memory(client: &mut Client, filter: JobFilter) -> Result<Vec<JobView>, VerbError> {
    match client.call(Call::Jobs(JobsQuery { filter, ..JobsQuery::default() }))? {
        Answer::Jobs { jobs: JobList(jobs), .. } => Ok(jobs),
        Answer::Refused(Refusal::UnknownJob(_)) => Ok(Vec::new()),
        Answer::Refused(why) => Err(why.into()),
        other => Err(unexpected(&other)),
    }
}

/// The last record of the run with this name or job id, which may have left the server's memory; the caller's own before
/// those of others.
fn find_ended(client: &mut Client, word: &str, of: &OfProject) -> Result<JobRecord, VerbError> {
    of.check(client)?;
    let all = |jobs: Vec<JobRef>, names: Vec<String>| {
        let accounts = of.accounts();
        HistoryFilter { jobs, names, accounts, without_deleted: true, ..HistoryFilter::default() }
    };
    let own = own_name(client)?;
    let records = match job_ref(word) {
        Some(job) => in_books(client, all(vec![job], Vec::new()))?,
        None => {
            let mut records = in_books(client, all(Vec::new(), vec![word.to_owned()]))?;
            if records.is_empty()
                && let Some(job) = job_behind_name(word)
            {
                records = in_books(client, all(vec![job], Vec::new()))?;
                records.retain(|record| run_name(record.kind, &record.name, record.job) == word);
            }
            records
        }
    };
    merge_records(records)
        .into_iter()
        .max_by_key(|record| (record.user == own, record.submit, record.job, record.attempt))
        .ok_or_else(|| VerbError::Message(format!("Run {word} not found")))
}

fn in_books(client: &mut Client, filter: HistoryFilter) -> Result<Vec<JobRecord>, VerbError> {
    match ask(client, Call::History(filter))? {
        Answer::History(records) => Ok(records),
        other => Err(unexpected(&other)),
    }
}

/// `own`: the caller's name.
fn newest(jobs: Vec<JobView>, own: &str) -> Option<JobView> {
    let is_own = |job: &JobView| job.spec.owner.name == own;
    let deployment = |job: &JobView| Some(job.spec.deployment()).filter(|_| !job.state.is_ended());
    jobs.into_iter().max_by_key(|job| (is_own(job), deployment(job), job.submit, job.id))
}

/// Asks on standard input. The end of input is an error, not a yes.
pub fn confirm(question: &str) -> Result<bool, VerbError> {
    loop {
        print(&format!("{question} [y/n]: "))?;
        let mut line = String::new();
        let read = io::stdin().lock().read_line(&mut line);
        if read.map_err(VerbError::file("standard input"))? == 0 {
            println!();
            let text =
                "standard input has ended without an answer: say -y to go on without a question";
            return Err(VerbError::Message(text.into()));
        }
        match line.trim().to_ascii_lowercase().as_str() {
            "y" | "yes" => return Ok(true),
            "n" | "no" => return Ok(false),
            _ => println!("Please enter y or n"),
        }
    }
}

/// Prints what `make` returns; with `again` every other second, until interrupted.
fn watch(
    again: bool,
    mut make: impl FnMut() -> Result<String, VerbError>,
) -> Result<(), VerbError> {
    /// Clears the terminal and moves to its upper left corner.
    const CLEAR: &str = "\x1b[2J\x1b[H";
    const PAUSE: Duration = Duration::from_secs(2);
    loop {
        let text = make()?;
        if again && io::stdout().is_terminal() {
            print(CLEAR)?;
        }
        print(&text)?;
        if !again {
            return Ok(());
        }
        std::thread::sleep(PAUSE);
    }
}

fn print(text: &str) -> Result<(), VerbError> {
    write_out(text.as_bytes()).map_err(VerbError::file("standard output"))
}

/// One object on a line of its own.
fn print_json(value: &serde_json::Value) -> Result<(), VerbError> {
    print(&format!("{value}\n"))
}

fn write_out(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes)?;
    out.flush()
}

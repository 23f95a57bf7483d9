//! `sluice logs`: prints the log of a run from its node, or the output file of a batch job.

use super::all_logs::{self, AllLogs};
use super::log_output::LogOutput;
use super::log_source::{Log, booked_file, file, kept};
use super::options::{Since, check_replica, parse_since};
use super::{OfProject, ask, attach, event, find_ended, find_in_memory, print, unexpected};
use crate::client::Client;
use crate::command::program_name::program_name;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::dstack::occurrence::{self, Target};
use ::dstack::run_summary::RunSummary;
use clap::Args;
use model::id::{JobId, RunId};
use model::run::LaunchKind;
use model::time::Timestamp;
use std::process::ExitCode;
use wire::client::{Answer, Call, HistoryFilter};

#[derive(Args)]
pub struct LogsArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(flatten)]
    of: OfProject,
    /// The run's name, or a job's number (13, 13_2)
    run: String,
    /// Go on until the run has ended
    #[arg(short, long)]
    follow: bool,
    /// Only what came in the last while, as in 10s, 5m or 1d, or since a time, as in 2026-11-17T15:30:00Z; of runs, whose lines
    /// the server dates
    #[arg(long, value_name = "T", value_parser = parse_since, conflicts_with = "follow")]
    since: Option<Since>,
    /// What became of the run on this node and why, in place of what it wrote
    #[arg(short, long, conflicts_with_all = ["follow", "all", "json"])]
    diagnose: bool,
    /// The logs of all tasks of an array and all nodes of a run, each line after where it is from
    #[arg(short, long, conflicts_with = "job")]
    all: bool,
    /// The node of the run, counted from 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    job: usize,
    /// A run has one replica, 0
    #[arg(long, value_name = "N")]
    replica: Option<usize>,
    /// Print a JSON object for each line
    #[arg(long)]
    json: bool,
}

impl LogsArgs {
    fn wanted(&self, since: Option<Timestamp>) -> all_logs::Wanted {
        all_logs::Wanted { follow: self.follow, since, json: self.json }
    }

    fn output(&self, job: JobId) -> LogOutput {
        if self.json { LogOutput::json(job, self.job) } else { LogOutput::Plain }
    }
}

pub fn run(args: LogsArgs) -> VerbResult {
    check_replica(args.replica)?;
    let mut client = args.server.client()?;
    let since = since(&mut client, args.since)?;
    if args.diagnose {
        diagnose(&mut client, &args, since)?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(job) = find_in_memory(&mut client, &args.run, &args.of)? else {
        let record = find_ended(&mut client, &args.run, &args.of)?;
        let output = &mut args.output(record.job);
        let log = Log { job: record.job, node: args.job, since };
        match record.kind {
            LaunchKind::Task => kept(&client, &log, output)?,
            LaunchKind::Batch => booked_file(&client, &record, &Log { node: 0, ..log }, output)?,
            LaunchKind::Interactive => return Err(without_log(record.job)),
        }
        return Ok(ExitCode::SUCCESS);
    };
    // A run that waits to be tried again, or ended so, has the log of its last attempt alone.
    let is_task = job.spec.launch.kind == LaunchKind::Task;
    let was_tried = is_task && job.allocation.is_none() && job.restarts > 0;
    if args.all && !was_tried {
        let AllLogs { shown, left_out } = all_logs::print(&mut client, &job, &args.wanted(since))?;
        if shown == 0 {
            eprintln!("{}: note: nothing of {} has started", program_name(), args.run);
        }
        if left_out > 0 {
            eprintln!(
                "{}: note: {left_out} more logs are left out: at most {} are shown",
                program_name(),
                all_logs::SOURCES_MAX
            );
        }
        return Ok(ExitCode::SUCCESS);
    }
    if let Some(count) = job.allocation.as_ref().map(|allocation| allocation.nodes.len())
        && args.job >= count
    {
        let last = count.saturating_sub(1);
        let text = format!(
            "--job {}: run {} has {count} node(s): expected 0 to {last}",
            args.job, args.run
        );
        return Err(VerbError::Message(text));
    }
    if let Some(array) = job.array.as_ref().filter(|_| !args.run.contains('_'))
        && let Some(index) = array.index
    {
        let array = array.array;
        eprintln!(
            "{}: note: this is the log of task {array}_{index}; {array}_N is that of another, --all shows all",
            program_name()
        );
    }
    let output = &mut args.output(job.id);
    let log = Log { job: job.id, node: args.job, since };
    match job.spec.launch.kind {
        LaunchKind::Task | LaunchKind::Batch if args.follow => {
            attach::follow(&mut client, job.id, args.job, output, &mut ())?;
        }
        LaunchKind::Task if job.allocation.is_none() && !was_tried => {}
        LaunchKind::Task => kept(&client, &log, output)?,
        LaunchKind::Batch => file(&client, &job, Log { node: 0, ..log }, output)?,
        LaunchKind::Interactive => return Err(without_log(job.id)),
    }
    Ok(ExitCode::SUCCESS)
}

fn without_log(job: JobId) -> VerbError {
    let text = format!("job {job} writes to the terminal of its srun or salloc: no log is kept");
    VerbError::Message(text)
}

/// Prints what became of the run's part on one node in all its attempts, and why it ended.
fn diagnose(
    client: &mut Client,
    args: &LogsArgs,
    since: Option<Timestamp>,
) -> Result<(), VerbError> {
    let (run, error) = match find_in_memory(client, &args.run, &args.of)? {
        Some(job) => (job.run, RunSummary::of_job(&job).error),
        None => {
            let record = find_ended(client, &args.run, &args.of)?;
            (Some(record.run), RunSummary::of_record(&record).error)
        }
    };
    let runs: Vec<RunId> = run.into_iter().collect();
    if runs.is_empty() {
        // A filter without runs would be one for all of them.
        return Ok(());
    }
    let filter = HistoryFilter { runs, duplicates: true, ..HistoryFilter::default() };
    let records = match ask(client, Call::History(filter))? {
        Answer::History(records) => records,
        other => return Err(unexpected(&other)),
    };
    let is_asked = |target: &Target| match target {
        Target::Job { rank, .. } => *rank as usize == args.job,
        _ => false,
    };
    let mut told = occurrence::of_records(records);
    told.retain(|one| one.targets.iter().any(is_asked) && since.is_none_or(|at| one.at >= at));
    told.sort_by_key(|one| (one.at, one.number));
    let zone = timezone::local();
    print(&told.iter().map(|one| event::line(one, &zone)).collect::<String>())?;
    if error.is_empty() { Ok(()) } else { print(&format!("{error}\n")) }
}

/// The time that is meant, by the server's clock.
fn since(client: &mut Client, since: Option<Since>) -> Result<Option<Timestamp>, VerbError> {
    let Some(since) = since else { return Ok(None) };
    match ask(client, Call::Ping)? {
        Answer::Pong { now, .. } => Ok(Some(since.time(now))),
        other => Err(unexpected(&other)),
    }
}

/// Prints the log of a run from its beginning until it has ended: `sluice attach RUN --logs`.
pub fn follow(client: &mut Client, run: &str, of: &OfProject, node: usize) -> VerbResult {
    let job = super::find_run(client, run, of)?;
    attach::follow(client, job.id, node, &mut LogOutput::Plain, &mut ())?;
    Ok(ExitCode::SUCCESS)
}

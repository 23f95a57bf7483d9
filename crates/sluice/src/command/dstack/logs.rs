//! `sluice logs`: prints the log of a run from its node, or the output file of a batch job.

use super::all_logs::{self, AllLogs};
use super::log_output::LogOutput;
use super::log_source::{Log, file, kept};
use super::{OfProject, ask, attach, find_ended, find_in_memory, parse_since, unexpected};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use clap::Args;
use model::id::JobId;
use model::run::LaunchKind;
use model::time::Timestamp;
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call};

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
    /// Only what came in the last while, as in 10s, 5m or 1d; of runs, whose lines the server dates
    #[arg(long, value_name = "T", value_parser = parse_since, conflicts_with = "follow")]
    since: Option<Duration>,
    /// The logs of all tasks of an array and all nodes of a run, each line after where it is from
    #[arg(short, long, conflicts_with = "job")]
    all: bool,
    /// The node of the run, counted from 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    job: usize,
    /// A task has one replica, 0
    #[arg(long, default_value_t = 0, value_name = "N")]
    replica: usize,
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
    if args.replica != 0 {
        let text = format!("--replica {}: a task has one replica: expected 0", args.replica);
        return Err(VerbError::Message(text));
    }
    let mut client = args.server.client()?;
    let since = since(&mut client, args.since)?;
    let Some(job) = find_in_memory(&mut client, &args.run, &args.of)? else {
        let record = find_ended(&mut client, &args.run, &args.of)?;
        return match record.kind {
            LaunchKind::Task => {
                let log = Log { job: record.job, node: args.job, since };
                kept(&client, &log, &mut args.output(record.job))?;
                Ok(ExitCode::SUCCESS)
            }
            _ => {
                let text =
                    format!("job {} has ended: what it wrote is in its output file", record.job);
                Err(VerbError::Message(text))
            }
        };
    };
    if args.all {
        let AllLogs { shown, left_out } = all_logs::print(&mut client, &job, &args.wanted(since))?;
        if shown == 0 {
            eprintln!("sluice: note: nothing of {} has started", args.run);
        }
        if left_out > 0 {
            eprintln!(
                "sluice: note: {left_out} more logs are left out: at most {} are shown",
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
            "sluice: note: this is the log of task {array}_{index}; {array}_N is that of another, --all shows all"
        );
    }
    let output = &mut args.output(job.id);
    let log = Log { job: job.id, node: args.job, since };
    match job.spec.launch.kind {
        LaunchKind::Task | LaunchKind::Batch if args.follow => {
            attach::follow(&mut client, job.id, args.job, output)?;
        }
        LaunchKind::Task if job.allocation.is_none() => {}
        LaunchKind::Task => kept(&client, &log, output)?,
        LaunchKind::Batch => file(&client, &job, Log { node: 0, ..log }, output)?,
        LaunchKind::Interactive => {
            let text = format!(
                "job {} writes to the terminal of its srun or salloc: no log is kept",
                job.id
            );
            return Err(VerbError::Message(text));
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// So long ago, by the server's clock.
fn since(client: &mut Client, ago: Option<Duration>) -> Result<Option<Timestamp>, VerbError> {
    let Some(ago) = ago else { return Ok(None) };
    let ago_ms = i64::try_from(ago.as_millis()).unwrap_or(i64::MAX);
    match ask(client, Call::Ping)? {
        Answer::Pong { now, .. } => {
            Ok(Some(Timestamp::from_millis(now.millis().saturating_sub(ago_ms))))
        }
        other => Err(unexpected(&other)),
    }
}

//! `sluice logs`: prints the log of a run from its node, or the output file of a batch job.

use super::log_output::LogOutput;
use super::{OfProject, ask, attach, find_ended, find_in_memory, parse_since, unexpected};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::slurm::output::text::job_text;
use clap::Args;
use model::id::JobId;
use model::reason::Refusal;
use model::run::LaunchKind;
use model::time::Timestamp;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;
use wire::client::{Answer, Call};
use wire::view::JobView;

const READ_BYTES: usize = 64 << 10;

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
                kept(&mut client, &log, &mut args.output(record.job))?;
                Ok(ExitCode::SUCCESS)
            }
            _ => {
                let text =
                    format!("job {} has ended: what it wrote is in its output file", record.job);
                Err(VerbError::Message(text))
            }
        };
    };
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
            "sluice: note: this is the log of task {array}_{index}; {array}_N is that of another"
        );
    }
    let output = &mut args.output(job.id);
    let log = Log { job: job.id, node: args.job, since };
    match job.spec.launch.kind {
        LaunchKind::Task | LaunchKind::Batch if args.follow => {
            attach::follow(&mut client, job.id, args.job, output)?;
        }
        LaunchKind::Task if job.allocation.is_none() => {}
        LaunchKind::Task => kept(&mut client, &log, output)?,
        LaunchKind::Batch => file(&mut client, &job, Log { node: 0, ..log }, output)?,
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

/// The log of one node of a job, from a time on.
struct Log {
    job: JobId,
    node: usize,
    since: Option<Timestamp>,
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

/// Prints the log of a run that has started, as far as it is there.
fn kept(client: &mut Client, log: &Log, output: &mut LogOutput) -> Result<(), VerbError> {
    let Log { job, node, since } = log;
    let since = since.map(|since| format!("&since_ms={}", since.millis())).unwrap_or_default();
    let path = format!("/api/v1/logs?job={job}&node={node}{since}");
    let mut written = Ok(());
    let answer = client.stream(&path, |bytes| {
        written = output.write(bytes);
        written.is_ok()
    })?;
    let written = written.and_then(|()| output.finish());
    written.map_err(VerbError::file("standard output"))?;
    match answer {
        None => Ok(()),
        Some(Answer::Refused(why)) => Err(why.into()),
        Some(other) => Err(unexpected(&other)),
    }
}

/// Prints the output file of a batch job, read on its node; where the node does not answer, as far as it can be read here.
fn file(
    client: &mut Client,
    job: &JobView,
    log: Log,
    output: &mut LogOutput,
) -> Result<(), VerbError> {
    let Some(streams) = job_text::streams(job) else { return Ok(()) };
    if job.allocation.is_none() {
        let text = format!("job {} has not started: it is to write to {}", job.id, streams.stdout);
        return Err(VerbError::Message(text));
    }
    match kept(client, &log, output) {
        Err(VerbError::Refused(Refusal::Other(why))) if log.since.is_none() => {
            let mut file = File::open(&streams.stdout).map_err(|error| {
                VerbError::Message(format!("{why}; {}: {error}", streams.stdout))
            })?;
            copy(&mut file, output).map_err(VerbError::file(&streams.stdout))
        }
        other => other,
    }
}

fn copy(file: &mut File, output: &mut LogOutput) -> std::io::Result<()> {
    let mut piece = vec![0; READ_BYTES];
    loop {
        match file.read(&mut piece)? {
            0 => return output.finish(),
            length => output.write(&piece[..length])?,
        }
    }
}

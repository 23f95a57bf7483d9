//! `sluice logs`: prints the log of a run from its node, or the output file of a batch job.

use super::log_output::LogOutput;
use super::{attach, find_ended, find_in_memory, unexpected};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use ::slurm::output::text::job_text;
use clap::Args;
use model::id::JobId;
use model::reason::Refusal;
use model::run::LaunchKind;
use std::fs::File;
use std::io::Read;
use std::process::ExitCode;
use wire::client::Answer;
use wire::view::JobView;

const READ_BYTES: usize = 64 << 10;

#[derive(Args)]
pub struct LogsArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    /// The run's name, or a job's number
    run: String,
    /// Go on until the run has ended
    #[arg(short, long)]
    follow: bool,
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
    let Some(job) = find_in_memory(&mut client, &args.run)? else {
        let record = find_ended(&mut client, &args.run)?;
        return match record.kind {
            LaunchKind::Task => {
                kept(&mut client, record.job, args.job, &mut args.output(record.job))?;
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
    let output = &mut args.output(job.id);
    match job.spec.launch.kind {
        LaunchKind::Task | LaunchKind::Batch if args.follow => {
            attach::follow(&mut client, job.id, args.job, output)?;
        }
        LaunchKind::Task => once(&mut client, &job, args.job, output)?,
        LaunchKind::Batch => file(&mut client, &job, output)?,
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

/// Prints what is there now; nothing if the run has not started.
fn once(
    client: &mut Client,
    job: &JobView,
    node: usize,
    output: &mut LogOutput,
) -> Result<(), VerbError> {
    if job.allocation.is_none() {
        return Ok(());
    }
    kept(client, job.id, node, output)
}

/// Prints the log of a run that has started, as far as it is there.
fn kept(
    client: &mut Client,
    job: JobId,
    node: usize,
    output: &mut LogOutput,
) -> Result<(), VerbError> {
    let path = format!("/api/v1/logs?job={job}&node={node}");
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
fn file(client: &mut Client, job: &JobView, output: &mut LogOutput) -> Result<(), VerbError> {
    let Some(streams) = job_text::streams(job) else { return Ok(()) };
    if job.allocation.is_none() {
        let text = format!("job {} has not started: it is to write to {}", job.id, streams.stdout);
        return Err(VerbError::Message(text));
    }
    match kept(client, job.id, 0, output) {
        Err(VerbError::Refused(Refusal::Other(why))) => {
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

//! `sluice stop`: ends runs, as `scancel` does.

use super::{OfProject, ask, confirm, find_run, print, print_json, unexpected};
use crate::client::Client;
use crate::command::verb::{ServerLocationArgs, VerbError, VerbResult};
use clap::Args;
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::reason::Refusal;
use nix::libc::SIGKILL;
use serde_json::{Value, json};
use std::process::ExitCode;
use wire::client::{Answer, Call, Cancel};
use wire::view::JobView;

#[derive(Args)]
pub struct StopArgs {
    #[command(flatten)]
    server: ServerLocationArgs,
    #[command(flatten)]
    of: OfProject,
    /// The runs' names, or jobs' numbers
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<String>,
    /// Kill it at once
    #[arg(short = 'x', long)]
    abort: bool,
    /// Do not ask
    #[arg(short, long)]
    yes: bool,
    /// Print JSON; needs -y
    #[arg(long, requires = "yes")]
    json: bool,
}

pub fn run(args: StopArgs) -> VerbResult {
    let mut client = args.server.client()?;
    let word = if args.abort { "Abort" } else { "Stop" };
    // All are looked up before the first is stopped, so that a wrong name changes nothing.
    let found: Result<Vec<JobView>, VerbError> =
        args.runs.iter().map(|run| find_run(&mut client, run, &args.of)).collect();
    let mut done: Vec<Value> = Vec::new();
    let mut note = |job: &JobView, text: String, result: &str| {
        done.push(json!({ "name": &*job.spec.name, "job_id": job.id, "result": result }));
        if args.json { Ok(()) } else { print(&text) }
    };
    for job in found? {
        if job.state.is_ended() {
            note(&job, format!("The run {} has ended already\n", job.spec.name), "ended already")?;
            continue;
        }
        if !args.yes && !confirm(&format!("{word} the run {}?", job.spec.name))? {
            print("Exiting...\n")?;
            return Ok(ExitCode::FAILURE);
        }
        end(&mut client, stop_target(&job), args.abort)?;
        let (text, result) =
            if args.abort { ("Aborted\n", "aborted") } else { ("Stopped\n", "stopped") };
        note(&job, text.to_owned(), result)?;
    }
    if args.json {
        print_json(&json!({ "runs": done }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The job, or the array job that it is a task of: a run is stopped as a whole.
fn stop_target(job: &JobView) -> JobId {
    job.array.as_ref().map_or(job.id, |array| array.array)
}

/// Ends a run. One that has ended already is no error.
pub fn end(client: &mut Client, job: JobId, at_once: bool) -> Result<(), VerbError> {
    cancel(client, job, None)?;
    if at_once {
        // The run is ending already, and the kill only skips the grace time. The run may be gone before.
        match cancel(client, job, Some(SIGKILL)) {
            Err(VerbError::Refused(Refusal::JobNotRunning(_))) => {}
            other => other?,
        }
    }
    Ok(())
}

fn cancel(client: &mut Client, job: JobId, signal: Option<i32>) -> Result<(), VerbError> {
    let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    let cancel = Cancel { filter, step: None, signal, batch_only: false, full: true };
    match ask(client, Call::Cancel(cancel))? {
        Answer::Cancelled(results) => {
            let refusals = results.into_iter().filter_map(|result| result.refusal);
            match refusals.into_iter().find(|why| !matches!(why, Refusal::JobEnded(_))) {
                Some(why) => Err(why.into()),
                None => Ok(()),
            }
        }
        other => Err(unexpected(&other)),
    }
}

//! `sluice down`: stops server and agent; jobs go on under their supervisors.

use super::keeper::KEEPER;
use super::state_dir::{self, StateDir};
use super::{Done, VerbError};
use crate::connect::{Client, Place};
use clap::Args;
use model::change::JobFilter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, Cancel, JobsQuery};
use wire::job_list::JobList;

/// Whom there is to stop. The keeper takes its agent along; one that nobody keeps is stopped for itself.
const PROCESSES: [&str; 3] = ["server", KEEPER, "agent"];

/// How long a process may take to stop.
const PATIENCE: Duration = Duration::from_secs(20);

/// How long jobs may take to end: their grace, and a little more.
const JOBS_PATIENCE: Duration = Duration::from_secs(90);

#[derive(Args)]
pub struct DownArgs {
    /// The state folder
    #[arg(long, env = "SLUICE_STATE")]
    state: Option<PathBuf>,
    /// End all jobs first
    #[arg(long)]
    jobs: bool,
}

pub fn run(args: &DownArgs) -> Done {
    let path = args.state.clone().unwrap_or_else(crate::connect::default_state_dir);
    let state = StateDir::open(&path);
    for of in PROCESSES {
        if let Some(pid) = state.living(of).filter(|pid| !state_dir::may_end(*pid)) {
            let text =
                format!("the {of}, process {pid}, is another user's: expected root or its user");
            return Err(VerbError::Said(text));
        }
    }
    if args.jobs && state.living("server").is_some() {
        end_jobs(&state)?;
    }
    let mut found = false;
    for of in PROCESSES {
        let Some(pid) = state.living(of) else { continue };
        found = true;
        if !state_dir::end(pid, PATIENCE) {
            return Err(VerbError::Said(format!("the {of}, process {pid}, does not stop")));
        }
        let _ = std::fs::remove_file(state.pid_file(of));
    }
    match found {
        true => println!("sluice is down"),
        false => println!("sluice was not up in {}", path.display()),
    }
    Ok(ExitCode::SUCCESS)
}

fn end_jobs(state: &StateDir) -> Result<(), VerbError> {
    let mut client = Client::at(Place::in_state(&state.path))?;
    let all = Cancel {
        filter: JobFilter::default(),
        step: None,
        signal: None,
        batch_only: false,
        full: false,
    };
    client.call(Call::Cancel(all))?;
    let deadline = Instant::now() + JOBS_PATIENCE;
    loop {
        let answer = client.call(Call::Jobs(JobsQuery::default()))?;
        let Answer::Jobs { jobs: JobList(jobs), .. } = answer else { return Ok(()) };
        let Some(job) = jobs.first().map(|j| j.id) else { return Ok(()) };
        if Instant::now() > deadline {
            let text = format!("{} jobs have not ended; the first is {job}", jobs.len());
            return Err(VerbError::Said(text));
        }
        client.call(Call::AwaitEnd { job, timeout_ms: 5_000 })?;
    }
}

//! `sluice down`: stops server and agent. Jobs go on under their supervisors.

use super::keeper::{AGENT_KEEPER, SERVER_KEEPER};
use super::state_dir::{self, StateDir};
use crate::client::{Client, ServerLocation};
use crate::command::verb::{VerbError, VerbResult};
use clap::Args;
use model::change::JobFilter;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, Cancel, JobsQuery};
use wire::job_list::JobList;

/// The processes to stop, in this order. A keeper ends with what it keeps, and stops what it has just started again; a
/// server or agent without a keeper is stopped by itself.
const PROCESSES: [&str; 4] = ["server", SERVER_KEEPER.name, AGENT_KEEPER.name, "agent"];

/// How long a process may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// How long jobs may take to end: their grace time and some more.
const JOBS_END_TIMEOUT: Duration = Duration::from_secs(90);

#[derive(Args)]
pub struct DownArgs {
    /// The state folder; by default /var/lib/sluice for root, ~/.local/state/sluice for others
    #[arg(long, env = "SLUICE_STATE")]
    state: Option<PathBuf>,
    /// End all jobs first, those that wait or are held too
    #[arg(long)]
    jobs: bool,
}

pub fn run(args: &DownArgs) -> VerbResult {
    let path = args.state.clone().unwrap_or_else(crate::client::default_state_dir);
    let state = StateDir::open(&path);
    // A pid file that another user wrote must not tell root what to signal.
    if path.exists() {
        state.trusted()?;
    }
    for of in PROCESSES {
        if let Some(pid) = state.running_pid(of).filter(|pid| !state_dir::may_signal(*pid)) {
            let text =
                format!("the {of}, process {pid}, is another user's: expected root or its user");
            return Err(VerbError::Message(text));
        }
    }
    if args.jobs && server_running(&state) {
        end_jobs(&state)?;
    }
    let mut found = false;
    for of in PROCESSES {
        let Some(pid) = state.running_pid(of) else { continue };
        found = true;
        if !state_dir::terminate(pid, STOP_TIMEOUT) {
            return Err(VerbError::Message(format!("the {of}, process {pid}, does not stop")));
        }
        let _ = std::fs::remove_file(state.pid_file(of));
    }
    if found {
        state.note_stop();
        println!("sluice is down")
    } else {
        println!("sluice was not up in {}", path.display())
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether there is a server, or one is about to be started again.
fn server_running(state: &StateDir) -> bool {
    ["server", SERVER_KEEPER.name].into_iter().any(|of| state.running_pid(of).is_some())
}

fn end_jobs(state: &StateDir) -> Result<(), VerbError> {
    let mut client = Client::at(ServerLocation::in_state(&state.path));
    let all = Cancel {
        filter: JobFilter::default(),
        step: None,
        signal: None,
        batch_only: false,
        full: false,
    };
    client.call(Call::Cancel(all))?;
    let deadline = Instant::now() + JOBS_END_TIMEOUT;
    loop {
        let answer = client.call(Call::Jobs(JobsQuery::default()))?;
        let Answer::Jobs { jobs: JobList(jobs), .. } = answer else { return Ok(()) };
        let Some(job) = jobs.first().map(|j| j.id) else { return Ok(()) };
        if Instant::now() > deadline {
            let text = format!("{} jobs have not ended; the first is {job}", jobs.len());
            return Err(VerbError::Message(text));
        }
        client.call(Call::AwaitEnd { job, timeout_ms: 5_000 })?;
    }
}

//! `sluice down`: stops server and agent. Jobs go on under their supervisors.

use super::keeper::{AGENT_KEEPER, SERVER_KEEPER};
use super::state_dir::{self, StateDir};
use crate::client::{Client, ServerLocation};
use crate::command::verb::{VerbError, VerbResult};
use ::slurm::output::text::job_text;
use ::slurm::words::note::counted;
use clap::Args;
use model::change::JobFilter;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::mpsc;
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, Cancel, Detail, JobsQuery};
use wire::job_list::JobList;
use wire::view::JobView;

/// The processes to stop, in this order. A keeper ends with what it keeps, and stops what it has just started again; a
/// server or agent without a keeper is stopped by itself.
const PROCESSES: [&str; 4] = ["server", SERVER_KEEPER.name, AGENT_KEEPER.name, "agent"];

/// How long a process may take to stop.
const STOP_TIMEOUT: Duration = Duration::from_secs(20);

/// How long jobs may take to end: their grace time and some more.
const JOBS_END_TIMEOUT: Duration = Duration::from_secs(90);

/// How long the server may take to say which jobs run.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);

/// How many of the jobs that go on are named.
const NAMED_MAX: usize = 5;

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
        match end_jobs(&state)? {
            0 => {}
            1 => println!("1 job was ended"),
            ended => println!("{ended} jobs were ended"),
        }
    }
    let left = running_jobs(&state);
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
        println!("sluice is down");
        left_line(&left).iter().for_each(|line| println!("{line}"));
    } else {
        println!("sluice was not up in {}", path.display());
        if args.jobs && has_attempts(&state.path) {
            println!(
                "jobs may go on running there: `sluice up`, then `sluice down --jobs`, ends them"
            );
            return Ok(ExitCode::FAILURE);
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Whether an agent of this machine left attempts of jobs in its spool: they outlive it.
fn has_attempts(state: &Path) -> bool {
    let entries = |folder: PathBuf| std::fs::read_dir(folder).into_iter().flatten().flatten();
    let is_attempt = |name: &std::ffi::OsStr| name.as_encoded_bytes()[0].is_ascii_digit();
    entries(state.join("nodes")).any(|node| {
        let mut left = entries(node.path().join("spool"));
        left.any(|attempt| is_attempt(&attempt.file_name()))
    })
}

/// Whether there is a server, or one is about to be started again.
fn server_running(state: &StateDir) -> bool {
    ["server", SERVER_KEEPER.name].into_iter().any(|of| state.running_pid(of).is_some())
}

/// The ids of the jobs that have started and not ended, in their order. Empty if the server does not answer: it is stopped all
/// the same.
fn running_jobs(state: &StateDir) -> Vec<String> {
    if state.running_pid("server").is_none() {
        return Vec::new();
    }
    let location = ServerLocation::in_state(&state.path);
    let (sender, answer) = mpsc::channel();
    let ask = move || {
        let detail = Detail::Listing;
        let query = JobsQuery { detail, ..JobsQuery::default() };
        // The send fails if `down` has stopped waiting for the answer.
        let _ = sender.send(Client::at(location).call(Call::Jobs(query)));
    };
    if std::thread::Builder::new().name("jobs".into()).spawn(ask).is_err() {
        return Vec::new();
    }
    let Ok(Ok(Answer::Jobs { jobs: JobList(mut jobs), .. })) = answer.recv_timeout(ASK_TIMEOUT)
    else {
        return Vec::new();
    };
    jobs.retain(|job| !job.state.is_waiting());
    jobs.sort_by_key(|job| job.id);
    let shown = |job: &JobView| {
        let mut id = String::new();
        job_text::push_id(&mut id, job, None);
        id
    };
    jobs.iter().map(shown).collect()
}

/// `2 jobs go on running: 7, 12_3. …`
fn left_line(jobs: &[String]) -> Option<String> {
    let count = counted(jobs.len() as u64, "job");
    let go = if jobs.len() == 1 { "goes" } else { "go" };
    let mut named = jobs.iter().take(NAMED_MAX).cloned().collect::<Vec<_>>().join(", ");
    if jobs.len() > NAMED_MAX {
        named += &format!(" and {} more", jobs.len() - NAMED_MAX);
    }
    (!jobs.is_empty()).then(|| {
        format!(
            "{count} {go} on running: {named}. After the next `sluice up`, `scancel` ends a job; `sluice down --jobs` ends all jobs first"
        )
    })
}

/// Cancels all jobs and waits for their ends. Returns how many were cancelled.
fn end_jobs(state: &StateDir) -> Result<usize, VerbError> {
    let mut client = Client::at(ServerLocation::in_state(&state.path));
    let all = Cancel {
        filter: JobFilter::default(),
        step: None,
        signal: None,
        batch_only: false,
        full: false,
    };
    let ended = match client.call(Call::Cancel(all))? {
        Answer::Cancelled(results) => results.iter().filter(|r| r.refusal.is_none()).count(),
        _ => 0,
    };
    let deadline = Instant::now() + JOBS_END_TIMEOUT;
    loop {
        let answer = client.call(Call::Jobs(JobsQuery::default()))?;
        let Answer::Jobs { jobs: JobList(jobs), .. } = answer else { return Ok(ended) };
        let Some(job) = jobs.first().map(|j| j.id) else { return Ok(ended) };
        if Instant::now() > deadline {
            let text = format!("{} jobs have not ended; the first is {job}", jobs.len());
            return Err(VerbError::Message(text));
        }
        client.call(Call::AwaitEnd { job, timeout_ms: 5_000 })?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_that_an_agent_left_are_seen() {
        let state = tempfile::tempdir().expect("a folder");
        assert!(!has_attempts(state.path()));
        let spool = state.path().join("nodes/n1/spool");
        std::fs::create_dir_all(&spool).expect("a spool");
        assert!(!has_attempts(state.path()));
        std::fs::create_dir(spool.join("1.1")).expect("an attempt");
        assert!(has_attempts(state.path()));
    }

    #[test]
    fn jobs_that_go_on_are_counted_and_the_first_are_named() {
        let ids = |count: u32| (1..=count).map(|id| id.to_string()).collect::<Vec<_>>();
        let said = |count: u32| left_line(&ids(count));
        assert_eq!(said(0), None);
        let one = said(1).unwrap();
        assert!(one.starts_with("1 job goes on running: 1. After"), "{one}");
        let many = said(7).unwrap();
        let named = "7 jobs go on running: 1, 2, 3, 4, 5 and 2 more. After";
        assert!(many.starts_with(named), "{many}");
    }
}

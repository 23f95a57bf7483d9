//! Following a run: its start, its output, its end.

use super::log_output::LogOutput;
use super::unexpected;
use crate::client::{Client, ClientError};
use crate::command::program_name::program_name;
use crate::command::verb::{VerbError, ask_again};
use ::slurm::words::reason;
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::printable::printable;
use model::reason::{Reason, Refusal};
use model::run::JobState;
use nix::sys::signal::{SigSet, Signal};
use wire::client::{Answer, Call};
use wire::view::JobView;

/// How long one request may wait in the server before it is repeated.
const WAIT_MS: u64 = 30_000;

/// After what time a log that is followed says that its job waits.
const WAITING_AFTER_MS: u64 = 1_000;

/// How long to wait for the end of the run after the end of its log, which only the report separates.
const END_WAIT_MS: u64 = 2_000;

/// A shell's exit code for an interrupted command.
const INTERRUPTED: i32 = 130;

/// From here on Ctrl-C ends this program, and the run goes on.
pub fn detach_on_interrupt(name: &str) -> Result<(), VerbError> {
    let name = name.to_owned();
    let interrupt = SigSet::from(Signal::SIGINT);
    // Blocked in every thread, so that the one that waits for it gets it.
    interrupt
        .thread_block()
        .map_err(|e| VerbError::Message(format!("cannot wait for Ctrl-C: {e}")))?;
    std::thread::spawn(move || {
        if interrupt.wait().is_ok() {
            eprintln!(
                "\nDetached; run {name} goes on. `sluice logs -f {name}` shows it, `sluice stop {name}` ends it."
            );
            std::process::exit(INTERRUPTED);
        }
    });
    Ok(())
}

/// Waits until the run has left the queue. `waiting` is called once if that takes longer than `waiting_after_ms`.
pub fn await_start(
    client: &mut Client,
    job: JobId,
    waiting_after_ms: u64,
    mut waiting: impl FnMut(&JobView),
) -> Result<JobView, VerbError> {
    let mut timeout_ms = waiting_after_ms;
    let mut told = false;
    loop {
        let view = match ask_again(client, Call::AwaitStart { job, timeout_ms, ready: false })? {
            Answer::Start { view, .. } => *view,
            other => return Err(unexpected(&other)),
        };
        if view.state != JobState::Pending {
            return Ok(view);
        }
        if !std::mem::replace(&mut told, true) {
            waiting(&view);
        }
        timeout_ms = WAIT_MS;
    }
}

/// Told of a run's attempts while its log is followed.
pub trait AttemptListener {
    /// An attempt runs: it has started, or its log is taken up again after a server or an agent was away.
    fn running(&mut self, client: &mut Client, run: &JobView);
    /// The run waits for its next attempt.
    fn waiting(&mut self);
    /// The server was lost, with every connection to it.
    fn server_lost(&mut self);
}

/// For a log that nothing else goes along with.
impl AttemptListener for () {
    fn running(&mut self, _client: &mut Client, _run: &JobView) {}
    fn waiting(&mut self) {}
    fn server_lost(&mut self) {}
}

/// Prints what the run writes on one of its nodes until it has ended, and returns the ended run. A server or an agent that
/// restarts meanwhile is waited for, and the log goes on where it was. That the run waits is said once, with the reason.
pub fn follow(
    client: &mut Client,
    job: JobId,
    node: usize,
    output: &mut LogOutput,
    listener: &mut dyn AttemptListener,
) -> Result<JobView, VerbError> {
    let mut log = Log { job, node, attempt: 0, offset: 0 };
    let (mut told, mut told_wait) = (false, false);
    loop {
        let view = await_start(client, job, WAITING_AFTER_MS, |view| {
            listener.waiting();
            if !std::mem::replace(&mut told_wait, true) {
                eprintln!("{}: note: {}", program_name(), waits(view));
            }
        })?;
        if !view.state.is_ended() && view.state != JobState::Completing {
            listener.running(client, &view);
        }
        if log.attempt != view.restarts + 1 {
            log = Log { attempt: view.restarts + 1, offset: 0, ..log };
        }
        let copied = if view.allocation.is_some() { log.copy(client, output)? } else { Ok(()) };
        if let Err(Interruption::Server(_)) = &copied {
            listener.server_lost();
        }
        if has_ended(client, job)? {
            // A log that was cut off by the end is kept whole.
            if copied.is_err()
                && let Err(why) = log.copy(client, output)?
            {
                eprintln!("{why}");
            }
            output.finish().map_err(VerbError::file("standard output"))?;
            return run_view(client, job);
        }
        if let Err(why) = copied
            && !std::mem::replace(&mut told, true)
        {
            eprintln!("{why}; waiting for it");
        }
    }
}

/// `job 12 waits (Priority)`
pub(super) fn waits(view: &JobView) -> String {
    match &view.reason {
        Reason::None | Reason::NotPlanned => format!("job {} waits for its start", view.id),
        why => format!("job {} waits ({})", view.id, printable(&reason::text(why))),
    }
}

/// Why a log stopped before its end. It goes on when they are back.
#[derive(Debug, thiserror::Error)]
enum Interruption {
    #[error("{0}")]
    Server(ClientError),
    /// In the server's words.
    #[error("{0}")]
    Node(String),
}

/// One attempt's log on one node, and how much of it was printed.
struct Log {
    job: JobId,
    node: usize,
    attempt: u32,
    offset: u64,
}

impl Log {
    /// Prints what is new until the attempt has ended. The inner error is temporary.
    fn copy(
        &mut self,
        client: &mut Client,
        output: &mut LogOutput,
    ) -> Result<Result<(), Interruption>, VerbError> {
        let Self { job, node, attempt, offset } = self;
        let path = format!(
            "/api/v1/logs?job={job}&attempt={attempt}&node={node}&offset={offset}&follow=true"
        );
        let mut written = Ok(());
        let answer = client.stream(&path, |bytes| {
            *offset += bytes.len() as u64;
            written = output.write(bytes);
            written.is_ok()
        });
        written.map_err(VerbError::file("standard output"))?;
        match answer {
            // The attempt is over: a new one or the end of the run follows.
            Ok(None | Some(Answer::Refused(Refusal::JobNotRunning(_)))) => Ok(Ok(())),
            Ok(Some(Answer::Refused(Refusal::Other(why)))) => Ok(Err(Interruption::Node(why))),
            Ok(Some(Answer::Refused(why))) => Err(why.into()),
            Ok(Some(other)) => Err(unexpected(&other)),
            Err(error @ ClientError::Unreachable { .. }) => Ok(Err(Interruption::Server(error))),
            Err(error) => Err(error.into()),
        }
    }
}

fn has_ended(client: &mut Client, job: JobId) -> Result<bool, VerbError> {
    match ask_again(client, Call::AwaitEnd { job, timeout_ms: END_WAIT_MS })? {
        Answer::End { ended, .. } => Ok(ended),
        other => Err(unexpected(&other)),
    }
}

/// The run that the job is, with all its groups.
pub fn whole(client: &mut Client, job: JobView) -> Result<JobView, VerbError> {
    if job.het.is_none() { Ok(job) } else { run_view(client, job.id) }
}

fn run_view(client: &mut Client, job: JobId) -> Result<JobView, VerbError> {
    let jobs = vec![JobRef::whole(job)];
    let filter = JobFilter { jobs, all_states: true, ..JobFilter::default() };
    let found = super::jobs(client, filter)?;
    let missing = || VerbError::Refused(Refusal::UnknownJob(job.to_string()));
    found.into_iter().next().ok_or_else(missing)
}

/// Waits for the end of the run, and returns it.
pub fn ended(client: &mut Client, job: JobId) -> Result<JobView, VerbError> {
    await_end(client, job)?;
    run_view(client, job)
}

/// Waits for the end of the run.
pub fn await_end(client: &mut Client, job: JobId) -> Result<(), VerbError> {
    while !has_ended(client, job)? {}
    Ok(())
}

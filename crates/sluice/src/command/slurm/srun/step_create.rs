//! Creates a step of a running job: asks for it, and waits while other steps of the job hold what it needs.

use crate::client::{Client, ClientError, ServerLocation};
use crate::command::slurm::pollable_channel::{PollableReceiver, PollableSender, pollable_channel};
use crate::command::slurm::submit::messages::print_line;
use ::slurm::option::key::OptionKey;
use ::slurm::option::{Command, JobOptions};
use ::slurm::words::step::{self as words, RefusalContext};
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::reason::Refusal;
use model::step::StepRefusal;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use std::io;
use std::os::fd::AsFd;
use std::sync::mpsc::TryRecvError;
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, CreateStep, Detail, JobsQuery};
use wire::step::{StepLaunch, StepLayout};

const COMMAND: Command = Command::Srun;

/// How long one request may wait in the server before it is repeated.
const ASK_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a step may wait before the user is told. The end of a step that its `srun` has seen may reach the server
/// only after the next request.
const AT_ONCE: Duration = Duration::from_millis(500);
/// `--immediate` of up to this many seconds means at once.
const AT_ONCE_SECS: u32 = 1;

/// Signals that end the wait for a step. Others are for the tasks, of which there are none yet.
pub const ENDING_SIGNALS: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Why a step was not created.
#[derive(Debug, thiserror::Error)]
pub enum StepCreateError {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It was reported on standard error.
    #[error("it was said")]
    Reported,
    #[error("the server answered something else than was asked")]
    Unexpected(Box<Answer>),
}

pub fn create(
    client: &mut Client,
    job: JobId,
    launch: &StepLaunch,
    options: &JobOptions,
    signals: &SignalFd,
) -> Result<StepLayout, StepCreateError> {
    let nodes = options.nodes.map(|nodes| nodes.min);
    let inherited = options.step.inherited.contains(&OptionKey::Nodes) && launch.nodes == nodes;
    let asked = RefusalContext { waited: false, nodes_inherited: inherited };
    let wait = match options.immediate_secs {
        Some(secs) if secs <= AT_ONCE_SECS => Some(Duration::ZERO),
        Some(secs) => Some(Duration::from_secs(secs.into())),
        None => None,
    };
    if let Some(uid) = options.uid
        && owner(client, job)?.is_some_and(|owner| owner != uid)
    {
        return Err(refused(job, &Refusal::AccessDenied, asked));
    }
    match ask(client, job, launch, AT_ONCE)? {
        Ok(layout) => return Ok(layout),
        Err(why) if is_busy(&why) && wait != Some(Duration::ZERO) => {}
        Err(why) => return Err(refused(job, &why, asked)),
    }
    let quiet = options.quiet || wait.is_some();
    print_unless_quiet(quiet, &words::busy(job, false));
    let mut queued = QueuedStep::ask(client.location().clone(), job, launch.clone(), wait)?;
    let layout = loop {
        match queued.wait(signals)? {
            WaitEvent::Reply(Ok(layout)) => break layout,
            WaitEvent::Reply(Err(why)) if is_busy(&why) && !queued.is_over() => {
                print_unless_quiet(quiet, &words::busy(job, true));
            }
            WaitEvent::Reply(Err(why)) => {
                return Err(refused(job, &why, RefusalContext { waited: true, ..asked }));
            }
            WaitEvent::Signal(signal) => {
                // If it does not arrive, the server drops the waiting step by itself.
                let _ = client.call(Call::LeaveStep { job, ticket: launch.shape.ticket });
                words::wait_cancelled(job, signal)
                    .iter()
                    .for_each(|line| print_line(COMMAND, line));
                return Err(StepCreateError::Reported);
            }
        }
    };
    print_unless_quiet(quiet, &words::created(job));
    Ok(layout)
}

/// The owner of the job. `None` if there is no such job, which the server reports itself.
fn owner(client: &mut Client, job: JobId) -> Result<Option<u32>, StepCreateError> {
    let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    let wanted = JobsQuery { filter, detail: Detail::Listing, ..JobsQuery::default() };
    match client.call(Call::Jobs(wanted))? {
        Answer::Jobs { jobs, .. } => {
            Ok(jobs.0.iter().find(|one| one.id == job).map(|one| one.spec.owner.uid))
        }
        Answer::Refused(_) => Ok(None),
        other => Err(StepCreateError::Unexpected(Box::new(other))),
    }
}

fn print_unless_quiet(quiet: bool, line: &str) {
    if !quiet {
        print_line(COMMAND, line);
    }
}

fn refused(job: JobId, why: &Refusal, asked: RefusalContext) -> StepCreateError {
    words::refused(job, why, asked).iter().for_each(|line| print_line(COMMAND, line));
    StepCreateError::Reported
}

fn is_busy(why: &Refusal) -> bool {
    *why == Refusal::Step(StepRefusal::Busy)
}

fn ask(
    client: &mut Client,
    job: JobId,
    launch: &StepLaunch,
    wait: Duration,
) -> Result<Result<StepLayout, Refusal>, StepCreateError> {
    let wait_ms = wait.as_millis() as u64;
    let create = CreateStep { job, launch: launch.clone(), wait_ms };
    // Asking twice is safe: the server recognises the ticket.
    match client.call_again(Call::CreateStep(Box::new(create)))? {
        Answer::Step(layout) => Ok(Ok(layout)),
        Answer::Refused(why) => Ok(Err(why)),
        other => Err(StepCreateError::Unexpected(Box::new(other))),
    }
}

type CreateReply = Result<Result<StepLayout, Refusal>, StepCreateError>;

/// What ends one wait for the step.
enum WaitEvent {
    Reply(Result<StepLayout, Refusal>),
    Signal(i32),
}

/// A step that waits in the server's queue. It is asked for on a connection of its own, so that signals are heard
/// meanwhile.
struct QueuedStep {
    replies: PollableReceiver<CreateReply>,
    deadline: Option<Instant>,
}

impl QueuedStep {
    fn ask(
        location: ServerLocation,
        job: JobId,
        launch: StepLaunch,
        wait: Option<Duration>,
    ) -> io::Result<Self> {
        let (sender, replies) = pollable_channel()?;
        let deadline = wait.map(|wait| Instant::now() + wait);
        let ask = move || ask_until_created(location, job, &launch, deadline, &sender);
        std::thread::Builder::new().name("step".into()).spawn(ask)?;
        Ok(Self { replies, deadline })
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn wait(&mut self, signals: &SignalFd) -> Result<WaitEvent, StepCreateError> {
        loop {
            match self.replies.try_recv() {
                Ok(reply) => return reply.map(WaitEvent::Reply),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("nobody asks for the step any more").into());
                }
            }
            let mut fds = [
                PollFd::new(self.replies.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            while let Ok(Some(signal)) = signals.read_signal() {
                if ENDING_SIGNALS.contains(&(signal.ssi_signo as i32)) {
                    return Ok(WaitEvent::Signal(signal.ssi_signo as i32));
                }
            }
        }
    }
}

/// Asks until the reply is another than that other steps hold what it needs, or the deadline has passed.
fn ask_until_created(
    location: ServerLocation,
    job: JobId,
    launch: &StepLaunch,
    deadline: Option<Instant>,
    sender: &PollableSender<CreateReply>,
) {
    let mut client = Client::at(location);
    loop {
        let left = deadline.map_or(ASK_TIMEOUT, |at| at.saturating_duration_since(Instant::now()));
        let wait = left.min(ASK_TIMEOUT).max(Duration::from_millis(1));
        let reply = ask(&mut client, job, launch, wait);
        let again = matches!(&reply, Ok(Err(why)) if is_busy(why))
            && deadline.is_none_or(|at| Instant::now() < at);
        if !sender.send(reply) || !again {
            return;
        }
    }
}

/// Refuses `-r` together with options that exclude it, in Slurm's words.
pub fn check_relative(options: &JobOptions, inside: bool) -> Result<(), String> {
    match options.step.relative {
        Some(_) if !options.nodelist.is_empty() || !options.exclude.is_empty() => {
            Err("error: -r,--relative not allowed with -w,--nodelist or -x,--exclude.".into())
        }
        Some(_) if !inside => {
            Err("fatal: --relative option invalid for job allocation request".into())
        }
        _ => Ok(()),
    }
}

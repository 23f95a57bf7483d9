//! A step of a job that is there: asked for, waited for while other steps of the job have what it needs, or given up.

use super::caller::say;
use crate::connect::{Client, ClientError, Place};
use ::slurm::option::key::OptionKey;
use ::slurm::option::{Command, JobOptions};
use ::slurm::words::step::{self as words, Asked};
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::reason::Refusal;
use model::step::StepRefusal;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc::{Receiver, Sender, TryRecvError, channel};
use std::time::{Duration, Instant};
use wire::client::{Answer, Call, CreateStep, Detail, JobsQuery};
use wire::step::{StepLaunch, StepLayout};

const COMMAND: Command = Command::Srun;

/// How long one question stays open; the server answers sooner.
const ASK_FOR: Duration = Duration::from_secs(60);
/// The end of a step that its `srun` has seen may still be on its way to the server: so long nobody is said to wait.
const AT_ONCE: Duration = Duration::from_millis(500);
/// `--immediate` up to this means at once.
const AT_ONCE_SECS: u32 = 1;

/// These end a wait; others are for the tasks, of which there are none yet.
pub const ENDING: [i32; 4] = [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT];

/// Why there is no step.
#[derive(Debug, thiserror::Error)]
pub enum NoStep {
    #[error(transparent)]
    Client(#[from] ClientError),
    #[error("{0}")]
    Io(#[from] io::Error),
    /// It was said on standard error.
    #[error("it was said")]
    Said,
    #[error("the server answered something else than was asked")]
    Unexpected(Box<Answer>),
}

pub fn create(
    client: &mut Client,
    job: JobId,
    launch: &StepLaunch,
    options: &JobOptions,
    signals: &SignalFd,
) -> Result<StepLayout, NoStep> {
    let nodes = options.nodes.map(|nodes| nodes.min);
    let inherited = options.step.inherited.contains(&OptionKey::Nodes) && launch.nodes == nodes;
    let asked = Asked { waited: false, nodes_inherited: inherited };
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
    tell(quiet, &words::busy(job, false));
    let mut turn = Turn::await_it(client.place().clone(), job, launch.clone(), wait)?;
    let layout = loop {
        match turn.next(signals)? {
            Told::Answer(Ok(layout)) => break layout,
            Told::Answer(Err(why)) if is_busy(&why) && !turn.is_over() => {
                tell(quiet, &words::busy(job, true));
            }
            Told::Answer(Err(why)) => {
                return Err(refused(job, &why, Asked { waited: true, ..asked }));
            }
            Told::Signal(signal) => {
                // The server forgets it by itself, if this does not reach it.
                let _ = client.call(Call::LeaveStep { job, ticket: launch.shape.ticket });
                words::given_up(job, signal).iter().for_each(|line| say(COMMAND, line));
                return Err(NoStep::Said);
            }
        }
    };
    tell(quiet, &words::created(job));
    Ok(layout)
}

/// Whose the job is; none for one that is not there, of which the server has its own words.
fn owner(client: &mut Client, job: JobId) -> Result<Option<u32>, NoStep> {
    let filter = JobFilter { jobs: vec![JobRef::whole(job)], ..JobFilter::default() };
    let wanted = JobsQuery { filter, detail: Detail::Listing, ..JobsQuery::default() };
    match client.call(Call::Jobs(wanted))? {
        Answer::Jobs { jobs, .. } => {
            Ok(jobs.0.iter().find(|one| one.id == job).map(|one| one.spec.owner.uid))
        }
        Answer::Refused(_) => Ok(None),
        other => Err(NoStep::Unexpected(Box::new(other))),
    }
}

fn tell(quiet: bool, line: &str) {
    if !quiet {
        say(COMMAND, line);
    }
}

fn refused(job: JobId, why: &Refusal, asked: Asked) -> NoStep {
    words::refused(job, why, asked).iter().for_each(|line| say(COMMAND, line));
    NoStep::Said
}

fn is_busy(why: &Refusal) -> bool {
    *why == Refusal::Step(StepRefusal::Busy)
}

fn ask(
    client: &mut Client,
    job: JobId,
    launch: &StepLaunch,
    wait: Duration,
) -> Result<Result<StepLayout, Refusal>, NoStep> {
    let wait_ms = wait.as_millis() as u64;
    let create = CreateStep { job, launch: launch.clone(), wait_ms };
    // The ticket makes asking twice safe.
    match client.call_again(Call::CreateStep(Box::new(create)))? {
        Answer::Step(layout) => Ok(Ok(layout)),
        Answer::Refused(why) => Ok(Err(why)),
        other => Err(NoStep::Unexpected(Box::new(other))),
    }
}

enum Told {
    Answer(Result<StepLayout, Refusal>),
    Signal(i32),
}

type Heard = Result<Result<StepLayout, Refusal>, NoStep>;

/// The questions of one that waits, on a connection of its own, so that signals are heard meanwhile.
struct Turn {
    answers: Receiver<Heard>,
    bell: UnixStream,
    deadline: Option<Instant>,
}

impl Turn {
    fn await_it(
        place: Place,
        job: JobId,
        launch: StepLaunch,
        wait: Option<Duration>,
    ) -> io::Result<Self> {
        let (sender, answers) = channel();
        let (bell, rope) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        let deadline = wait.map(|wait| Instant::now() + wait);
        let asking = move || ask_until_told(place, job, &launch, deadline, &sender, &rope);
        std::thread::Builder::new().name("step".into()).spawn(asking)?;
        Ok(Self { answers, bell, deadline })
    }

    fn is_over(&self) -> bool {
        self.deadline.is_some_and(|deadline| Instant::now() >= deadline)
    }

    fn next(&mut self, signals: &SignalFd) -> Result<Told, NoStep> {
        loop {
            match self.answers.try_recv() {
                Ok(heard) => return heard.map(Told::Answer),
                Err(TryRecvError::Empty) => {}
                Err(TryRecvError::Disconnected) => {
                    return Err(io::Error::other("nobody asks for the step any more").into());
                }
            }
            let mut fds = [
                PollFd::new(self.bell.as_fd(), PollFlags::POLLIN),
                PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            ];
            match poll(&mut fds, PollTimeout::NONE) {
                Ok(_) | Err(Errno::EINTR) => {}
                Err(errno) => return Err(io::Error::from(errno).into()),
            }
            while let Ok(Some(signal)) = signals.read_signal() {
                if ENDING.contains(&(signal.ssi_signo as i32)) {
                    return Ok(Told::Signal(signal.ssi_signo as i32));
                }
            }
            // Only empties the bell; that it was empty already is no matter.
            let _ = self.bell.read(&mut [0; 16]);
        }
    }
}

/// Asks until it is answered otherwise than that others are in the way, or the time is over.
fn ask_until_told(
    place: Place,
    job: JobId,
    launch: &StepLaunch,
    deadline: Option<Instant>,
    sender: &Sender<Heard>,
    mut rope: &UnixStream,
) {
    let mut client = match Client::at(place) {
        Ok(client) => client,
        Err(error) => {
            let _ = sender.send(Err(error.into()));
            return;
        }
    };
    loop {
        let left = deadline.map_or(ASK_FOR, |at| at.saturating_duration_since(Instant::now()));
        let heard = ask(&mut client, job, launch, left.min(ASK_FOR).max(Duration::from_millis(1)));
        let again = matches!(&heard, Ok(Err(why)) if is_busy(why))
            && deadline.is_none_or(|at| Instant::now() < at);
        // When nobody listens any more, the process is about to end.
        if sender.send(heard).is_err() || rope.write_all(b"!").is_err() || !again {
            return;
        }
    }
}

/// `-r` with what it cannot be with, in Slurm's words.
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

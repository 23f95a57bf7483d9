//! A running step seen from its `srun`: tasks' output in, input and signals out, until nothing of it is left.
//!
//! One thread and one `poll` over the door, the supervisors' connections, standard input, signals and the job's own fate.

pub mod door;
mod ends;
mod fate;
mod frames;
mod gate;
mod link;
pub mod output;
mod reach;
mod signals;
pub mod stream;
pub mod terminal;

use self::door::Door;
use self::ends::Ends;
use self::gate::Gate;
use self::link::Link;
use self::output::Outputs;
use self::reach::Node;
use self::signals::Abort;
use self::stream::Streams;
use super::caller::{complain, say};
use super::srun_programs::Program;
use super::watch::Watch;
use ::slurm::option::Command;
use model::array::IndexSet;
use model::id::JobId;
use model::run::{ExitStatus, Outcome};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::sync::mpsc::Receiver;
use std::time::{Duration, Instant};
use wire::step::{StepLaunch, StepMessage, channel};

/// How long the last bytes may take once the job has ended.
const DRAIN_FOR: Duration = Duration::from_secs(10);
/// How often deadlines are looked at, where there are any.
const TICK_MS: u16 = 500;
const INPUT_BYTES: usize = 32 << 10;

/// What the step is to this `srun`.
pub struct Plan {
    pub job: JobId,
    /// `5.0`
    pub name: String,
    /// None: as many as the allocation came to.
    pub tasks: Option<u32>,
    pub label: bool,
    pub quiet: bool,
    pub terminal: bool,
    /// `-K`: the first task that fails ends the step; none: the configuration says.
    pub kill_on_bad_exit: Option<bool>,
    /// `-X`: an interrupt goes to the tasks at once.
    pub disable_status: bool,
    /// An interrupt ends the step at once.
    pub quit_on_interrupt: bool,
    /// The one task that input is for; none: whoever takes any.
    pub input_task: Option<u32>,
    /// `-W`: how long the others may go on after the first task has ended, zero for ever; none: the configuration says.
    pub wait: Option<Duration>,
    /// What is run here before the tasks start.
    pub prolog: Option<Program>,
}

/// How it went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outturn {
    pub code: u8,
    pub exit: ExitStatus,
    /// The allocation is gone already.
    pub job_ended: bool,
}

pub struct Step {
    plan: Plan,
    gate: Gate,
    /// The terminal, once it is the tasks'.
    raw: Option<terminal::Raw>,
    /// Whose words are used.
    command: Command,
    /// None for one that only looks on.
    door: Option<Door>,
    streams: Streams,
    /// What is started, to be said again if the server forgets it.
    launch: Option<StepLaunch>,
    nodes: Vec<Node>,
    outputs: Outputs,
    input: Option<File>,
    links: Vec<(Link, IndexSet)>,
    ends: Ends,
    started: u64,
    interrupted: Option<Instant>,
    abort: Abort,
    /// The tasks' ends are nobody's interest any more.
    ends_unsaid: bool,
    /// When the tasks' ends are said.
    say_at: Option<Instant>,
    /// When the tasks are given up.
    give_up_at: Option<Instant>,
    terminate_at: Option<Instant>,
    first_end: Option<Instant>,
    /// What the configuration says of the wait, while it is asked for.
    wait_asked: Option<Receiver<Duration>>,
    queued: bool,
    /// The job has its allocation.
    granted: bool,
    job_ended: Option<(ExitStatus, Option<Outcome>)>,
    over: bool,
}

/// What `poll` found.
#[derive(Default)]
struct Ready {
    door: bool,
    signals: bool,
    watch: bool,
    streams: bool,
    input: bool,
    gate: bool,
    links: Vec<(usize, bool)>,
}

impl Step {
    /// The step of an `srun`, whose nodes dial its door.
    pub fn new(
        plan: Plan,
        door: Door,
        streams: Streams,
        outputs: Outputs,
        input: Option<File>,
    ) -> Self {
        Self::of(plan, Some(door), streams, outputs, input)
    }

    fn of(
        mut plan: Plan,
        door: Option<Door>,
        streams: Streams,
        outputs: Outputs,
        input: Option<File>,
    ) -> Self {
        Self {
            gate: Gate::new(plan.prolog.take()),
            raw: None,
            plan,
            command: Command::Srun,
            door,
            streams,
            launch: None,
            nodes: Vec::new(),
            outputs,
            input,
            links: Vec::new(),
            ends: Ends::default(),
            started: 0,
            interrupted: None,
            abort: Abort::No,
            ends_unsaid: false,
            say_at: None,
            give_up_at: None,
            terminate_at: None,
            first_end: None,
            wait_asked: None,
            queued: false,
            granted: false,
            job_ended: None,
            over: false,
        }
    }

    /// The step's nodes are known already, and with them what can be said again.
    pub fn placed(mut self, layout: &[(String, Vec<u32>)], launch: StepLaunch) -> Self {
        self.expect_nodes(layout);
        self.launch = Some(launch);
        self.granted = true;
        self
    }

    /// A step that somebody else runs, with its output and perhaps some input.
    pub fn attached(
        plan: Plan,
        layout: &[(String, Vec<u32>)],
        streams: Streams,
        outputs: Outputs,
        input: Option<File>,
    ) -> Self {
        let mut step = Self::of(plan, None, streams, outputs, input);
        step.command = Command::Sattach;
        step.granted = true;
        step.expect_nodes(layout);
        step
    }

    /// Carries bytes until the step is over.
    pub fn run(mut self, watch: &mut Watch, signals: &SignalFd) -> io::Result<Outturn> {
        match self.plan.tasks {
            Some(tasks) => self.expect(tasks)?,
            None if self.plan.label => self.outputs.label_later(),
            None => {}
        }
        self.take_terminal()?;
        if self.granted {
            self.on_granted()?;
        }
        while !self.is_over() {
            let ready = self.wait(watch, signals)?;
            if ready.watch {
                while let Some(notice) = watch.take() {
                    self.on_notice(notice)?;
                }
            }
            if ready.signals {
                while let Ok(Some(signal)) = signals.read_signal() {
                    self.on_signal(signal.ssi_signo as i32);
                }
            }
            if ready.gate {
                self.on_gate()?;
            }
            if ready.door {
                self.on_door();
            }
            if ready.streams {
                self.on_streams()?;
            }
            for (index, readable) in ready.links {
                self.on_link(index, readable)?;
            }
            if ready.input {
                self.on_input();
            }
            self.on_deadlines();
            self.ask_for_streams()?;
            self.links.retain(|(link, _)| link.is_open() || link.peer.is_some());
        }
        self.outputs.settle()?;
        self.say_ends();
        Ok(self.outturn())
    }

    fn wait(&self, watch: &Watch, signals: &SignalFd) -> io::Result<Ready> {
        let mut fds = vec![
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(watch.as_fd(), PollFlags::POLLIN),
            PollFd::new(self.streams.as_fd(), PollFlags::POLLIN),
        ];
        let door = self.door.as_ref().map(|door| PollFd::new(door.as_fd(), PollFlags::POLLIN));
        let door_at = fds.len();
        fds.extend(door);
        let gate_at = fds.len();
        fds.extend(self.gate.fd().map(|fd| PollFd::new(fd, PollFlags::POLLIN)));
        let input_at = fds.len();
        let input =
            self.input.as_ref().filter(|input| self.takes_input() && terminal::is_ours(input));
        if let Some(input) = input {
            fds.push(PollFd::new(input.as_fd(), PollFlags::POLLIN));
        }
        let first_link = fds.len();
        let mut indices = Vec::new();
        for (index, (link, _)) in self.links.iter().enumerate() {
            let Some(fd) = link.fd() else { continue };
            let out = if link.has_to_send() { PollFlags::POLLOUT } else { PollFlags::empty() };
            fds.push(PollFd::new(fd, PollFlags::POLLIN | out));
            indices.push(index);
        }
        // Nothing tells of it when a terminal becomes ours: it is looked at again and again.
        let waits = self.input.is_some() && input.is_none() && self.takes_input();
        match poll(&mut fds, if waits { self.tick() } else { self.timeout() }) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(errno) => return Err(errno.into()),
        }
        let any = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        let readable = |fd: &PollFd<'_>| fd.revents().is_some_and(|r| r != PollFlags::POLLOUT);
        let links = indices.into_iter().zip(&fds[first_link..]);
        Ok(Ready {
            signals: any(&fds[0]),
            watch: any(&fds[1]),
            streams: any(&fds[2]),
            door: self.door.is_some() && any(&fds[door_at]),
            gate: self.gate.fd().is_some() && any(&fds[gate_at]),
            input: input.is_some() && any(&fds[input_at]),
            links: links.filter(|(_, fd)| any(fd)).map(|(i, fd)| (i, readable(fd))).collect(),
        })
    }

    fn timeout(&self) -> PollTimeout {
        if let Some(at) = self.say_at {
            let left = at.saturating_duration_since(Instant::now()).as_millis();
            return PollTimeout::from(u16::try_from(left).unwrap_or(TICK_MS) + 1);
        }
        let deadlines = [self.give_up_at, self.terminate_at];
        let due = self.strangers() > 0 || self.expects() || self.wait_asked.is_some();
        match due || deadlines.iter().any(Option::is_some) {
            true => PollTimeout::from(TICK_MS),
            false => PollTimeout::NONE,
        }
    }

    /// The time to the next look, at most a tick.
    fn tick(&self) -> PollTimeout {
        let tick = PollTimeout::from(TICK_MS);
        let timeout = self.timeout();
        if timeout.is_none() || timeout > tick { tick } else { timeout }
    }

    /// Every task has begun, so none misses the first bytes; and nobody leaves too many of them lying.
    fn takes_input(&self) -> bool {
        self.plan.tasks.is_some_and(|tasks| self.started >= u64::from(tasks))
            && self.input_room() > 0
    }

    /// How much input every node takes now.
    fn input_room(&self) -> usize {
        let takers = self.links.iter().filter(|(link, _)| link.peer.is_some() && !link.gone);
        let takers = takers.filter(|(link, _)| link.is_open() || link.may_go_on());
        takers.map(|(link, _)| link.input_room()).min().unwrap_or(INPUT_BYTES).min(INPUT_BYTES)
    }

    fn is_over(&self) -> bool {
        let silent =
            |link: &Link| link.gone || link.peer.is_none() || !(link.is_open() || link.may_go_on());
        let quiet = self.links.iter().all(|(link, _)| silent(link));
        self.over || (self.all_ended() || self.job_ended.is_some()) && quiet
    }

    fn all_ended(&self) -> bool {
        self.plan.tasks.is_some_and(|tasks| self.ends.count() >= u64::from(tasks))
    }

    /// Asked for, or what `KillOnBadExit` says: looked up when a task fails beside others, and not before.
    fn kills_on_bad_exit(&mut self) -> bool {
        if self.door.is_none() {
            return false;
        }
        *self.plan.kill_on_bad_exit.get_or_insert_with(|| self.streams.kill_on_bad_exit())
    }

    fn expect(&mut self, tasks: u32) -> io::Result<()> {
        self.plan.tasks = Some(tasks);
        if self.plan.label { self.outputs.label(tasks) } else { Ok(()) }
    }

    fn tell(&self, line: &str) {
        if !self.plan.quiet {
            say(self.command, line);
        }
    }

    fn on_input(&mut self) {
        let room = self.input_room();
        if room == 0 {
            return;
        }
        let Some(input) = &mut self.input else { return };
        let mut buffer = vec![0; room];
        match input.read(&mut buffer) {
            Ok(length) if length > 0 => {
                let rank = self.plan.input_task.filter(|_| self.door.is_none());
                let (channel, payload) = match rank {
                    Some(rank) => {
                        (channel::STDIN_OF, [&rank.to_le_bytes(), &buffer[..length]].concat())
                    }
                    None => (channel::STDIN, buffer[..length].to_vec()),
                };
                for (link, _) in &mut self.links {
                    link.send_input(channel, &payload, length);
                }
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(_) if !terminal::is_ours(input) => {}
            Ok(_) | Err(_) => {
                self.input = None;
                self.send(&StepMessage::InputEnd);
            }
        }
    }

    fn send(&mut self, message: &StepMessage) {
        self.links.iter_mut().for_each(|(link, _)| link.send(message));
    }
}

#[cfg(test)]
mod tests;

//! A running step seen from its `srun`: tasks' output in, input and signals out, until nothing of it is left.
//!
//! One thread and one `poll` over the door, the supervisors' connections, standard input, signals and the job's own fate.

pub mod door;
mod ends;
mod link;
pub mod output;
mod signals;
pub mod terminal;

use self::door::Door;
use self::ends::{Ends, TaskEnd};
use self::link::{Link, Peer};
use self::output::{Outputs, Which};
use super::caller::{complain, contact, say};
use super::watch::{Notice, Watch};
use ::slurm::option::Command;
use ::slurm::words::refusal;
use model::array::IndexSet;
use model::id::JobId;
use model::run::{ExitStatus, Outcome};
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signalfd::SignalFd;
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};
use wire::frame::{self, Frame};
use wire::step::{StepMessage, channel};
use wire::view::JobView;

/// How long the last bytes may take once the job has ended.
const DRAIN_FOR: Duration = Duration::from_secs(10);
/// How often deadlines are looked at, where there are any.
const TICK_MS: u16 = 500;
/// Connections that have not shown the key yet; more are turned away.
const STRANGERS_MAX: usize = 1_024;
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
    /// `-K`: the first task that fails ends the step.
    pub kill_on_bad_exit: bool,
    /// `-W`: how long the others may go on after the first task has ended.
    pub wait: Option<Duration>,
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
    door: Door,
    outputs: Outputs,
    input: Option<File>,
    links: Vec<(Link, IndexSet)>,
    ends: Ends,
    started: u64,
    interrupted: Option<Instant>,
    /// When the tasks are killed, and when they are given up.
    kill_at: Option<Instant>,
    give_up_at: Option<Instant>,
    terminate_at: Option<Instant>,
    queued: bool,
    job_ended: Option<(ExitStatus, Option<Outcome>)>,
    over: bool,
}

/// What `poll` found.
#[derive(Default)]
struct Ready {
    door: bool,
    signals: bool,
    watch: bool,
    input: bool,
    links: Vec<(usize, bool)>,
}

impl Step {
    pub fn new(plan: Plan, door: Door, outputs: Outputs, input: Option<File>) -> Self {
        let mut step = Self {
            plan,
            door,
            outputs,
            input,
            links: Vec::new(),
            ends: Ends::default(),
            started: 0,
            interrupted: None,
            kill_at: None,
            give_up_at: None,
            terminate_at: None,
            queued: false,
            job_ended: None,
            over: false,
        };
        if let Some(tasks) = step.plan.tasks {
            step.expect(tasks);
        }
        step
    }

    /// Carries bytes until the step is over.
    pub fn run(mut self, watch: &mut Watch, signals: &SignalFd) -> io::Result<Outturn> {
        while !self.is_over() {
            let ready = self.wait(watch, signals)?;
            if ready.watch {
                while let Some(notice) = watch.take() {
                    self.on_notice(notice);
                }
            }
            if ready.signals {
                while let Ok(Some(signal)) = signals.read_signal() {
                    self.on_signal(signal.ssi_signo as i32);
                }
            }
            if ready.door {
                self.on_door();
            }
            for (index, readable) in ready.links {
                self.on_link(index, readable)?;
            }
            if ready.input {
                self.on_input();
            }
            self.on_deadlines();
            self.links.retain(|(link, _)| link.is_open() || link.peer.is_some());
        }
        Ok(self.outturn())
    }

    fn wait(&self, watch: &Watch, signals: &SignalFd) -> io::Result<Ready> {
        let mut fds = vec![
            PollFd::new(self.door.as_fd(), PollFlags::POLLIN),
            PollFd::new(signals.as_fd(), PollFlags::POLLIN),
            PollFd::new(watch.as_fd(), PollFlags::POLLIN),
        ];
        let input = self.input.as_ref().filter(|_| self.takes_input());
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
        match poll(&mut fds, self.timeout()) {
            Ok(_) => {}
            Err(Errno::EINTR) => return Ok(Ready::default()),
            Err(errno) => return Err(errno.into()),
        }
        let any = |fd: &PollFd<'_>| fd.any().unwrap_or(false);
        let readable = |fd: &PollFd<'_>| fd.revents().is_some_and(|r| r != PollFlags::POLLOUT);
        let links = indices.into_iter().zip(&fds[first_link..]);
        Ok(Ready {
            door: any(&fds[0]),
            signals: any(&fds[1]),
            watch: any(&fds[2]),
            input: input.is_some() && any(&fds[3]),
            links: links.filter(|(_, fd)| any(fd)).map(|(i, fd)| (i, readable(fd))).collect(),
        })
    }

    fn on_door(&mut self) {
        let mut strangers = self.strangers();
        // Each is a connection that the kernel has made, so there are only so many.
        while let Some(stream) = self.door.accept() {
            if strangers < STRANGERS_MAX {
                self.links.push((Link::new(stream), IndexSet::new()));
                strangers += 1;
            }
        }
    }

    fn strangers(&self) -> usize {
        self.links.iter().filter(|(link, _)| link.is_open() && link.peer.is_none()).count()
    }

    fn timeout(&self) -> PollTimeout {
        let deadlines = [self.kill_at, self.give_up_at, self.terminate_at];
        match self.strangers() > 0 || deadlines.iter().any(Option::is_some) {
            true => PollTimeout::from(TICK_MS),
            false => PollTimeout::NONE,
        }
    }

    /// Every task has begun, so none misses the first bytes; and nobody leaves too many of them lying.
    fn takes_input(&self) -> bool {
        self.plan.tasks.is_some_and(|tasks| self.started >= u64::from(tasks))
            && self.links.iter().all(|(link, _)| !link.is_open() || link.has_room())
    }

    fn is_over(&self) -> bool {
        let all_ended = self.plan.tasks.is_some_and(|tasks| self.ends.count() >= u64::from(tasks));
        let quiet =
            self.links.iter().all(|(link, _)| link.gone || !link.is_open() || link.peer.is_none());
        self.over || (all_ended || self.job_ended.is_some()) && quiet
    }

    fn expect(&mut self, tasks: u32) {
        self.plan.tasks = Some(tasks);
        if self.plan.label {
            self.outputs.label(tasks);
        }
    }

    fn on_notice(&mut self, notice: Notice) {
        let job = self.plan.job;
        match notice {
            Notice::Queued => {
                self.queued = true;
                self.tell(&format!("job {job} queued and waiting for resources"));
            }
            Notice::Started(view) => {
                if self.queued {
                    self.tell(&format!("job {job} has been allocated resources"));
                }
                if self.plan.tasks.is_none() {
                    self.expect(tasks_of(&view));
                }
            }
            Notice::Ended { exit, outcome } => {
                self.job_ended = Some((exit, outcome));
                self.give_up_at = Some(Instant::now() + DRAIN_FOR);
            }
            // While tasks run, their supervisors are who this is about; without them there is nothing to wait for.
            Notice::Refused(why) if self.started == 0 => self.abandon(&refusal::text(&why)),
            Notice::Unreachable(why) if self.started == 0 => self.abandon(&contact(&why)),
            Notice::Refused(_) | Notice::Unreachable(_) => {}
        }
    }

    fn abandon(&mut self, why: &str) {
        complain(Command::Srun, &format!("{}: {why}", Command::Srun.refusal_prefix()));
        self.over = true;
    }

    fn tell(&self, line: &str) {
        if !self.plan.quiet {
            say(Command::Srun, line);
        }
    }

    fn on_link(&mut self, index: usize, readable: bool) -> io::Result<()> {
        let (link, _) = &mut self.links[index];
        link.flush();
        let frames = if readable { link.read(&self.door) } else { Vec::new() };
        let Some(peer) = link.peer.clone() else { return Ok(()) };
        for frame in &frames {
            self.on_frame(index, &peer, frame)?;
        }
        if self.outputs.take_broken() {
            // As on a pipe without `srun` in between.
            self.send(&StepMessage::Signal { signal: libc::SIGPIPE });
        }
        let (link, tasks) = &self.links[index];
        if !link.is_open() && !link.gone {
            for task in
                tasks.clone().iter().filter(|task| !self.ends.has(*task)).collect::<Vec<_>>()
            {
                self.end(&peer, task, TaskEnd::Lost)?;
            }
        }
        self.ends.take_lines().iter().for_each(|line| complain(Command::Srun, line));
        Ok(())
    }

    fn on_frame(&mut self, index: usize, peer: &Peer, frame: &Frame) -> io::Result<()> {
        let which = match frame.channel {
            channel::STDOUT => Which::Stdout,
            channel::STDERR => Which::Stderr,
            channel::CONTROL => return self.on_message(index, peer, frame),
            _ => return Ok(()),
        };
        match frame.payload.split_first_chunk::<4>() {
            Some((rank, bytes)) => {
                self.outputs.write(which, peer, u32::from_le_bytes(*rank), bytes)
            }
            None => Ok(()),
        }
    }

    fn on_message(&mut self, index: usize, peer: &Peer, frame: &Frame) -> io::Result<()> {
        // A newer supervisor may know more than we do.
        let Ok(message) = frame::decode_message(&frame.payload) else { return Ok(()) };
        match message {
            StepMessage::Started { task, .. } => self.on_started(index, task),
            StepMessage::Failed { task, what, .. } => {
                self.started += 1;
                return self.end(peer, task, TaskEnd::NotStarted(what));
            }
            StepMessage::Exited { task, oom: true, .. } => {
                return self.end(peer, task, TaskEnd::OutOfMemory);
            }
            StepMessage::Exited { task, exit, .. } => {
                return self.end(peer, task, TaskEnd::Exited(exit));
            }
            StepMessage::Gone => self.links[index].0.gone = true,
            _ => {}
        }
        Ok(())
    }

    fn on_started(&mut self, index: usize, task: u32) {
        let (link, tasks) = &mut self.links[index];
        self.started += u64::from(tasks.insert(task));
        if self.plan.terminal
            && task == 0
            && let Some((rows, columns)) = terminal::size()
        {
            link.send(&StepMessage::Resize { rows, columns });
        }
    }

    fn end(&mut self, peer: &Peer, task: u32, end: TaskEnd) -> io::Result<()> {
        self.outputs.end(peer, task)?;
        let failed = end.code() != 0;
        self.ends.add(peer, task, end);
        if failed && self.plan.kill_on_bad_exit && self.kill_at.is_none() {
            self.tell(&format!("Terminating StepId={}", self.plan.name));
            self.terminate();
        }
        if let Some(wait) = self.plan.wait.filter(|_| self.terminate_at.is_none()) {
            self.terminate_at = Some(Instant::now() + wait);
        }
        Ok(())
    }

    fn on_input(&mut self) {
        let Some(input) = &mut self.input else { return };
        let mut buffer = vec![0; INPUT_BYTES];
        match input.read(&mut buffer) {
            Ok(length) if length > 0 => {
                let links = self.links.iter_mut();
                links.for_each(|(link, _)| link.send_bytes(channel::STDIN, &buffer[..length]));
            }
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Ok(_) | Err(_) => {
                self.input = None;
                self.send(&StepMessage::InputEnd);
            }
        }
    }

    fn send(&mut self, message: &StepMessage) {
        self.links.iter_mut().for_each(|(link, _)| link.send(message));
    }

    fn outturn(&self) -> Outturn {
        let complete = self.plan.tasks.is_some_and(|tasks| self.ends.count() >= u64::from(tasks));
        let job_ended = self.job_ended.is_some();
        if complete {
            return Outturn { code: self.ends.code(), exit: self.ends.worst(), job_ended };
        }
        if let Some((_, outcome)) = self.job_ended {
            complain(Command::Srun, &ended_words(self.plan.job, outcome));
        }
        let code = self.ends.code().max(1);
        Outturn { code, exit: ExitStatus { code: i32::from(code), signal: 0 }, job_ended }
    }
}

fn ended_words(job: JobId, outcome: Option<Outcome>) -> String {
    match outcome {
        Some(Outcome::NoCapacity) => {
            "Unable to allocate resources: Requested nodes are busy".to_owned()
        }
        _ => format!("Job allocation {job} has been revoked"),
    }
}

/// The tasks of the step that started with the job.
fn tasks_of(view: &JobView) -> u32 {
    let step = view.steps.first().map(|step| step.tasks);
    let allocated = view.allocation.as_ref().map(|allocation| allocation.task_count());
    step.or(allocated).unwrap_or(view.tasks).max(1)
}

#[cfg(test)]
mod tests;

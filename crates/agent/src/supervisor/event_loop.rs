//! The supervisor's loop: it waits in one `poll` for everything that can happen to an attempt, and passes each event on.

use super::attempt::Attempt;
use super::job_log::JobLog;
use super::step::client_link::ClientLink;
use super::step::task::OutputStream;
use crate::wall_clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

/// The pause between two tries to listen for the next agent.
const LISTEN_RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How often a supervisor without an agent looks whether its attempt's folder is still there.
const FOLDER_CHECK_PERIOD: Duration = Duration::from_secs(5);

/// The owner of a polled descriptor.
#[derive(Debug, Clone, Copy)]
enum Token {
    Children,
    Listener,
    Agents,
    GroupEmpty,
    LeaderReady,
    Log,
    StepListener,
    StepLink(usize),
    StepObservers(usize),
    TaskReady(usize, usize),
    TaskOutput(usize, usize, OutputStream),
    TaskInput(usize, usize),
}

/// Runs the attempt to its end. Returns the process's exit code when nothing of the attempt is left and its end is
/// reported.
pub(super) fn run(attempt: &mut Attempt) -> i32 {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let Ok(children) = mask.thread_block().and_then(|()| SignalFd::with_flags(&mask, flags)) else {
        return 1;
    };
    // A child may have ended before its signal was blocked.
    attempt.reap();
    loop {
        // Reading arms the watch: a change after this wakes the poll below.
        let gone = attempt.watch.as_ref().is_some_and(|watch| watch.is_gone());
        attempt.settle();
        if attempt.is_over() {
            return 0;
        }
        if gone {
            // The group was removed from outside: nothing is left to supervise, and its descriptor would always be
            // ready.
            return 1;
        }
        for token in wait(attempt, &children) {
            dispatch(attempt, token, &children);
        }
        attempt.on_time(wall_clock::now());
        attempt.end_if_removed();
    }
}

fn dispatch(attempt: &mut Attempt, token: Token, children: &SignalFd) {
    match token {
        Token::Children => {
            // One signal may stand for several ended children: it only wakes the loop, `reap` finds all of them.
            while let Ok(Some(_)) = children.read_signal() {}
            attempt.reap();
        }
        Token::Listener => attempt.agents.accept(),
        Token::Agents => attempt.on_agents(),
        Token::GroupEmpty => attempt.on_group_event(),
        Token::LeaderReady => attempt.on_leader_ready(),
        Token::Log => {
            if let Some(log) = &mut attempt.log {
                log.carry();
            }
        }
        Token::StepListener => attempt.on_step_listener(),
        Token::StepLink(step) => attempt.on_step_link(step),
        Token::StepObservers(step) => attempt.steps[step].on_observers(),
        Token::TaskReady(step, task) => attempt.steps[step].on_ready(task),
        Token::TaskOutput(step, task, output) => attempt.steps[step].on_output(task, output),
        Token::TaskInput(step, task) => attempt.steps[step].on_input_writable(task),
    }
}

fn read_and(write: bool) -> PollFlags {
    let write = if write { PollFlags::POLLOUT } else { PollFlags::empty() };
    PollFlags::POLLIN | write
}

/// Sleeps until a descriptor is ready or a deadline has passed. Returns what is ready.
fn wait(attempt: &Attempt, children: &SignalFd) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut fds: Vec<PollFd> = Vec::new();
    let mut add = |token: Token, fd, flags: PollFlags| {
        tokens.push(token);
        fds.push(PollFd::new(fd, flags));
    };
    add(Token::Children, children.as_fd(), PollFlags::POLLIN);
    if let Some(listener) = attempt.agents.listener() {
        add(Token::Listener, listener, PollFlags::POLLIN);
    }
    for (fd, write) in attempt.agents.connections() {
        add(Token::Agents, fd, read_and(write));
    }
    for fd in attempt.step_listener.fds() {
        add(Token::StepListener, fd, PollFlags::POLLIN);
    }
    if let Some(watch) = &attempt.watch {
        add(Token::GroupEmpty, watch.as_fd(), PollFlags::POLLPRI);
    }
    if let Some(ready) = attempt.leader_ready() {
        add(Token::LeaderReady, ready, PollFlags::POLLIN);
    }
    if let Some(pipe) = attempt.log.as_ref().and_then(JobLog::pipe) {
        add(Token::Log, pipe, PollFlags::POLLIN);
    }
    add_steps(attempt, &mut add);
    let timeout = timeout(attempt);
    // An interrupted poll is a shorter one: the caller checks the deadlines and polls again.
    let _ = poll(&mut fds, timeout);
    let ready = fds.iter().map(|fd| fd.revents().is_some_and(|events| !events.is_empty()));
    tokens.into_iter().zip(ready).filter_map(|(token, ready)| ready.then_some(token)).collect()
}

fn add_steps<'a>(attempt: &'a Attempt, add: &mut impl FnMut(Token, BorrowedFd<'a>, PollFlags)) {
    for (index, step) in attempt.steps.iter().enumerate() {
        for (fd, write) in step.clients().srun().interests() {
            add(Token::StepLink(index), fd, read_and(write));
        }
        for (fd, write) in step.clients().observers().flat_map(ClientLink::interests) {
            add(Token::StepObservers(index), fd, read_and(write));
        }
        for (number, task) in step.tasks().iter().enumerate() {
            if let Some(ready) = task.ready.as_ref().filter(|_| !task.is_silent) {
                add(Token::TaskReady(index, number), ready.as_fd(), PollFlags::POLLIN);
            }
            if let Some(fd) = task.wanting_input() {
                add(Token::TaskInput(index, number), fd, PollFlags::POLLOUT);
            }
            for output in [OutputStream::Stdout, OutputStream::Stderr] {
                if let Some(fd) =
                    task.output(output).filter(|_| step.clients().srun().can_take_output())
                {
                    add(Token::TaskOutput(index, number, output), fd, PollFlags::POLLIN);
                }
            }
        }
    }
}

fn timeout(attempt: &Attempt) -> PollTimeout {
    let now = wall_clock::now();
    let due = attempt.next_due().map(|at| at.since(now) + Duration::from_millis(1));
    let dial = attempt.steps.iter().filter_map(|step| step.clients().srun().deadline()).min();
    let dial = dial.map(|until| until.saturating_duration_since(Instant::now()));
    let deaf = attempt.agents.is_unreachable().then_some(LISTEN_RETRY_PAUSE);
    let alone = (!attempt.agents.has_agent()).then_some(FOLDER_CHECK_PERIOD);
    let tick = attempt.tick().into_iter().chain(deaf).chain(alone).min();
    let shortest = [due, dial, tick].into_iter().flatten().min();
    let millis = |length: Duration| i32::try_from(length.as_millis()).unwrap_or(i32::MAX);
    shortest.map_or(PollTimeout::NONE, |length| {
        PollTimeout::try_from(millis(length)).unwrap_or(PollTimeout::MAX)
    })
}

//! The keeper: a process of one thread that starts this machine's agent, and starts it again when it dies. Jobs do not
//! notice; without an agent their node would be considered lost.

use super::state_dir::StateDir;
use crate::command::verb::VerbError;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// The name of its pid file.
pub const KEEPER: &str = "keeper";

/// An agent that has lived this long was working: its death does not count with earlier ones.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// How often in a row an agent that dies early is started again.
const RESTARTS_MAX: u32 = 8;
/// The pause before the first restart; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Counts early deaths of agents.
#[derive(Default)]
struct RestartBackoff {
    in_a_row: u32,
}

impl RestartBackoff {
    /// The pause before the next start, after an agent that lived for `lived`. `None` if it died too often.
    fn next(&mut self, lived: Duration) -> Option<Duration> {
        if lived >= STABLE_AFTER {
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        (self.in_a_row <= RESTARTS_MAX).then(|| FIRST_PAUSE * 2u32.pow(self.in_a_row - 1))
    }
}

/// Forks the keeper, and returns in each agent that the keeper forks. The calling process ends at once, so that nobody has
/// to wait for the keeper; the keeper itself never returns. The caller must have one thread.
pub fn keep(state: &StateDir) -> Result<(), VerbError> {
    match fork_child()? {
        // Exit handlers belong to the agent.
        Some(_) => exit_now(0),
        None => state.write_pid(KEEPER)?,
    }
    let mut signals = SigSet::empty();
    [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT].into_iter().for_each(|s| signals.add(s));
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before)).map_err(failed)?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let signal_fd = SignalFd::with_flags(&signals, flags).map_err(failed)?;
    let mut backoff = RestartBackoff::default();
    loop {
        let Some(agent) = fork_child()? else {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(failed)?;
            return Ok(());
        };
        let began = Instant::now();
        let pause = match await_end(agent, &signal_fd) {
            AgentEnd::Stopped => finish(state),
            AgentEnd::Died(how) => backoff.next(began.elapsed()).map(|pause| (how, pause)),
        };
        let Some((how, pause)) = pause else {
            tracing::error!(
                "the agent died {RESTARTS_MAX} times in a row and is not started again; jobs go on, and `sluice up` starts it"
            );
            finish(state)
        };
        tracing::warn!("{how}; it is started again");
        if told_to_stop(&signal_fd, Some(Instant::now() + pause)) {
            finish(state)
        }
    }
}

/// Forks: the child's pid in the parent, `None` in the child.
fn fork_child() -> Result<Option<Pid>, VerbError> {
    // SAFETY: the caller of `keep` has one thread, so the child finds no lock held by another.
    match unsafe { fork() }.map_err(failed)? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

fn failed(error: nix::Error) -> VerbError {
    VerbError::Message(format!("the agent cannot be kept: {error}"))
}

fn finish(state: &StateDir) -> ! {
    let _ = std::fs::remove_file(state.pid_file(KEEPER));
    exit_now(0)
}

fn exit_now(code: i32) -> ! {
    // SAFETY: ends this process at once; exit handlers are the agent's.
    unsafe { libc::_exit(code) }
}

/// How an agent ended.
enum AgentEnd {
    /// It was told to stop, or the keeper was.
    Stopped,
    Died(String),
}

fn await_end(agent: Pid, signal_fd: &SignalFd) -> AgentEnd {
    let mut told = false;
    loop {
        let ended = match waitpid(agent, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, 0)) => return AgentEnd::Stopped,
            Ok(WaitStatus::Exited(_, code)) => format!("the agent ended with code {code}"),
            Ok(WaitStatus::Signaled(_, signal, _)) => format!("the agent was killed by {signal}"),
            Ok(_) => {
                if told_to_stop(signal_fd, None) {
                    told = true;
                    let _ = kill(agent, Signal::SIGTERM);
                }
                continue;
            }
            Err(error) => format!("the agent cannot be waited for: {error}"),
        };
        return if told { AgentEnd::Stopped } else { AgentEnd::Died(ended) };
    }
}

/// Waits for a signal, at most until `until`. Returns whether it was one that ends the keeper.
fn told_to_stop(signal_fd: &SignalFd, until: Option<Instant>) -> bool {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up to whole milliseconds: a timeout of zero would make this loop spin.
        let left = left.map(|left| left + Duration::from_millis(1));
        let timeout =
            left.map_or(PollTimeout::NONE, |left| left.try_into().unwrap_or(PollTimeout::MAX));
        let _ = poll(&mut [PollFd::new(signal_fd.as_fd(), PollFlags::POLLIN)], timeout);
        let mut ended = false;
        while let Ok(Some(signal)) = signal_fd.read_signal() {
            ended |= signal.ssi_signo != Signal::SIGCHLD as u32;
        }
        match until {
            Some(until) if !ended && Instant::now() < until => {}
            _ => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_that_keeps_dying_is_given_up_and_a_stable_one_resets_the_count() {
        let mut backoff = RestartBackoff::default();
        let early = Duration::from_secs(1);
        let pauses: Vec<_> = std::iter::from_fn(|| backoff.next(early)).take(100).collect();
        assert_eq!(pauses.len() as u32, RESTARTS_MAX);
        assert!(pauses.is_sorted() && pauses[0] == FIRST_PAUSE, "{pauses:?}");
        assert_eq!(backoff.next(STABLE_AFTER), Some(FIRST_PAUSE));
    }
}

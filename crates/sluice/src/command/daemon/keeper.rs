//! Keeps this machine's agent alive: a small process of one thread that starts the agent, waits for it, and starts it
//! again where it died. Jobs do not notice; without an agent their node would be taken for lost.

use super::VerbError;
use super::state_dir::StateDir;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// Its pid file.
pub const KEEPER: &str = "keeper";

/// An agent that lives this long was sound: what kills it next is something new.
const SOUND: Duration = Duration::from_secs(60);
/// How often in a row an agent that is not sound is started again.
const TRIES: u32 = 8;
/// The pause before the first of them; it doubles each time.
const PAUSE: Duration = Duration::from_millis(100);

/// What is known of the agents that died so far.
#[derive(Default)]
struct Deaths {
    in_a_row: u32,
}

impl Deaths {
    /// How long to wait before the next agent, after one that lived so long; none when it is enough.
    fn next(&mut self, lived: Duration) -> Option<Duration> {
        if lived >= SOUND {
            self.in_a_row = 0;
        }
        self.in_a_row += 1;
        (self.in_a_row <= TRIES).then(|| PAUSE * 2u32.pow(self.in_a_row - 1))
    }
}

/// Comes back in each agent that is to be. The process that called it ends at once, so that the keeper is nobody's
/// child to wait for; the keeper never comes back. The caller has one thread.
pub fn keep(state: &StateDir) -> Result<(), VerbError> {
    match forked()? {
        // What a process ends with belongs to the one that goes on.
        Some(_) => leave(0),
        None => state.write_pid(KEEPER)?,
    }
    let mut signals = SigSet::empty();
    [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT].into_iter().for_each(|s| signals.add(s));
    let mut before = SigSet::empty();
    sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before)).map_err(failed)?;
    let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
    let heard = SignalFd::with_flags(&signals, flags).map_err(failed)?;
    let mut deaths = Deaths::default();
    loop {
        let Some(agent) = forked()? else {
            sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None).map_err(failed)?;
            return Ok(());
        };
        let began = Instant::now();
        let pause = match await_end(agent, &heard) {
            How::Told => finish(state),
            How::Died(how) => deaths.next(began.elapsed()).map(|pause| (how, pause)),
        };
        let Some((how, pause)) = pause else {
            tracing::error!(
                "the agent died {TRIES} times in a row and is not started again; jobs go on, and `sluice up` starts it"
            );
            finish(state)
        };
        tracing::warn!("{how}; it is started again");
        if told_to_stop(&heard, Some(Instant::now() + pause)) {
            finish(state)
        }
    }
}

/// The child in the parent, nothing in the child.
fn forked() -> Result<Option<Pid>, VerbError> {
    // SAFETY: the caller of `keep` has one thread, so the child finds no lock held by another.
    match unsafe { fork() }.map_err(failed)? {
        ForkResult::Parent { child } => Ok(Some(child)),
        ForkResult::Child => Ok(None),
    }
}

fn failed(error: nix::Error) -> VerbError {
    VerbError::Said(format!("the agent cannot be kept: {error}"))
}

fn finish(state: &StateDir) -> ! {
    let _ = std::fs::remove_file(state.pid_file(KEEPER));
    leave(0)
}

fn leave(code: i32) -> ! {
    // SAFETY: ends this process at once; exit handlers are the agent's.
    unsafe { libc::_exit(code) }
}

/// How an agent ended.
enum How {
    /// It was told to, or we were.
    Told,
    Died(String),
}

fn await_end(agent: Pid, heard: &SignalFd) -> How {
    let mut told = false;
    loop {
        let ended = match waitpid(agent, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, 0)) => return How::Told,
            Ok(WaitStatus::Exited(_, code)) => format!("the agent ended with code {code}"),
            Ok(WaitStatus::Signaled(_, signal, _)) => format!("the agent was killed by {signal}"),
            Ok(_) => {
                if told_to_stop(heard, None) {
                    told = true;
                    let _ = kill(agent, Signal::SIGTERM);
                }
                continue;
            }
            Err(error) => format!("the agent cannot be waited for: {error}"),
        };
        return if told { How::Told } else { How::Died(ended) };
    }
}

/// Waits for a signal, or until then; whether it was one that ends us.
fn told_to_stop(heard: &SignalFd, until: Option<Instant>) -> bool {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // In whole milliseconds upwards: a wait of less than one would turn on the spot.
        let left = left.map(|left| left + Duration::from_millis(1));
        let timeout =
            left.map_or(PollTimeout::NONE, |left| left.try_into().unwrap_or(PollTimeout::MAX));
        let _ = poll(&mut [PollFd::new(heard.as_fd(), PollFlags::POLLIN)], timeout);
        let mut ended = false;
        while let Ok(Some(signal)) = heard.read_signal() {
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
    fn an_agent_that_keeps_dying_is_given_up_and_a_sound_one_begins_anew() {
        let mut deaths = Deaths::default();
        let early = Duration::from_secs(1);
        let pauses: Vec<_> = std::iter::from_fn(|| deaths.next(early)).take(100).collect();
        assert_eq!(pauses.len() as u32, TRIES);
        assert!(pauses.is_sorted() && pauses[0] == PAUSE, "{pauses:?}");
        assert_eq!(deaths.next(SOUND), Some(PAUSE));
    }
}

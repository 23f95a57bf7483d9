//! The keeper: a process of one thread that starts a server or an agent, and starts it again when it dies. Jobs notice
//! neither; without an agent their node would be considered lost, and without a server nobody gets an answer.

use super::folder_watch::{FOLDER_GONE, OpenFolder};
use super::state_dir::StateDir;
use crate::command::verb::VerbError;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::prctl;
use nix::sys::signal::{SigSet, SigmaskHow, Signal, kill, sigprocmask};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

/// A process that has lived this long was working: its death does not count with earlier ones.
const STABLE_AFTER: Duration = Duration::from_secs(60);
/// The pause before the first restart; it doubles each time.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
/// The longest pause. A process that keeps dying is started again for ever: giving up would make an outage of any crash that
/// somebody can bring about.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Which process a keeper keeps.
#[derive(Debug)]
pub struct Keeper {
    /// The name of the keeper's own pid file.
    pub name: &'static str,
    /// The name of the process and of its pid file.
    of: &'static str,
}

pub const AGENT_KEEPER: Keeper = Keeper { name: "keeper", of: "agent" };

pub const SERVER_KEEPER: Keeper = Keeper { name: "server-keeper", of: "server" };

/// What a kept process knows of its keeper.
pub struct Kept {
    ready: PipeWriter,
    /// Whether it has no predecessor.
    pub is_first: bool,
    /// Whether one of its predecessors was ready.
    pub was_ready: bool,
}

impl Kept {
    /// Tells the keeper that the process works.
    pub fn tell_ready(mut self) {
        // A keeper that was killed does not read it.
        let _ = self.ready.write_all(&[1]);
    }
}

/// Counts early deaths.
#[derive(Default)]
struct RestartBackoff {
    in_a_row: u32,
}

impl RestartBackoff {
    /// The pause before the next start, after a process that lived for `lived`.
    fn next(&mut self, lived: Duration) -> Duration {
        if lived >= STABLE_AFTER {
            self.in_a_row = 0;
        }
        let pause = FIRST_PAUSE.saturating_mul(2u32.saturating_pow(self.in_a_row));
        self.in_a_row = self.in_a_row.saturating_add(1);
        pause.min(LONGEST_PAUSE)
    }
}

/// How a kept process ended.
#[derive(Debug, PartialEq, Eq)]
enum End {
    /// It was told to stop, or the keeper was.
    Stopped,
    /// With an exit code.
    Failed(i32),
    /// By a signal, or in a way that is not known.
    Died(String),
}

impl Keeper {
    /// Forks a keeper into the background, and returns in each process that it forks. The calling process ends at once, so
    /// that nobody has to wait for the keeper. The caller must have one thread.
    pub fn keep_in_background(&self, state: &StateDir) -> Result<Kept, VerbError> {
        match self.fork_child()? {
            // Exit handlers belong to the kept process.
            Some(_) => exit_now(0),
            None => self.keep(state),
        }
    }

    /// Becomes the keeper: returns in each process that it forks, and in the keeper only with an error. The caller must
    /// have one thread. What the caller holds open, each process inherits: listening sockets stay bound between two servers, and
    /// clients wait instead of being refused.
    pub fn keep(&self, state: &StateDir) -> Result<Kept, VerbError> {
        state.claim(self.name)?;
        let folder = OpenFolder::of(state)?;
        // What lists of processes call it; the process that is kept has a name of its own.
        let _ = prctl::set_name(c"sluice-keeper");
        let mut signals = SigSet::empty();
        [Signal::SIGCHLD, Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP]
            .into_iter()
            .for_each(|s| signals.add(s));
        let mut before = SigSet::empty();
        sigprocmask(SigmaskHow::SIG_BLOCK, Some(&signals), Some(&mut before))
            .map_err(|e| self.failed(e))?;
        let flags = SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK;
        let signal_fd = SignalFd::with_flags(&signals, flags).map_err(|e| self.failed(e))?;
        let mut backoff = RestartBackoff::default();
        let (mut is_first, mut was_ready) = (true, false);
        loop {
            let (reader, ready) = std::io::pipe().map_err(|e| self.failed(e))?;
            let Some(child) = self.fork_child()? else {
                sigprocmask(SigmaskHow::SIG_SETMASK, Some(&before), None)
                    .map_err(|e| self.failed(e))?;
                return Ok(Kept { ready, is_first, was_ready });
            };
            drop(ready);
            is_first = false;
            let began = Instant::now();
            let end = await_end(child, &signal_fd);
            let is_ready = was_written(reader);
            was_ready |= is_ready;
            let how = match end {
                // It has said so. The files at the folder's path are not this keeper's any more.
                End::Failed(FOLDER_GONE) => exit_now(FOLDER_GONE),
                // A daemon was stopped, and its folder removed right after: nothing is left to clear.
                End::Stopped if folder.is_gone() => exit_now(0),
                _ if folder.is_gone() => self.end_without(&folder),
                End::Stopped => self.stopped(state),
                // A first start that fails has said why; it is for the caller to try again.
                End::Failed(code) if !was_ready => {
                    self.note_stop(state);
                    self.finish(state, code)
                }
                End::Failed(code) => format!("ended with code {code}"),
                End::Died(how) => how,
            };
            // Before it is ready, a process may take long and still end at once, each time.
            let lived = if is_ready { began.elapsed() } else { Duration::ZERO };
            let pause = backoff.next(lived);
            tracing::warn!(
                "the {} {how}; it is started again in {} ms",
                self.of,
                pause.as_millis()
            );
            if next_signal(&signal_fd, Some(Instant::now() + pause)) == Told::Stop {
                self.stopped(state)
            }
            if folder.is_gone() {
                self.end_without(&folder)
            }
        }
    }

    /// Ends the keeper where the state folder is gone: what it would start again would be an empty cluster in the place of the one
    /// that was there.
    fn end_without(&self, folder: &OpenFolder) -> ! {
        folder.tell_gone(self.of);
        exit_now(FOLDER_GONE)
    }

    /// Forks: the child's pid in the parent, `None` in the child.
    fn fork_child(&self) -> Result<Option<Pid>, VerbError> {
        // SAFETY: the keeper has one thread, so the child finds no lock held by another.
        match unsafe { fork() }.map_err(|e| self.failed(e))? {
            ForkResult::Parent { child } => Ok(Some(child)),
            ForkResult::Child => Ok(None),
        }
    }

    fn failed(&self, error: impl std::fmt::Display) -> VerbError {
        VerbError::Message(format!("the {} cannot be kept: {error}", self.of))
    }

    fn stopped(&self, state: &StateDir) -> ! {
        self.note_stop(state);
        self.finish(state, 0)
    }

    /// Notes that the server did not crash, if it is the server's keeper.
    fn note_stop(&self, state: &StateDir) {
        if self.of == SERVER_KEEPER.of {
            state.note_stop();
        }
    }

    fn finish(&self, state: &StateDir, code: i32) -> ! {
        self.remove_pid_files(state);
        exit_now(code)
    }

    /// The keeper's own is the last: until then no other keeper starts here.
    fn remove_pid_files(&self, state: &StateDir) {
        for name in [self.of, self.name] {
            let _ = std::fs::remove_file(state.pid_file(name));
        }
    }
}

fn exit_now(code: i32) -> ! {
    // SAFETY: ends this process at once; exit handlers are the kept process's.
    unsafe { libc::_exit(code) }
}

fn was_written(mut reader: PipeReader) -> bool {
    matches!(reader.read(&mut [0]), Ok(1))
}

fn await_end(child: Pid, signal_fd: &SignalFd) -> End {
    let mut told = false;
    loop {
        let end = match waitpid(child, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::Exited(_, 0)) => End::Stopped,
            // SIGTERM and SIGINT are told to a process to stop it, also before it handles them.
            Ok(WaitStatus::Signaled(_, Signal::SIGTERM | Signal::SIGINT, _)) => End::Stopped,
            Ok(WaitStatus::Exited(_, code)) => End::Failed(code),
            Ok(WaitStatus::Signaled(_, signal, _)) => End::Died(format!("was killed by {signal}")),
            Ok(_) => {
                match next_signal(signal_fd, None) {
                    Told::Stop => {
                        told = true;
                        let _ = kill(child, Signal::SIGTERM);
                    }
                    Told::Reconfigure => drop(kill(child, Signal::SIGHUP)),
                    Told::Nothing => {}
                }
                continue;
            }
            Err(error) => End::Died(format!("cannot be waited for: {error}")),
        };
        return if told { End::Stopped } else { end };
    }
}

/// What a signal tells a keeper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Told {
    Nothing,
    /// SIGHUP: passed on to the process that is kept.
    Reconfigure,
    Stop,
}

/// Waits for a signal, at most until `until`; during a pause before a start only for one that ends the keeper.
fn next_signal(signal_fd: &SignalFd, until: Option<Instant>) -> Told {
    loop {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // Rounded up to whole milliseconds: a timeout of zero would make this loop spin.
        let left = left.map(|left| left + Duration::from_millis(1));
        let timeout =
            left.map_or(PollTimeout::NONE, |left| left.try_into().unwrap_or(PollTimeout::MAX));
        let _ = poll(&mut [PollFd::new(signal_fd.as_fd(), PollFlags::POLLIN)], timeout);
        let mut told = Told::Nothing;
        while let Ok(Some(signal)) = signal_fd.read_signal() {
            told = told.max(match Signal::try_from(signal.ssi_signo as i32) {
                Ok(Signal::SIGCHLD) => Told::Nothing,
                Ok(Signal::SIGHUP) => Told::Reconfigure,
                _ => Told::Stop,
            });
        }
        match until {
            Some(until) if told != Told::Stop && Instant::now() < until => {}
            _ => return told,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_that_keeps_dying_is_started_ever_more_seldom_and_a_stable_one_resets_that() {
        let mut backoff = RestartBackoff::default();
        let early = Duration::from_secs(1);
        let pauses: Vec<_> = (0..100).map(|_| backoff.next(early)).collect();
        assert!(pauses.is_sorted() && pauses[0] == FIRST_PAUSE, "{pauses:?}");
        assert_eq!(pauses.last(), Some(&LONGEST_PAUSE));
        assert_eq!(backoff.next(STABLE_AFTER), FIRST_PAUSE);
    }
}

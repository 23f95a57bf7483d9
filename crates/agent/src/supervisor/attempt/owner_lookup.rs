//! The lookup of the job's owner, before anything of the job runs. It is a child process with a time limit, because the
//! node's user database may block; the job's group is made meanwhile.

use super::Attempt;
use super::prolog_epilog::{Hook, RunningHook};
use crate::pidfd;
use crate::privilege;
use crate::spool::close_claim_in_child;
use crate::supervisor::agent_connections;
use crate::supervisor::owner::{self, OwnerAnswer};
use crate::wall_clock;
use model::reason::UserFault;
use nix::poll::{PollFd, PollFlags, poll};
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{ForkResult, Pid, fork};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;
use wire::order::UserIds;

/// How long the user database may take, where `PrologEpilogTimeout` does not say it.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer: as many groups as the kernel lets a process have.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// How long the launcher waits for the user database when it starts.
const LOAD_TIMEOUT_MS: u16 = 1000;
const SECONDS_OF_DAY: i64 = 86_400;

/// A lookup that has begun.
#[derive(Debug)]
pub(in crate::supervisor) struct OwnerLookup {
    pid: Pid,
    /// Has the answer when the child has ended.
    answer: File,
}

impl OwnerLookup {
    /// `None` without root: there is nothing to look up, the job runs as this process does.
    pub fn begin(user: &UserIds) -> nix::Result<Option<OwnerLookup>> {
        if !privilege::is_root() {
            return Ok(None);
        }
        let mut answer = File::from(memfd_create(c"owner", MFdFlags::MFD_CLOEXEC)?);
        let pid = fork_child(|| {
            let today = wall_clock::now().0.div_euclid(1000 * SECONDS_OF_DAY);
            let text = serde_json::to_vec(&owner::look_up(user, today)).ok();
            text.is_some_and(|text| answer.write_all(&text).is_ok())
        })?;
        Ok(Some(OwnerLookup { pid, answer }))
    }
}

/// Loads the modules of the user database into this process, so that a lookup in a fork of it need not: but only after
/// a child got its answers in time, as a database that does not answer must not stop this process.
pub(in crate::supervisor) fn load_user_database() {
    if !privilege::is_root() {
        return;
    }
    let root = UserIds { name: "root".to_owned(), uid: 0, gid: 0, groups: Vec::new() };
    let look_up = || matches!(owner::look_up(&root, 0), OwnerAnswer::Found(_));
    let Ok((told, tells)) = UnixStream::pair() else { return };
    let Ok(child) = fork_child(|| look_up() && (&tells).write_all(b"+").is_ok()) else { return };
    let child = pidfd::open(child.as_raw());
    drop(tells);
    let mut news = [PollFd::new(told.as_fd(), PollFlags::POLLIN)];
    let in_time = matches!(poll(&mut news, LOAD_TIMEOUT_MS), Ok(1));
    // A child that crashed or was not answered has told nothing.
    if in_time && (&told).read_exact(&mut [0]).is_ok() {
        look_up();
    } else if let Ok(child) = child {
        let _ = pidfd::send_signal(child.as_fd(), Signal::SIGKILL);
    }
}

/// Forks a child that asks the user database; it ends with 0 if it was answered.
fn fork_child(ask: impl FnOnce() -> bool) -> nix::Result<Pid> {
    // SAFETY: launcher and supervisor have one thread, and the child ends here.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok(child),
        ForkResult::Child => {
            close_claim_in_child();
            agent_connections::close_in_child();
            let ask = || {
                // Modules of the user database may expect the usual disposition.
                // SAFETY: the default disposition runs no code of ours.
                let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
                // A lookup that hangs does not outlive its parent.
                let _ = prctl::set_pdeathsig(Signal::SIGKILL);
                ask()
            };
            let answered = std::panic::catch_unwind(std::panic::AssertUnwindSafe(ask));
            // SAFETY: ends the child without the exit handlers of its parent.
            unsafe { libc::_exit(i32::from(!answered.unwrap_or(false))) }
        }
    }
}

impl Attempt {
    /// Waits for the lookup, and then starts the job.
    pub(super) fn await_owner(&mut self, lookup: nix::Result<Option<OwnerLookup>>) {
        match lookup {
            Ok(None) => self.start_as_owner(),
            Ok(Some(OwnerLookup { pid, answer })) => {
                let limit = self.record.site.timeout_s.map(|s| Duration::from_secs(u64::from(s)));
                let until = wall_clock::now() + limit.unwrap_or(LOOKUP_TIMEOUT);
                self.owner_answer = Some(answer);
                self.hooks.running = Some(RunningHook::child(Hook::OwnerLookup, pid, Some(until)));
            }
            Err(errno) => self.hook_failed(Hook::OwnerLookup, errno.desc()),
        }
    }

    /// Takes the answer of a lookup that has ended, and goes on with the start.
    pub(super) fn owner_lookup_done(&mut self) {
        match self.owner_answer.take().and_then(read) {
            Some(OwnerAnswer::Found(user)) => {
                self.record.launch.user = user;
                self.start_as_owner();
            }
            Some(OwnerAnswer::Refused(fault)) => {
                self.user_fault = Some(fault);
                let user = &self.record.launch.user;
                let what = format!("user {} ({}) {}", user.name, user.uid, words(fault));
                self.fail_launch(what);
            }
            Some(OwnerAnswer::Failed(why)) => self.hook_failed(Hook::OwnerLookup, &why),
            None => self.hook_failed(Hook::OwnerLookup, "gave no answer"),
        }
    }
}

fn words(fault: UserFault) -> &'static str {
    match fault {
        UserFault::Unknown => "does not exist on this node",
        UserFault::Renamed => "has another name on this node",
        UserFault::Expired => "has an expired account",
        UserFault::Locked => "has a locked account",
    }
}

fn read(mut answer: File) -> Option<OwnerAnswer> {
    answer.rewind().ok()?;
    let mut text = Vec::new();
    answer.take(ANSWER_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

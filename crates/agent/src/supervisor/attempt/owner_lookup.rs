//! The lookup of the job's owner, before anything else of the job begins. It runs in a child process with a time limit,
//! because the node's user database may block.

use super::Attempt;
use super::prolog_epilog::{Hook, RunningHook};
use crate::spool::close_claim_in_child;
use crate::supervisor::agent_connections;
use crate::supervisor::owner::{self, OwnerAnswer};
use crate::wall_clock;
use model::reason::UserFault;
use nix::sys::memfd::{MFdFlags, memfd_create};
use nix::sys::prctl;
use nix::sys::signal::{SigHandler, Signal, signal};
use nix::unistd::{ForkResult, Uid, fork};
use std::fs::File;
use std::io::{Read, Seek, Write};
use std::time::Duration;
use wire::order::UserIds;

/// How long the user database may take, where `PrologEpilogTimeout` does not say it.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(60);
/// The longest answer: as many groups as the kernel lets a process have.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
const SECONDS_OF_DAY: i64 = 86_400;

impl Attempt {
    /// Begins the lookup. Without root there is nothing to look up: the job runs as this process does.
    pub(super) fn begin_owner_lookup(&mut self) {
        if !Uid::effective().is_root() {
            return self.start_as_owner();
        }
        match start(&self.record.launch.user) {
            Ok((pid, answer)) => {
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

/// Starts the child. Returns its pid and the file that has its answer when it has ended.
fn start(user: &UserIds) -> nix::Result<(nix::unistd::Pid, File)> {
    let mut answer = File::from(memfd_create(c"owner", MFdFlags::MFD_CLOEXEC)?);
    // SAFETY: the supervisor has one thread, and the child ends here.
    match unsafe { fork() }? {
        ForkResult::Parent { child } => Ok((child, answer)),
        ForkResult::Child => {
            close_claim_in_child();
            agent_connections::close_in_child();
            let look_up = || {
                // Modules of the user database may expect the usual disposition.
                // SAFETY: the default disposition runs no code of ours.
                let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigDfl) };
                // A lookup that hangs does not outlive its supervisor.
                let _ = prctl::set_pdeathsig(Signal::SIGKILL);
                let today = wall_clock::now().0.div_euclid(1000 * SECONDS_OF_DAY);
                let text = serde_json::to_vec(&owner::look_up(user, today)).ok();
                text.is_some_and(|text| answer.write_all(&text).is_ok())
            };
            let told = std::panic::catch_unwind(std::panic::AssertUnwindSafe(look_up));
            // SAFETY: ends the child without the exit handlers of its parent.
            unsafe { libc::_exit(i32::from(!told.unwrap_or(false))) }
        }
    }
}

fn read(mut answer: File) -> Option<OwnerAnswer> {
    answer.rewind().ok()?;
    let mut text = Vec::new();
    answer.take(ANSWER_BYTES_MAX).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

//! Who has an attempt: a lock on its launch, which goes with its holder, and a mark on it that stays.
//!
//! There is never a second supervisor of one attempt. The first takes the lock and sets the mark; whoever finds the mark
//! without the lock knows that there was one, and that it is gone.

use super::attempt_dir::{AttemptDir, CONTROL, LAUNCH};
use super::launch_record::LaunchRecord;
use crate::error::AgentError;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, Flock, FlockArg, OFlag, openat};
use nix::sys::stat::{Mode, fchmod, fstat, fstatat};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicI32, Ordering};

/// The mode of a launch that somebody has taken; before that it may be written.
const TAKEN: u32 = 0o400;
const MAY_WRITE: u32 = 0o200;

/// The descriptor of this process's claim; a supervisor has one in its life.
static CLAIM_FD: AtomicI32 = AtomicI32::new(-1);

/// For a forked child that is slow to execute: the claim is its parent's, and ends with that.
pub(crate) fn close_claim_in_child() {
    let held = CLAIM_FD.load(Ordering::Relaxed);
    if held >= 0 {
        // SAFETY: the child executes or exits without using the lock, and closing it here does not undo it there.
        unsafe { libc::close(held) };
    }
}

/// Held for as long as this lives, and no longer.
#[derive(Debug)]
pub(crate) struct Claim {
    launch: Flock<File>,
}

impl Claim {
    /// The launch that was taken.
    pub fn read_launch(&self, dir: &AttemptDir) -> Result<LaunchRecord, AgentError> {
        dir.read_record(&self.launch)
    }
}

/// How an attempt stands.
pub(crate) enum ClaimState {
    /// Somebody lives who has it.
    Claimed,
    /// Somebody had it.
    Abandoned,
    /// Nobody ever had it; now the caller has.
    Unclaimed { _claim: Claim },
}

impl AttemptDir {
    /// Takes the attempt; fails if anybody else has it or had it.
    pub fn claim(&self) -> Result<Claim, AgentError> {
        let taken = |e: io::Error| AgentError::file("take", self.path.join(LAUNCH), e);
        match self.claim_state().map_err(taken)? {
            ClaimState::Unclaimed { _claim } => {
                CLAIM_FD.store(_claim.launch.as_raw_fd(), Ordering::Relaxed);
                Ok(_claim)
            }
            ClaimState::Claimed | ClaimState::Abandoned => Err(taken(Errno::EEXIST.into())),
        }
    }

    /// Takes the attempt if it can be taken.
    pub fn claim_state(&self) -> io::Result<ClaimState> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let file = File::from(openat(&self.fd, LAUNCH, flags, Mode::empty())?);
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Ok(ClaimState::Claimed),
            Err((_, errno)) => return Err(errno.into()),
        };
        let found = fstat(&*lock)?;
        // Removed between the opening and the lock: it was somebody's to remove.
        if found.st_nlink == 0 || found.st_mode & MAY_WRITE == 0 {
            return Ok(ClaimState::Abandoned);
        }
        // A supervisor of the version before took the attempt by making its socket.
        if fstatat(&self.fd, CONTROL, AtFlags::AT_SYMLINK_NOFOLLOW).is_ok() {
            return Ok(ClaimState::Claimed);
        }
        fchmod(&*lock, Mode::from_bits_truncate(TAKEN))?;
        Ok(ClaimState::Unclaimed { _claim: Claim { launch: lock } })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::Spool;
    use crate::spool::tests::{attempt, record};

    #[test]
    fn an_attempt_is_taken_once() {
        let state = tempfile::tempdir().expect("a scratch folder");
        let spool = Spool::open(state.path(), "n1").expect("a spool");
        let dir = spool.create(&record(attempt(12, 1)), None).expect("a folder");
        let claim = dir.claim().expect("nobody has it");
        assert_eq!(claim.read_launch(&dir).expect("a launch"), record(attempt(12, 1)));
        assert!(dir.claim().is_err());
        assert!(matches!(dir.claim_state(), Ok(ClaimState::Claimed)));
        drop(claim);
        assert!(matches!(dir.claim_state(), Ok(ClaimState::Abandoned)), "who had it is gone");
        assert!(dir.claim().is_err(), "and nobody comes after");
        spool.remove(attempt(12, 1)).expect("removed");
        assert!(dir.claim().is_err());
    }

    #[test]
    fn an_attempt_that_the_version_before_took_by_its_socket_is_taken() {
        let state = tempfile::tempdir().expect("a scratch folder");
        let spool = Spool::open(state.path(), "n1").expect("a spool");
        let dir = spool.create(&record(attempt(12, 1)), None).expect("a folder");
        let _socket = std::os::unix::net::UnixListener::bind(dir.control_path()).expect("bound");
        assert!(matches!(dir.claim_state(), Ok(ClaimState::Claimed)));
        assert!(dir.claim().is_err());
    }
}

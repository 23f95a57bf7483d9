//! Which process has an attempt: a lock on `launch.json`, released when its holder ends, and a mode bit that stays.
//!
//! An attempt never has a second supervisor. The first takes the lock and clears the write bit. A cleared bit without a
//! lock means that there was a supervisor and that it has ended.

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

/// The mode of `launch.json` once it is claimed; before, its owner may write it.
const TAKEN: u32 = 0o400;
const MAY_WRITE: u32 = 0o200;

/// The descriptor of this process's claim; a supervisor has only one.
static CLAIM_FD: AtomicI32 = AtomicI32::new(-1);

/// Closes the claim in a forked child. Otherwise a child that is slow to execute would hold the lock after the
/// supervisor's death.
pub(crate) fn close_claim_in_child() {
    let held = CLAIM_FD.load(Ordering::Relaxed);
    if held >= 0 {
        // SAFETY: the child executes or exits without using the lock, and closing it here does not undo it there.
        unsafe { libc::close(held) };
    }
}

/// The claim on an attempt; dropping it releases the lock.
#[derive(Debug)]
pub(crate) struct Claim {
    launch: Flock<File>,
}

impl Claim {
    /// Reads the claimed launch.
    pub fn read_launch(&self, dir: &AttemptDir) -> Result<LaunchRecord, AgentError> {
        dir.read_record(&self.launch)
    }
}

/// Whether an attempt is claimed.
pub(crate) enum ClaimState {
    /// A living process has it.
    Claimed,
    /// A process had it, and has ended.
    Abandoned,
    /// No process ever had it; the caller has it now.
    Unclaimed { _claim: Claim },
}

impl AttemptDir {
    /// Claims the attempt; fails if another process has it or had it.
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

    /// Returns the state of the claim, and claims an attempt that was never claimed.
    pub fn claim_state(&self) -> io::Result<ClaimState> {
        let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
        let file = File::from(openat(&self.fd, LAUNCH, flags, Mode::empty())?);
        let lock = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err((_, Errno::EWOULDBLOCK)) => return Ok(ClaimState::Claimed),
            Err((_, errno)) => return Err(errno.into()),
        };
        let found = fstat(&*lock)?;
        // Zero links: the file was removed between opening and locking, so the attempt is over.
        if found.st_nlink == 0 || found.st_mode & MAY_WRITE == 0 {
            return Ok(ClaimState::Abandoned);
        }
        // A supervisor of the previous version claimed the attempt by making its socket.
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
    use crate::spool::tests::{attempt, record, spool_of};

    #[test]
    fn attempt_is_claimed_once() {
        let state = tempfile::tempdir().expect("a scratch folder");
        let spool = spool_of(state.path()).expect("a spool");
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
    fn attempt_claimed_by_a_socket_of_the_previous_version_counts_as_claimed() {
        let state = tempfile::tempdir().expect("a scratch folder");
        let spool = spool_of(state.path()).expect("a spool");
        let dir = spool.create(&record(attempt(12, 1)), None).expect("a folder");
        let _socket = std::os::unix::net::UnixListener::bind(dir.control_path()).expect("bound");
        assert!(matches!(dir.claim_state(), Ok(ClaimState::Claimed)));
        assert!(dir.claim().is_err());
    }
}

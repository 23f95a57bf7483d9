//! Ranges of ids that no account has, one for each container that needs ids beside its user's. A range is held by a
//! locked file for as long as a process of the container has it open.

use super::holder::IDS;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use std::os::fd::OwnedFd;

/// The first range. Distributions give accounts and their subordinate ids lower numbers.
const FIRST: u32 = 0x7000_0000;
const COUNT: u32 = 4096;

/// The first id of a free range, and the locked file.
pub(super) fn take(folder: &OwnedFd) -> Result<(u32, OwnedFd), String> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    for slot in 0..COUNT {
        let name = format!("ids-{slot}");
        let file = openat(folder, name.as_str(), flags, Mode::from_bits_truncate(0o600))
            .map_err(|e| format!("cannot reserve ids for the container: {}", e.desc()))?;
        if let Ok(locked) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            // The lock is the open file's, and ends with the last process that has it.
            let kept = locked.try_clone().map_err(|e| e.to_string())?;
            std::mem::forget(locked);
            return Ok((FIRST + slot * IDS, kept));
        }
    }
    Err(format!("{COUNT} containers with ids of their own run on this node already"))
}

//! Ranges of ids that no account has, one for each container that needs ids beside its user's. A range is held by a
//! locked file for as long as a process of the container has it open.

use super::holder::IDS;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::uio::{pread, pwrite};
use std::os::fd::OwnedFd;

/// The first range. Distributions and directories give accounts and their subordinate ids lower numbers.
const FIRST: u32 = 0x7800_0000;
const COUNT: u32 = 2048;

/// The first id of a free range, and the locked file. A range is for ever the first user's who had it: files with its ids
/// may be anywhere.
pub(super) fn take(folder: &OwnedFd, uid: u32) -> Result<(u32, OwnedFd), String> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    for slot in 0..COUNT {
        let name = format!("ids-{slot}");
        let file = openat(folder, name.as_str(), flags, Mode::from_bits_truncate(0o600))
            .map_err(|e| format!("cannot reserve ids for the container: {}", e.desc()))?;
        if let Ok(locked) = Flock::lock(file, FlockArg::LockExclusiveNonblock) {
            if !is_of(&locked, uid)? {
                continue;
            }
            // The lock is the open file's, and ends with the last process that has it.
            let kept = locked.try_clone().map_err(|e| e.to_string())?;
            std::mem::forget(locked);
            return Ok((FIRST + slot * IDS, kept));
        }
    }
    Err(format!("all {COUNT} ranges of ids for containers are taken on this node"))
}

/// Whether the range is this user's, whose it becomes if it was nobody's.
fn is_of(file: &OwnedFd, uid: u32) -> Result<bool, String> {
    let failed =
        |e: nix::errno::Errno| format!("cannot reserve ids for the container: {}", e.desc());
    let mut text = [0; 16];
    let length = pread(file, &mut text, 0).map_err(failed)?;
    if length == 0 {
        pwrite(file, uid.to_string().as_bytes(), 0).map_err(failed)?;
        return Ok(true);
    }
    Ok(text[..length] == *uid.to_string().as_bytes())
}

//! Ranges of ids that no account has, one for each container: its image's users have these ids. A range is held by a
//! locked file for as long as a process of the container has it open.

use super::holder::IDS;
use nix::fcntl::{Flock, FlockArg, OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::uio::{pread, pwrite};
use std::os::fd::{AsFd, OwnedFd};

/// The first range. Distributions and directories give accounts and their subordinate ids lower numbers.
const FIRST: u32 = 0x7800_0000;
const COUNT: u32 = 2048;
/// Containers that one user may have at once on a node.
const OF_USER_MAX: u32 = 512;

/// The first id of a free range, and the locked file. A range is for ever the first user's who had it: files with its ids
/// may be anywhere. `before` is the range that files of the container have already: it is taken if it is free.
pub(super) fn take(
    folder: &OwnedFd,
    uid: u32,
    before: Option<u32>,
) -> Result<(u32, OwnedFd), String> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let mut in_use = 0;
    let preferred = before.and_then(|range| range.checked_sub(FIRST)).map(|from| from / IDS);
    for slot in preferred.into_iter().chain(0..COUNT) {
        let name = format!("ids-{slot}");
        let file = openat(folder, name.as_str(), flags, Mode::from_bits_truncate(0o600))
            .map_err(failed)?;
        let owner = owner(&file)?;
        if owner.is_some_and(|owner| owner != uid) {
            continue;
        }
        let Ok(locked) = Flock::lock(file, FlockArg::LockExclusiveNonblock) else {
            in_use += u32::from(owner.is_some());
            if in_use >= OF_USER_MAX {
                return Err(format!("{OF_USER_MAX} containers of this user run on this node"));
            }
            continue;
        };
        if !claim(&locked, uid)? {
            continue;
        }
        // The lock is the open file's, and ends with the last process that has it.
        let kept = locked.try_clone().map_err(|e| e.to_string())?;
        std::mem::forget(locked);
        return Ok((FIRST + slot * IDS, kept));
    }
    Err(format!("all {COUNT} ranges of ids for containers are taken on this node"))
}

fn failed(e: nix::errno::Errno) -> String {
    format!("cannot reserve ids for the container: {}", e.desc())
}

/// The user whose range the file stands for; `None` if it is empty and nobody had the range yet.
fn owner(file: impl AsFd) -> Result<Option<u32>, String> {
    let mut text = [0; 16];
    let length = pread(file, &mut text, 0).map_err(failed)?;
    let text = str::from_utf8(&text[..length]).unwrap_or_default();
    // What is damaged is no user's any more.
    if length == 0 { Ok(None) } else { Ok(Some(text.parse().unwrap_or(u32::MAX))) }
}

/// Whether the range is this user's, whose it becomes if it was nobody's.
fn claim(file: &OwnedFd, uid: u32) -> Result<bool, String> {
    match owner(file)? {
        Some(owner) => Ok(owner == uid),
        None => {
            let text = uid.to_string();
            match pwrite(file, text.as_bytes(), 0).map_err(failed)? {
                written if written == text.len() => Ok(true),
                _ => Err("cannot reserve ids for the container: the disk is full".into()),
            }
        }
    }
}

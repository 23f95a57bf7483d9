//! Ranges of ids that no account has, one for each container: its image's users have these ids. A range is held by a
//! locked file for as long as a process of the container has it open. A named container that is made anew has the range of
//! its files again, which another container of the same user may have got meanwhile: both then have it.

use super::holder::IDS;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::sys::uio::{pread, pwrite};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

/// The first range. Distributions and directories give accounts and their subordinate ids lower numbers.
const FIRST: u32 = 0x7800_0000;
const COUNT: u32 = 2048;
/// Containers that one user may have at once on a node.
const OF_USER_MAX: u32 = 512;

/// The first id of a free range, and the locked file. A range is for ever the first user's who had it: files with its ids
/// may be anywhere.
pub(super) fn take(folder: &OwnedFd, uid: u32) -> Result<(u32, OwnedFd), String> {
    let mut in_use = 0;
    for slot in 0..COUNT {
        let file = open(folder, slot)?;
        let owner = owner(&file)?;
        if owner.is_some_and(|owner| owner != uid) {
            continue;
        }
        if !lock(&file) {
            in_use += u32::from(owner.is_some());
            if in_use >= OF_USER_MAX {
                return Err(format!("{OF_USER_MAX} containers of this user run on this node"));
            }
            continue;
        }
        if claim(&file, uid)? {
            return Ok((FIRST + slot * IDS, file));
        }
    }
    Err(format!("all {COUNT} ranges of ids for containers are taken on this node"))
}

/// The file of the range that files of this user's container have already, locked if no other container has it locked.
pub(super) fn take_again(folder: &OwnedFd, uid: u32, range: u32) -> Result<OwnedFd, String> {
    let slot = range.checked_sub(FIRST).map(|from| from / IDS).filter(|slot| *slot < COUNT);
    let foreign =
        || format!("the container's files have ids from {range} on, which are not its user's");
    let file = open(folder, slot.ok_or_else(foreign)?)?;
    if owner(&file)? != Some(uid) {
        return Err(foreign());
    }
    // Another container of the user may have it.
    let _ = lock(&file);
    Ok(file)
}

fn open(folder: &OwnedFd, slot: u32) -> Result<OwnedFd, String> {
    let flags = OFlag::O_RDWR | OFlag::O_CREAT | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
    let name = format!("ids-{slot}");
    openat(folder, name.as_str(), flags, Mode::from_bits_truncate(0o600)).map_err(failed)
}

/// Returns whether the lock was free. It is the open file's, and ends with the last process that has it.
fn lock(file: &OwnedFd) -> bool {
    // SAFETY: the descriptor is open for as long as `file` is borrowed.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX | libc::LOCK_NB) == 0 }
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;

    #[test]
    fn files_of_a_container_keep_their_range_when_another_container_has_it() {
        let dir = tempfile::tempdir().expect("scratch folder");
        let folder = OwnedFd::from(File::open(dir.path()).expect("opened"));
        let (range, first) = take(&folder, 7).expect("taken");
        drop(first);
        let (of_other, held) = take(&folder, 7).expect("taken");
        assert_eq!(of_other, range, "it was free");
        drop(take_again(&folder, 7, range).expect("shared"));
        let (next, _held) = take(&folder, 7).expect("taken");
        assert_ne!(next, range, "the other container has it still");
        assert!(take_again(&folder, 8, range).is_err(), "it is another user's");
        assert!(take_again(&folder, 7, 1000).is_err(), "ids of accounts");
        drop(held);
        let _again = take_again(&folder, 7, range).expect("taken");
        assert_ne!(take(&folder, 7).expect("taken").0, range, "it is locked again");
    }
}

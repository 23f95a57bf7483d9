//! Gives what the agent or a supervisor has made to the job's user.

use crate::privilege;
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, fchown};
use std::os::fd::AsFd;

/// Changes the owner where this process is root and the owner is not root already. Without root's powers the job's user
/// is this process's own.
pub(crate) fn give_to_user(file: impl AsFd, uid: u32, gid: u32) -> Result<(), Errno> {
    if !privilege::is_root() || (uid, gid) == (0, 0) {
        return Ok(());
    }
    fchown(file.as_fd(), Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))
}

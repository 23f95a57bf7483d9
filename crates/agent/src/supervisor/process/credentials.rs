//! Acts as the job's user for a while, to open what the user named: root never opens a path that a user chose.

use crate::privilege;
use nix::errno::Errno;
use nix::unistd::{Gid, Uid, setegid, seteuid, setgroups, setresgid, setresuid};
use wire::order::UserIds;

/// Does the work with the user's rights. The real user id stays root's, so that the user cannot signal this process.
pub(crate) fn as_user<T>(user: &UserIds, work: impl FnOnce() -> T) -> nix::Result<T> {
    if !privilege::is_root() {
        return Ok(work());
    }
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    setgroups(&groups)?;
    setegid(Gid::from_raw(user.gid))?;
    seteuid(Uid::from_raw(user.uid))?;
    let done = work();
    seteuid(Uid::from_raw(0))?;
    setegid(Gid::from_raw(0))?;
    setgroups(&[])?;
    Ok(done)
}

/// Becomes the user for good.
pub(crate) fn become_user(user: &UserIds) -> Result<(), Errno> {
    if !privilege::is_root() {
        // Without root the agent takes only orders of its own user.
        return Ok(());
    }
    let groups: Vec<Gid> = user.groups.iter().copied().map(Gid::from_raw).collect();
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    setgroups(&groups)?;
    setresgid(gid, gid, gid)?;
    setresuid(uid, uid, uid)
}

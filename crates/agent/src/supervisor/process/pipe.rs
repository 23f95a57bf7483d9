//! Pipes between a job's processes and their supervisor.

use crate::ownership::give_to_user;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::unistd::pipe2;
use std::os::fd::OwnedFd;
use wire::order::UserIds;

/// A pipe, its reading end first. It belongs to the user, who may open `/dev/stdout` again.
pub(crate) fn pipe(user: &UserIds) -> nix::Result<(OwnedFd, OwnedFd)> {
    let (read, write) = pipe2(OFlag::O_CLOEXEC)?;
    give_to_user(&read, user.uid, user.gid)?;
    Ok((read, write))
}

pub(crate) fn set_nonblocking(fd: &OwnedFd) -> nix::Result<()> {
    let flags = OFlag::from_bits_retain(fcntl(fd, FcntlArg::F_GETFL)?);
    fcntl(fd, FcntlArg::F_SETFL(flags | OFlag::O_NONBLOCK)).map(drop)
}

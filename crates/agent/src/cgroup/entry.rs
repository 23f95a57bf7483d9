//! Starts a process in a group: cloned into it, or moved by its own write.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::Arc;

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat};
use nix::sys::stat::Mode;
use nix::unistd::{ForkResult, Pid, fork, write};

use super::dir::GroupDir;

/// `CLONE_INTO_CGROUP` of clone3(2): the constant of libc is too narrow for its value.
const CLONE_INTO_CGROUP: u64 = 0x2_0000_0000;

/// The descriptors through which a forked child puts itself into the group before it executes the job.
pub struct EntryFds {
    /// One file for each tree but the v2 one.
    pub(super) fds: Vec<OwnedFd>,
    /// The v2 directory, which a child can be cloned into.
    pub(super) unified: Option<Arc<GroupDir>>,
}

/// The result of a fork, in parent and child.
#[derive(Debug)]
pub enum Forked {
    Parent(Pid),
    /// Whether the child is now in every tree of the group.
    Child(Result<(), Errno>),
}

impl EntryFds {
    /// Async-signal-safe, for use between fork and exec, where the caller is the only thread.
    pub fn enter(&self) -> Result<(), Errno> {
        if let Some(unified) = &self.unified {
            let flags = OFlag::O_WRONLY | OFlag::O_CLOEXEC | OFlag::O_NOFOLLOW;
            enter(&openat(unified.fd(), "cgroup.procs", flags, Mode::empty())?)?;
        }
        self.fds.iter().try_for_each(enter)
    }

    /// Forks a child inside the group. Moving a process into a v2 group by a write makes every fork of the machine wait
    /// for a grace period of milliseconds; cloning it into the group costs nothing.
    ///
    /// # Safety
    /// The calling process has one thread, and the child executes or exits without using what glibc caches
    /// about the thread.
    pub unsafe fn fork(&self) -> Result<Forked, Errno> {
        if let Some(unified) = &self.unified {
            // SAFETY: as the caller promises.
            match unsafe { clone_into(unified) } {
                Ok(0) => return Ok(Forked::Child(self.fds.iter().try_for_each(enter))),
                Ok(pid) => return Ok(Forked::Parent(Pid::from_raw(pid))),
                // An older kernel, or a group that refuses: the write below returns the reason.
                Err(_) => {}
            }
        }
        // SAFETY: as the caller promises.
        match unsafe { fork() }? {
            ForkResult::Parent { child } => Ok(Forked::Parent(child)),
            ForkResult::Child => Ok(Forked::Child(self.enter())),
        }
    }
}

fn enter(fd: &OwnedFd) -> Result<(), Errno> {
    write(fd, b"0").map(drop)
}

/// Returns the child's pid, or 0 in the child.
///
/// # Safety
/// As for [`EntryFds::fork`].
unsafe fn clone_into(group: &GroupDir) -> Result<libc::pid_t, Errno> {
    // SAFETY: all of its fields are numbers, for which zero means nothing special is wanted.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.flags = CLONE_INTO_CGROUP;
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.cgroup = group.fd().as_raw_fd() as u64;
    // SAFETY: the arguments are a live value of the size given, and without CLONE_VM this is a fork.
    let pid = unsafe {
        libc::syscall(libc::SYS_clone3, &arguments, std::mem::size_of::<libc::clone_args>())
    };
    Errno::result(pid).map(|pid| pid as libc::pid_t)
}

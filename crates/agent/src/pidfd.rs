//! Processes referred to by a descriptor: a signal through it never reaches another process that reused the pid.

use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};

pub(crate) fn open(pid: i32) -> Result<OwnedFd, Errno> {
    // SAFETY: pidfd_open takes two integers and touches no memory of ours.
    let fd = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) })?;
    let fd = RawFd::try_from(fd).map_err(|_| Errno::EBADF)?;
    // SAFETY: the kernel has just made this descriptor for us, and nobody else holds its number.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

pub(crate) fn send_signal(pidfd: BorrowedFd<'_>, signal: Signal) -> Result<(), Errno> {
    let no_info = std::ptr::null::<libc::siginfo_t>();
    let (pidfd, signal) = (pidfd.as_raw_fd(), signal as libc::c_int);
    // SAFETY: a null siginfo is allowed and means what kill(2) would send; the rest are integers.
    let rc = unsafe { libc::syscall(libc::SYS_pidfd_send_signal, pidfd, signal, no_info, 0) };
    Errno::result(rc).map(drop)
}

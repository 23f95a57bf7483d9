//! The lock by which an agent, or its keeper, is known in a state folder: a lock of the process, which ends with the process.
//! Whoever asks is told by the kernel who holds it, and in a copy of the folder nobody does.
//!
//! A fork does not inherit it, so launcher and supervisors hold nothing. It ends when its process closes any handle of the file:
//! a process that holds it must not ask who does. Only the file's owner may open it: a user who could read it could lock it,
//! and keep an agent from starting.

use crate::client::server_lock::whole_file;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use nix::unistd::Pid;
use std::fs::File;
use std::io;
use std::os::fd::IntoRawFd;
use std::path::Path;

pub const MODE: u32 = 0o600;

/// The lock's file of a process.
pub fn file_name(of: &str) -> String {
    format!("{of}.lock")
}

/// Takes the lock for the life of this process; whether nobody else has it.
pub fn take(file: File) -> io::Result<bool> {
    match fcntl(&file, FcntlArg::F_SETLK(&whole_file(libc::F_WRLCK))) {
        Ok(_) => {
            // A closed handle would end the lock; the kernel closes this one with the process.
            let _ = file.into_raw_fd();
            Ok(true)
        }
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// The process that holds the lock of a file. The error where there is no file, as of an agent of an earlier version, or where
/// the caller may not open it.
pub fn holder(path: &Path) -> io::Result<Option<Pid>> {
    let file = File::open(path)?;
    let mut found = whole_file(libc::F_RDLCK);
    fcntl(&file, FcntlArg::F_GETLK(&mut found))?;
    // A process outside of this namespace has no number here.
    let is_held = found.l_type != libc::F_UNLCK as libc::c_short && found.l_pid > 0;
    Ok(is_held.then(|| Pid::from_raw(found.l_pid)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_no_process_locks_has_no_holder() {
        let dir = tempfile::tempdir().expect("a folder");
        let path = dir.path().join(file_name("agent"));
        assert!(holder(&path).is_err(), "it is not there");
        let open = || File::options().create(true).append(true).read(true).open(&path);
        drop(open().expect("a file"));
        assert_eq!(holder(&path).expect("asked"), None);
        assert!(take(open().expect("a file")).expect("locks"));
    }
}

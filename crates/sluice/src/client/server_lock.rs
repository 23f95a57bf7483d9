//! The lock of a state folder: held by the server and its keeper for as long as either lives, so that whoever asks knows a
//! cluster that was stopped from one that restarts, and a copy of the folder from the folder.
//!
//! It is a lock of the open file description: a fork keeps it, an exec ends it, and looking at it takes nothing.
//!
//! `server.lock` is for every user to read, so every user could lock it and keep a server from starting. A second file,
//! `server.own.lock`, which only its owner can open, therefore decides that one server runs at a time; a user who locks the first
//! one makes commands wait a little longer, and nothing else.

use nix::errno::Errno;
use nix::fcntl::{FcntlArg, fcntl};
use nix::libc;
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;

pub const FILE: &str = "server.lock";
/// The file that only the server's side can open.
pub const OWN_FILE: &str = "server.own.lock";

/// What `server.lock` says of the last server. While the lock is held it says nothing: a start may still be refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerNote {
    /// It was started. If nobody holds the lock, it ended without being stopped.
    Runs,
    /// It was stopped in order, by a service manager that may be about to start it again.
    Ended,
    /// It was stopped in order, and nothing will start it again by itself.
    Stopped,
}

impl ServerNote {
    const ALL: [Self; 3] = [Self::Runs, Self::Ended, Self::Stopped];
    const BYTES_MAX: usize = 16;

    fn line(self) -> &'static str {
        match self {
            Self::Runs => "runs\n",
            Self::Ended => "ended\n",
            Self::Stopped => "stopped\n",
        }
    }
}

/// Takes the lock on an opened file. `None` if another process has it.
pub fn take(file: File) -> io::Result<Option<File>> {
    lock(&file).map(|is_taken| is_taken.then_some(file))
}

/// Shows on an opened `server.lock` that there is a server, or is about to be one.
pub fn show(file: File) -> io::Result<File> {
    lock(&file).map(|_| file)
}

fn lock(file: &File) -> io::Result<bool> {
    match fcntl(file, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_WRLCK))) {
        Ok(_) => Ok(true),
        Err(Errno::EAGAIN | Errno::EACCES) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Writes into an opened `server.lock` what becomes of the server.
pub fn write_note(mut file: &File, note: ServerNote) -> io::Result<()> {
    file.set_len(0)?;
    file.write_all(note.line().as_bytes())
}

/// What an opened `server.lock` says. Nothing in a new folder, in one from a backup, and after a server of an earlier version
/// that was not stopped.
pub fn read_note(file: &File) -> Option<ServerNote> {
    let mut line = [0; ServerNote::BYTES_MAX];
    let length = file.read_at(&mut line, 0).ok()?;
    ServerNote::ALL.into_iter().find(|note| note.line().as_bytes() == &line[..length])
}

/// Whether the folder has a lock that nobody holds. A server of an earlier version made none.
pub fn is_free(state: &Path) -> bool {
    File::open(state.join(FILE)).is_ok_and(|file| !is_held(&file))
}

/// Whether the cluster of this folder was stopped, and nothing will start it again by itself.
pub fn is_stopped(state: &Path) -> bool {
    let file = File::open(state.join(FILE));
    file.is_ok_and(|file| read_note(&file) == Some(ServerNote::Stopped) && !is_held(&file))
}

/// Whether the last server of this folder was one of a service manager, and was stopped.
pub fn is_managed(state: &Path) -> bool {
    let file = File::open(state.join(FILE));
    file.is_ok_and(|file| read_note(&file) == Some(ServerNote::Ended))
}

fn is_held(file: &File) -> bool {
    let mut found = whole_file(libc::F_RDLCK);
    // A file system without such locks counts as held: the command waits as for a restart.
    match fcntl(file, FcntlArg::F_OFD_GETLK(&mut found)) {
        Ok(_) => found.l_type != libc::F_UNLCK as libc::c_short,
        Err(_) => true,
    }
}

/// A lock of this kind on all of a file.
pub fn whole_file(kind: libc::c_int) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;

    #[test]
    fn lock_is_seen_while_it_is_held_and_a_copy_of_the_folder_has_none() {
        let (state, copy) = (tempfile::tempdir().expect("a"), tempfile::tempdir().expect("b"));
        let open = || {
            let mut options = OpenOptions::new();
            options.create(true).append(true).read(true).open(state.path().join(FILE))
        };
        assert!(!is_free(state.path()) && !is_stopped(state.path()), "there is none");
        let held = show(open().expect("a file")).expect("locks");
        assert!(take(open().expect("a file")).expect("locks").is_none(), "a second");
        assert!(!is_free(state.path()));
        std::fs::copy(state.path().join(FILE), copy.path().join(FILE)).expect("a copy");
        assert!(is_free(copy.path()), "the copy is nobody's");
        assert_eq!(read_note(&held), None, "a new folder");
        write_note(&held, ServerNote::Stopped).expect("noted");
        assert!(!is_stopped(state.path()), "it is held still");
        drop(held);
        assert!(is_stopped(state.path()) && is_free(state.path()));
        // A start that is refused leaves the note.
        drop(show(open().expect("a file")).expect("shown"));
        assert!(is_stopped(state.path()));
        // A user who may only read it holds it: the server shows itself all the same.
        let reader = File::open(state.path().join(FILE)).expect("a file");
        fcntl(&reader, FcntlArg::F_OFD_SETLK(&whole_file(libc::F_RDLCK))).expect("a lock");
        let again = show(open().expect("a file")).expect("shown");
        write_note(&again, ServerNote::Runs).expect("noted");
        drop((again, reader));
        assert!(!is_stopped(state.path()), "a server that died is waited for");
        let last = open().expect("a file");
        assert_eq!(read_note(&last), Some(ServerNote::Runs), "and it is known that it died");
        write_note(&last, ServerNote::Ended).expect("noted");
        assert_eq!(read_note(&last), Some(ServerNote::Ended));
        assert!(!is_stopped(state.path()), "a service manager may start it again");
    }
}

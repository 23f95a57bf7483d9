//! Whether a supervisor lives, by its process and not by its socket: a child that it forked holds the same socket open
//! until it executes its program, and in a frozen group that may be never.

use nix::errno::Errno;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) enum Life {
    /// The process is not known, or cannot be watched here: its socket alone tells.
    Unknown,
    Watched(AsyncFd<OwnedFd>),
    Over,
}

impl Life {
    pub fn of(pid: i32) -> Life {
        if pid <= 0 {
            return Life::Unknown;
        }
        // SAFETY: takes and gives integers only.
        let opened = Errno::result(unsafe { libc::syscall(libc::SYS_pidfd_open, pid, 0) });
        let fd = match opened {
            // SAFETY: the kernel has just installed this descriptor for us.
            Ok(fd) => unsafe { OwnedFd::from_raw_fd(fd as i32) },
            Err(Errno::ESRCH) => return Life::Over,
            Err(_) => return Life::Unknown,
        };
        // Opened first, then looked at: the number cannot pass to a stranger in between.
        if !is_ours(pid) {
            return Life::Over;
        }
        // SAFETY: the descriptor is owned by what is made of it, and is closed with that.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        watched.map_or(Life::Unknown, Life::Watched)
    }

    pub fn is_over(&self) -> bool {
        matches!(self, Life::Over)
    }

    /// A supervisor whose own job has stopped it, as root's can, goes on, so that it hears what it is told.
    pub fn go_on(&self) {
        let Life::Watched(fd) = self else { return };
        let none = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: takes a descriptor that is open, and integers.
        unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, fd.as_raw_fd(), libc::SIGCONT, none, 0);
        }
    }

    /// Returns when the process has ended; never, where that cannot be known.
    pub async fn over(&self) {
        match self {
            Life::Over => {}
            Life::Unknown => std::future::pending().await,
            Life::Watched(fd) => {
                // An error would come again at once and for ever: the socket has to do then.
                if fd.readable().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// A process of ours that is alive: not a zombie, and not a stranger under an old number.
fn is_ours(pid: i32) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    let name = stat.split_once('(').map_or("", |(_, rest)| rest);
    let state = stat.rsplit_once(')').map_or("", |(_, rest)| rest.trim_start());
    name.starts_with("sluice") && !state.starts_with('Z')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_that_is_gone_or_a_strangers_is_over() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("a child");
        assert!(Life::of(child.id() as i32).is_over(), "not a process of ours");
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(Life::of(child.id() as i32).is_over());
        assert!(matches!(Life::of(0), Life::Unknown));
    }
}

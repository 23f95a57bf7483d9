//! Whether a supervisor is alive, by its process and not by its socket: a forked child holds the same socket open until
//! it executes its program, which may be never in a frozen group.

use crate::pidfd;
use nix::errno::Errno;
use nix::sys::signal::Signal;
use std::os::fd::{AsFd, OwnedFd};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

pub(crate) enum Liveness {
    /// The process is not known or cannot be watched: only its socket shows its end.
    Unknown,
    Watched(AsyncFd<OwnedFd>),
    Ended,
}

impl Liveness {
    pub fn of(pid: i32) -> Liveness {
        if pid <= 0 {
            return Liveness::Unknown;
        }
        let fd = match pidfd::open(pid) {
            Ok(fd) => fd,
            Err(Errno::ESRCH) => return Liveness::Ended,
            Err(_) => return Liveness::Unknown,
        };
        // Checked after the pidfd is open: the pid cannot be reused in between.
        if !is_ours(pid) {
            return Liveness::Ended;
        }
        // SAFETY: the descriptor is owned by what is made of it, and is closed with that.
        let watched = unsafe { AsyncFd::register_with_interest(fd, Interest::READABLE) };
        watched.map_or(Liveness::Unknown, Liveness::Watched)
    }

    pub fn has_ended(&self) -> bool {
        matches!(self, Liveness::Ended)
    }

    /// Continues a supervisor that was stopped by its own job, as a job of root can, so that it takes orders.
    pub fn send_sigcont(&self) {
        let Liveness::Watched(fd) = self else { return };
        // A process that has ended meanwhile needs no signal.
        let _ = pidfd::send_signal(fd.get_ref().as_fd(), Signal::SIGCONT);
    }

    /// Returns when the process has ended; never if it cannot be watched.
    pub async fn ended(&self) {
        match self {
            Liveness::Ended => {}
            Liveness::Unknown => std::future::pending().await,
            Liveness::Watched(fd) => {
                // The error would repeat for ever: from now on only the socket shows the end.
                if fd.readable().await.is_err() {
                    std::future::pending::<()>().await;
                }
            }
        }
    }
}

/// Whether the pid is a living process of Sluice: not a zombie, and not another program that reused it.
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
    async fn ended_and_foreign_processes_count_as_ended() {
        let mut child = std::process::Command::new("sleep").arg("600").spawn().expect("a child");
        assert!(Liveness::of(child.id() as i32).has_ended(), "not a process of ours");
        child.kill().expect("killed");
        child.wait().expect("reaped");
        assert!(Liveness::of(child.id() as i32).has_ended());
        assert!(matches!(Liveness::of(0), Liveness::Unknown));
    }
}

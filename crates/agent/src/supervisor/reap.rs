//! Ended children: their exit in Slurm's pair of code and signal, and what they used.

use model::run::{ExitStatus, Usage};
use nix::unistd::Pid;

/// A child that has ended. Orphans of the job come here too: the supervisor is their reaper.
#[derive(Debug)]
pub(super) struct Dead {
    pub pid: Pid,
    pub exit: ExitStatus,
    pub usage: Usage,
}

/// The next ended child; none if there is none now.
pub(super) fn next_dead() -> Option<Dead> {
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid: it is plain numbers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right type.
    let pid = unsafe { libc::wait4(-1, &mut status, libc::WNOHANG, &mut used) };
    (pid > 0).then(|| Dead {
        pid: Pid::from_raw(pid),
        exit: exit_of(status),
        usage: usage_of(&used),
    })
}

fn exit_of(status: i32) -> ExitStatus {
    if libc::WIFSIGNALED(status) {
        ExitStatus { code: 0, signal: libc::WTERMSIG(status) }
    } else {
        ExitStatus { code: libc::WEXITSTATUS(status), signal: 0 }
    }
}

fn usage_of(used: &libc::rusage) -> Usage {
    let micros = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0)
    };
    Usage {
        cpu_user_us: micros(used.ru_utime),
        cpu_system_us: micros(used.ru_stime),
        memory_peak_bytes: u64::try_from(used.ru_maxrss).unwrap_or(0) << 10,
        oom_kills: 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exits_are_slurms_pairs() {
        for (status, code, signal) in [(0, 0, 0), (3 << 8, 3, 0), (9, 0, 9), (11 | 0x80, 0, 11)] {
            assert_eq!(exit_of(status), ExitStatus { code, signal }, "{status:#x}");
        }
    }
}

//! Reaps ended children: their exit as Slurm's pair of code and signal, and their usage.

use crate::supervisor::process::usage;
use model::run::{ExitStatus, Usage};
use model::usage::TaskSample;
use nix::unistd::Pid;

/// A child that has ended, or an orphan of the job, whose reaper the supervisor is.
#[derive(Debug)]
pub(crate) struct EndedChild {
    pub pid: Pid,
    pub exit: ExitStatus,
    pub usage: Usage,
    /// The same usage as a task's measure, with bytes read and written.
    pub used: TaskSample,
}

/// Reaps the next ended child; `None` if there is none now.
pub(crate) fn reap_next() -> Option<EndedChild> {
    let pid = ended()?;
    // Read before the wait: the kernel drops the I/O counts of a reaped process.
    let (read_bytes, written_bytes) = usage::bytes_of(pid).unwrap_or_default();
    let mut status = 0;
    // SAFETY: an all-zero rusage is valid: it is plain numbers.
    let mut used: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are to live values of the right type.
    let waited = unsafe { libc::wait4(pid, &mut status, libc::WNOHANG, &mut used) };
    let usage = usage_of(&used);
    (waited == pid).then(|| EndedChild {
        pid: Pid::from_raw(pid),
        exit: exit_of(status),
        used: TaskSample {
            cpu_ms: (usage.cpu_user_us + usage.cpu_system_us) / 1000,
            memory_peak: usage.memory_peak_bytes,
            pages: u64::try_from(used.ru_majflt).unwrap_or(0),
            read_bytes,
            written_bytes,
            ..TaskSample::default()
        },
        usage,
    })
}

/// The pid of a child that has ended and is not reaped yet.
fn ended() -> Option<i32> {
    // SAFETY: an all-zero siginfo is valid, and stays so if no child has ended.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let how = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: the pointer is to a live value of the right type.
    let result = unsafe { libc::waitid(libc::P_ALL, 0, &mut info, how) };
    // SAFETY: a successful waitid fills in the part of the union that this reads, or leaves it zero.
    let pid = unsafe { info.si_pid() };
    (result == 0 && pid > 0).then_some(pid)
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
        ..Usage::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_status_becomes_slurms_pair_of_code_and_signal() {
        for (status, code, signal) in [(0, 0, 0), (3 << 8, 3, 0), (9, 0, 9), (11 | 0x80, 0, 11)] {
            assert_eq!(exit_of(status), ExitStatus { code, signal }, "{status:#x}");
        }
    }
}

//! The lines that a node adds to a job's error output, in the words that came with the launch.

use crate::pidfd;
use crate::spool::{LaunchRecord, close_claim_in_child};
use crate::supervisor::agent_connections;
use model::id::StepId;
use model::time::{Timestamp, format_iso};
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{ForkResult, Pid, fork};
use std::os::fd::{AsFd, OwnedFd};

/// How long a line may take to be written before the job's end proceeds without it.
const WRITE_TIMEOUT_MS: u16 = 500;

/// Fills in the placeholders of a notice. Returns `None` if the notice is empty.
pub(super) fn fill(
    words: &str,
    record: &LaunchRecord,
    step: StepId,
    count: u64,
    now: Timestamp,
) -> Option<String> {
    if words.is_empty() {
        return None;
    }
    let mut line = words.to_owned();
    if line.contains("{time}") {
        line = line.replace("{time}", &format_iso(now, &timezone::local()));
    }
    let id = format!("{}.{step}", record.attempt.job);
    Some(
        line.replace("{node}", &record.node)
            .replace("{step}", &id)
            .replace("{count}", &count.to_string()),
    )
}

/// Writes a line where the job writes its errors. The description is shared with the job, so the line goes where the
/// job's own next one would; a reader that reads nothing is not waited for.
///
/// A forked child writes it: a file system that does not answer blocks its writer, which must not be the supervisor.
pub(super) fn write(stderr: &OwnedFd, line: &str) {
    let mut fds = [PollFd::new(stderr.as_fd(), PollFlags::POLLOUT)];
    let writable = poll(&mut fds, PollTimeout::ZERO).is_ok_and(|ready| ready > 0);
    if !writable {
        return;
    }
    let line = format!("{line}\n");
    // SAFETY: the supervisor has one thread, and the child writes and exits.
    match unsafe { fork() } {
        Ok(ForkResult::Parent { child }) => wait_a_while(child),
        Ok(ForkResult::Child) => {
            close_claim_in_child();
            agent_connections::close_in_child();
            // The job's output may be full or gone; its end does not depend on this line.
            let _ = nix::unistd::write(stderr, line.as_bytes());
            // SAFETY: ends the child without running exit handlers of the process it was forked from.
            unsafe { libc::_exit(0) }
        }
        // Without a process to write it the job ends without the line.
        Err(_) => {}
    }
}

/// Waits for the writer for a limited time. One that takes longer is reaped like any other child.
fn wait_a_while(child: Pid) {
    if let Ok(pidfd) = pidfd::open(child.as_raw()) {
        let mut fds = [PollFd::new(pidfd.as_fd(), PollFlags::POLLIN)];
        // An interrupted wait is a shorter one.
        let _ = poll(&mut fds, PollTimeout::from(WRITE_TIMEOUT_MS));
    }
    let _ = waitpid(child, Some(WaitPidFlag::WNOHANG));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spool::tests::{attempt, record};

    #[test]
    fn notice_is_filled_in_and_an_empty_one_is_not_written() {
        let record = record(attempt(91, 1));
        let words = "{node}: {count} kills in StepId={step} at {time}";
        let line = fill(words, &record, StepId::Batch, 2, Timestamp::from_secs(0)).expect("a line");
        assert!(line.starts_with("n1: 2 kills in StepId=91.batch at 19"), "{line}");
        assert_eq!(fill("", &record, StepId::Batch, 2, Timestamp(0)), None);
    }
}

//! Signals listed processes without ever reaching another process that reused a pid.

use std::os::fd::{AsFd, OwnedFd};

use nix::errno::Errno;
use nix::sys::signal::Signal;

use super::error::CgroupError;
use crate::pidfd;

/// Descriptors held at a time: well below the usual limit of 1024 open files.
const BATCH: usize = 128;

/// Sends `signal` to every process that `list` names. Each is opened as a pidfd and then looked up in a second listing:
/// a pid in both is the listed process, or it is dead and the signal has no effect.
pub(crate) fn signal_listed(
    signal: Signal,
    list: &dyn Fn() -> Result<Vec<i32>, CgroupError>,
) -> Result<(), CgroupError> {
    let first = list()?;
    for batch in first.chunks(BATCH) {
        let pinned: Vec<(i32, OwnedFd)> =
            batch.iter().filter_map(|pid| Some((*pid, pidfd::open(*pid).ok()?))).collect();
        if pinned.is_empty() {
            continue;
        }
        let mut still = list()?;
        still.sort_unstable();
        for (pid, pidfd) in pinned {
            if still.binary_search(&pid).is_ok() {
                match pidfd::send_signal(pidfd.as_fd(), signal) {
                    Ok(()) | Err(Errno::ESRCH) => {}
                    Err(errno) => {
                        return Err(CgroupError::io("signal", format!("process {pid}"), errno));
                    }
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::unistd::Pid;
    use std::cell::Cell;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;

    #[test]
    fn only_processes_listed_twice_are_signalled() {
        let mut spared = Command::new("sleep").arg("60").spawn().expect("spawn");
        let mut killed = Command::new("sleep").arg("60").spawn().expect("spawn");
        let (one, two) = (spared.id() as i32, killed.id() as i32);
        let calls = Cell::new(0);
        let list = || {
            calls.set(calls.get() + 1);
            Ok(if calls.get() == 1 { vec![one, two] } else { vec![two] })
        };
        signal_listed(Signal::SIGKILL, &list).expect("signal");
        assert_eq!(killed.wait().expect("wait").signal(), Some(9));
        // A signal sent before would have decided the exit already.
        nix::sys::signal::kill(Pid::from_raw(one), Signal::SIGINT).expect("interrupt");
        let end = spared.wait().expect("wait").signal();
        assert_eq!(end, Some(2), "left the list in between");
    }
}

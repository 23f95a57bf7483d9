//! Processes that have left the job's control groups, as only root's can. When their parents die, the supervisor
//! becomes their parent, because it is the subreaper, and they end with the job like all others.

use nix::errno::Errno;
use nix::sys::wait::{Id, WaitPidFlag, waitid};

/// Processes found in one round; the rest is found in the next.
const FOUND_MAX: usize = 4096;

/// Whether this process has a child, alive or not yet reaped.
pub(crate) fn has_children() -> bool {
    // `WNOWAIT`: an ended child stays for `reap`, which counts its usage.
    let flags = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    waitid(Id::All, flags) != Err(Errno::ECHILD)
}

/// Every descendant of this process.
pub(crate) fn all() -> Vec<i32> {
    with_descendants(children_of(std::process::id() as i32))
}

/// These processes and all their descendants.
pub(crate) fn with_descendants(mut found: Vec<i32>) -> Vec<i32> {
    let mut next = 0;
    while next < found.len() && found.len() < FOUND_MAX {
        let more = children_of(found[next]);
        found.extend(more);
        next += 1;
    }
    found
}

fn children_of(pid: i32) -> Vec<i32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

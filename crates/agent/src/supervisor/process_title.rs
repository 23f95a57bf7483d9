//! The name that a supervisor has in a list of processes, by which others know it again.

use model::id::AttemptId;

/// As much of a name as the kernel keeps of a process.
const COMM_BYTES: usize = 15;

pub(crate) fn title(attempt: AttemptId) -> String {
    format!("sluice:{attempt}")
}

/// Whether a name that the kernel shows (`/proc/PID/comm`) is that of the attempt's supervisor.
pub(crate) fn is_title_of(comm: &str, attempt: AttemptId) -> bool {
    let title = title(attempt);
    comm.trim_end() == &title[..title.len().min(COMM_BYTES)]
}

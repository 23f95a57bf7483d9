//! Tells callers who wait for a job that something was committed.

use tokio::sync::watch;

/// A counter of commits; a waiter looks at the state again whenever it moves.
#[derive(Clone)]
pub struct CommitWatch {
    commits: watch::Sender<u64>,
}

impl Default for CommitWatch {
    fn default() -> Self {
        Self { commits: watch::channel(0).0 }
    }
}

impl CommitWatch {
    pub fn committed(&self) {
        self.commits.send_modify(|n| *n += 1);
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }
}

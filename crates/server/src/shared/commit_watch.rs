//! Lets those who wait for a job know that something was committed.

use tokio::sync::watch;

/// A counter of commits; a waiter looks at the state again whenever it moves.
#[derive(Clone)]
pub struct Changes {
    commits: watch::Sender<u64>,
}

impl Default for Changes {
    fn default() -> Self {
        Self { commits: watch::channel(0).0 }
    }
}

impl Changes {
    pub fn committed(&self) {
        self.commits.send_modify(|n| *n += 1);
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }
}

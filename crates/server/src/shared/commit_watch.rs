//! Tells those who wait for a change that something was committed.

use tokio::sync::watch;

/// A counter of commits; a waiter looks at the state again whenever it moves.
///
/// Most commits of a busy server bring jobs and nothing more. Nodes, machines, fleets and triggers are as they were then: who looks
/// after those has a counter of its own, which such a commit leaves alone. Else each submit would wake all of them.
#[derive(Clone)]
pub struct CommitWatch {
    commits: watch::Sender<u64>,
    beyond_submits: watch::Sender<u64>,
}

impl Default for CommitWatch {
    fn default() -> Self {
        Self { commits: watch::channel(0).0, beyond_submits: watch::channel(0).0 }
    }
}

impl CommitWatch {
    pub fn committed(&self) {
        self.committed_submits();
        self.beyond_submits.send_modify(|n| *n += 1);
    }

    /// The same of a commit that has brought jobs and nothing else.
    pub fn committed_submits(&self) {
        self.commits.send_modify(|n| *n += 1);
    }

    pub fn subscribe(&self) -> watch::Receiver<u64> {
        self.commits.subscribe()
    }

    /// For those whose work no new job changes.
    pub fn subscribe_beyond_submits(&self) -> watch::Receiver<u64> {
        self.beyond_submits.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_looks_after_nodes_is_not_woken_by_new_jobs() {
        let watch = CommitWatch::default();
        let (all, nodes) = (watch.subscribe(), watch.subscribe_beyond_submits());
        let is_woken = |of: &watch::Receiver<u64>| of.has_changed().expect("a sender");
        watch.committed_submits();
        assert!(is_woken(&all) && !is_woken(&nodes));
        watch.committed();
        assert!(is_woken(&nodes));
        assert_eq!(*all.borrow(), 2, "both count");
    }
}

//! Closing one agent's link in due form when the server stops, so that no agent takes it for a fault.

use std::sync::atomic::{AtomicBool, Ordering};
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

#[derive(Default)]
pub struct LinkShutdown {
    requested: Notify,
    begun: AtomicBool,
    finished: Notify,
}

impl LinkShutdown {
    pub fn request(&self) {
        self.requested.notify_one();
    }

    pub async fn requested(&self) {
        self.requested.notified().await;
    }

    pub async fn finished(&self) {
        self.finished.notified().await;
    }

    /// Closes our direction and waits without end. The agent closes the other when it has read that; until then its
    /// messages are read, for a connection that is dropped with unread bytes is reset, not closed.
    pub async fn close<T>(&self, mut writer: impl AsyncWriteExt + Unpin) -> T {
        self.begun.store(true, Ordering::Relaxed);
        let _ = writer.shutdown().await;
        std::future::pending().await
    }

    /// Notes that the link has ended. Returns whether a shutdown ended it: then its nodes are not lost, and no event
    /// may say that they were.
    pub fn finish(&self) -> bool {
        let begun = self.begun.load(Ordering::Relaxed);
        self.finished.notify_one();
        begun
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test]
    async fn link_that_ends_by_a_shutdown_says_so_and_one_that_breaks_does_not() {
        assert!(!LinkShutdown::default().finish(), "nothing was requested");
        let shutdown = LinkShutdown::default();
        shutdown.request();
        shutdown.requested().await;
        let (ours, _theirs) = tokio::io::duplex(16);
        let closing = tokio::time::timeout(Duration::from_millis(20), shutdown.close::<()>(ours));
        assert!(closing.await.is_err(), "it waits until the agent closes its direction");
        assert!(shutdown.finish());
        shutdown.finished().await;
    }
}

//! The queue to the collector of logs, and the store that it fills.

use std::sync::Arc;
use store::{LogKey, RunLogs};
use tokio::sync::{mpsc, oneshot};

/// Pulls that may wait. One beyond is dropped: the log is pulled again when its attempt ends, or when a client asks.
const QUEUE: usize = 16 << 10;

/// An order to bring a log up to what its node has.
pub struct PullLog {
    pub key: LogKey,
    /// Now; else when something may have been written.
    pub at_once: bool,
    /// Answered when that is done, or has failed.
    pub done: Option<oneshot::Sender<()>>,
}

#[derive(Clone)]
pub struct LogQueue {
    pub store: Arc<dyn RunLogs>,
    sender: mpsc::Sender<PullLog>,
}

impl LogQueue {
    /// The queue, and the end from which the collector takes its work.
    pub fn new(store: Arc<dyn RunLogs>) -> (Self, mpsc::Receiver<PullLog>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        (Self { store, sender }, receiver)
    }

    /// The log is pulled from now on, as often as it grows.
    pub fn watch(&self, key: LogKey) {
        let _ = self.sender.try_send(PullLog { key, at_once: false, done: None });
    }

    /// The log is pulled now, and from now on.
    pub fn collect(&self, key: LogKey) {
        let _ = self.sender.try_send(PullLog { key, at_once: true, done: None });
    }

    /// Returns when the log has what its node had when this was called, or the node does not answer.
    pub async fn pull(&self, key: LogKey) {
        let (done, wait) = oneshot::channel();
        if self.sender.send(PullLog { key, at_once: true, done: Some(done) }).await.is_ok() {
            let _ = wait.await;
        }
    }
}

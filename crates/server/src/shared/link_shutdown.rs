//! The server stops: its links to agents are closed in due form, so that no agent takes it for a fault.

use crate::agents::listen::Agents;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::sync::Notify;

/// How long agents are told that the server stops. Who does not listen is left.
const GOODBYE_TIME: Duration = Duration::from_secs(1);

/// The end of one link.
#[derive(Default)]
pub(crate) struct Goodbye {
    wanted: Notify,
    said: AtomicBool,
    answered: Notify,
}

impl Goodbye {
    pub async fn wanted(&self) {
        self.wanted.notified().await;
    }

    /// Closes our direction and waits without end. The agent closes the other when it has heard it; until then what it
    /// says is read, for a connection that is left with something unread is broken, not closed.
    pub async fn say<T>(&self, mut writer: impl AsyncWriteExt + Unpin) -> T {
        self.said.store(true, Ordering::Relaxed);
        let _ = writer.shutdown().await;
        std::future::pending().await
    }

    /// The link has ended. Whether by this: then its nodes are not lost, and nobody is to write that they were.
    pub fn is_answered(&self) -> bool {
        let said = self.said.load(Ordering::Relaxed);
        self.answered.notify_one();
        said
    }
}

impl Agents {
    pub async fn say_goodbye(&self) {
        let links: HashMap<u64, Arc<Goodbye>> = {
            let links = self.links.lock().expect("no panic with the links held");
            links.values().map(|link| (link.number, link.goodbye.clone())).collect()
        };
        links.values().for_each(|goodbye| goodbye.wanted.notify_one());
        let all = async {
            for goodbye in links.values() {
                goodbye.answered.notified().await;
            }
        };
        if tokio::time::timeout(GOODBYE_TIME, all).await.is_err() {
            tracing::info!("not every agent could be told that the server stops");
        }
    }
}

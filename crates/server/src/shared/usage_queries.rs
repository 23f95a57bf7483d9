//! Questions to agents about what running steps use, until they are answered.

use model::id::AttemptId;
use model::usage::LiveStep;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use wire::link::ToAgent;

/// How long an agent may take: all that it has to do is a few reads.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Questions under way at once.
const QUERIES_MAX: usize = 4096;

#[derive(Default)]
pub struct UsageQueries {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, oneshot::Sender<Vec<LiveStep>>>>,
}

impl UsageQueries {
    /// Asks a node's agent what the steps of an attempt use; nothing if it does not answer in time.
    pub async fn ask(
        &self,
        outbox: &mpsc::Sender<ToAgent>,
        node: &str,
        attempt: AttemptId,
    ) -> Vec<LiveStep> {
        let ask = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().expect("no panic with the queries held");
            if waiting.len() >= QUERIES_MAX {
                return Vec::new();
            }
            waiting.insert(ask, sender);
        }
        let question = ToAgent::Measure { request: ask, node: node.to_owned(), attempt };
        let answer = if outbox.try_send(question).is_ok() {
            tokio::time::timeout(ANSWER_TIMEOUT, answer).await.ok().and_then(Result::ok)
        } else {
            None
        };
        self.waiting.lock().expect("no panic with the queries held").remove(&ask);
        answer.unwrap_or_default()
    }

    /// Hands an answer to whoever asked; one that nobody waits for any more is dropped.
    pub fn answered(&self, ask: u64, steps: Vec<LiveStep>) {
        let waiting = self.waiting.lock().expect("no panic with the queries held").remove(&ask);
        if let Some(waiting) = waiting {
            let _ = waiting.send(steps);
        }
    }
}

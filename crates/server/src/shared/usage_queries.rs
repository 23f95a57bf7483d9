//! Questions to agents about what running steps use, until they are answered.

use model::id::AttemptId;
use model::load::LiveUsage;
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
    waiting: Mutex<HashMap<u64, Query>>,
}

/// A question that one link was asked. No other link may answer it.
struct Query {
    link: u64,
    answer: oneshot::Sender<LiveUsage>,
}

impl UsageQueries {
    /// Asks a node's agent what the steps of an attempt use; nothing if it does not answer in time.
    pub async fn ask(
        &self,
        link: u64,
        outbox: &mpsc::Sender<ToAgent>,
        node: &str,
        attempt: AttemptId,
    ) -> LiveUsage {
        let ask = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting.lock().expect("no panic with the queries held");
            if waiting.len() >= QUERIES_MAX {
                return LiveUsage::default();
            }
            waiting.insert(ask, Query { link, answer: sender });
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

    /// Hands an answer to whoever asked. One that nobody waits for any more is dropped, and so is one of a link that was
    /// not asked.
    pub fn answered(&self, link: u64, ask: u64, used: LiveUsage) {
        let mut waiting = self.waiting.lock().expect("no panic with the queries held");
        if waiting.get(&ask).is_some_and(|query| query.link == link)
            && let Some(query) = waiting.remove(&ask)
        {
            let _ = query.answer.send(used);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::{JobId, StepId};
    use model::usage::LiveStep;

    #[tokio::test]
    async fn answer_of_another_link_is_dropped() {
        let queries = UsageQueries::default();
        let (outbox, mut messages) = mpsc::channel(1);
        let attempt = AttemptId { job: JobId(1), number: 1 };
        let said = |step| LiveUsage {
            steps: vec![LiveStep { step, used: Default::default(), pids: Vec::new() }],
            ..LiveUsage::default()
        };
        let answers = async {
            let Some(ToAgent::Measure { request, .. }) = messages.recv().await else {
                panic!("a question")
            };
            queries.answered(2, request, said(StepId::Extern));
            queries.answered(1, request, said(StepId::Batch));
        };
        let (found, ()) = tokio::join!(queries.ask(1, &outbox, "n1", attempt), answers);
        assert_eq!(found, said(StepId::Batch));
    }
}

//! Questions to agents, until they are answered: what running steps use, who listens at a port.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use wire::link::ToAgent;

/// How long an agent may take: all that it has to do is a few reads.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Questions under way at once.
const QUERIES_MAX: usize = 4096;

/// Questions of one kind, with answers of a type.
pub struct AgentQueries<A> {
    next: AtomicU64,
    waiting: Mutex<HashMap<u64, Query<A>>>,
}

/// A question that one link was asked. No other link may answer it.
struct Query<A> {
    link: u64,
    answer: oneshot::Sender<A>,
}

impl<A> Default for AgentQueries<A> {
    fn default() -> Self {
        Self { next: AtomicU64::default(), waiting: Mutex::default() }
    }
}

impl<A> AgentQueries<A> {
    fn waiting(&self) -> MutexGuard<'_, HashMap<u64, Query<A>>> {
        self.waiting.lock().expect("no panic with the queries held")
    }

    /// Asks an agent by its link; `None` if it does not answer in time. `question` has the number that the answer is to have.
    pub async fn ask(
        &self,
        link: u64,
        outbox: &mpsc::Sender<ToAgent>,
        question: impl FnOnce(u64) -> ToAgent,
    ) -> Option<A> {
        let request = self.next.fetch_add(1, Ordering::Relaxed);
        let (sender, answer) = oneshot::channel();
        {
            let mut waiting = self.waiting();
            if waiting.len() >= QUERIES_MAX {
                return None;
            }
            waiting.insert(request, Query { link, answer: sender });
        }
        let answer = if outbox.try_send(question(request)).is_ok() {
            tokio::time::timeout(ANSWER_TIMEOUT, answer).await.ok().and_then(Result::ok)
        } else {
            None
        };
        self.waiting().remove(&request);
        answer
    }

    /// Hands an answer to whoever asked. One that nobody waits for any more is dropped, and so is one of a link that was
    /// not asked.
    pub fn answered(&self, link: u64, request: u64, answer: A) {
        let mut waiting = self.waiting();
        if waiting.get(&request).is_some_and(|query| query.link == link)
            && let Some(query) = waiting.remove(&request)
        {
            let _ = query.answer.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::{AttemptId, JobId, StepId};
    use model::load::LiveUsage;
    use model::usage::LiveStep;

    #[tokio::test]
    async fn answer_of_another_link_is_dropped() {
        let queries = AgentQueries::default();
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
        let question = |request| ToAgent::Measure { request, node: "n1".into(), attempt };
        let (found, ()) = tokio::join!(queries.ask(1, &outbox, question), answers);
        assert_eq!(found, Some(said(StepId::Batch)));
    }
}

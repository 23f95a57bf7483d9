//! The queue to the forecast thread, and the estimates that it made last.
//!
//! Estimates are kept for as long as the state stands still: callers who ask at the same time share one computation, and one
//! question in the queue. The other questions are calls that take long, of which a user has a few at once (`long_calls`). So no user
//! fills the queue.

use crate::clock;
use cluster::ClusterConfig;
use model::id::JobId;
use model::principal::Principal;
use model::reason::{Reason, Refusal};
use model::time::Timestamp;
use sched::query::what_if::NodeChanges;
use sched::view::Estimate;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;
use tokio::sync::{oneshot, watch};

/// Questions that may wait; one that comes when there are more is not answered.
const QUEUE: usize = 256;

/// The longest that a question waits for its answer.
pub const QUESTION_TIMEOUT: Duration = Duration::from_secs(20);

/// Estimates move with time alone: they are made anew after this long, even with nothing changed.
const AGE_MAX: Duration = Duration::from_secs(15);

/// Pages that are left open ask all the time: for them estimates are made anew after this many times what the last ones took, which is
/// a five-hundredth of a core, and within these bounds.
const PAUSE_TIMES: u32 = 500;
const PAUSE_MIN: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(5 * 60);

/// When each job that waits is expected to start.
#[derive(Default)]
pub struct Estimates {
    /// The commits that are taken into account.
    pub position: u64,
    pub made: Timestamp,
    /// How long it took to make them.
    pub took: Duration,
    pub by_job: HashMap<JobId, ExpectedStart>,
}

#[derive(Clone)]
pub struct ExpectedStart {
    pub start: Timestamp,
    /// As a host list.
    pub nodes: Arc<str>,
}

impl Estimates {
    pub fn of(&self, job: JobId) -> Option<&ExpectedStart> {
        self.by_job.get(&job)
    }
}

/// An explanation, with the view that its indices refer to.
pub struct ExplainedView {
    pub explanation: sched::Explanation,
    pub view: sched::View,
}

/// A cluster that is asked about in the place of the one that is there.
pub struct Hypothesis {
    pub changes: NodeChanges,
    /// Another configuration.
    pub config: Option<Box<ClusterConfig>>,
    /// Who asks.
    pub by: Principal,
}

/// When jobs are expected to start as things are, and as they would be.
pub struct BothEstimates {
    /// Jobs that wait.
    pub waiting: u32,
    pub now: Vec<Estimate>,
    pub then: Vec<Estimate>,
}

pub enum Question {
    /// The answer is put where all who wait for it find it.
    Estimates,
    Explain {
        job: JobId,
        reply: oneshot::Sender<Option<Box<ExplainedView>>>,
    },
    /// When jobs would start on another cluster than this.
    WhatIf {
        hypothesis: Box<Hypothesis>,
        reply: oneshot::Sender<Result<BothEstimates, Refusal>>,
    },
    /// When jobs of this view would start that are not submitted yet.
    Expect {
        view: Box<sched::View>,
        now: Timestamp,
        jobs: Vec<JobId>,
        reply: oneshot::Sender<Result<Vec<Estimate>, Reason>>,
    },
}

pub struct ForecastQueue {
    sender: SyncSender<Question>,
    /// How many commits changed something.
    position: AtomicU64,
    /// Whether the question for estimates waits in the queue.
    is_asked: AtomicBool,
    /// Whether the thread makes estimates at the moment.
    is_making: AtomicBool,
    latest: watch::Sender<Arc<Estimates>>,
}

impl ForecastQueue {
    /// The queue, and the end from which the forecast thread takes its questions.
    pub fn new() -> (Self, Receiver<Question>) {
        let (sender, questions) = sync_channel(QUEUE);
        let queue = Self {
            sender,
            position: AtomicU64::new(1),
            is_asked: AtomicBool::new(false),
            is_making: AtomicBool::new(false),
            latest: watch::Sender::default(),
        };
        (queue, questions)
    }

    /// A commit changed the state: estimates made before it are out of date.
    pub fn state_changed(&self) {
        self.position.fetch_add(1, Ordering::AcqRel);
    }

    /// The estimates that were made last, however long ago.
    pub fn latest(&self) -> Arc<Estimates> {
        self.latest.borrow().clone()
    }

    /// Estimates of the state as it is now; the last ones if they do not come in time.
    pub async fn estimates(&self, timeout: Duration) -> Arc<Estimates> {
        let position = self.position();
        let latest = self.latest();
        if latest.is_current(position) {
            return latest;
        }
        // Subscribed before it is asked, so that no answer is missed.
        let mut answers = self.latest.subscribe();
        if !self.is_asked.swap(true, Ordering::AcqRel)
            && self.sender.try_send(Question::Estimates).is_err()
        {
            self.is_asked.store(false, Ordering::Release);
            return latest;
        }
        let current = answers.wait_for(|latest| latest.is_current(position));
        let answer = tokio::time::timeout(timeout.min(QUESTION_TIMEOUT), current).await;
        let found = answer.ok().and_then(Result::ok).map(|found| Arc::clone(&found));
        found.unwrap_or_else(|| self.latest())
    }

    /// Estimates that may be out of date, for who asks again and again: however many do, they cost little altogether.
    pub async fn recent(&self, timeout: Duration) -> Arc<Estimates> {
        let latest = self.latest();
        if self.is_making.load(Ordering::Acquire) || !latest.is_due(clock::now()) {
            return latest;
        }
        self.estimates(timeout).await
    }

    /// The question for estimates was taken from the queue. Who asks from now on asks anew.
    pub fn begin_estimates(&self) {
        self.is_making.store(true, Ordering::Release);
        self.is_asked.store(false, Ordering::Release);
    }

    /// There are estimates again that take everything into account.
    pub fn end_estimates(&self) {
        self.is_making.store(false, Ordering::Release);
    }

    /// Why the job waits. `None` if it does not wait any more, or if the answer did not come in time.
    pub async fn explain(&self, job: JobId) -> Option<Box<ExplainedView>> {
        let (reply, answer) = oneshot::channel();
        self.sender.try_send(Question::Explain { job, reply }).ok()?;
        tokio::time::timeout(QUESTION_TIMEOUT, answer).await.ok()?.ok()?
    }

    /// When all jobs would start on another cluster than this. `None` if the answer did not come in time.
    pub async fn what_if(&self, hypothesis: Hypothesis) -> Option<Result<BothEstimates, Refusal>> {
        let (reply, answer) = oneshot::channel();
        let hypothesis = Box::new(hypothesis);
        self.sender.try_send(Question::WhatIf { hypothesis, reply }).ok()?;
        tokio::time::timeout(QUESTION_TIMEOUT, answer).await.ok()?.ok()
    }

    /// When the jobs would start, or what they would wait for without end. `None` if the answer did not come in time.
    pub async fn expect(
        &self,
        view: Box<sched::View>,
        now: Timestamp,
        jobs: Vec<JobId>,
    ) -> Option<Result<Vec<Estimate>, Reason>> {
        let (reply, answer) = oneshot::channel();
        self.sender.try_send(Question::Expect { view, now, jobs, reply }).ok()?;
        tokio::time::timeout(QUESTION_TIMEOUT, answer).await.ok()?.ok()
    }

    /// The number of commits that changed something.
    pub fn position(&self) -> u64 {
        self.position.load(Ordering::Acquire)
    }

    pub fn put(&self, estimates: Arc<Estimates>) {
        self.latest.send_replace(estimates);
    }
}

impl Estimates {
    pub fn is_current(&self, position: u64) -> bool {
        self.position >= position && clock::now().since(self.made) < AGE_MAX
    }

    /// Whether they are so old that making them anew costs little.
    fn is_due(&self, now: Timestamp) -> bool {
        let pause = self.took.saturating_mul(PAUSE_TIMES).clamp(PAUSE_MIN, PAUSE_MAX);
        now.since(self.made) >= pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn any_number_of_callers_have_one_question_in_the_queue_and_all_get_its_answer() {
        let (queue, questions) = ForecastQueue::new();
        let queue = Arc::new(queue);
        let callers: Vec<_> = (0..4 * QUEUE)
            .map(|_| {
                let queue = queue.clone();
                tokio::spawn(async move { queue.estimates(QUESTION_TIMEOUT).await.position })
            })
            .collect();
        while queue.latest.receiver_count() < 4 * QUEUE {
            tokio::task::yield_now().await;
        }
        let asked = questions.try_iter().filter(|asked| matches!(asked, Question::Estimates));
        assert_eq!(asked.count(), 1);
        queue.begin_estimates();
        let position = queue.position();
        let made = clock::now();
        queue.put(Arc::new(Estimates { position, made, ..Estimates::default() }));
        for caller in callers {
            assert_eq!(caller.await.expect("no panic"), position);
        }
        // The state changes: the next one asks again.
        queue.state_changed();
        let next = queue.estimates(Duration::ZERO).await;
        assert_eq!(next.position, position, "the last ones, where none come in time");
        assert_eq!(questions.try_iter().count(), 1);
    }

    #[tokio::test]
    async fn those_who_ask_all_the_time_have_estimates_made_in_a_bounded_part_of_it() {
        let (queue, questions) = ForecastQueue::new();
        let asked = || questions.try_iter().count();
        let put = |took, age| {
            let made = clock::now() - age;
            queue.begin_estimates();
            queue.put(Arc::new(Estimates { made, took, ..Estimates::default() }));
            queue.end_estimates();
        };
        queue.recent(Duration::ZERO).await;
        assert_eq!(asked(), 1, "there are none yet");
        queue.begin_estimates();
        queue.recent(Duration::ZERO).await;
        assert_eq!(asked(), 0, "they are being made");
        let (millis, secs) = (Duration::from_millis, Duration::from_secs);
        for (took, age, is_due) in [
            (millis(0), millis(0), false),
            (millis(0), secs(2), true),
            (millis(100), secs(30), false),
            (millis(100), secs(60), true),
            (secs(10), secs(200), false),
            (secs(10), secs(400), true),
        ] {
            put(took, age);
            queue.recent(Duration::ZERO).await;
            assert_eq!(asked(), usize::from(is_due), "{took:?} {age:?}");
        }
    }
}

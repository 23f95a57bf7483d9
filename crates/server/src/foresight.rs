//! Estimates and explanations: worked out on demand, by a thread beside writer and planner, and kept for as long as
//! the state stands still. Who asks for the same at the same time is answered by one piece of work.

use crate::clock;
use crate::shared::Shared;
use cluster::view::builder::ViewBuilder;
use model::hostlist;
use model::id::JobId;
use model::reason::Reason;
use model::time::Timestamp;
use sched::view::Estimate;
use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, RwLock};
use std::time::Duration;
use tokio::sync::oneshot;

/// Questions that may wait; who comes when there are more goes without an answer.
const QUEUE: usize = 256;

/// The longest that a question waits.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// With nothing changed, time alone moves what is expected: after this long it is worked out again.
const AGE_MAX: Duration = Duration::from_secs(15);

/// When each job that waits is expected to start.
#[derive(Default)]
pub struct Estimates {
    /// The commits that are taken into account.
    position: u64,
    made: Timestamp,
    of: HashMap<JobId, Expected>,
}

#[derive(Clone)]
pub struct Expected {
    pub start: Timestamp,
    /// As a host list.
    pub nodes: Arc<str>,
}

impl Estimates {
    pub fn of(&self, job: JobId) -> Option<&Expected> {
        self.of.get(&job)
    }
}

/// The explanation with what it refers to.
pub struct Explained {
    pub explanation: sched::Explanation,
    pub view: sched::View,
}

enum Question {
    Estimates {
        position: u64,
        reply: oneshot::Sender<Arc<Estimates>>,
    },
    Explain {
        job: JobId,
        reply: oneshot::Sender<Option<Box<Explained>>>,
    },
    /// When jobs of this view start that are not submitted yet.
    Expect {
        view: Box<sched::View>,
        now: Timestamp,
        jobs: Vec<JobId>,
        reply: oneshot::Sender<Result<Vec<Estimate>, Reason>>,
    },
}

pub struct Foresight {
    sender: SyncSender<Question>,
    /// Commits that changed something.
    position: AtomicU64,
    latest: RwLock<Arc<Estimates>>,
}

pub struct ForesightThread {
    questions: Receiver<Question>,
    view_builder: ViewBuilder,
    memo: sched::Memo,
}

impl Foresight {
    pub fn new() -> (Self, ForesightThread) {
        let (sender, questions) = sync_channel(QUEUE);
        let (position, latest) = (AtomicU64::new(1), RwLock::default());
        let thread = ForesightThread {
            questions,
            view_builder: ViewBuilder::default(),
            memo: sched::Memo::default(),
        };
        (Self { sender, position, latest }, thread)
    }

    /// The state is another one.
    pub fn moved(&self) {
        self.position.fetch_add(1, Ordering::AcqRel);
    }

    /// What was worked out last, however long ago.
    pub fn latest(&self) -> Arc<Estimates> {
        self.latest.read().expect("no panic while estimates are put there").clone()
    }

    /// Estimates of the state as it is now; the last ones if they do not come in time.
    pub async fn estimates(&self, patience: Duration) -> Arc<Estimates> {
        let position = self.position.load(Ordering::Acquire);
        let latest = self.latest();
        if latest.is_good(position) {
            return latest;
        }
        let (reply, answer) = oneshot::channel();
        let asked = self.sender.try_send(Question::Estimates { position, reply });
        if asked.is_err() {
            return latest;
        }
        let answer = tokio::time::timeout(patience.min(PATIENCE), answer).await;
        answer.ok().and_then(Result::ok).unwrap_or_else(|| self.latest())
    }

    /// None: it does not wait any more, or there was no time.
    pub async fn explain(&self, job: JobId) -> Option<Box<Explained>> {
        let (reply, answer) = oneshot::channel();
        self.sender.try_send(Question::Explain { job, reply }).ok()?;
        tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()?
    }

    /// When they would start, or what they would wait for without end; none: there was no time.
    pub async fn expect(
        &self,
        view: Box<sched::View>,
        now: Timestamp,
        jobs: Vec<JobId>,
    ) -> Option<Result<Vec<Estimate>, Reason>> {
        let (reply, answer) = oneshot::channel();
        self.sender.try_send(Question::Expect { view, now, jobs, reply }).ok()?;
        tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
    }

    fn put(&self, estimates: Arc<Estimates>) {
        *self.latest.write().expect("no panic while estimates are put there") = estimates;
    }
}

impl Estimates {
    fn is_good(&self, position: u64) -> bool {
        self.position >= position && clock::now().since(self.made) < AGE_MAX
    }
}

/// All of them, in their order, or why not.
fn expect(view: &sched::View, now: Timestamp, jobs: &[JobId]) -> Result<Vec<Estimate>, Reason> {
    let mut memo = sched::Memo::default();
    let mut found: Vec<Estimate> = match jobs {
        [one] => {
            sched::query::estimate::estimate_of(view, now, &mut memo, *one).into_iter().collect()
        }
        several => {
            let all = sched::estimates(view, now, &mut memo).into_iter();
            all.filter(|estimate| several.contains(&estimate.job)).collect()
        }
    };
    if found.len() < jobs.len() {
        let reasons = sched::plan(view, now, &mut memo).reasons;
        let of_job = reasons.into_iter().find(|(of, _)| jobs.contains(of));
        return Err(of_job.map_or(Reason::NotPlanned, |(_, reason)| reason));
    }
    found.sort_by_key(|estimate| estimate.job);
    Ok(found)
}

impl ForesightThread {
    /// It ends with the process.
    pub fn run(mut self, shared: &Shared) {
        while let Ok(question) = self.questions.recv() {
            match question {
                // Who has gone away does not hear it.
                Question::Estimates { reply, .. } if reply.is_closed() => {}
                Question::Estimates { position, reply } => {
                    let _ = reply.send(self.estimates(shared, position));
                }
                Question::Explain { job, reply } if !reply.is_closed() => {
                    let _ = reply.send(self.explain(shared, job));
                }
                Question::Expect { view, now, jobs, reply } if !reply.is_closed() => {
                    let _ = reply.send(expect(&view, now, &jobs));
                }
                Question::Explain { .. } | Question::Expect { .. } => {}
            }
        }
    }

    fn estimates(&mut self, shared: &Shared, position: u64) -> Arc<Estimates> {
        let foresight = &shared.foresight;
        let latest = foresight.latest();
        if latest.is_good(position) {
            return latest;
        }
        // Before the view is taken: what comes in between is in it as well.
        let position = foresight.position.load(Ordering::Acquire);
        let now = clock::now();
        let view = self.view_builder.view(&shared.read(), now);
        let expected = sched::estimates(&view, now, &mut self.memo).into_iter().map(|estimate| {
            let nodes = hostlist::compress(&estimate.nodes).into();
            (estimate.job, Expected { start: estimate.start, nodes })
        });
        let estimates = Arc::new(Estimates { position, made: now, of: expected.collect() });
        foresight.put(estimates.clone());
        estimates
    }

    fn explain(&mut self, shared: &Shared, job: JobId) -> Option<Box<Explained>> {
        let now = clock::now();
        let view = self.view_builder.view(&shared.read(), now);
        let explanation = sched::explain(&view, now, &mut self.memo, job)?;
        Some(Box::new(Explained { explanation, view }))
    }
}

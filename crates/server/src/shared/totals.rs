//! What the server did since its start, for `/metrics`. Unlike the counters of `sdiag`, nothing sets these back.

use cluster::Event;
use model::run::JobState;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

#[derive(Default)]
pub struct Totals {
    submitted: AtomicU64,
    started: AtomicU64,
    requeued: AtomicU64,
    ended: Mutex<HashMap<JobState, u64>>,
    plans: TimedCount,
    commits: TimedCount,
    events: AtomicU64,
    journal_bytes: AtomicU64,
}

/// How often something was done, and how long all of it took.
#[derive(Default)]
struct TimedCount {
    count: AtomicU64,
    micros: AtomicU64,
}

impl TimedCount {
    fn add(&self, took: Duration) {
        self.count.fetch_add(1, Ordering::Relaxed);
        let micros = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        self.micros.fetch_add(micros, Ordering::Relaxed);
    }

    fn values(&self) -> (u64, u64) {
        (self.count.load(Ordering::Relaxed), self.micros.load(Ordering::Relaxed))
    }
}

/// The values of all totals. Times are counts with microseconds.
pub struct TotalValues {
    pub submitted: u64,
    pub started: u64,
    pub requeued: u64,
    pub ended: Vec<(JobState, u64)>,
    pub plans: (u64, u64),
    pub commits: (u64, u64),
    pub events: u64,
    pub journal_bytes: u64,
}

impl Totals {
    pub fn add_event(&self, event: &Event) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.fetch_add(more, Ordering::Relaxed);
        };
        let end = |state: JobState, jobs: u64| {
            let mut ended = self.ended.lock().expect("no panic with the totals held");
            *ended.entry(state).or_default() += jobs;
        };
        add(&self.events, 1);
        match event {
            Event::Submitted(submitted) => {
                add(&self.submitted, submitted.tasks.as_ref().map_or(1, |tasks| tasks.len()));
            }
            Event::Started(_) => add(&self.started, 1),
            Event::Requeued { .. } => add(&self.requeued, 1),
            Event::Ended { ended, .. } => end(ended.outcome.state(), 1),
            Event::TasksCancelled { ended, indices, .. } => {
                end(ended.outcome.state(), indices.len());
            }
            _ => {}
        }
    }

    pub fn add_plan(&self, took: Duration) {
        self.plans.add(took);
    }

    pub fn add_commit(&self, took: Duration, journal_bytes: u64) {
        self.commits.add(took);
        self.journal_bytes.store(journal_bytes, Ordering::Relaxed);
    }

    pub fn values(&self) -> TotalValues {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let ended = self.ended.lock().expect("no panic with the totals held");
        TotalValues {
            submitted: count(&self.submitted),
            started: count(&self.started),
            requeued: count(&self.requeued),
            ended: ended.iter().map(|(state, jobs)| (*state, *jobs)).collect(),
            plans: self.plans.values(),
            commits: self.commits.values(),
            events: count(&self.events),
            journal_bytes: count(&self.journal_bytes),
        }
    }
}

//! What is counted for `sdiag`.

use crate::clock;
use crate::shared::Shared;
use cluster::Event;
use model::id::JobId;
use model::principal::Principal;
use model::reason::Reason;
use model::run::Outcome;
use model::time::Timestamp;
use std::collections::HashMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use wire::diagnostics::{CallCount, CallKind, DiagnosticsView, JobCounts, PlanCounts, UserCount};

/// Users that are counted apart; more are counted by kind of call only.
const USERS_MAX: usize = 65_536;

/// As many as `sdiag` says that it measures.
const CLOCK_READINGS: u32 = 1_000;

const DAY_MS: i64 = 24 * 3600 * 1000;

pub struct Counters {
    since: AtomicI64,
    submitted: AtomicU64,
    started: AtomicU64,
    completed: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    open: AtomicU64,
    plans: Mutex<PlanCounts>,
    calls: Mutex<Calls>,
    clock_us: u64,
}

#[derive(Default)]
struct Calls {
    by_kind: HashMap<CallKind, Spent>,
    by_user: HashMap<u32, (String, Spent)>,
}

#[derive(Default, Clone, Copy)]
struct Spent {
    count: u64,
    total_us: u64,
}

impl Spent {
    fn add(&mut self, micros: u64) {
        self.count += 1;
        self.total_us += micros;
    }
}

impl Default for Counters {
    fn default() -> Self {
        let begun = Instant::now();
        for _ in 0..CLOCK_READINGS {
            std::hint::black_box(clock::now());
        }
        let zero = AtomicU64::default;
        Self {
            since: AtomicI64::new(clock::now().millis()),
            submitted: zero(),
            started: zero(),
            completed: zero(),
            cancelled: zero(),
            failed: zero(),
            open: zero(),
            plans: Mutex::default(),
            calls: Mutex::default(),
            clock_us: micros(begun.elapsed()),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// What a plan came to.
pub struct PlanMade {
    pub took: Duration,
    pub queue: u64,
    pub tried: u64,
    pub kept: u64,
    pub backfilled: u64,
}

impl PlanMade {
    pub fn of(took: Duration, queue: usize, plan: &sched::Plan) -> Self {
        let may_start =
            |(_, reason): &&(JobId, Reason)| matches!(reason, Reason::Resources | Reason::Priority);
        let tried = plan.starts.len() + plan.reasons.iter().filter(may_start).count();
        Self {
            took,
            queue: queue as u64,
            tried: tried as u64,
            kept: plan.estimates.len() as u64,
            backfilled: u64::from(plan.backfilled),
        }
    }
}

/// A call that is being answered.
pub struct Open<'a> {
    counters: &'a Counters,
    kind: CallKind,
    by: Principal,
    begun: Instant,
}

impl Counters {
    pub fn open(&self, kind: CallKind, by: &Principal) -> Open<'_> {
        self.open.fetch_add(1, Ordering::Relaxed);
        Open { counters: self, kind, by: by.clone(), begun: Instant::now() }
    }

    pub fn take_event(&self, event: &Event) {
        let add = |counter: &AtomicU64, more: u64| {
            counter.fetch_add(more, Ordering::Relaxed);
        };
        let end = |outcome: Outcome, jobs: u64| match outcome {
            Outcome::Cancelled { .. } => add(&self.cancelled, jobs),
            Outcome::NodeFail | Outcome::LaunchFailed => add(&self.failed, jobs),
            _ => add(&self.completed, jobs),
        };
        match event {
            Event::Submitted(submitted) => {
                add(&self.submitted, submitted.tasks.as_ref().map_or(1, |tasks| tasks.len()));
            }
            Event::Started(_) => add(&self.started, 1),
            Event::Ended { ended, .. } => end(ended.outcome, 1),
            Event::TasksCancelled { ended, indices, .. } => end(ended.outcome, indices.len()),
            _ => {}
        }
    }

    pub fn take_plan(&self, plan: &PlanMade) {
        let mut plans = self.plans.lock().expect("no panic with the counters held");
        let took = micros(plan.took);
        plans.made += 1;
        plans.last_us = took;
        plans.max_us = plans.max_us.max(took);
        plans.total_us += took;
        plans.last_at = Some(clock::now());
        plans.last_queue = plan.queue;
        plans.total_queue += plan.queue;
        plans.last_tried = plan.tried;
        plans.total_tried += plan.tried;
        plans.last_slots = plan.kept;
        plans.total_slots += plan.kept;
        plans.backfilled += plan.backfilled;
        plans.backfilled_since_start += plan.backfilled;
    }

    /// As in Slurm, each day of UTC begins from nothing; what was asked is counted on.
    pub fn new_day(&self, now: Timestamp) {
        let day = |millis: i64| millis.div_euclid(DAY_MS);
        if day(now.millis()) > day(self.since.load(Ordering::Relaxed)) {
            self.begin_again(now);
        }
    }

    /// Everything is counted from nothing again, but for what is said to be since the start.
    pub fn reset(&self) {
        self.begin_again(clock::now());
        *self.calls.lock().expect("no panic with the counters held") = Calls::default();
    }

    fn begin_again(&self, now: Timestamp) {
        self.since.store(now.millis(), Ordering::Relaxed);
        let counts =
            [&self.submitted, &self.started, &self.completed, &self.cancelled, &self.failed];
        counts.into_iter().for_each(|counter| counter.store(0, Ordering::Relaxed));
        let mut plans = self.plans.lock().expect("no panic with the counters held");
        *plans = PlanCounts {
            backfilled_since_start: plans.backfilled_since_start,
            ..PlanCounts::default()
        };
    }

    fn close(&self, open: &Open<'_>) {
        self.open.fetch_sub(1, Ordering::Relaxed);
        let took = micros(open.begun.elapsed());
        let mut calls = self.calls.lock().expect("no panic with the counters held");
        calls.by_kind.entry(open.kind).or_default().add(took);
        if calls.by_user.len() < USERS_MAX || calls.by_user.contains_key(&open.by.uid) {
            let of_user = calls.by_user.entry(open.by.uid);
            of_user.or_insert_with(|| (open.by.name.clone(), Spent::default())).1.add(took);
        }
    }
}

impl Drop for Open<'_> {
    fn drop(&mut self) {
        self.counters.close(self);
    }
}

pub fn view(shared: &Shared) -> DiagnosticsView {
    let counters = &shared.volatile.counters;
    let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    let (pending, running) = {
        let state = shared.read();
        // An array is one that waits, as in Slurm.
        let pending = state.jobs.values().filter(|job| job.is_waiting()).count();
        (pending as u64, state.active.len() as u64)
    };
    let calls = counters.calls.lock().expect("no panic with the counters held");
    let (agents, orders_queued) = shared.agents.queued();
    let by_kind = calls.by_kind.iter().map(|(kind, spent)| CallCount {
        kind: *kind,
        count: spent.count,
        total_us: spent.total_us,
    });
    let by_user = calls.by_user.iter().map(|(uid, (name, spent))| UserCount {
        uid: *uid,
        name: name.clone(),
        count: spent.count,
        total_us: spent.total_us,
    });
    DiagnosticsView {
        now: clock::now(),
        since: Timestamp(counters.since.load(Ordering::Relaxed)),
        calls_open: count(&counters.open),
        orders_queued,
        agents,
        books_queued: u64::from(!shared.books.is_settled()),
        jobs: JobCounts {
            submitted: count(&counters.submitted),
            started: count(&counters.started),
            completed: count(&counters.completed),
            cancelled: count(&counters.cancelled),
            failed: count(&counters.failed),
        },
        pending,
        running,
        plans: *counters.plans.lock().expect("no panic with the counters held"),
        clock_us: counters.clock_us,
        calls: by_kind.collect(),
        users: by_user.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::server_principal;

    #[test]
    fn calls_are_counted_by_kind_and_user_until_the_counters_are_set_back() {
        let counters = Counters::default();
        let who = server_principal();
        drop(counters.open(CallKind::Jobs, &who));
        let under_way = counters.open(CallKind::Ping, &who);
        assert_eq!(counters.open.load(Ordering::Relaxed), 1);
        drop(under_way);
        let plan = |backfilled| PlanMade {
            took: Duration::from_micros(40),
            queue: 3,
            tried: 2,
            kept: 1,
            backfilled,
        };
        counters.take_plan(&plan(2));
        counters.take_plan(&plan(0));
        {
            let calls = counters.calls.lock().unwrap();
            assert_eq!(calls.by_kind[&CallKind::Jobs].count, 1);
            assert_eq!(calls.by_user[&0].1.count, 2);
            let plans = counters.plans.lock().unwrap();
            assert_eq!((plans.made, plans.max_us, plans.total_us), (2, 40, 80));
            assert_eq!((plans.total_queue, plans.backfilled), (6, 2));
        }
        counters.reset();
        assert!(counters.calls.lock().unwrap().by_kind.is_empty());
        let plans = *counters.plans.lock().unwrap();
        assert_eq!((plans.made, plans.backfilled, plans.backfilled_since_start), (0, 0, 2));
    }

    #[test]
    fn a_new_day_begins_from_nothing_but_for_the_calls() {
        let counters = Counters::default();
        drop(counters.open(CallKind::Jobs, &server_principal()));
        counters.started.store(7, Ordering::Relaxed);
        let since = Timestamp(counters.since.load(Ordering::Relaxed));
        counters.new_day(since);
        assert_eq!(counters.started.load(Ordering::Relaxed), 7);
        counters.new_day(Timestamp(since.millis() + DAY_MS));
        assert_eq!(counters.started.load(Ordering::Relaxed), 0);
        assert_eq!(counters.calls.lock().unwrap().by_kind[&CallKind::Jobs].count, 1);
    }
}

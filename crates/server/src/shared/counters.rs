//! The counters behind `sdiag`: calls, jobs and plans.

use crate::clock;
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
use wire::diagnostics::{CallCount, CallKind, JobCounts, PlanCounts, UserCount};

/// Users that are counted apart; more are counted by kind of call only.
const USERS_MAX: usize = 65_536;

/// How often the clock is read to measure it: `sdiag` names this number.
const CLOCK_READINGS: u32 = 1_000;

const DAY_MS: i64 = 24 * 3600 * 1000;

pub struct Counters {
    since: AtomicI64,
    submitted: AtomicU64,
    started: AtomicU64,
    completed: AtomicU64,
    cancelled: AtomicU64,
    failed: AtomicU64,
    open_calls: AtomicU64,
    plans: Mutex<PlanCounts>,
    calls: Mutex<Calls>,
    clock_us: u64,
}

#[derive(Default)]
struct Calls {
    by_kind: HashMap<CallKind, CallTime>,
    by_user: HashMap<u32, (String, CallTime)>,
}

#[derive(Default, Clone, Copy)]
struct CallTime {
    count: u64,
    total_us: u64,
}

impl CallTime {
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
            open_calls: zero(),
            plans: Mutex::default(),
            calls: Mutex::default(),
            clock_us: micros(begun.elapsed()),
        }
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// The time that one plan took, and its numbers of jobs.
pub struct PlanFigures {
    pub took: Duration,
    pub queue: u64,
    pub tried: u64,
    pub kept: u64,
    pub backfilled: u64,
}

impl PlanFigures {
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

/// The values of all counters at one moment.
pub struct CounterSnapshot {
    pub since: Timestamp,
    pub calls_open: u64,
    pub jobs: JobCounts,
    pub plans: PlanCounts,
    pub clock_us: u64,
    pub calls: Vec<CallCount>,
    pub users: Vec<UserCount>,
}

/// A call that is being answered; dropping it counts the call.
pub struct CallTimer<'a> {
    counters: &'a Counters,
    kind: CallKind,
    by: Principal,
    begun: Instant,
}

impl Counters {
    pub fn begin_call(&self, kind: CallKind, by: &Principal) -> CallTimer<'_> {
        self.open_calls.fetch_add(1, Ordering::Relaxed);
        CallTimer { counters: self, kind, by: by.clone(), begun: Instant::now() }
    }

    pub fn add_event(&self, event: &Event) {
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

    pub fn add_plan(&self, plan: &PlanFigures) {
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

    /// As in Slurm, counters begin at zero with each day of UTC; those of calls go on.
    pub fn new_day(&self, now: Timestamp) {
        let day = |millis: i64| millis.div_euclid(DAY_MS);
        if day(now.millis()) > day(self.since.load(Ordering::Relaxed)) {
            self.restart(now);
        }
    }

    /// Sets every counter back to zero, but for those that count since the start.
    pub fn reset(&self) {
        self.restart(clock::now());
        *self.calls.lock().expect("no panic with the counters held") = Calls::default();
    }

    fn restart(&self, now: Timestamp) {
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

    pub fn snapshot(&self) -> CounterSnapshot {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let calls = self.calls.lock().expect("no panic with the counters held");
        let by_kind = calls.by_kind.iter().map(|(kind, time)| CallCount {
            kind: *kind,
            count: time.count,
            total_us: time.total_us,
        });
        let by_user = calls.by_user.iter().map(|(uid, (name, time))| UserCount {
            uid: *uid,
            name: name.clone(),
            count: time.count,
            total_us: time.total_us,
        });
        CounterSnapshot {
            since: Timestamp(self.since.load(Ordering::Relaxed)),
            calls_open: count(&self.open_calls),
            jobs: JobCounts {
                submitted: count(&self.submitted),
                started: count(&self.started),
                completed: count(&self.completed),
                cancelled: count(&self.cancelled),
                failed: count(&self.failed),
            },
            plans: *self.plans.lock().expect("no panic with the counters held"),
            clock_us: self.clock_us,
            calls: by_kind.collect(),
            users: by_user.collect(),
        }
    }

    fn close(&self, call: &CallTimer<'_>) {
        self.open_calls.fetch_sub(1, Ordering::Relaxed);
        let took = micros(call.begun.elapsed());
        let mut calls = self.calls.lock().expect("no panic with the counters held");
        calls.by_kind.entry(call.kind).or_default().add(took);
        if calls.by_user.len() < USERS_MAX || calls.by_user.contains_key(&call.by.uid) {
            let of_user = calls.by_user.entry(call.by.uid);
            of_user.or_insert_with(|| (call.by.name.clone(), CallTime::default())).1.add(took);
        }
    }
}

impl Drop for CallTimer<'_> {
    fn drop(&mut self) {
        self.counters.close(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::principal::server_principal;

    #[test]
    fn calls_are_counted_by_kind_and_user_until_a_reset() {
        let counters = Counters::default();
        let who = server_principal();
        drop(counters.begin_call(CallKind::Jobs, &who));
        let under_way = counters.begin_call(CallKind::Ping, &who);
        assert_eq!(counters.open_calls.load(Ordering::Relaxed), 1);
        drop(under_way);
        let plan = |backfilled| PlanFigures {
            took: Duration::from_micros(40),
            queue: 3,
            tried: 2,
            kept: 1,
            backfilled,
        };
        counters.add_plan(&plan(2));
        counters.add_plan(&plan(0));
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
    fn new_day_resets_all_counters_but_those_of_calls() {
        let counters = Counters::default();
        drop(counters.begin_call(CallKind::Jobs, &server_principal()));
        counters.started.store(7, Ordering::Relaxed);
        let since = Timestamp(counters.since.load(Ordering::Relaxed));
        counters.new_day(since);
        assert_eq!(counters.started.load(Ordering::Relaxed), 7);
        counters.new_day(Timestamp(since.millis() + DAY_MS));
        assert_eq!(counters.started.load(Ordering::Relaxed), 0);
        assert_eq!(counters.calls.lock().unwrap().by_kind[&CallKind::Jobs].count, 1);
    }
}

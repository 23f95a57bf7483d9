//! Mails that no event of the job brings: a part of its time limit is over, its dependency can never be met.

use super::notice::{about_job, is_watched};
use crate::clock;
use crate::shared::Shared;
use crate::shared::mail_queue::{MailNotice, WatchChanges};
use cluster::{Job, State, dependency};
use model::attempt::Attempt;
use model::dependency::DependencyState;
use model::id::{AttemptId, JobId};
use model::mail::MailType;
use model::time::Timestamp;
use slurm::words::mail::MailEvent;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

const PERIOD: Duration = Duration::from_secs(1);

/// After so many looks every watched job is looked at, whatever has changed.
const SWEEP_PERIODS: u32 = 60;

/// Jobs that are looked at with the state locked once.
const LOOK_MAX: usize = 500;

pub async fn run(shared: Arc<Shared>) {
    let mut told = {
        let state = shared.read();
        let watched = state.jobs.values().filter(|job| is_watched(job));
        watched.clone().for_each(|job| shared.mail.watch(job.id));
        Told::before(&state, watched.map(|job| &**job), clock::now())
    };
    let mut index = WatchIndex::default();
    let mut timer = tokio::time::interval(PERIOD);
    timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut looks: u32 = 0;
    loop {
        timer.tick().await;
        looks = looks.wrapping_add(1);
        let changes = shared.mail.take_changes();
        let due = if changes.everything || looks.is_multiple_of(SWEEP_PERIODS) {
            shared.mail.watched()
        } else {
            index.due(changes, clock::now())
        };
        for part in due.chunks(LOOK_MAX) {
            let mut mails = Vec::new();
            {
                let (state, now) = (shared.read(), clock::now());
                for id in part.iter().copied() {
                    index.remove(id);
                    match state.job(id).filter(|job| is_watched(job)) {
                        Some(job) => {
                            mails.extend(told.due(&state, job, now));
                            index.add(job, now);
                        }
                        None => {
                            shared.mail.unwatch(id);
                            told.forget(id);
                        }
                    }
                }
            }
            shared.mail.add(mails);
        }
    }
}

/// When, or at whose end, a watched job is to be looked at again.
#[derive(Default)]
struct WatchIndex {
    at: BTreeSet<(Timestamp, JobId)>,
    /// By the job that is depended on.
    dependents: HashMap<JobId, BTreeSet<JobId>>,
    of: HashMap<JobId, WatchedFor>,
}

#[derive(Default)]
struct WatchedFor {
    at: Option<Timestamp>,
    depends_on: Vec<JobId>,
}

impl WatchIndex {
    /// The jobs to look at now.
    fn due(&self, changes: WatchChanges, now: Timestamp) -> Vec<JobId> {
        let mut due = changes.changed;
        let timed = self.at.iter().take_while(|(at, _)| *at <= now);
        due.extend(timed.map(|(_, id)| *id));
        for ended in &changes.ended {
            due.extend(self.dependents.get(ended).into_iter().flatten());
        }
        due.into_iter().collect()
    }

    fn add(&mut self, job: &Job, now: Timestamp) {
        let at = next_mark(job, now);
        let depends_on: Vec<JobId> = match &job.spec.dependency {
            Some(dependency) if job.is_waiting() => {
                let targets = dependency.terms.iter().filter_map(|term| term.job);
                targets.map(|target| JobId(target.id)).collect()
            }
            _ => Vec::new(),
        };
        self.at.extend(at.map(|at| (at, job.id)));
        for target in &depends_on {
            self.dependents.entry(*target).or_default().insert(job.id);
        }
        self.of.insert(job.id, WatchedFor { at, depends_on });
    }

    fn remove(&mut self, job: JobId) {
        let Some(WatchedFor { at, depends_on }) = self.of.remove(&job) else { return };
        if let Some(at) = at {
            self.at.remove(&(at, job));
        }
        for target in depends_on {
            if let Some(dependents) = self.dependents.get_mut(&target) {
                dependents.remove(&job);
                if dependents.is_empty() {
                    self.dependents.remove(&target);
                }
            }
        }
    }
}

/// When the next mark of its time limit is passed that the job's mails are about. A suspended one passes none.
fn next_mark(job: &Job, now: Timestamp) -> Option<Timestamp> {
    let (attempt, mail) = (job.attempt()?, job.spec.mail.as_ref()?);
    if !attempt.booting_nodes.is_empty() {
        return Some(now + PERIOD);
    }
    let end = attempt.end_limit.filter(|_| !attempt.suspended)?;
    let percent = percent_used(attempt, now);
    let marks = mail.types.iter().filter_map(|kind| kind.time_limit_percent());
    let next = marks.filter(|mark| *mark > percent).min()?;
    let suspended_ms = attempt.suspended_total_ms(now) as i64;
    let limit_ms = (end.since(attempt.start).as_millis() as i64).saturating_sub(suspended_ms);
    let after_ms = limit_ms.saturating_mul(i64::from(next)) / 100 + suspended_ms;
    Some(Timestamp::from_millis(attempt.start.millis().saturating_add(after_ms)))
}

/// What was already told, or came about before this server ran.
#[derive(Default)]
struct Told {
    /// How many percent of its time limit an attempt had used.
    percent: HashMap<JobId, (u32, u32)>,
    dependencies: HashSet<JobId>,
}

impl Told {
    fn before<'a>(state: &State, jobs: impl Iterator<Item = &'a Job>, now: Timestamp) -> Self {
        let mut told = Self::default();
        for job in jobs {
            told.due(state, job, now);
        }
        told
    }

    /// The mails about the job that are due and were not made before.
    fn due(&mut self, state: &State, job: &Job, now: Timestamp) -> Vec<MailNotice> {
        let mut mails = Vec::new();
        if let Some((attempt, AttemptId { number, .. })) = job.attempt().zip(job.attempt_id()) {
            let before = self.percent.get(&job.id).filter(|(of, _)| *of == number);
            let before = before.map_or(0, |(_, percent)| *percent);
            let is_booting = !attempt.booting_nodes.is_empty();
            let percent = if is_booting { 0 } else { percent_used(attempt, now) };
            // A limit that was moved does not bring a mark again.
            self.percent.insert(job.id, (number, percent.max(before)));
            // Only the last mark that was passed is told.
            let marks = MailType::ALL
                .into_iter()
                .filter_map(|kind| Some((kind, kind.time_limit_percent()?)));
            let passed = marks.filter(|(_, mark)| before < *mark && *mark <= percent);
            mails.extend(
                passed
                    .filter_map(|(kind, mark)| {
                        about_job(state, job, kind, MailEvent::TimeLimitNear(mark))
                    })
                    .next(),
            );
        }
        // One that is ended for it is told of its end.
        let is_ended_for_it =
            job.spec.kill_on_invalid_dependency || state.config.parameters.kill_invalid_dependency;
        let never = job.is_waiting()
            && !is_ended_for_it
            && dependency::state_of(state, job, now) == DependencyState::Failed;
        if never && self.dependencies.insert(job.id) {
            let event = MailEvent::InvalidDependency;
            mails.extend(about_job(state, job, MailType::InvalidDepend, event));
        }
        mails
    }

    fn forget(&mut self, job: JobId) {
        self.percent.remove(&job);
        self.dependencies.remove(&job);
    }
}

/// How much of its time limit the attempt has used; suspended time does not count.
fn percent_used(attempt: &Attempt, now: Timestamp) -> u32 {
    let Some(end) = attempt.end_limit else { return 0 };
    // The end moves with each suspension that is over.
    let limit_ms =
        (end.since(attempt.start).as_millis() as u64).saturating_sub(attempt.suspended_ms);
    let used_ms = (now.since(attempt.start).as_millis() as u64)
        .saturating_sub(attempt.suspended_total_ms(now));
    let percent = used_ms.saturating_mul(100).checked_div(limit_ms);
    percent.map_or(100, |percent| percent.min(100) as u32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn suspended_time_does_not_count_towards_the_limit() {
        let attempt = |more: serde_json::Value| -> Attempt {
            let mut whole = serde_json::json!({"number": 1, "start": 0, "held_nodes": [],
                "allocation": {"partition": "main", "nodes": []}});
            let whole = whole.as_object_mut().expect("an object");
            whole.extend(more.as_object().expect("an object").clone());
            serde_json::from_value(serde_json::Value::Object(whole.clone())).expect("an attempt")
        };
        let plain = attempt(serde_json::json!({"end_limit": 60_000}));
        assert_eq!(percent_used(&plain, Timestamp(29_999)), 49);
        assert_eq!(percent_used(&plain, Timestamp(30_000)), 50);
        assert_eq!(percent_used(&plain, Timestamp(90_000)), 100);
        // Ten seconds were spent suspended: the end has moved by as much.
        let resumed = attempt(serde_json::json!({"end_limit": 70_000, "suspended_ms": 10_000}));
        assert_eq!(percent_used(&resumed, Timestamp(40_000)), 50);
        let suspended = attempt(serde_json::json!(
            {"end_limit": 60_000, "suspended": true, "suspended_since": 30_000}));
        assert_eq!(percent_used(&suspended, Timestamp(55_000)), 50);
        assert_eq!(percent_used(&attempt(serde_json::json!({})), Timestamp(55_000)), 0);
    }

    #[test]
    fn only_jobs_that_something_happened_to_are_looked_at() {
        let mut index = WatchIndex::default();
        for (job, target) in [(10, 1), (11, 1), (12, 2)] {
            let (job, target) = (JobId(job), JobId(target));
            index.dependents.entry(target).or_default().insert(job);
            index.of.insert(job, WatchedFor { at: None, depends_on: vec![target] });
        }
        index.at.insert((Timestamp(500), JobId(20)));
        index.of.insert(JobId(20), WatchedFor { at: Some(Timestamp(500)), depends_on: Vec::new() });
        let due = |index: &WatchIndex, ended: &[u32], now| {
            let ended = ended.iter().copied().map(JobId).collect();
            let changes = WatchChanges { ended, ..WatchChanges::default() };
            index.due(changes, Timestamp(now)).iter().map(|id| id.0).collect::<Vec<_>>()
        };
        assert_eq!(due(&index, &[], 499), Vec::<u32>::new());
        assert_eq!(due(&index, &[1], 499), [10, 11]);
        assert_eq!(due(&index, &[7], 500), [20]);
        index.remove(JobId(10));
        index.remove(JobId(20));
        assert_eq!(due(&index, &[1, 2], 500), [11, 12]);
    }
}

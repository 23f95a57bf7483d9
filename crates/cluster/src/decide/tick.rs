//! Decisions that the clock alone makes: deadlines, limits, gang slices, reservations, and the purge of old records.

use super::end::{ended_unstarted, ending};
use crate::command::Context;
use crate::dependency::{self, Dependencies};
use crate::event::Event;
use crate::requested;
use crate::requeue;
use crate::state::State;
use crate::state::job::Job;
use model::dependency::DependencyState;
use model::id::JobId;
use model::raw_usage::RawUsage;
use model::reason::Reason;
use model::request::{Grant, WaitPolicy};
use model::run::{ExitStatus, Outcome};
use model::time::{TimeLimit, Timestamp};
use model::tres::{Tres, TresKind};
use sched::accounting::Accounting;
use std::collections::HashSet;
use std::time::Duration;

/// The most records that one tick purges, but for what belongs to the last of them.
const PURGE_MAX: usize = 10_000;

/// The looks at other jobs that one tick takes for dependencies. Where all waiting jobs need more, each tick looks at a part of
/// the jobs: nothing else happens meanwhile.
const LOOKUPS_PER_TICK: u64 = 100_000;

/// How long after its machine is up a run may take to start.
const MACHINE_START: Duration = Duration::from_secs(60);

/// The part of the waiting jobs whose dependencies a tick looks at.
struct DependencyTurn {
    parts: u64,
    part: u64,
}

impl DependencyTurn {
    fn at(state: &State, now: Timestamp) -> Self {
        let parts = state.held_bytes.of_all().lookups.div_ceil(LOOKUPS_PER_TICK).max(1);
        Self { parts, part: now.secs().unsigned_abs() % parts }
    }

    fn has(&self, job: &Job) -> bool {
        u64::from(job.id.0) % self.parts == self.part
    }
}

impl State {
    /// `booked`: the books have everything that has ended, so that old records may be purged.
    pub(super) fn decide_tick(&self, booked: bool, context: &Context) -> Vec<Event> {
        let mut events = self.silent_nodes(context.now);
        if events.is_empty() {
            events = self.interrupted_jobs(context.now);
        }
        if !events.is_empty() {
            return events;
        }
        events.extend(self.power_timeouts(context.now));
        if events.iter().any(|event| !matches!(event, Event::NodePower { .. })) {
            // What they do to jobs is seen by the next tick.
            return events;
        }
        events.extend(self.overdue_restore_wait(context.now));
        let dependencies = Dependencies::new(self, context.now);
        let turn = DependencyTurn::at(self, context.now);
        events.extend(self.jobs.values().filter(|j| j.is_waiting()).filter_map(|job| {
            let dependencies = turn.has(job).then_some(&dependencies);
            let outcome = self.waited_too_long(job, dependencies, context.now)?;
            Some(end_waiting(job, outcome, context.now))
        }));
        events.extend(self.active.iter().filter_map(|id| {
            let job = &self.jobs[id];
            let deadline = job.spec.request().deadline?;
            let late = deadline <= context.now;
            late.then(|| ending(job, Outcome::Deadline, ExitStatus::default(), context.now, None))?
        }));
        events.extend(self.out_of_minutes().filter_map(|job| {
            ending(job, Outcome::Timeout, ExitStatus::default(), context.now, None)
        }));
        events.extend(self.preemptions_due(context.now));
        events.extend(self.gang_events(context.now));
        events.extend(self.reservation_events(context.now));
        events.extend(self.machine_events(context.now));
        events.extend(self.volume_cleanup_events(context));
        events.extend(self.dropped_backend_events());
        // Machines are numbered from the last one on: one kind of them at a time.
        let of_fleets = self.fleet_machine_events(context);
        let of_nodes = || self.backed_node_events(context);
        events.extend(if of_fleets.is_empty() { of_nodes() } else { of_fleets });
        if let Some(reset) = self.usage_period_due(context.now) {
            events.push(Event::UsagePeriodEnded { at: context.now, reset });
        }
        if booked {
            let old = self.old_records(context.now);
            if !old.is_empty() {
                events.push(Event::Purged { jobs: old });
            }
        }
        events
    }

    /// Running jobs whose account or QOS has used up its minutes: they end as if their own time limit were reached.
    fn out_of_minutes(&self) -> impl Iterator<Item = &Job> {
        let parameters = &self.config.parameters;
        let kept = parameters.priority.is_computed() && parameters.enforces_limits();
        let accounting = kept.then(|| self.accounting());
        let running = self.active.iter().map(|id| &*self.jobs[id]);
        running.filter(move |job| {
            accounting.as_ref().is_some_and(|accounting| self.is_out_of_minutes(job, accounting))
        })
    }

    fn is_out_of_minutes(&self, job: &Job, accounting: &Accounting) -> bool {
        let Some(attempt) = job.attempt() else { return false };
        let used_up = |minutes: &Tres, wall: Option<TimeLimit>, raw_usage: &RawUsage| {
            let minutes_used = |(kind, limit): (&TresKind, u64)| raw_usage.minutes(kind) > limit;
            let wall = wall.and_then(TimeLimit::secs);
            minutes.iter().any(minutes_used)
                || wall.is_some_and(|most| raw_usage.wall_s > most as f64)
        };
        let partition = Some(attempt.allocation.partition.as_str());
        let at = self.tree().find(&job.account, &job.spec.owner.name, partition);
        // A limit of minutes on the root is shown, and not enforced.
        let mut above = accounting.chain(at).filter(|(at, _)| *at > 0);
        let of_qos = || {
            let qos = self.qos.get(&*job.qos)?;
            let raw_usage = accounting.raw_usage_by_qos.get(&qos.name)?;
            Some(used_up(&qos.group_tres_minutes, qos.group_wall, raw_usage))
        };
        above.any(|(_, member)| {
            let limits = &member.association.limits;
            used_up(&limits.group_tres_minutes, limits.group_wall, &member.raw_usage)
        }) || of_qos().unwrap_or(false)
    }

    fn waited_too_long(
        &self,
        job: &Job,
        dependencies: Option<&Dependencies<'_>>,
        now: Timestamp,
    ) -> Option<Outcome> {
        let request = job.spec.request();
        let latest = request.deadline.map(|deadline| self.latest_start(job, deadline));
        if latest.is_some_and(|latest| latest < now) {
            return Some(Outcome::Deadline);
        }
        let until = match request.wait_policy {
            // What a policy says of the first start does not hold for one that has had it.
            _ if job.attempts > 0 => requeue::retry_deadline(job),
            WaitPolicy::Until(time) if time <= now => {
                self.capacity_deadline(job, time, dependencies?)
            }
            WaitPolicy::Now if request.grant == Grant::Offer => self.machine_deadline(job, now),
            WaitPolicy::Until(_) | WaitPolicy::Forever | WaitPolicy::Now => None,
        };
        if until.is_some_and(|time| time <= now) {
            return Some(Outcome::NoCapacity);
        }
        let kills =
            job.spec.kill_on_invalid_dependency || self.config.parameters.kill_invalid_dependency;
        let fails = |known: &Dependencies<'_>| known.state_of(job) == DependencyState::Failed;
        let never = kills && dependencies.is_some_and(fails);
        never.then_some(Outcome::Cancelled { by: 0 })
    }

    /// Until when a run that is to start at once waits for the machine that is made for it: as long as the slowest source may
    /// take, and a little for its start. `None` for one that waits for something else: one that somebody holds or has held, and
    /// once that time is over a replica of an update, which may have the place of one that it replaces.
    fn machine_deadline(&self, job: &Job, now: Timestamp) -> Option<Timestamp> {
        if job.hold.is_some() || job.retries.was_held {
            return None;
        }
        let boot = self.sources().map(|source| source.boot_s).max()?;
        let from = job.begin.map_or(job.submit, |begin| begin.max(job.submit));
        let deadline = from + Duration::from_secs(boot.into()) + MACHINE_START;
        let is_update = || self.replaced_by(&job.spec).next().is_some();
        (deadline > now || !is_update()).then_some(deadline)
    }

    /// The latest start that still meets the deadline; the deadline itself for a job without a time limit.
    fn latest_start(&self, job: &Job, deadline: Timestamp) -> Timestamp {
        let least =
            job.spec.request().time_min.unwrap_or_else(|| requested::effective_limit(self, job));
        let least_ms = least.secs().map_or(0, |secs| secs.saturating_mul(1_000));
        let least_ms = i64::try_from(least_ms).unwrap_or(i64::MAX);
        Timestamp::from_millis(deadline.millis().saturating_sub(least_ms))
    }

    /// Ended records older than `MinJobAge` on which no waiting job depends. The components of a het job leave together:
    /// dstack shows a task of several groups as one run.
    fn old_records(&self, now: Timestamp) -> Vec<JobId> {
        let age = Duration::from_secs(u64::from(self.config.parameters.min_job_age_s));
        let mut old = self.ended.iter().take_while(|(end, _)| *end + age <= now).peekable();
        if old.peek().is_none() {
            return Vec::new();
        }
        let awaited = dependency::awaited(self);
        let stays = |id: JobId| {
            let Some(job) = self.jobs.get(&id) else { return false };
            let is_old = job.ended().is_some_and(|ended| ended.end + age <= now);
            !is_old || awaited.contains(&id) || job.task.is_some_and(|t| awaited.contains(&t.array))
        };
        let (mut leaving, mut het_jobs) = (Vec::new(), HashSet::new());
        for (_, id) in old {
            if leaving.len() >= PURGE_MAX {
                break;
            }
            match self.jobs.get(id).and_then(|job| job.het) {
                Some(het) if het_jobs.insert(het.first) && !het.jobs().any(stays) => {
                    leaving.extend(het.jobs().filter(|id| self.jobs.contains_key(id)));
                }
                None if !stays(*id) => leaving.push(*id),
                _ => {}
            }
        }
        leaving
    }
}

fn end_waiting(job: &Job, outcome: Outcome, now: Timestamp) -> Event {
    let mut ended = Box::new(ended_unstarted(outcome, now));
    // A tick cancels only jobs whose dependency can never be met.
    if matches!(outcome, Outcome::Cancelled { .. }) {
        ended.reason = Reason::DependencyNeverSatisfied;
    }
    match &job.pending {
        Some(pending) => {
            Event::TasksCancelled { array: job.id, indices: pending.indices.clone(), ended }
        }
        None => Event::Ended { job: job.id, ended },
    }
}

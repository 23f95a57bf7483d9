//! The forecast for jobs that wait for more than resources: for a limit, for licenses, for other jobs.
//!
//! ```text
//!   running, started, reserved ─▶ ends and starts, in the order of time
//!                                 │ each releases limits and licenses, and meets dependencies
//!                                 ▼
//!   deferred ──────────────────▶ tried again, in queue order ─▶ a backfill slot from then on, and its own end
//! ```
//!
//! Used for estimates only. Every job is taken to run for the last_end of its time limit, and to succeed.

mod events;
mod inputs;

use self::events::{Blocker, ExpectedStart, Forecast, ForecastEvent, ResourceHold};
use super::Planner;
use crate::free::backfill_slot::BackfillSlot;
use crate::free::timeline::Millis;
use crate::gate::limits::{Claimant, JobUsage};
use crate::memo::QueueSlot;
use model::id::JobId;
use model::reason::Reason;
use std::cmp::Reverse;
use std::sync::Arc;

/// How many jobs with the same blocker are tried at one moment.
const TRIES_MAX: usize = 16;

/// A queue slot that waits for more than resources, or may have to.
pub(super) struct DeferredSlot<'a> {
    slot: u32,
    why: DeferReason<'a>,
}

enum DeferReason<'a> {
    /// Events of other jobs.
    OtherJobs,
    Blocked(Blocker<'a>),
    /// Resources now, and perhaps a limit when its slot begins.
    LimitAtStart,
}

impl<'a> Planner<'a> {
    pub(super) fn defer(&mut self, slot: &QueueSlot, reason: &Reason) {
        if self.is_for_starts() {
            return;
        }
        let waiting = &self.view.queue[slot.entry.waiting as usize];
        let why = match reason {
            Reason::Dependency | Reason::ArrayTaskLimit if !waiting.awaits.is_empty() => {
                DeferReason::OtherJobs
            }
            Reason::Limit(limit) => {
                match Blocker::of(self.view, limit, self.claimant(slot.entry)) {
                    None => return,
                    Some(block) => DeferReason::Blocked(block),
                }
            }
            Reason::Licenses => DeferReason::Blocked(Blocker::Licenses),
            Reason::Resources | Reason::Priority if self.may_be_limited(slot) => {
                DeferReason::LimitAtStart
            }
            _ => return,
        };
        self.deferred.push(DeferredSlot { slot: self.at as u32, why });
    }

    pub(super) fn is_deferred(&self, job: JobId) -> bool {
        self.deferred.iter().any(|d| self.queue.slots[d.slot as usize].job() == job)
    }

    /// Finds slots for the deferred jobs by going through the events to come.
    pub fn forecast_deferred(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        let deferred = std::mem::take(&mut self.deferred);
        let mut forecast = Forecast::default();
        self.note_running(&mut forecast);
        self.note_starts(&mut forecast);
        self.note_expected(&mut forecast, &deferred);
        self.note_deferred(&mut forecast, &deferred);
        let known = self.estimates.len();
        forecast.settled = self.estimates.iter().map(|e| e.job).collect();
        while let Some(Reverse((time, first))) = forecast.events.pop() {
            let time = time.max(self.now.millis());
            self.apply_event(&mut forecast, time, first);
            while forecast.events.peek().is_some_and(|Reverse((at, _))| *at <= time) {
                let Some(Reverse((_, next))) = forecast.events.pop() else { break };
                self.apply_event(&mut forecast, time, next);
            }
            // Every round but the last finds a slot for a job, so the loop ends.
            while self.try_ready(&mut forecast, &deferred, time) {}
            forecast.lifted.clear();
        }
        let mut at = 0..;
        let before = |at: Option<usize>| at.is_some_and(|at| at < known);
        let is_void =
            |job: &JobId| forecast.void.contains(job) || forecast.void_before.contains(job);
        self.estimates.retain(|e| !(before(at.next()) && is_void(&e.job)));
    }

    fn may_be_limited(&self, slot: &QueueSlot) -> bool {
        !self.licenses_of(*slot).is_empty()
            || (self.has_limits && self.usage.is_limited(self.claimant(slot.entry)))
    }

    /// Tries the jobs that may have become unblocked. Returns whether one of them got a slot.
    fn try_ready(
        &mut self,
        forecast: &mut Forecast<'a>,
        deferred: &[DeferredSlot<'a>],
        time: Millis,
    ) -> bool {
        let mut ready = std::mem::take(&mut forecast.ready);
        for block in &forecast.lifted {
            ready.extend(forecast.blocked.get(block).into_iter().flatten().take(TRIES_MAX));
        }
        let mut any = false;
        for at in ready {
            let slot = self.queue.slots[deferred[at].slot as usize];
            forecast.unblock(at);
            if self.left[slot.entry.waiting as usize] == 0 {
                continue;
            }
            // The job may have its slot through another partition.
            if forecast.placed[at] == 0 && !forecast.settled.insert(slot.job()) {
                continue;
            }
            match self.try_at(forecast, slot, time) {
                RetryResult::Placed => {
                    forecast.placed[at] += 1;
                    any = true;
                    if forecast.placed[at] < self.tasks_ahead(&deferred[at]) {
                        forecast.ready.insert(at);
                    } else {
                        self.note_last(forecast, slot);
                    }
                    continue;
                }
                RetryResult::Never => {}
                RetryResult::NotBefore(later) => {
                    forecast.open[at] = 1;
                    forecast.events.push(Reverse((later, ForecastEvent::ConditionMet(at))));
                }
                RetryResult::Blocked(block) => forecast.block(at, block),
            }
            if forecast.placed[at] == 0 {
                forecast.settled.remove(&slot.job());
            }
        }
        any
    }

    /// How many tasks of the entry get a slot in the forecast.
    fn tasks_ahead(&self, deferred: &DeferredSlot<'a>) -> u32 {
        let slot = &self.queue.slots[deferred.slot as usize];
        let left = self.left[slot.entry.waiting as usize];
        // Only the next task of a throttled array is forecast.
        let most = match deferred.why {
            DeferReason::OtherJobs => 1,
            DeferReason::Blocked(_) | DeferReason::LimitAtStart => {
                self.view.policy.backfill_limits.per_array
            }
        };
        left.min(most).max(1)
    }

    /// Notes the end of the last_end entry once the last of its forecast tasks has a slot.
    fn note_last(&self, forecast: &mut Forecast<'a>, slot: QueueSlot) {
        let known = self.array_task_times.get(&slot.entry.waiting);
        if let Some((start, end)) = known.and_then(|known| known.first()) {
            let tasks = self.left[slot.entry.waiting as usize];
            forecast.note_end(slot.job(), self.last_end(slot, tasks, *start, *end));
        }
    }

    fn apply_event(&mut self, forecast: &mut Forecast<'a>, time: Millis, event: ForecastEvent) {
        match event {
            ForecastEvent::Released(at) => {
                let hold = &forecast.holds[at];
                if let Some((claimant, load)) = &hold.claimant {
                    self.usage.remove_usage(*claimant, load);
                    forecast.lifted.extend(Blocker::lifted_by(self.view, *claimant));
                }
                self.release_licenses(hold.licenses);
                if !hold.licenses.is_empty() {
                    forecast.lifted.insert(Blocker::Licenses);
                }
            }
            ForecastEvent::SlotBegins(at) => self.begin_slot(forecast, at, time),
            ForecastEvent::Started(job) => forecast.note_start(job, time),
            ForecastEvent::Ended(job) => {
                for at in forecast.by_end.remove(&job).unwrap_or_default() {
                    forecast.meet_condition(at);
                }
            }
            ForecastEvent::ConditionMet(at) => forecast.meet_condition(at),
        }
    }

    /// A slot begins. Its job starts, or is blocked again by a limit that others have used up by then.
    fn begin_slot(&mut self, forecast: &mut Forecast<'a>, at: usize, time: Millis) {
        let ExpectedStart { job, hold, deferred, last_end, .. } = forecast.expected_starts[at];
        let ResourceHold { claimant, licenses, .. } = &forecast.holds[hold];
        let short = |(name, count): &(String, u32)| {
            self.licenses.get(name.as_str()).copied().unwrap_or(0) < u64::from(*count)
        };
        let broken = claimant.as_ref().and_then(|(claimant, load)| {
            let limit = self.usage.broken_by_usage(*claimant, load)?;
            Some(Blocker::of(self.view, &limit, *claimant))
        });
        let blocked = match broken {
            Some(block) => Some(block),
            None => licenses.iter().any(short).then_some(Some(Blocker::Licenses)),
        };
        let Some(block) = blocked else {
            if let Some((claimant, load)) = claimant {
                self.usage.add_usage(*claimant, load);
            }
            self.take_licenses(licenses);
            forecast.release_at_end(hold);
            forecast.note_start(job, time);
            forecast.note_end(job, last_end);
            return;
        };
        forecast.void.insert(job);
        forecast.settled.remove(&job);
        if let Some(kept) = forecast.expected_starts[at].kept.take() {
            self.timelines.release(&kept);
        }
        self.slot_of_job.remove(&job);
        if let Some(block) = block {
            forecast.block(deferred, block);
        }
    }

    /// Reserves a slot for the job from `time` on, if nothing but resources holds it back then.
    fn try_at(
        &mut self,
        forecast: &mut Forecast<'a>,
        slot: QueueSlot,
        time: Millis,
    ) -> RetryResult<'a> {
        let waiting = &self.view.queue[slot.entry.waiting as usize];
        let shape = slot.shape;
        if waiting.hold.is_some()
            || waiting.fixed_reason.is_some()
            || waiting.spec.components.len() != 1
            || waiting.het.is_some()
        {
            return RetryResult::Never;
        }
        if let Some(begin) = waiting.begin.filter(|begin| begin.millis() > time) {
            return RetryResult::NotBefore(begin.millis());
        }
        if self.timelines.windows.gate(waiting, time).is_some() {
            let access = self.shape(shape).access.clone();
            return match self
                .timelines
                .windows
                .next_begin(&access, time)
                .filter(|begin| *begin > time)
            {
                Some(begin) => RetryResult::NotBefore(begin),
                None => RetryResult::Never,
            };
        }
        let claimant = self.has_limits.then(|| self.claimant(slot.entry));
        if let Some(reason) = self.shape(shape).gate.clone()
            && !claimant.is_some_and(|claimant| self.usage.lifts(claimant, &reason))
        {
            return RetryResult::Never;
        }
        if let Some(claimant) = claimant {
            if self.usage.threshold_reason(claimant).is_some() {
                return RetryResult::Never;
            }
            let (least, limit) = (self.shape(shape).least().clone(), self.shape(shape).time_limit);
            if let Some(broken) = self.usage.broken_by(claimant, &least, limit) {
                return Blocker::of(self.view, &broken, claimant)
                    .map_or(RetryResult::Never, RetryResult::Blocked);
            }
        }
        if !self.has_licenses(shape) {
            return RetryResult::Blocked(Blocker::Licenses);
        }
        let latest = self.shape(shape).latest_start();
        let (known, mut finder) = self.finder(shape);
        match finder.find_slot(known, time).slot.filter(|kept| kept.start <= latest) {
            Some(kept) => {
                self.reserve_in_forecast(forecast, slot, kept);
                RetryResult::Placed
            }
            None => RetryResult::Never,
        }
    }

    fn reserve_in_forecast(
        &mut self,
        forecast: &mut Forecast<'a>,
        slot: QueueSlot,
        kept: Arc<BackfillSlot>,
    ) {
        let holder = self.shape(slot.shape).demand.holder;
        let nodes: Vec<u32> = kept.nodes().collect();
        let job = slot.job();
        if forecast.void.remove(&job) {
            forecast.void_before.insert(job);
            self.array_task_times.remove(&slot.entry.waiting);
        }
        let kept_before = self.array_task_times.entry(slot.entry.waiting).or_default();
        kept_before.push((kept.start, kept.end));
        if kept_before.len() == 1 {
            let estimate = self.estimate_of(job, slot.entry.partition, kept.start, &kept);
            self.estimates.push(estimate);
            forecast.events.push(Reverse((kept.start, ForecastEvent::Started(job))));
        }
        self.timelines.reserve(&kept, holder);
        let limited = self.counted_usage(slot, &nodes);
        let licenses = self.licenses_of(slot);
        if let Some((claimant, load)) = &limited {
            self.usage.add_usage(*claimant, load);
        }
        self.take_licenses(licenses);
        let end = kept.end;
        let at = forecast.add_hold(ResourceHold { claimant: limited, licenses, end });
        forecast.release_at_end(at);
    }

    /// What the job counts for against limits; `None` if it is under none.
    fn counted_usage(
        &mut self,
        slot: QueueSlot,
        nodes: &[u32],
    ) -> Option<(Claimant<'a>, JobUsage)> {
        let claimant = Some(self.claimant(slot.entry)).filter(|c| self.usage.is_limited(*c))?;
        let least = self.shape(slot.shape).least().clone();
        let names = nodes.iter().map(|node| self.timelines.config(*node).name.clone()).collect();
        Some((claimant, JobUsage::new(self.view, claimant, least, claimant.time, names)))
    }

    fn licenses_of(&self, slot: QueueSlot) -> &'a [(String, u32)] {
        &self.view.queue[slot.entry.waiting as usize].spec.request().licenses
    }
}

/// The result of trying a deferred job again.
enum RetryResult<'a> {
    Placed,
    /// The job cannot start at any time that can be foreseen.
    Never,
    NotBefore(Millis),
    Blocked(Blocker<'a>),
}

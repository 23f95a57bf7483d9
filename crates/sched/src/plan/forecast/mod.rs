//! What lies ahead of those that wait for more than resources: for a limit, for licences, for other jobs.
//!
//! ```text
//!   running, started, kept ─▶ ends and begins, in the order of time
//!                             │ gives back limits and licences, meets dependencies
//!                             ▼
//!   deferred ──────────────▶ tried again, in the order of the line ─▶ a place from then on, and its own end
//! ```
//!
//! For estimates only. Everybody is taken to run for the whole of its limit, and to end well.

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

/// How many of those that wait for the same are tried at one moment before one of them must have a place.
const VAIN_MAX: usize = 16;

/// A turn that waits for more than resources, or may have to.
pub(super) struct DeferredSlot {
    slot: u32,
    why: DeferReason,
}

enum DeferReason {
    /// What others do.
    Others,
    Blocked(Blocker),
    /// Nothing now; but when it starts, a limit may be in its way.
    Expected,
}

impl<'a> Planner<'a> {
    pub(super) fn defer(&mut self, slot: &QueueSlot, reason: &Reason) {
        if self.is_for_starts() {
            return;
        }
        let waiting = &self.view.queue[slot.entry.waiting as usize];
        let why = match reason {
            Reason::Dependency | Reason::ArrayTaskLimit if !waiting.awaits.is_empty() => {
                DeferReason::Others
            }
            Reason::Limit(limit) => match Blocker::of(limit, self.claimant(slot.entry)) {
                None => return,
                Some(block) => DeferReason::Blocked(block),
            },
            Reason::Licenses => DeferReason::Blocked(Blocker::Licenses),
            Reason::Resources | Reason::Priority if self.may_be_limited(slot) => {
                DeferReason::Expected
            }
            _ => return,
        };
        self.deferred.push(DeferredSlot { slot: self.at as u32, why });
    }

    pub(super) fn is_deferred(&self, job: JobId) -> bool {
        self.deferred.iter().any(|d| self.queue.slots[d.slot as usize].job() == job)
    }

    /// Goes through the time to come, for those that wait for more than resources.
    pub fn forecast_deferred(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        let deferred = std::mem::take(&mut self.deferred);
        let mut ahead = Forecast::default();
        self.note_running(&mut ahead);
        self.note_starts(&mut ahead);
        self.note_expected(&mut ahead, &deferred);
        self.note_deferred(&mut ahead, &deferred);
        let known = self.estimates.len();
        ahead.settled = self.estimates.iter().map(|e| e.job).collect();
        while let Some(Reverse((time, first))) = ahead.events.pop() {
            let time = time.max(self.now.millis());
            self.happen(&mut ahead, time, first);
            while ahead.events.peek().is_some_and(|Reverse((at, _))| *at <= time) {
                let Some(Reverse((_, next))) = ahead.events.pop() else { break };
                self.happen(&mut ahead, time, next);
            }
            // Each turn but the last gives somebody a place.
            while self.try_ready(&mut ahead, &deferred, time) {}
            ahead.lifted.clear();
        }
        let mut at = 0..;
        let before = |at: Option<usize>| at.is_some_and(|at| at < known);
        let is_void = |job: &JobId| ahead.void.contains(job) || ahead.void_before.contains(job);
        self.estimates.retain(|e| !(before(at.next()) && is_void(&e.job)));
    }

    fn may_be_limited(&self, slot: &QueueSlot) -> bool {
        !self.licenses_of(*slot).is_empty()
            || (self.has_limits && self.usage.is_limited(self.claimant(slot.entry)))
    }

    /// Tries the first of those whose time may have come; whether one of them has a place now.
    fn try_ready(
        &mut self,
        ahead: &mut Forecast<'a>,
        deferred: &[DeferredSlot],
        time: Millis,
    ) -> bool {
        let mut ready = std::mem::take(&mut ahead.ready);
        for block in &ahead.lifted {
            ready.extend(ahead.blocked.get(block).into_iter().flatten().take(VAIN_MAX));
        }
        let mut any = false;
        for at in ready {
            let slot = self.queue.slots[deferred[at].slot as usize];
            ahead.unblock(at);
            if self.left[slot.entry.waiting as usize] == 0 {
                continue;
            }
            // Another partition may have been earlier.
            if ahead.placed[at] == 0 && !ahead.settled.insert(slot.job()) {
                continue;
            }
            match self.try_at(ahead, slot, time) {
                RetryResult::Placed => {
                    ahead.placed[at] += 1;
                    any = true;
                    if ahead.placed[at] < self.tasks_ahead(&deferred[at]) {
                        ahead.ready.insert(at);
                    } else {
                        self.note_last(ahead, slot);
                    }
                    continue;
                }
                RetryResult::Never => {}
                RetryResult::NotBefore(later) => {
                    ahead.open[at] = 1;
                    ahead.events.push(Reverse((later, ForecastEvent::Met(at))));
                }
                RetryResult::Blocked(block) => ahead.block(at, block),
            }
            if ahead.placed[at] == 0 {
                ahead.settled.remove(&slot.job());
            }
        }
        any
    }

    /// How many tasks of the entry are looked at.
    fn tasks_ahead(&self, deferred: &DeferredSlot) -> u32 {
        let slot = &self.queue.slots[deferred.slot as usize];
        let left = self.left[slot.entry.waiting as usize];
        // When the next but one of a throttled array starts is not looked at.
        let most = match deferred.why {
            DeferReason::Others => 1,
            DeferReason::Blocked(_) | DeferReason::Expected => {
                self.view.policy.backfill_limits.per_array
            }
        };
        left.min(most).max(1)
    }

    /// The last of its tasks that is looked at has a place.
    fn note_last(&self, ahead: &mut Forecast<'a>, slot: QueueSlot) {
        let known = self.array_task_times.get(&slot.entry.waiting);
        if let Some((start, end)) = known.and_then(|known| known.first()) {
            let tasks = self.left[slot.entry.waiting as usize];
            ahead.ends(slot.job(), self.last_end(slot, tasks, *start, *end));
        }
    }

    fn happen(&mut self, ahead: &mut Forecast<'a>, time: Millis, what: ForecastEvent) {
        match what {
            ForecastEvent::Given(at) => {
                let holding = &ahead.holdings[at];
                if let Some((claimant, load)) = &holding.claimant {
                    self.usage.remove_usage(*claimant, load);
                    ahead.lifted.extend(Blocker::lifted_by(self.view, *claimant));
                }
                for (name, count) in holding.licenses {
                    *self.licenses.entry(name.as_str()).or_default() += u64::from(*count);
                }
                if !holding.licenses.is_empty() {
                    ahead.lifted.insert(Blocker::Licenses);
                }
            }
            ForecastEvent::Taken(at) => self.begin(ahead, at, time),
            ForecastEvent::Begun(job) => ahead.begun(job, time),
            ForecastEvent::Ended(job) => {
                for at in ahead.by_end.remove(&job).unwrap_or_default() {
                    ahead.meet(at);
                }
            }
            ForecastEvent::Met(at) => ahead.meet(at),
        }
    }

    /// One that keeps a place begins, or waits again for a limit that others have used up by then.
    fn begin(&mut self, ahead: &mut Forecast<'a>, at: usize, time: Millis) {
        let ExpectedStart { job, holding, deferred, whole, .. } = ahead.begins[at];
        let ResourceHold { claimant, licenses, .. } = &ahead.holdings[holding];
        let short = |(name, count): &(String, u32)| {
            self.licenses.get(name.as_str()).copied().unwrap_or(0) < u64::from(*count)
        };
        let broken = claimant.as_ref().and_then(|(claimant, load)| {
            let limit = self.usage.broken_by_load(*claimant, load)?;
            Some(Blocker::of(&limit, *claimant))
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
            ahead.releases(holding);
            ahead.begun(job, time);
            ahead.ends(job, whole);
            return;
        };
        ahead.void.insert(job);
        ahead.settled.remove(&job);
        if let Some(kept) = ahead.begins[at].kept.take() {
            self.timelines.release(&kept);
        }
        self.slot_of_job.remove(&job);
        if let Some(block) = block {
            ahead.block(deferred, block);
        }
    }

    fn take_licenses(&mut self, licenses: &'a [(String, u32)]) {
        for (name, count) in licenses {
            let free = self.licenses.entry(name.as_str()).or_default();
            *free = free.saturating_sub(u64::from(*count));
        }
    }

    /// Whether nothing but resources is in its way from then on; if so it keeps a place.
    fn try_at(&mut self, ahead: &mut Forecast<'a>, slot: QueueSlot, time: Millis) -> RetryResult {
        let waiting = &self.view.queue[slot.entry.waiting as usize];
        let shape = slot.shape as usize;
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
            let (least, limit) = (self.shape(shape).least.clone(), self.shape(shape).time_limit);
            if let Some(broken) = self.usage.broken_by(claimant, &least, limit) {
                return Blocker::of(&broken, claimant)
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
                self.reserve_in_forecast(ahead, slot, kept);
                RetryResult::Placed
            }
            None => RetryResult::Never,
        }
    }

    fn reserve_in_forecast(
        &mut self,
        ahead: &mut Forecast<'a>,
        slot: QueueSlot,
        kept: Arc<BackfillSlot>,
    ) {
        let holder = self.shape(slot.shape as usize).demand.holder;
        let nodes: Vec<u32> = kept.nodes().collect();
        let job = slot.job();
        if ahead.void.remove(&job) {
            ahead.void_before.insert(job);
            self.array_task_times.remove(&slot.entry.waiting);
        }
        let kept_before = self.array_task_times.entry(slot.entry.waiting).or_default();
        kept_before.push((kept.start, kept.end));
        if kept_before.len() == 1 {
            let estimate = self.estimate_of(job, slot.entry.partition, kept.start, &kept);
            self.estimates.push(estimate);
            ahead.events.push(Reverse((kept.start, ForecastEvent::Begun(job))));
        }
        self.timelines.reserve(&kept, holder);
        let limited = self.weighed(slot, &nodes);
        let licenses = self.licenses_of(slot);
        if let Some((claimant, load)) = &limited {
            self.usage.add_usage(*claimant, load);
        }
        self.take_licenses(licenses);
        let end = kept.end;
        let at = ahead.holds(ResourceHold { claimant: limited, licenses, end });
        ahead.releases(at);
    }

    /// What it counts for against limits, if it is under any.
    fn weighed(&mut self, slot: QueueSlot, nodes: &[u32]) -> Option<(Claimant<'a>, JobUsage)> {
        let claimant = Some(self.claimant(slot.entry)).filter(|c| self.usage.is_limited(*c))?;
        let least = self.shape(slot.shape as usize).least.clone();
        let names = nodes.iter().map(|node| self.timelines.config(*node).name.clone()).collect();
        Some((claimant, self.usage.usage_of(claimant, least, names)))
    }

    fn licenses_of(&self, slot: QueueSlot) -> &'a [(String, u32)] {
        &self.view.queue[slot.entry.waiting as usize].spec.request().licenses
    }
}

/// What became of a turn that was tried again.
enum RetryResult {
    Placed,
    /// Not at any time that can be foreseen.
    Never,
    NotBefore(Millis),
    Blocked(Blocker),
}

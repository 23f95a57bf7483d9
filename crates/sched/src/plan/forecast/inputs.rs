//! The forecast's inputs when the queue has been walked: running jobs, starts, backfill slots, and deferred jobs.

use super::events::{ExpectedStart, Forecast, ForecastEvent, ResourceHold};
use super::{DeferReason, DeferredSlot};
use crate::free::timeline::{Millis, NEVER};
use crate::gate::limits::{Claimant, JobUsage};
use crate::memo::QueueSlot;
use crate::plan::Planner;
use crate::view::AwaitedEvent;
use model::id::JobId;
use model::time::Timestamp;
use std::cmp::Reverse;
use std::collections::HashMap;

impl<'a> Planner<'a> {
    pub(super) fn note_running(&self, forecast: &mut Forecast<'a>) {
        let over_time = crate::free::shape::over_time(&self.view.policy);
        for running in &self.view.running {
            let Some(end) = running.end else { continue };
            let end = (end.millis() + over_time).max(self.now.millis() + 1);
            let claimant = Claimant::running(self.view, running, self.now);
            let limited = self.usage.is_limited(claimant).then(|| {
                let shares = running.shares.iter().map(|(_, share)| share);
                (claimant, JobUsage::of_shares(self.view, claimant, shares, claimant.time))
            });
            forecast.note_end(running.job, end);
            if limited.is_some() || !running.licenses.is_empty() {
                let licenses = &running.licenses;
                let at = forecast.add_hold(ResourceHold { claimant: limited, licenses, end });
                forecast.release_at_end(at);
            }
        }
    }

    /// Notes the jobs that this walk has started.
    pub(super) fn note_starts(&mut self, forecast: &mut Forecast<'a>) {
        let slots: HashMap<JobId, QueueSlot> =
            self.queue.slots.iter().map(|slot| (slot.job(), *slot)).collect();
        for at in 0..self.starts.len() {
            let (job, limit) = (self.starts[at].job, self.starts[at].time_limit);
            let Some(slot) = slots.get(&job).copied() else { continue };
            let length = self.length(slot.shape, limit);
            let end = crate::free::backfill_slot::end_of(self.now.millis(), length);
            // An array ends with its last task.
            if self.left[slot.entry.waiting as usize] == 0 {
                forecast.note_end(job, end);
            }
            if self.may_be_limited(&slot) {
                let (claimant, licenses) = (self.counted_usage(slot, &[]), self.licenses_of(slot));
                let at = forecast.add_hold(ResourceHold { claimant, licenses, end });
                forecast.release_at_end(at);
            }
        }
    }

    /// Notes the jobs that this walk has reserved a slot for.
    pub(super) fn note_expected(
        &mut self,
        forecast: &mut Forecast<'a>,
        deferred: &[DeferredSlot<'a>],
    ) {
        let mut turns: HashMap<(JobId, u32), (usize, QueueSlot)> = HashMap::new();
        for (at, one) in deferred.iter().enumerate() {
            let slot = self.queue.slots[one.slot as usize];
            turns.insert((slot.job(), slot.entry.partition), (at, slot));
        }
        let job_of = |waiting: &u32| self.view.queue[*waiting as usize].job;
        let arrays: HashMap<JobId, u32> =
            self.array_task_times.keys().map(|waiting| (job_of(waiting), *waiting)).collect();
        let estimates: Vec<(JobId, u32, Millis)> =
            self.estimates.iter().map(|e| (e.job, e.partition, e.start.millis())).collect();
        for (job, partition, start) in estimates {
            let kept = self.slot_of_job.get(&job).cloned();
            let Some(&(deferred, slot)) = turns.get(&(job, partition)) else {
                let end = kept.map_or(NEVER, |kept| kept.end);
                forecast.events.push(Reverse((start, ForecastEvent::Started(job))));
                // The job is under no limit. An array ends with its last task.
                let last_end = arrays.get(&job).map_or(end, |waiting| {
                    let tasks = self.left[*waiting as usize];
                    last_end(&self.array_task_times[waiting], tasks, start, end)
                });
                forecast.note_end(job, last_end);
                continue;
            };
            let length = self.shape(slot.shape).full.length;
            let end = kept
                .as_ref()
                .map_or(crate::free::backfill_slot::end_of(start, length), |kept| kept.end);
            let nodes: Vec<u32> = kept.iter().flat_map(|kept| kept.nodes()).collect();
            let (claimant, licenses) = (self.counted_usage(slot, &nodes), self.licenses_of(slot));
            let tasks = self.left[slot.entry.waiting as usize];
            let last_end = self.last_end(slot, tasks, start, end);
            let hold = forecast.add_hold(ResourceHold { claimant, licenses, end });
            forecast.expected_starts.push(ExpectedStart { job, hold, deferred, kept, last_end });
            forecast.events.push(Reverse((
                start,
                ForecastEvent::SlotBegins(forecast.expected_starts.len() - 1),
            )));
        }
    }

    pub(super) fn last_end(
        &self,
        slot: QueueSlot,
        tasks: u32,
        start: Millis,
        end: Millis,
    ) -> Millis {
        let known = self.array_task_times.get(&slot.entry.waiting).map_or(&[][..], Vec::as_slice);
        last_end(known, tasks, start, end)
    }

    pub(super) fn note_deferred(&self, forecast: &mut Forecast<'a>, deferred: &[DeferredSlot<'a>]) {
        forecast.open = vec![0; deferred.len()];
        forecast.blocks = vec![None; deferred.len()];
        forecast.placed = vec![0; deferred.len()];
        let running: HashMap<JobId, Timestamp> =
            self.view.running.iter().map(|running| (running.job, running.start)).collect();
        for (at, DeferredSlot { slot, why }) in deferred.iter().enumerate() {
            match why {
                DeferReason::OtherJobs => {}
                DeferReason::LimitAtStart => continue,
                DeferReason::Blocked(block) => {
                    forecast.block(at, *block);
                    continue;
                }
            }
            let slot = &self.queue.slots[*slot as usize];
            let waiting = &self.view.queue[slot.entry.waiting as usize];
            forecast.open[at] = if waiting.awaits_any { 1 } else { waiting.awaits.len() };
            for awaited in &waiting.awaits {
                match *awaited {
                    AwaitedEvent::EndOf(job) => forecast.by_end.entry(job).or_default().push(at),
                    AwaitedEvent::StartOf { job, minutes } => match running.get(&job) {
                        Some(start) => forecast.meet_after(at, start.millis(), minutes),
                        None => forecast.by_start.entry(job).or_default().push((at, minutes)),
                    },
                }
            }
        }
    }
}

/// When the last task of an array is expected to end. Tasks beyond the forecast ones are extrapolated from them.
fn last_end(known: &[(Millis, Millis)], tasks: u32, start: Millis, end: Millis) -> Millis {
    let last = known.iter().map(|(_, end)| *end).chain([end]).max().unwrap_or(end);
    let known = known.len().max(1) as i64;
    if i64::from(tasks) <= known || last == NEVER {
        return last;
    }
    start.saturating_add((last - start).saturating_mul(i64::from(tasks)) / known)
}

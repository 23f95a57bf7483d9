//! Backfill slots: which jobs may reserve one, and when and where it is.

use super::{Planner, Purpose};
use crate::free::backfill_slot::BackfillSlot;
use crate::free::cores;
use crate::free::timeline::{CORE, CORES, Columns};
use crate::index::ShapeIndex;
use crate::memo::{QueueSlot, SlotRecord};
use crate::order::JobInPartition;
use crate::view::{Estimate, EstimatedNodes};
use model::id::JobId;
use model::reason::Reason;
use model::time::Timestamp;

impl<'a> Planner<'a> {
    pub(super) fn is_for_starts(&self) -> bool {
        self.purpose == Purpose::Starts
    }

    /// Whether backfill reserves slots for further jobs of the partition.
    pub(super) fn has_slots_left(&self, partition: usize) -> bool {
        let policy = &self.view.policy;
        policy.backfill && self.backfill_slots[partition] < policy.backfill_slots_max
    }

    pub(super) fn may_reserve(&mut self, entry: JobInPartition) -> bool {
        if !self.is_for_starts() {
            return true;
        }
        let policy = &self.view.policy;
        if !self.has_slots_left(entry.partition as usize) {
            return false;
        }
        let waiting = &self.view.queue[entry.waiting as usize];
        let waited = self.now.since(waiting.submit).as_secs();
        let reserve = &policy.backfill_limits;
        if waited < u64::from(reserve.age_min_s)
            || reserve.priority_min.is_some_and(|least| waiting.priority < least)
            || !self.usage.may_reserve(self.claimant(entry), waiting.priority)
        {
            return false;
        }
        let Some(most) = reserve.per_user else { return true };
        let mine = self.backfill_slots_by_user.entry(waiting.spec.owner.uid).or_default();
        *mine += 1;
        *mine <= most
    }

    /// For estimates: reserves a slot for a job that waits for its begin time or its reservation, from then on.
    pub(super) fn reserve_from_begin(&mut self, slot: QueueSlot, reason: &Reason) {
        if self.is_for_starts() {
            return;
        }
        let shape = slot.shape;
        let access = self.shape(shape).access.clone();
        let begin = match reason {
            Reason::BeginTime => self.view.queue[slot.entry.waiting as usize].begin.map(|b| b.0),
            Reason::Reservation => self.timelines.windows.next_begin(&access, self.timelines.now),
            _ => None,
        };
        if let Some(begin) = begin
            && self.shape(shape).gate.is_none()
        {
            self.reserve(slot.entry, shape, begin);
        }
    }

    /// Reserves a slot. A job in several partitions has the slot with the earliest start.
    pub(super) fn reserve(&mut self, entry: JobInPartition, shape: ShapeIndex, from: i64) {
        let waiting = &self.view.queue[entry.waiting as usize];
        let job = waiting.job;
        let window = self.view.policy.backfill_limits.window_min.filter(|_| self.is_for_starts());
        let latest = window.map_or(i64::MAX, |min| self.timelines.now + 60_000 * i64::from(min));
        let latest = latest.min(self.shape(shape).latest_start());
        let record = self.record.take();
        // The job's slot through another partition must not be in its own way.
        let other = self.slot_of_job.remove(&job);
        if let Some(other) = &other {
            self.timelines.release(other);
            self.replay.mark_changed(other.nodes());
        }
        let (known, mut finder) = self.finder(shape);
        let holder = known.demand.holder;
        let found = match record.as_ref() {
            Some(record) => finder.find_slot_as_before(known, from, record),
            None => finder.find_slot(known, from),
        };
        // A slot beyond the window is none, and comes into it as time passes: the next plan is to look for it anew.
        let is_late = found.slot.as_ref().is_some_and(|kept| kept.start > latest);
        let found = if is_late { SlotRecord { slot: None, single: false } } else { found };
        let before = record.and_then(|record| record.slot);
        if before != found.slot {
            self.replay
                .mark_changed(before.iter().chain(&found.slot).flat_map(|kept| kept.nodes()));
        }
        if waiting.partitions.len() == 1 && !is_late {
            self.next_plan.recorded.push(self.at);
            self.next_plan.records.insert(job, found.clone());
        } else {
            self.next_plan.touched_nodes.extend(found.slot.iter().flat_map(|kept| kept.nodes()));
        }
        let better = match (&other, &found.slot) {
            (Some(other), Some(kept)) => kept.start < other.start,
            (_, kept) => kept.is_some(),
        };
        if let Some(other) = other {
            if !better {
                self.timelines.reserve(&other, holder);
                self.slot_of_job.insert(job, other);
                return;
            }
            self.estimates.retain(|known| known.job != job);
        }
        let Some(kept) = found.slot else { return };
        // The estimate is of the next task of an array; further tasks only take their slots.
        let more = (self.left[entry.waiting as usize]
            .min(self.view.policy.backfill_limits.per_array))
        .max(1);
        let estimate = self.estimate_of(job, entry.partition, kept.start, &kept);
        self.estimates.push(estimate);
        self.timelines.reserve(&kept, holder);
        let first = (kept.start, kept.end);
        let before = self.slot_of_job.insert(job, kept);
        assert!(before.is_none(), "a job has one backfill slot");
        if !self.is_for_starts() && more > 1 {
            self.array_task_times.insert(entry.waiting, vec![first]);
            self.reserve_array_tasks(entry, shape, from, more - 1);
        }
    }

    /// Reserves slots for further tasks of an array.
    fn reserve_array_tasks(
        &mut self,
        entry: JobInPartition,
        shape: ShapeIndex,
        from: i64,
        tasks: u32,
    ) {
        for _ in 0..tasks {
            let (known, mut finder) = self.finder(shape);
            let holder = known.demand.holder;
            let Some(kept) = finder.find_slot(known, from).slot else { return };
            self.timelines.reserve(&kept, holder);
            self.array_task_times.entry(entry.waiting).or_default().push((kept.start, kept.end));
        }
    }

    /// The estimate of a job with this slot.
    pub(super) fn estimate_of(
        &self,
        job: JobId,
        partition: u32,
        start: i64,
        kept: &BackfillSlot,
    ) -> Estimate {
        let cpus_on = |(node, amounts): &(u32, Columns)| {
            let classes = self.timelines.classes;
            let config = &classes.samples[self.timelines.class(*node).at()];
            amounts[CORES].div_ceil(CORE) as u32 * cores::threads(config)
        };
        let cpus = kept.amounts.iter().map(cpus_on).sum();
        let names = self.baseline.names.clone();
        let nodes = EstimatedNodes::Reserved { names, nodes: kept.nodes().collect() };
        let start = start.saturating_add(self.timelines.boot_delay(kept.nodes()));
        Estimate { job, partition, start: Timestamp(start), nodes, cpus }
    }

    pub(super) fn release_slot(&mut self, job: JobId) {
        if let Some(kept) = self.slot_of_job.remove(&job) {
            self.timelines.release(&kept);
            self.replay.mark_changed(kept.nodes());
            self.estimates.retain(|known| known.job != job);
        }
    }
}

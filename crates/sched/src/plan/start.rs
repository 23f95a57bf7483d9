//! The start of a job: a placement that is free and breaks no limit, or the reason why it waits.

use super::Planner;
use crate::gate::limits::Claimant;
use crate::index::ShapeIndex;
use crate::order::JobInPartition;
use crate::place::Placement;
use crate::view::Start;
use model::allocation::Allocation;
use model::reason::Reason;
use model::time::TimeLimit;
use std::sync::Arc;

impl<'a> Planner<'a> {
    pub(super) fn broken_limit(
        &self,
        claimant: Claimant<'a>,
        placement: &Placement,
        time_limit: TimeLimit,
    ) -> Option<model::reason::Limit> {
        if !self.usage.is_limited(claimant) {
            return None;
        }
        let shares = || placement.shares.iter().map(|(_, share)| share);
        self.usage.broken_by_shares(claimant, shares(), time_limit)
    }

    /// Whether the plan starts as many jobs as it may.
    pub(super) fn has_all_starts(&self) -> bool {
        let most = self.view.policy.backfill_limits.starts_max.filter(|_| self.is_for_starts());
        most.is_some_and(|most| self.starts.len() >= most as usize)
    }

    pub(super) fn find_placement(
        &mut self,
        entry: JobInPartition,
        shape: ShapeIndex,
    ) -> Option<(Placement, TimeLimit)> {
        if !self.view.policy.backfill && self.blocked[entry.partition as usize] > 0 {
            // Nothing more starts in the partition: the next jobs of the shape need not be looked at.
            self.shape(shape).fail();
            return None;
        }
        if self.has_all_starts() {
            return None;
        }
        let nothing_free = self.queue.slots[self.at].nothing_free;
        let (shape, mut finder) = self.finder(shape);
        if nothing_free {
            finder.fail_unless_changed(shape);
        }
        let now = finder.timelines.now;
        if let Some(placement) = finder.place_now(shape, false) {
            return Some((placement, shape.limit_until_deadline(shape.time_limit, now)));
        }
        shape.short.as_ref()?;
        let placement = finder.place_now(shape, true)?;
        let time_limit = finder.longest_limit(shape, &placement);
        Some((placement, shape.limit_until_deadline(time_limit, now)))
    }

    pub(super) fn start(
        &mut self,
        entry: JobInPartition,
        shape: ShapeIndex,
        claimant: Option<Claimant<'a>>,
        placement: Placement,
        time_limit: TimeLimit,
    ) {
        let length = self.length(shape, time_limit);
        let licenses = &self.view.queue[entry.waiting as usize].spec.request().licenses;
        self.take_licenses(licenses);
        let known = self.shape(shape);
        let (holder, access) = (known.demand.holder, known.access.clone());
        self.timelines.start(&placement, holder, &access, length);
        let shares = || placement.shares.iter().map(|(_, share)| share);
        if let Some(claimant) = claimant {
            self.usage.add(claimant, shares());
        }
        self.record_start(entry, placement, time_limit);
    }

    /// Records the start of a job whose placement is taken and counted already.
    pub(super) fn record_start(
        &mut self,
        entry: JobInPartition,
        placement: Placement,
        time_limit: TimeLimit,
    ) {
        let nodes = || placement.shares.iter().map(|(node, _)| *node);
        self.replay.mark_changed(nodes());
        self.next_plan.touched_nodes.extend(nodes());
        self.backfilled += u32::from(self.blocked[entry.partition as usize] > 0);
        let waiting = entry.waiting as usize;
        assert!(self.left[waiting] > 0, "no more tasks start than wait");
        self.left[waiting] -= 1;
        self.allowed[waiting] = self.allowed[waiting].saturating_sub(1);
        let job = self.view.queue[waiting].job;
        // A slot that the job had through another partition is not needed any more.
        self.release_slot(job);
        let partition = &self.view.partitions[entry.partition as usize].partition;
        let mut shares = Vec::with_capacity(placement.shares.len());
        shares.extend(placement.shares.into_iter().map(|(_, share)| share));
        self.starts.push(Start {
            job,
            time_limit,
            het: self.view.queue[waiting].het,
            allocation: Arc::new(Allocation { partition: partition.name.clone(), nodes: shares }),
        });
    }

    /// How long after its start a job of the shape is sure to be gone if it starts with this limit.
    pub(super) fn length(&mut self, shape: ShapeIndex, limit: TimeLimit) -> i64 {
        let view = self.view;
        self.shape(shape).length_of(limit, &view.policy)
    }

    /// Why the job waits when nothing is free for it. The first in the queue get a backfill slot.
    pub(super) fn blocked_reason(&mut self, entry: JobInPartition, shape: ShapeIndex) -> Reason {
        let (view, baseline) = (self.view, self.baseline);
        let (known, finder) = self.finder(shape);
        if let Some(reason) = known.reason_never(view, finder.needs_cache, baseline) {
            return reason.clone();
        }
        let partition = entry.partition as usize;
        let is_first = self.blocked[partition] == 0;
        let is_kept = self.is_reserved_for_others(entry, shape);
        self.blocked[partition] += 1;
        if self.may_reserve(entry) {
            self.backfill_slots[partition] += 1;
            self.reserve(entry, shape, self.timelines.now);
        }
        match (is_kept, is_first) {
            (true, _) => Reason::NodesReserved,
            (false, true) => Reason::Resources,
            (false, false) => Reason::Priority,
        }
    }
}

//! Preemption for a job that waits, and the resumption of jobs that a preemption suspended.

use super::Planner;
use crate::free::backfill_slot::BackfillSlot;
use crate::free::shape::Shape;
use crate::free::slot_finder::SlotFinder;
use crate::free::timeline::BEGINNING;
use crate::index::ShapeIndex;
use crate::memo::is_resumable;
use crate::order::JobInPartition;
use crate::preempt::PreemptRights;
use crate::view::{RunningJob, View};
use std::cmp::Reverse;

impl<'a> Planner<'a> {
    /// Resumes suspended jobs of this tier or above whose cores are free, before a job of that tier starts.
    pub(super) fn resume_down_to(&mut self, tier: u32) {
        while self.suspended.last().is_some_and(|(of, _)| *of >= tier) {
            let Some((_, running)) = self.suspended.pop() else { return };
            let is_free = running.shares.iter().all(|(node, share)| {
                let free = self.timelines.free_now(node);
                share.cpus.is_subset(&free.cpus)
            });
            if is_free {
                let left = running.end.map_or(crate::free::timeline::NEVER, |end| end.millis());
                self.timelines.resume(running, left);
                self.replay.mark_changed(running.shares.nodes());
                self.next_plan.touched_nodes.extend(running.shares.nodes());
                self.resumes.push(running.job);
            }
        }
    }

    /// Preempts other jobs for this one, if it may and that helps.
    pub(super) fn preempt_for(&mut self, entry: JobInPartition, shape: ShapeIndex) -> bool {
        if !self.preempt.is_active {
            return false;
        }
        let waiting = &self.view.queue[entry.waiting as usize];
        let tier = self.view.partitions[entry.partition as usize].partition.priority_tier;
        let priority = waiting.priority;
        let rights = PreemptRights { tier, qos: &waiting.qos, priority };
        let (view, queue, switches) = (self.view, self.queue, self.switches.as_ref());
        let known = self
            .shapes
            .get_or_insert_with(shape, || Shape::new(view, &queue.shapes[shape.at()], switches));
        let mut finder = SlotFinder {
            timelines: &mut self.timelines,
            needs_cache: self.needs_cache,
            gpu_losses: self.gpu_losses,
            baseline: self.baseline,
            replay: &self.replay,
        };
        let holder = known.demand.holder;
        let length = known.full.length;
        let found = self.preempt.find_victims(&mut finder, known, shape, rights, waiting.job);
        let Some(found) = found else { return false };
        let end = crate::free::backfill_slot::end_of(found.start, length);
        for (node, until, amounts) in &found.left {
            self.timelines.vacate(*node, *until, amounts);
        }
        let kept = BackfillSlot { start: BEGINNING, end, amounts: found.parts };
        self.timelines.reserve(&kept, holder);
        self.replay.mark_changed(kept.nodes().chain(found.left.iter().map(|(node, ..)| *node)));
        // For the next plan these nodes count as changed, until the victims are gone.
        let left = found.left.iter().map(|(node, ..)| *node);
        self.next_plan.touched_nodes.extend(left.chain(kept.nodes()));
        let estimate = self.estimate_of(waiting.job, entry.partition, found.start, &kept);
        self.estimates.push(estimate);
        self.preemptions.extend(found.victims);
        true
    }
}

pub(super) fn suspended(view: &View) -> Vec<(u32, &RunningJob)> {
    let tier = |running: &RunningJob| {
        let info = view.partitions.get(running.partition as usize);
        info.map_or(0, |info| info.partition.priority_tier)
    };
    let mut suspended: Vec<(u32, &RunningJob)> = view
        .running
        .iter()
        .filter(|running| is_resumable(running))
        .map(|running| (tier(running), &**running))
        .collect();
    suspended.sort_by_key(|(tier, running)| (*tier, Reverse(running.start), Reverse(running.job)));
    suspended
}

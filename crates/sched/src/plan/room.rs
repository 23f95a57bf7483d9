//! Those who make room for others, and go on when there is room again.

use super::Planner;
use crate::backfill::Ground;
use crate::board::Kept;
use crate::order::Turn;
use crate::preempt::Rights;
use crate::shape::Shape;
use crate::timeline::BEGINNING;
use crate::view::{Running, View};
use std::cmp::Reverse;

impl<'a> Planner<'a> {
    /// Those who made room go on when they can, before anybody of their own tier or below starts.
    pub(super) fn resume_down_to(&mut self, tier: u32) {
        while self.suspended.last().is_some_and(|(of, _)| *of >= tier) {
            let Some((_, running)) = self.suspended.pop() else { return };
            let is_free = running.shares.iter().all(|(node, share)| {
                let free = self.board.exact(*node);
                share.cpus.is_subset(&free.cpus)
            });
            if is_free {
                let left = running.end.map_or(crate::timeline::NEVER, |end| end.millis());
                self.board.resume(running, left);
                self.rerun.differ(running.shares.iter().map(|(node, _)| *node));
                self.known.started_on.extend(running.shares.iter().map(|(node, _)| *node));
                self.resumes.push(running.job);
            }
        }
    }

    /// Sends others away for it, if it may and that helps.
    pub(super) fn make_room(&mut self, turn: Turn, shape: usize) -> bool {
        if !self.preempt.is_active {
            return false;
        }
        let waiting = &self.view.queue[turn.waiting as usize];
        let tier = self.view.partitions[turn.partition as usize].partition.priority_tier;
        let priority = waiting.priority;
        let rights = Rights { tier, qos: &waiting.qos, priority };
        let (view, line, switches) = (self.view, self.line, self.switches.as_ref());
        let slot = &mut self.shapes[shape];
        let known =
            slot.get_or_insert_with(|| Box::new(Shape::new(view, &line.shapes[shape], switches)));
        let mut ground = Ground {
            board: &mut self.board,
            footprints: self.footprints,
            standing: self.standing,
            rerun: &self.rerun,
        };
        let holder = known.demand.holder;
        let length = known.full.length;
        let room = self.preempt.room(&mut ground, known, shape, rights, waiting.job);
        let Some(room) = room else { return false };
        let end = crate::board::end_of(room.start, length);
        for (node, until, amounts) in &room.left {
            self.board.leave(*node, *until, amounts);
        }
        let kept = Kept { start: BEGINNING, end, parts: room.parts };
        self.board.keep(&kept, holder);
        self.rerun.differ(kept.nodes().chain(room.left.iter().map(|(node, ..)| *node)));
        // Until they have gone, those nodes are not what they were in this plan.
        let left = room.left.iter().map(|(node, ..)| *node);
        self.known.started_on.extend(left.chain(kept.nodes()));
        let estimate = self.estimate_of(waiting.job, turn.partition, room.start, &kept);
        self.estimates.push(estimate);
        self.preemptions.extend(room.victims);
        true
    }
}

pub(super) fn suspended(view: &View) -> Vec<(u32, &Running)> {
    let tier = |running: &Running| {
        let info = view.partitions.get(running.partition as usize);
        info.map_or(0, |info| info.partition.priority_tier)
    };
    let mut suspended: Vec<(u32, &Running)> = view
        .running
        .iter()
        .filter(|running| running.goes_on && !running.is_ending)
        .map(|running| (tier(running), &**running))
        .collect();
    suspended.sort_by_key(|(tier, running)| (*tier, Reverse(running.start), Reverse(running.job)));
    suspended
}

//! The plan: who starts now and where, and why the others wait.
//!
//! ```text
//!   queue ─▶ order ─▶ gate ─────────▶ place ─────────▶ start ─▶ the next task, or the next turn
//!            tier,    holds, times,   the whole job    │
//!            priority partition,      beside every     └─▶ none fits: the first of its partition gets a
//!            …        limits          reservation          reservation (backfill); it waits for Resources,
//!                     │                                    those after it for their Priority
//!                     └─▶ waits for a reason of its own and is in nobody's way
//! ```
//!
//! One pass over the queue. Resources are only taken, never freed, in that pass: what did not fit
//! once is not tried again.

use crate::backfill;
use crate::gate;
use crate::gate::limits::{Claimant, Usage, tres_of};
use crate::memo::Memo;
use crate::order::{self, Turn};
use crate::place::{Placement, place};
use crate::profile::Profile;
use crate::shape::Shapes;
use crate::view::{Estimate, Plan, Start, View, Waiting};
use model::allocation::Allocation;
use model::reason::Reason;
use model::time::Timestamp;
use std::sync::Arc;

pub fn plan(view: &View, now: Timestamp, _memo: &mut Memo) -> Plan {
    let mut planner = Planner::new(view, now);
    let turns = order::turns(view);
    for turn in &turns {
        if let Some(reason) = planner.take_turn(*turn) {
            planner.note(turn.waiting, reason);
        }
    }
    planner.finish(&turns)
}

struct Planner<'a> {
    view: &'a View,
    now: Timestamp,
    profile: Profile<'a>,
    usage: Usage<'a>,
    shapes: Shapes<'a>,
    /// For each entry of the queue.
    entries: Vec<Entry>,
    /// For each partition how many jobs have had to wait for resources, and how many hold a
    /// reservation.
    blocked: Vec<u32>,
    reserved: Vec<u32>,
    starts: Vec<Start>,
    estimates: Vec<Estimate>,
}

struct Entry {
    /// Tasks that have not started.
    left: u32,
    /// How many of them the throttle lets start now.
    allowed: u32,
    reason: Option<Reason>,
}

impl<'a> Planner<'a> {
    fn new(view: &'a View, now: Timestamp) -> Self {
        let entry = |waiting: &Arc<Waiting>| Entry {
            left: waiting.tasks,
            allowed: waiting.tasks_allowed.unwrap_or(u32::MAX),
            reason: None,
        };
        Self {
            view,
            now,
            profile: Profile::new(view, now),
            usage: Usage::of(view),
            shapes: Shapes::new(view),
            entries: view.queue.iter().map(entry).collect(),
            blocked: vec![0; view.partitions.len()],
            reserved: vec![0; view.partitions.len()],
            starts: Vec::new(),
            estimates: Vec::new(),
        }
    }

    /// Starts what can start of the entry; the reason why the rest of it waits.
    fn take_turn(&mut self, turn: Turn) -> Option<Reason> {
        let waiting = &self.view.queue[turn.waiting];
        if self.entries[turn.waiting].left == 0 {
            return None;
        }
        if let Some(reason) = gate::job(waiting, self.now) {
            return Some(reason);
        }
        let shape = self.shapes.of(waiting, turn.partition);
        if let Some(reason) = &self.shapes.get(shape).gate {
            return Some(reason.clone());
        }
        let claimant = Claimant::of(self.view, waiting, turn.partition);
        loop {
            let entry = &self.entries[turn.waiting];
            if entry.left == 0 {
                return None;
            }
            if entry.allowed == 0 {
                return Some(Reason::ArrayTaskLimit);
            }
            let known = self.shapes.get(shape);
            if let Some(limit) = self.usage.broken_by(claimant, &known.least, known.time_limit) {
                return Some(Reason::Limit(limit));
            }
            let Some(placement) = self.find_place(turn, shape) else {
                return Some(self.blocked_reason(turn, shape));
            };
            if self.usage.is_limited(claimant) {
                // Whole cores and the node's memory may make it more than was asked.
                let granted = tres_of(placement.shares.iter().map(|(_, share)| share));
                let time_limit = self.shapes.get(shape).time_limit;
                if let Some(limit) = self.usage.broken_by(claimant, &granted, time_limit) {
                    return Some(Reason::Limit(limit));
                }
            }
            self.start(turn, shape, claimant, placement);
        }
    }

    fn find_place(&mut self, turn: Turn, shape: usize) -> Option<Placement> {
        if !self.view.policy.backfill && self.blocked[turn.partition as usize] > 0 {
            return None;
        }
        if !self.profile.has_open_nodes(turn.partition) {
            return None;
        }
        let job = self.view.queue[turn.waiting].job;
        let shape = self.shapes.get_mut(shape);
        let space = self.profile.until(job, shape.end(self.now));
        if self.profile.holds_reservation(job) {
            // Its own reservation, made through another partition, was in the others' way and is
            // not in its own.
            return place(&shape.demand, &space, &mut shape.candidates.afresh());
        }
        if shape.failed {
            return None;
        }
        let placement = place(&shape.demand, &space, &mut shape.candidates);
        shape.failed = placement.is_none();
        placement
    }

    fn start(&mut self, turn: Turn, shape: usize, claimant: Claimant<'a>, placement: Placement) {
        let shape = self.shapes.get(shape);
        self.profile.start(&placement, shape.demand.holder, shape.end(self.now));
        let shares = || placement.shares.iter().map(|(_, share)| share);
        self.usage.add(claimant, || tres_of(shares()));
        let entry = &mut self.entries[turn.waiting];
        entry.left -= 1;
        entry.allowed = entry.allowed.saturating_sub(1);
        let job = self.view.queue[turn.waiting].job;
        if self.profile.holds_reservation(job) {
            // What another partition kept for it is used up: this start was not held back by it.
            self.profile.cancel(job);
            self.estimates.retain(|estimate| estimate.job != job);
        }
        let partition = &self.view.partitions[turn.partition as usize].partition;
        self.starts.push(Start {
            job,
            time_limit: shape.time_limit,
            allocation: Allocation {
                partition: partition.name.clone(),
                nodes: placement.shares.into_iter().map(|(_, share)| share).collect(),
            },
        });
    }

    /// Why it waits when no place was found; the first in line gets a reservation.
    fn blocked_reason(&mut self, turn: Turn, shape: usize) -> Reason {
        if let Some(reason) = self.shapes.hopeless(shape) {
            return reason;
        }
        let partition = turn.partition as usize;
        let is_first = self.blocked[partition] == 0;
        self.blocked[partition] += 1;
        if self.view.policy.backfill && self.reserved[partition] < self.view.policy.reservations {
            self.reserved[partition] += 1;
            self.reserve(turn, shape);
        }
        if is_first { Reason::Resources } else { Reason::Priority }
    }

    /// Of several partitions the one with the earliest start keeps the reservation.
    fn reserve(&mut self, turn: Turn, shape: usize) {
        let job = self.view.queue[turn.waiting].job;
        let shape = self.shapes.get(shape);
        let found = backfill::earliest(
            &self.profile,
            job,
            &shape.demand,
            &shape.candidates,
            shape.length(),
        );
        let Some((start, placement)) = found else { return };
        if self.estimates.iter().any(|known| known.job == job && known.start <= start) {
            return;
        }
        self.estimates.retain(|known| known.job != job);
        self.profile.cancel(job);
        let nodes = placement.shares.iter().map(|(_, share)| share.node.clone()).collect();
        self.estimates.push(Estimate { job, start, nodes });
        self.profile.reserve(job, start, shape.end(start), placement, shape.demand.holder);
    }

    /// Of the reasons in several partitions the one nearest to a start stands.
    fn note(&mut self, waiting: usize, reason: Reason) {
        let distance = |reason: &Reason| match reason {
            Reason::Resources => 0,
            Reason::Priority => 1,
            _ => 2,
        };
        let known = &mut self.entries[waiting].reason;
        if known.as_ref().is_none_or(|known| distance(&reason) < distance(known)) {
            *known = Some(reason);
        }
    }

    fn finish(mut self, turns: &[Turn]) -> Plan {
        // One that is in no partition had no turn.
        let mut turnless: Vec<usize> = (0..self.entries.len())
            .filter(|&at| self.view.queue[at].partitions.is_empty())
            .collect();
        turnless.sort_unstable_by_key(|&at| self.view.queue[at].job);
        for &waiting in &turnless {
            self.note(waiting, Reason::NotPlanned);
        }
        let order = turns.iter().map(|turn| turn.waiting).chain(turnless);
        let mut reasons = Vec::new();
        for waiting in order {
            let entry = &mut self.entries[waiting];
            if let Some(reason) = entry.reason.take().filter(|_| entry.left > 0) {
                reasons.push((self.view.queue[waiting].job, reason));
            }
        }
        Plan { starts: self.starts, reasons, estimates: self.estimates }
    }
}

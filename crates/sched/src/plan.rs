//! The plan: who starts now and where, and why the others wait.
//!
//! ```text
//!   queue ─▶ order ─▶ gate ─────────▶ place ─────────▶ start ─▶ the next task, or the next turn
//!            tier,    holds, times,   the whole job    │
//!            priority partition,      beside every     └─▶ none fits: the first of its partition keep their
//!            …        limits          place that is        place (backfill); the very first waits for
//!                     │               kept                 Resources, those after it for their Priority
//!                     └─▶ waits for a reason of its own and is in nobody's way
//! ```
//!
//! One pass over the queue. Resources are only taken, never freed, in that pass: what did not fit
//! once is not tried again.

mod ahead;
mod answer;
mod keep;
mod reserved;
mod room;
mod together;

use crate::backfill::Ground;
use crate::board::{Board, Kept};
use crate::gate;
use crate::gate::limits::{Claimant, Usage};
use crate::memo::{Footprints, Line, Memo, Place, Record, Rerun, Standing};
use crate::order::Turn;
use crate::place::Placement;
use crate::preempt::Preempt;
use crate::shape::Shape;
use crate::topology::Switches;
use crate::view::{Estimate, Plan, Preemption, Running, Start, View};
use model::allocation::Allocation;
use model::id::JobId;
use model::reason::Reason;
use model::time::{TimeLimit, Timestamp};
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

pub fn plan(view: &View, now: Timestamp, memo: &mut Memo) -> Plan {
    memo.refresh(view, now);
    let rerun = memo.replay.begin(view.nodes.len());
    let mut planner = Planner::new(view, now, memo, rerun, Purpose::Starts);
    planner.walk();
    let (plan, known) = planner.finish();
    memo.replay.end(known.records, &known.started_on);
    for (place, found_none) in memo.line.places.iter_mut().zip(known.found_none) {
        place.found_none = found_none;
        place.is_recorded = false;
    }
    for at in known.recorded {
        memo.line.places[at].is_recorded = true;
    }
    plan
}

/// What the next plan may use.
#[derive(Default)]
pub struct Known {
    records: HashMap<JobId, Record>,
    /// Places in line with a record.
    recorded: Vec<usize>,
    /// Nodes on which something starts or that are kept without a record: to the next plan they are
    /// not what they were in this one.
    started_on: Vec<u32>,
    /// For each place in line whether it looked for a place to start and found none.
    found_none: Vec<bool>,
}

/// What a walk over the line is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Who starts now; the first of those that wait keep places.
    Starts,
    /// When everybody is expected to start.
    Estimates,
}

pub struct Planner<'a> {
    purpose: Purpose,
    view: &'a View,
    now: Timestamp,
    standing: &'a Standing,
    footprints: &'a mut Footprints,
    line: &'a Line,
    board: Board<'a>,
    usage: Usage<'a>,
    has_limits: bool,
    /// By the position of their key in the line.
    shapes: Vec<Option<Box<Shape<'a>>>>,
    /// For each entry of the queue the tasks that have not started, and how many of them the
    /// throttle lets start now.
    left: Vec<u32>,
    allowed: Vec<u32>,
    /// In the order of the first turns.
    reasons: Vec<(JobId, Reason)>,
    /// Of entries with several turns where their reason is.
    reason_at: HashMap<u32, usize>,
    /// The turn that is being taken.
    at: usize,
    /// For each partition how many jobs have had to wait for resources, and how many keep a place.
    blocked: Vec<u32>,
    reserved: Vec<u32>,
    reserved_by_user: HashMap<u32, u32>,
    kept: HashMap<JobId, Arc<Kept>>,
    /// The last plan's places, and what is known for the next.
    switches: Option<Arc<Switches>>,
    preempt: Preempt<'a>,
    /// Free licences.
    licenses: HashMap<&'a str, u64>,
    preemptions: Vec<Preemption>,
    /// Jobs that were suspended to make room, with their tiers; the first to go on last.
    suspended: Vec<(u32, &'a Running)>,
    resumes: Vec<JobId>,
    rerun: Rerun,
    record: Option<Record>,
    known: Known,
    starts: Vec<Start>,
    /// Those that keep a place, in order.
    estimates: Vec<Estimate>,
    /// Starts that overtook somebody.
    backfilled: u32,
    /// For estimates: turns that wait for more than resources, and when further tasks of an array begin and end.
    deferred: Vec<ahead::Deferred>,
    more_kept: HashMap<u32, Vec<(i64, i64)>>,
    groups: together::Groups,
}

impl<'a> Planner<'a> {
    pub fn new(
        view: &'a View,
        now: Timestamp,
        memo: &'a mut Memo,
        mut rerun: Rerun,
        purpose: Purpose,
    ) -> Self {
        let Memo { standing, footprints, line, scratch, windows, switches, .. } = memo;
        let (standing, line, windows) = (&*standing, &*line, &*windows);
        let recorded = line.places.iter().filter(|place| place.is_recorded);
        rerun.keep_only(recorded.map(|place| place.job()));
        // What a window lets through changes as time passes.
        rerun.differ(windows.nodes());
        let usage = Usage::of(view, now);
        Self {
            purpose,
            view,
            now,
            board: Board::new(view, now.millis(), standing, scratch, windows),
            standing,
            footprints,
            has_limits: usage.has_limits(),
            usage,
            shapes: line.shapes.iter().map(|_| None).collect(),
            left: line.entries.iter().map(|entry| entry.tasks).collect(),
            allowed: line.entries.iter().map(|entry| entry.tasks_allowed).collect(),
            reasons: Vec::with_capacity(line.entries.len()),
            reason_at: HashMap::new(),
            at: 0,
            line,
            blocked: vec![0; view.partitions.len()],
            reserved: vec![0; view.partitions.len()],
            reserved_by_user: HashMap::new(),
            kept: HashMap::new(),
            switches: switches.clone(),
            preempt: Preempt::new(view, now),
            licenses: view.licenses.iter().map(|(name, free)| (name.as_str(), *free)).collect(),
            preemptions: Vec::new(),
            suspended: room::suspended(view),
            resumes: Vec::new(),
            rerun,
            record: None,
            known: Known { found_none: vec![false; line.places.len()], ..Known::default() },
            starts: Vec::new(),
            estimates: Vec::new(),
            backfilled: 0,
            deferred: Vec::new(),
            more_kept: HashMap::new(),
            groups: together::groups(view, line),
        }
    }

    pub fn walk(&mut self) {
        for at in 0..self.line.places.len() {
            if !self.suspended.is_empty() {
                let Reverse(tier) = self.line.places[at].key.0;
                self.resume_down_to(tier);
            }
            self.turn(at);
        }
        self.resume_down_to(0);
    }

    fn turn(&mut self, at: usize) {
        self.at = at;
        let place = &self.line.places[at];
        if place.is_plain && self.waits_like_others(place) {
            return;
        }
        if self.line.entries[place.turn.waiting as usize].is_joined {
            self.turn_together(place);
            return;
        }
        if place.is_recorded {
            self.record = self.rerun.meet(place.job());
        }
        if let Some(reason) = self.take_turn(*place) {
            self.defer(place, &reason);
            self.note(place.turn.waiting, reason);
        }
        // It kept a place last time, and has not looked for one now.
        if let Some(Record { kept: Some(kept), .. }) = self.record.take() {
            self.rerun.differ(kept.nodes());
        }
    }

    /// The most of a long line: others of its shape had no place to start, and no more are kept.
    fn waits_like_others(&mut self, place: &Place) -> bool {
        let partition = place.turn.partition as usize;
        let settled = self.shapes[place.shape as usize].as_ref().is_some_and(|s| s.is_settled());
        let waits = settled
            && self.purpose == Purpose::Starts
            && !self.has_limits
            && !self.preempt.is_active
            && !place.is_recorded
            && self.blocked[partition] > 0
            && self.reserved[partition] >= self.view.policy.reservations;
        if waits {
            self.blocked[partition] += 1;
            self.known.found_none[self.at] = true;
            self.reasons.push((place.job(), Reason::Priority));
        }
        waits
    }

    /// Starts what can start of the entry; the reason why the rest of it waits.
    fn take_turn(&mut self, place: Place) -> Option<Reason> {
        let turn = place.turn;
        let waiting = turn.waiting as usize;
        if self.left[waiting] == 0 {
            return None;
        }
        if !self.line.entries[waiting].is_open
            && let Some(reason) = gate::job(&self.view.queue[waiting], self.now)
        {
            self.expect_later(place, &reason);
            return Some(reason);
        }
        if !self.line.entries[waiting].is_open
            && let Some(reason) = self.board.windows.gate(&self.view.queue[waiting], self.board.now)
        {
            self.expect_later(place, &reason);
            return Some(reason);
        }
        let shape = place.shape as usize;
        if self.board.now > self.shape(shape).latest_start() {
            return Some(Reason::Deadline);
        }
        let claimant = self.has_limits.then(|| self.claimant(turn));
        if let Some(reason) = self.shape(shape).gate.clone()
            && !claimant.is_some_and(|claimant| self.usage.lifts(claimant, &reason))
        {
            return Some(reason);
        }
        if let Some(reason) = claimant.and_then(|claimant| self.usage.closed_to(claimant)) {
            return Some(reason);
        }
        loop {
            if self.left[waiting] == 0 {
                return None;
            }
            if self.allowed[waiting] == 0 {
                return Some(Reason::ArrayTaskLimit);
            }
            if let Some(claimant) = claimant {
                let Some(Some(known)) = self.shapes.get(shape) else { return None };
                let broken = self.usage.broken_by(claimant, &known.least, known.time_limit);
                if let Some(limit) = broken {
                    return Some(Reason::Limit(Box::new(limit)));
                }
            }
            if !self.has_licenses(shape) {
                return Some(Reason::Licenses);
            }
            let Some((placement, time_limit)) = self.find_place(turn, shape) else {
                self.known.found_none[self.at] = true;
                if self.make_room(turn, shape) {
                    return Some(Reason::Resources);
                }
                return Some(self.blocked_reason(turn, shape));
            };
            // Whole cores and the node's memory may make it more than was asked.
            if let Some(limit) = claimant.and_then(|c| self.breaks(c, &placement, time_limit)) {
                return Some(Reason::Limit(Box::new(limit)));
            }
            self.start(turn, shape, claimant, placement, time_limit);
        }
    }

    fn claimant(&self, turn: Turn) -> Claimant<'a> {
        Claimant::of(self.view, &self.view.queue[turn.waiting as usize], turn.partition)
    }

    fn breaks(
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

    fn shape(&mut self, shape: usize) -> &mut Shape<'a> {
        let (view, line, switches) = (self.view, self.line, self.switches.as_ref());
        self.shapes[shape]
            .get_or_insert_with(|| Box::new(Shape::new(view, &line.shapes[shape], switches)))
    }

    /// The shape, and where places for it are looked for.
    fn ground(&mut self, shape: usize) -> (&mut Shape<'a>, Ground<'_, 'a>) {
        let (view, line, switches) = (self.view, self.line, self.switches.as_ref());
        let slot = &mut self.shapes[shape];
        let shape =
            slot.get_or_insert_with(|| Box::new(Shape::new(view, &line.shapes[shape], switches)));
        let ground = Ground {
            board: &mut self.board,
            footprints: self.footprints,
            standing: self.standing,
            rerun: &self.rerun,
        };
        (shape, ground)
    }

    fn find_place(&mut self, turn: Turn, shape: usize) -> Option<(Placement, TimeLimit)> {
        if !self.view.policy.backfill && self.blocked[turn.partition as usize] > 0 {
            return None;
        }
        let starts_max = self.view.policy.reserve.starts_max.filter(|_| self.is_for_starts());
        if starts_max.is_some_and(|most| self.starts.len() >= most as usize) {
            return None;
        }
        let found_none = self.line.places[self.at].found_none;
        let (shape, mut ground) = self.ground(shape);
        if found_none {
            ground.fail_as_before(shape);
        }
        let now = ground.board.now;
        if let Some(placement) = ground.now(shape, false) {
            return Some((placement, shape.limit_until_deadline(shape.time_limit, now)));
        }
        shape.short.as_ref()?;
        let placement = ground.now(shape, true)?;
        let time_limit = ground.longest(shape, &placement);
        Some((placement, shape.limit_until_deadline(time_limit, now)))
    }

    fn start(
        &mut self,
        turn: Turn,
        shape: usize,
        claimant: Option<Claimant<'a>>,
        placement: Placement,
        time_limit: TimeLimit,
    ) {
        let length = self.length(time_limit);
        for (name, count) in &self.shape(shape).demand.request.licenses {
            if let Some(free) = self.licenses.get_mut(name.as_str()) {
                *free -= u64::from(*count);
            }
        }
        let known = self.shape(shape);
        let (holder, pass) = (known.demand.holder, known.pass.clone());
        self.board.start(&placement, holder, &pass, length);
        let shares = || placement.shares.iter().map(|(_, share)| share);
        if let Some(claimant) = claimant {
            self.usage.add(claimant, shares());
        }
        self.started(turn, placement, time_limit);
    }

    /// The start of what is on the board and counted already.
    fn started(&mut self, turn: Turn, placement: Placement, time_limit: TimeLimit) {
        let nodes = || placement.shares.iter().map(|(node, _)| *node);
        self.rerun.differ(nodes());
        self.known.started_on.extend(nodes());
        self.backfilled += u32::from(self.blocked[turn.partition as usize] > 0);
        let waiting = turn.waiting as usize;
        self.left[waiting] -= 1;
        self.allowed[waiting] = self.allowed[waiting].saturating_sub(1);
        let job = self.view.queue[waiting].job;
        // What another partition kept for it is used up: this start was not held back by it.
        self.give_up(job);
        let partition = &self.view.partitions[turn.partition as usize].partition;
        self.starts.push(Start {
            job,
            time_limit,
            het: self.view.queue[waiting].het,
            allocation: Allocation {
                partition: partition.name.clone(),
                nodes: placement.shares.into_iter().map(|(_, share)| share).collect(),
            },
        });
    }

    /// The time that a job with this limit is sure to be gone after.
    fn length(&self, limit: TimeLimit) -> i64 {
        crate::shape::length(limit, &self.view.policy)
    }

    /// Why it waits when no place was found; the first in line keep one for later.
    fn blocked_reason(&mut self, turn: Turn, shape: usize) -> Reason {
        let (view, standing) = (self.view, self.standing);
        let (known, ground) = self.ground(shape);
        if let Some(reason) = known.hopeless(view, ground.footprints, standing) {
            return reason.clone();
        }
        let partition = turn.partition as usize;
        let is_first = self.blocked[partition] == 0;
        let is_kept = self.is_kept_for_others(turn, shape);
        self.blocked[partition] += 1;
        if self.may_reserve(turn) {
            self.reserved[partition] += 1;
            self.reserve(turn, shape, self.board.now);
        }
        match (is_kept, is_first) {
            (true, _) => Reason::NodesReserved,
            (false, true) => Reason::Resources,
            (false, false) => Reason::Priority,
        }
    }
}

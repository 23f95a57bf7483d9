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

use crate::backfill::Ground;
use crate::board::{Board, Kept};
use crate::gate;
use crate::gate::limits::{Claimant, Usage};
use crate::memo::{Footprints, Line, Memo, Place, Record, Rerun, Standing};
use crate::order::Turn;
use crate::place::Placement;
use crate::preempt::{Preempt, Rights};
use crate::shape::Shape;
use crate::timeline::BEGINNING;
use crate::topology::Switches;
use crate::view::{Estimate, Plan, Preemption, Running, Start, View};
use model::allocation::Allocation;
use model::id::JobId;
use model::reason::Reason;
use model::time::{TimeLimit, Timestamp};
use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
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
            suspended: suspended(view),
            resumes: Vec::new(),
            rerun,
            record: None,
            known: Known { found_none: vec![false; line.places.len()], ..Known::default() },
            starts: Vec::new(),
            estimates: Vec::new(),
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

    /// Walks until the job's estimate is known.
    pub fn expect(&mut self, job: JobId) -> Option<Estimate> {
        let places = &self.line.places;
        let last = places.iter().rposition(|place| place.job() == job)?;
        for at in 0..=last {
            self.turn(at);
        }
        let found = self.estimates.iter().find(|estimate| estimate.job == job).cloned();
        found.or_else(|| {
            let start = self.starts.iter().find(|start| start.job == job)?;
            let nodes = start.allocation.node_names().map(str::to_string).collect();
            Some(Estimate { job, start: self.now, nodes })
        })
    }

    /// Walks up to the job's first turn; how many entries had theirs before it in its partition.
    pub fn walk_to(&mut self, job: JobId) -> u32 {
        let places = &self.line.places;
        let Some(first) = places.iter().position(|place| place.job() == job) else { return 0 };
        for at in 0..first {
            self.turn(at);
        }
        let partition = places[first].turn.partition;
        let ahead = places[..first].iter().filter(|place| place.turn.partition == partition);
        ahead.count() as u32
    }

    /// The shape that the job has in the nth of its partitions.
    pub fn ground_of(
        &mut self,
        job: JobId,
        nth: usize,
    ) -> Option<(&mut Shape<'a>, Ground<'_, 'a>)> {
        let mut mine = self.line.places.iter().filter(|place| place.job() == job);
        let place = mine.find(|place| place.key.4 as usize == nth)?;
        Some(self.ground(place.shape as usize))
    }

    /// Those who made room go on when they can, before anybody of their own tier or below starts.
    fn resume_down_to(&mut self, tier: u32) {
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

    fn turn(&mut self, at: usize) {
        self.at = at;
        let place = &self.line.places[at];
        if place.is_plain && self.waits_like_others(place) {
            return;
        }
        if place.is_recorded {
            self.record = self.rerun.meet(place.job());
        }
        if let Some(reason) = self.take_turn(*place) {
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

    fn has_licenses(&mut self, shape: usize) -> bool {
        let wanted = &self.shape(shape).demand.request.licenses;
        let free = |name: &str| self.licenses.get(name).copied().unwrap_or(0);
        wanted.iter().all(|(name, count)| free(name) >= u64::from(*count))
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
        let nodes = || placement.shares.iter().map(|(node, _)| *node);
        self.rerun.differ(nodes());
        self.known.started_on.extend(nodes());
        let shares = || placement.shares.iter().map(|(_, share)| share);
        if let Some(claimant) = claimant {
            self.usage.add(claimant, shares());
        }
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
        self.blocked[partition] += 1;
        if self.may_reserve(turn) {
            self.reserved[partition] += 1;
            self.reserve(turn, shape, self.board.now);
        }
        if is_first { Reason::Resources } else { Reason::Priority }
    }

    /// Sends others away for it, if it may and that helps.
    fn make_room(&mut self, turn: Turn, shape: usize) -> bool {
        if !self.preempt.is_active {
            return false;
        }
        let waiting = &self.view.queue[turn.waiting as usize];
        let tier = self.view.partitions[turn.partition as usize].partition.priority_tier;
        let rights = Rights { tier, qos: &waiting.qos };
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
        let nodes = kept.nodes().map(|node| self.board.config(node).name.clone()).collect();
        let start = Timestamp(room.start);
        self.estimates.push(Estimate { job: waiting.job, start, nodes });
        self.preemptions.extend(room.victims);
        true
    }

    fn is_for_starts(&self) -> bool {
        self.purpose == Purpose::Starts
    }

    fn may_reserve(&mut self, turn: Turn) -> bool {
        if !self.is_for_starts() {
            return true;
        }
        let policy = &self.view.policy;
        if !policy.backfill || self.reserved[turn.partition as usize] >= policy.reservations {
            return false;
        }
        let waiting = &self.view.queue[turn.waiting as usize];
        let waited = self.now.since(waiting.submit).as_secs();
        let reserve = &policy.reserve;
        if waited < u64::from(reserve.age_min_s)
            || reserve.priority_min.is_some_and(|least| waiting.priority < least)
            || !self.usage.may_reserve(self.claimant(turn), waiting.priority)
        {
            return false;
        }
        let Some(most) = reserve.per_user else { return true };
        let mine = self.reserved_by_user.entry(waiting.spec.owner.uid).or_default();
        *mine += 1;
        *mine <= most
    }

    /// One that must wait for a time of its own is expected from then on.
    fn expect_later(&mut self, place: Place, reason: &Reason) {
        if self.is_for_starts() {
            return;
        }
        let shape = place.shape as usize;
        let pass = self.shape(shape).pass.clone();
        let begin = match reason {
            Reason::BeginTime => self.view.queue[place.turn.waiting as usize].begin.map(|b| b.0),
            Reason::Reservation => self.board.windows.begins(&pass, self.board.now),
            _ => None,
        };
        if let Some(begin) = begin
            && self.shape(shape).gate.is_none()
        {
            self.reserve(place.turn, shape, begin);
        }
    }

    /// Of several partitions the one with the earliest start keeps the place.
    fn reserve(&mut self, turn: Turn, shape: usize, from: i64) {
        let waiting = &self.view.queue[turn.waiting as usize];
        let job = waiting.job;
        let window = self.view.policy.reserve.window_min.filter(|_| self.is_for_starts());
        let latest = window.map_or(i64::MAX, |min| self.board.now + 60_000 * i64::from(min));
        let latest = latest.min(self.shape(shape).latest_start());
        let record = self.record.take();
        // What it keeps through another partition is not in its own way.
        let other = self.kept.remove(&job);
        if let Some(other) = &other {
            self.board.give_up(other);
            self.rerun.differ(other.nodes());
        }
        let (known, mut ground) = self.ground(shape);
        let holder = known.demand.holder;
        let found = match record.as_ref() {
            Some(record) => ground.later_as_before(known, from, record),
            None => ground.later(known, from),
        };
        let found = match found.kept.as_ref().is_some_and(|kept| kept.start > latest) {
            true => Record { kept: None, single: false },
            false => found,
        };
        let before = record.and_then(|record| record.kept);
        if before != found.kept {
            self.rerun.differ(before.iter().chain(&found.kept).flat_map(|kept| kept.nodes()));
        }
        if waiting.partitions.len() == 1 {
            self.known.recorded.push(self.at);
            self.known.records.insert(job, found.clone());
        } else {
            self.known.started_on.extend(found.kept.iter().flat_map(|kept| kept.nodes()));
        }
        let better = match (&other, &found.kept) {
            (Some(other), Some(kept)) => kept.start < other.start,
            (_, kept) => kept.is_some(),
        };
        if let Some(other) = other {
            if !better {
                self.board.keep(&other, holder);
                self.kept.insert(job, other);
                return;
            }
            self.estimates.retain(|known| known.job != job);
        }
        let Some(kept) = found.kept else { return };
        // A later task of an array is not the one that is asked about.
        let more =
            (self.left[turn.waiting as usize].min(self.view.policy.reserve.per_array)).max(1);
        let name = |(node, _): &(u32, _)| self.board.config(*node).name.clone();
        let nodes = kept.parts.iter().map(name).collect();
        self.estimates.push(Estimate { job, start: Timestamp(kept.start), nodes });
        self.board.keep(&kept, holder);
        self.kept.insert(job, kept);
        if !self.is_for_starts() {
            self.keep_more(shape, from, more - 1);
        }
    }

    /// Places for further tasks of an array, in nobody's name.
    fn keep_more(&mut self, shape: usize, from: i64, tasks: u32) {
        for _ in 0..tasks {
            let (known, mut ground) = self.ground(shape);
            let holder = known.demand.holder;
            let Some(kept) = ground.later(known, from).kept else { return };
            self.board.keep(&kept, holder);
        }
    }

    fn give_up(&mut self, job: JobId) {
        if let Some(kept) = self.kept.remove(&job) {
            self.board.give_up(&kept);
            self.rerun.differ(kept.nodes());
            self.estimates.retain(|known| known.job != job);
        }
    }

    /// Of the reasons in several partitions the one nearest to a start stands.
    fn note(&mut self, waiting: u32, reason: Reason) {
        let entry = &self.line.entries[waiting as usize];
        if entry.turns <= 1 {
            self.reasons.push((entry.job, reason));
            return;
        }
        let distance = |reason: &Reason| match reason {
            Reason::Resources => 0,
            Reason::Priority => 1,
            _ => 2,
        };
        match self.reason_at.get(&waiting) {
            None => {
                self.reason_at.insert(waiting, self.reasons.len());
                self.reasons.push((entry.job, reason));
            }
            Some(&at) => {
                let known = &mut self.reasons[at].1;
                if distance(&reason) < distance(known) {
                    *known = reason;
                }
            }
        }
    }

    /// For each entry, in order, when it is expected: now where it starts.
    pub fn into_estimates(self) -> Vec<Estimate> {
        let starting = self.starts.into_iter().map(|start| {
            let nodes = start.allocation.nodes.into_iter().map(|share| share.node).collect();
            Estimate { job: start.job, start: self.now, nodes }
        });
        let mut by_job: HashMap<JobId, Estimate> = HashMap::new();
        for estimate in starting.chain(self.estimates) {
            by_job.entry(estimate.job).or_insert(estimate);
        }
        self.line.places.iter().filter_map(|place| by_job.remove(&place.job())).collect()
    }

    pub fn finish(mut self) -> (Plan, Known) {
        // One that is in no partition had no turn.
        let mut turnless = self.line.turnless.clone();
        turnless.sort_unstable_by_key(|&at| self.view.queue[at as usize].job);
        for &waiting in &turnless {
            self.note(waiting, Reason::NotPlanned);
        }
        // A reason of one turn is void if the rest started at another.
        let started = |(waiting, _): &(&u32, &usize)| self.left[**waiting as usize] == 0;
        let void: HashSet<usize> =
            self.reason_at.iter().filter(started).map(|(_, at)| *at).collect();
        if !void.is_empty() {
            let mut at = 0..;
            self.reasons.retain(|_| at.next().is_none_or(|at| !void.contains(&at)));
        }
        let plan = Plan {
            starts: self.starts,
            reasons: self.reasons,
            estimates: self.estimates,
            preemptions: self.preemptions,
            resumes: self.resumes,
        };
        (plan, self.known)
    }
}

fn suspended(view: &View) -> Vec<(u32, &Running)> {
    let tier = |running: &Running| {
        let info = view.partitions.get(running.partition as usize);
        info.map_or(0, |info| info.partition.priority_tier)
    };
    let mut suspended: Vec<(u32, &Running)> = view
        .running
        .iter()
        .filter(|running| running.suspended && !running.is_ending)
        .map(|running| (tier(running), &**running))
        .collect();
    suspended.sort_by_key(|(tier, running)| (*tier, Reverse(running.start), Reverse(running.job)));
    suspended
}

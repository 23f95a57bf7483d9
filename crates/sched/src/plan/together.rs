//! Jobs that start together or not at all: the first of them has the turn for all.
//!
//! ```text
//!   the largest first ─▶ a place now, beside those of the ones before ─▶ all have one: they start
//!                        │ one has none: the board goes back
//!                        └─▶ the first moment at which all have one: each keeps its place from then on
//! ```
//!
//! Their shapes are their own: what fails beside the others of a group does not fail for everybody.

use super::Planner;
use crate::backfill::Ground;
use crate::board::{Kept, Saved};
use crate::gate;
use crate::gate::limits::{Claimant, Load};
use crate::memo::{Line, Place};
use crate::order::Turn;
use crate::place::Placement;
use crate::shape::Shape;
use crate::view::View;
use model::id::JobId;
use model::reason::Reason;
use model::run::HetComponent;
use model::time::TimeLimit;
use model::tres::TresKind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

/// The most moments that are tried for a place for all.
const MOMENTS_MAX: usize = 64;

/// By the first job: where the others stand in line, each with as many places as it has partitions.
pub(super) type Groups = HashMap<JobId, BTreeMap<u32, Vec<usize>>>;

pub(super) fn groups(view: &View, line: &Line) -> Groups {
    let mut groups = Groups::new();
    if !line.entries.iter().any(|entry| entry.is_joined) {
        return groups;
    }
    for (at, place) in line.places.iter().enumerate() {
        if let Some(het) = view.queue[place.turn.waiting as usize].het {
            let group = groups.entry(het.first).or_default();
            group.entry(het.offset).or_default().push(at);
        }
    }
    groups
}

/// One that has a place now, which the board shows as taken.
struct Found<'a> {
    turn: Turn,
    placement: Placement,
    time_limit: TimeLimit,
    saved: Saved,
    counted: Option<(Claimant<'a>, Load)>,
    licenses: &'a [(String, u32)],
}

/// One that has a place later.
struct Later {
    turn: Turn,
    kept: Arc<Kept>,
    saved: Saved,
}

impl<'a> Planner<'a> {
    pub(super) fn turn_together(&mut self, place: &Place) {
        let waiting = place.turn.waiting;
        let Some(het) = self.view.queue[waiting as usize].het else { return };
        let group = self.groups.get(&het.first).cloned().unwrap_or_default();
        if !group.contains_key(&0) {
            self.note(waiting, Reason::NotPlanned);
        }
        if !het.is_leader() || self.left[waiting as usize] == 0 {
            return;
        }
        let Some(reason) = self.take_together(place, het, &group) else { return };
        for places in group.values() {
            let of_group = self.line.places[places[0]].turn.waiting;
            self.note(of_group, reason.clone());
        }
    }

    /// Starts all of them; else the reason why they wait.
    fn take_together(
        &mut self,
        place: &Place,
        het: HetComponent,
        group: &BTreeMap<u32, Vec<usize>>,
    ) -> Option<Reason> {
        if group.len() != het.size as usize {
            return Some(Reason::NotPlanned);
        }
        let mut members: Vec<&[usize]> = group.values().map(Vec::as_slice).collect();
        let own = [self.at];
        members[0] = &own;
        // The large first: the small find a place beside them more often than the other way round.
        members.sort_by_cached_key(|places| {
            let shape = self.own_shape(&self.line.places[places[0]]);
            Reverse(shape.least.amount(&TresKind::Cpu))
        });
        for places in &members {
            let waiting = &self.view.queue[self.line.places[places[0]].turn.waiting as usize];
            // What another partition kept for them is not in their way.
            self.give_up(waiting.job);
            let closed = || self.board.windows.gate(waiting, self.board.now);
            if let Some(reason) = gate::job(waiting, self.now).or_else(closed) {
                return Some(reason);
            }
        }
        let blocked = match self.all_now(&members) {
            Ok(mut all) => {
                all.sort_by_key(|found| self.view.queue[found.turn.waiting as usize].job);
                all.into_iter().for_each(|f| self.started(f.turn, f.placement, f.time_limit));
                return None;
            }
            Err(reason) => reason,
        };
        if blocked != Reason::Resources {
            return Some(blocked);
        }
        let is_leader = self.blocked[place.turn.partition as usize] == 0;
        for places in &members {
            self.blocked[self.line.places[places[0]].turn.partition as usize] += 1;
        }
        if self.may_reserve(place.turn) {
            self.reserved[place.turn.partition as usize] += 1;
            self.keep_all(&members);
        }
        Some(if is_leader { Reason::Resources } else { Reason::Priority })
    }

    /// A place for each from now on; on the way back nothing is taken.
    fn all_now(&mut self, members: &[&[usize]]) -> Result<Vec<Found<'a>>, Reason> {
        let mut all: Vec<Found<'a>> = Vec::with_capacity(members.len());
        for places in members {
            let mut why = Reason::Resources;
            let found = places.iter().find_map(|at| {
                let place = self.line.places[*at];
                self.one_now(place).map_err(|reason| why = reason).ok()
            });
            match found {
                Some(found) => all.push(found),
                None => {
                    all.into_iter().rev().for_each(|found| self.undo(found));
                    return Err(why);
                }
            }
        }
        Ok(all)
    }

    /// A place for one of them beside those that are taken; it is taken too.
    fn one_now(&mut self, place: Place) -> Result<Found<'a>, Reason> {
        let turn = place.turn;
        let mut shape = self.own_shape(&place);
        let claimant = self.has_limits.then(|| self.claimant(turn));
        self.may_start(&place, &shape, claimant)?;
        let (now, partition) = (self.board.now, turn.partition as usize);
        let starts_max = self.view.policy.reserve.starts_max.filter(|_| self.is_for_starts());
        if (!self.view.policy.backfill && self.blocked[partition] > 0)
            || starts_max.is_some_and(|most| self.starts.len() >= most as usize)
        {
            return Err(Reason::Resources);
        }
        let mut ground = self.own_ground();
        let Some(placement) = ground.now(&mut shape, false) else {
            let never = shape.hopeless(self.view, self.footprints, self.standing);
            return Err(never.cloned().unwrap_or(Reason::Resources));
        };
        let time_limit = shape.limit_until_deadline(shape.time_limit, now);
        if let Some(limit) = claimant.and_then(|c| self.breaks(c, &placement, time_limit)) {
            return Err(Reason::Limit(Box::new(limit)));
        }
        let saved = self.board.save(placement.shares.iter().map(|(node, _)| *node));
        let length = self.length(time_limit);
        self.board.start(&placement, shape.demand.holder, &shape.pass, length);
        let shares = placement.shares.iter().map(|(_, share)| share);
        let counted = claimant.and_then(|c| Some((c, self.usage.add(c, shares)?)));
        let licenses = &self.view.queue[turn.waiting as usize].spec.request().licenses;
        for (name, count) in licenses {
            if let Some(free) = self.licenses.get_mut(name.as_str()) {
                *free -= u64::from(*count);
            }
        }
        Ok(Found { turn, placement, time_limit, saved, counted, licenses })
    }

    /// What keeps it back beside resources.
    fn may_start(
        &mut self,
        place: &Place,
        shape: &Shape<'a>,
        claimant: Option<Claimant<'a>>,
    ) -> Result<(), Reason> {
        if self.board.now > shape.latest_start() {
            return Err(Reason::Deadline);
        }
        if let Some(reason) = &shape.gate
            && !claimant.is_some_and(|claimant| self.usage.lifts(claimant, reason))
        {
            return Err(reason.clone());
        }
        if let Some(claimant) = claimant {
            if let Some(reason) = self.usage.closed_to(claimant) {
                return Err(reason);
            }
            if let Some(limit) = self.usage.broken_by(claimant, &shape.least, shape.time_limit) {
                return Err(Reason::Limit(Box::new(limit)));
            }
        }
        match self.has_licenses(place.shape as usize) {
            true => Ok(()),
            false => Err(Reason::Licenses),
        }
    }

    fn undo(&mut self, found: Found<'a>) {
        self.board.go_back(found.saved);
        if let Some((claimant, load)) = &found.counted {
            self.usage.give(*claimant, load);
        }
        for (name, count) in found.licenses {
            if let Some(free) = self.licenses.get_mut(name.as_str()) {
                *free += u64::from(*count);
            }
        }
    }

    /// Each keeps a place from the first moment on at which all have one. What has none after so many moments, as what
    /// is more than there is, keeps nothing.
    fn keep_all(&mut self, members: &[&[usize]]) {
        let mut from = self.board.now;
        for _ in 0..MOMENTS_MAX {
            let Some(all) = self.all_later(members, from) else { return };
            let latest = all.iter().map(|later| later.kept.start).max().unwrap_or(from);
            if all.iter().any(|later| later.kept.start < latest) {
                all.into_iter().rev().for_each(|later| self.board.go_back(later.saved));
                from = latest;
                continue;
            }
            let window = self.view.policy.reserve.window_min.filter(|_| self.is_for_starts());
            let most = window.map_or(i64::MAX, |min| self.board.now + 60_000 * i64::from(min));
            if latest > most {
                all.into_iter().rev().for_each(|later| self.board.go_back(later.saved));
                return;
            }
            let mut all = all;
            all.sort_by_key(|later| self.view.queue[later.turn.waiting as usize].job);
            for Later { turn, kept, .. } in all {
                let job = self.view.queue[turn.waiting as usize].job;
                self.rerun.differ(kept.nodes());
                self.known.started_on.extend(kept.nodes());
                let estimate = self.estimate_of(job, turn.partition, latest, &kept);
                self.estimates.push(estimate);
                self.kept.insert(job, kept);
            }
            return;
        }
    }

    /// A place for each from then on, which is kept; none, and nothing kept, if one never has any.
    fn all_later(&mut self, members: &[&[usize]], from: i64) -> Option<Vec<Later>> {
        let mut all: Vec<Later> = Vec::with_capacity(members.len());
        for places in members {
            let options = places.iter().filter_map(|at| {
                let place = self.line.places[*at];
                let mut shape = self.own_shape(&place);
                let kept = self.own_ground().later(&mut shape, from).kept?;
                (kept.start <= shape.latest_start()).then_some((place.turn, kept, shape))
            });
            let Some((turn, kept, shape)) = options.min_by_key(|(_, kept, _)| kept.start) else {
                all.into_iter().rev().for_each(|later| self.board.go_back(later.saved));
                return None;
            };
            let saved = self.board.save(kept.nodes());
            self.board.keep(&kept, shape.demand.holder);
            all.push(Later { turn, kept, saved });
        }
        Some(all)
    }

    fn own_shape(&self, place: &Place) -> Shape<'a> {
        let key = &self.line.shapes[place.shape as usize];
        Shape::new(self.view, key, self.switches.as_ref())
    }

    fn own_ground(&mut self) -> Ground<'_, 'a> {
        Ground {
            board: &mut self.board,
            footprints: self.footprints,
            standing: self.standing,
            rerun: &self.rerun,
        }
    }
}

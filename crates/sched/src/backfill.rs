//! Places for jobs: now, or at the earliest time at which everything will be free, if nothing runs
//! over its limit.
//!
//! Jobs after one that keeps a place start only where the board leaves that place alone, so a
//! backfilled job never delays it.

use crate::board::{Board, Kept, Through, end_of};
use crate::footprint::{Footprint, Order, Part};
use crate::memo::{Footprints, Record, Rerun, Standing};
use crate::place::{Placement, fit, place};
use crate::shape::{Differing, Mode, Shape, length};
use crate::timeline::{Millis, NEVER, columns_of};
use model::time::TimeLimit;
use std::sync::Arc;

/// Moments that are tried for a job whose nodes are right only as a whole; the last ones far apart.
const PROBES_MAX: usize = 48;
/// The same for a job that has a place on one node already.
const SPREAD_PROBES_MAX: usize = 16;
/// Nodes that are looked at for it at a later moment.
const LATER_NODES_MAX: usize = 512;

/// Where places are looked for.
pub struct Ground<'g, 'a> {
    pub board: &'g mut Board<'a>,
    pub footprints: &'g mut Footprints,
    pub standing: &'a Standing,
    pub rerun: &'g Rerun,
}

impl Ground<'_, '_> {
    /// A place from now on, for the shape's full length or its short one.
    pub fn now(&mut self, shape: &mut Shape<'_>, short: bool) -> Option<Placement> {
        if shape.lane(short).failed {
            return None;
        }
        let placement = match shape.mode {
            Mode::One => self.one_now(shape, short),
            Mode::OneFirst => self.one_now(shape, short).or_else(|| self.set_now(shape, short)),
            Mode::Alike(count) => self.alike_now(shape, short, count as usize),
            Mode::Set => self.set_now(shape, short),
        };
        shape.lane(short).failed = placement.is_none();
        placement
    }

    fn one_now(&mut self, shape: &mut Shape<'_>, short: bool) -> Option<Placement> {
        let length = shape.lane(short).length;
        let search = shape.search(Part::Whole, short, self.footprints, self.standing);
        let most = search.footprint.candidates.len();
        // Each refusal passes one node for good.
        for _ in 0..=most {
            let search = shape.search(Part::Whole, short, self.footprints, self.standing);
            let (time, node) = search.one(self.board, self.board.now)?;
            if time > self.board.now {
                return None;
            }
            let free = self.board.free_through(node, &shape.pass, time, length);
            let config = self.board.config(node);
            let demand = &shape.demand;
            let granted =
                fit::grant(demand, config, &free, demand.task_count(), &demand.job_totals());
            if let Some(share) = granted {
                return Some(Placement { shares: vec![(node, share)] });
            }
            let search = shape.search(Part::Whole, short, self.footprints, self.standing);
            search.refuse_now(self.board);
        }
        None
    }

    fn alike_now(&mut self, shape: &mut Shape<'_>, short: bool, count: usize) -> Option<Placement> {
        let length = shape.lane(short).length;
        let now = self.board.now;
        let nothing = vec![0; shape.demand.gres.len()];
        let mut shares = Vec::with_capacity(count);
        let search = shape.search(Part::Each, short, self.footprints, self.standing);
        let ready = search.ready_now(self.board, count);
        let each = shape.demand.tasks_on_each();
        for &node in &ready {
            let free = self.board.free_through(node, &shape.pass, now, length);
            let config = self.board.config(node);
            let share = fit::grant(&shape.demand, config, &free, each, &nothing);
            shares.extend(share.map(|share| (node, share)));
        }
        if ready.len() == count && shares.len() < count {
            // The very cores of some do not serve: look at every node.
            return self.set_now(shape, short);
        }
        shares.sort_unstable_by_key(|(node, _)| *node);
        (shares.len() == count).then_some(Placement { shares })
    }

    fn set_now(&mut self, shape: &mut Shape<'_>, short: bool) -> Option<Placement> {
        let length = shape.lane(short).length;
        let search = shape.search(Part::Each, short, self.footprints, self.standing);
        let ready = search.ready_now(self.board, usize::MAX);
        if (ready.len() as u64) < u64::from(shape.demand.nodes_min) {
            return None;
        }
        let space = Through::new(self.board, &ready, &shape.pass, self.board.now, length);
        place(&shape.demand, &space, &ready)
    }

    /// The longest limit, up to the shape's own, with which the place lasts.
    pub fn longest(&self, shape: &Shape<'_>, placement: &Placement) -> TimeLimit {
        let holder = shape.demand.holder;
        let ends = placement.shares.iter().map(|(node, share)| {
            let amounts = columns_of(self.board.config(*node), share);
            let lasts = self.board.timeline(*node).lasts(self.board.now, &amounts, holder);
            lasts.min(self.board.windows.next(*node, &shape.pass, self.board.now))
        });
        let over_time = length(TimeLimit::Minutes(0), &self.board.view.policy);
        let minutes = (ends.min().unwrap_or(NEVER) - over_time - self.board.now) / 60_000;
        let longest = TimeLimit::Minutes(u32::try_from(minutes.max(0)).unwrap_or(u32::MAX));
        let least = shape.demand.request.time_min.unwrap_or(shape.time_limit);
        longest.min(shape.time_limit).max(least)
    }

    /// One of the shape found no place at this turn of the last plan. Unless a node that differs
    /// could serve, none does now.
    pub fn fail_as_before(&mut self, shape: &mut Shape<'_>) {
        if !self.rerun.is_active || shape.full.failed {
            return;
        }
        let (part, short) = match shape.mode {
            Mode::One => (Part::Whole, shape.short.is_some()),
            _ => (Part::Each, shape.short.is_some()),
        };
        let now = self.board.now;
        if self.first_differing(shape, part, short, now).is_none_or(|(time, _)| time > now) {
            shape.full.failed = true;
            shape.short.iter_mut().for_each(|lane| lane.failed = true);
        }
    }

    /// Of the nodes that differ from the last plan the first to serve, with its rank.
    fn first_differing(
        &mut self,
        shape: &mut Shape<'_>,
        part: Part,
        short: bool,
        from: Millis,
    ) -> Option<(Millis, u32)> {
        let partition = shape.partition;
        let footprint = shape.footprint(part, self.footprints, self.standing);
        let mut asked = std::mem::take(&mut shape.lane(short).differing);
        if asked.from != from {
            asked = Differing { from, ..Differing::default() };
        }
        let length = shape.lane(short).length;
        let pass = &shape.pass;
        for (at, &node) in self.rerun.differing().iter().enumerate() {
            let version = self.board.version(node);
            if asked.answers.get(at).is_some_and(|(of, _)| *of == version) {
                continue;
            }
            let rank = self.footprints.rank(partition, node).filter(|_| footprint.admits(node));
            let earliest =
                |rank| Some((self.board.earliest(node, &footprint, pass, from, length)?, rank));
            let answer = (version, rank.and_then(earliest));
            match asked.answers.get_mut(at) {
                Some(known) => *known = answer,
                None => asked.answers.push(answer),
            }
        }
        let first = asked.answers.iter().filter_map(|(_, answer)| *answer).min();
        shape.lane(short).differing = asked;
        first
    }

    /// The same as `later`, where the last plan's answer is known: what the nodes that differ offer
    /// beside it, as long as that settles it.
    pub fn later_as_before(
        &mut self,
        shape: &mut Shape<'_>,
        from: Millis,
        before: &Record,
    ) -> Record {
        let settled = match (before.single, shape.mode) {
            _ if !self.rerun.is_active => None,
            (true, _) => self.one_as_before(shape, from, before),
            (false, Mode::Alike(count)) => self.alike_as_before(shape, from, before, count),
            _ => None,
        };
        settled.unwrap_or_else(|| self.later(shape, from))
    }

    /// Nodes that do not differ serve no earlier than the one that was kept.
    fn one_as_before(
        &mut self,
        shape: &mut Shape<'_>,
        from: Millis,
        before: &Record,
    ) -> Option<Record> {
        let differing = self.first_differing(shape, Part::Whole, false, from);
        let found = match &before.kept {
            None => differing,
            Some(kept) => {
                let node = kept.parts[0].0;
                let known = (kept.start, self.footprints.rank(shape.partition, node)?);
                match differing {
                    Some(first) if first < known => Some(first),
                    Some(first) if first == known => differing,
                    _ if self.rerun.is_listed(node) => return None,
                    _ => return Some(before.clone()),
                }
            }
        };
        let Some((start, rank)) = found else { return Some(before.clone()) };
        let footprint = shape.footprint(Part::Whole, self.footprints, self.standing);
        let node = footprint.candidates[rank as usize];
        let kept = self.keeping(&footprint, start, shape.full.length, vec![node]);
        Some(Record { kept: Some(kept), single: true })
    }

    /// Before the moment of last time too few serve, unless one that differs does; at that moment the
    /// others that serve stand behind all that were kept.
    fn alike_as_before(
        &mut self,
        shape: &mut Shape<'_>,
        from: Millis,
        before: &Record,
        count: u32,
    ) -> Option<Record> {
        let first = self.first_differing(shape, Part::Each, false, from);
        let Some(kept) = &before.kept else {
            return first.is_none().then(|| before.clone());
        };
        if first.is_some_and(|(time, _)| time < kept.start) {
            return None;
        }
        let differs = kept.nodes().any(|node| self.rerun.is_listed(node));
        if !differs && first.is_none_or(|(time, _)| time > kept.start) {
            return Some(before.clone());
        }
        let (partition, length) = (shape.partition, shape.full.length);
        let footprint = shape.footprint(Part::Each, self.footprints, self.standing);
        let rank = |node: u32| self.footprints.rank(partition, node);
        let last = kept.nodes().filter_map(rank).max()?;
        let serves = |node: &u32| {
            let time = self.board.earliest(*node, &footprint, &shape.pass, from, length);
            footprint.admits(*node) && time == Some(kept.start)
        };
        let differing = self.rerun.differing().iter().copied().filter(serves);
        let staying = kept.nodes().filter(|node| !self.rerun.is_listed(*node));
        let mut ranks: Vec<u32> =
            staying.chain(differing).filter_map(rank).filter(|rank| *rank <= last).collect();
        if ranks.len() < count as usize {
            return None;
        }
        ranks.sort_unstable();
        let nodes = ranks.into_iter().take(count as usize);
        let mut nodes: Vec<u32> = nodes.map(|rank| footprint.candidates[rank as usize]).collect();
        nodes.sort_unstable();
        let kept = self.keeping(&footprint, kept.start, length, nodes);
        Some(Record { kept: Some(kept), single: false })
    }

    /// What one of these nodes each keeps.
    fn keeping(
        &self,
        footprint: &Footprint,
        start: Millis,
        length: Millis,
        nodes: Vec<u32>,
    ) -> Arc<Kept> {
        let end = end_of(start, length);
        let part = |node: u32| {
            let (free, _) = self.board.timeline(node).least(start, end);
            (node, footprint.amounts(self.board.class(node), &free))
        };
        Arc::new(Kept { start, end, parts: nodes.into_iter().map(part).collect() })
    }

    /// When and where from `from` on; nowhere if what is in the way has no end.
    pub fn later(&mut self, shape: &mut Shape<'_>, from: Millis) -> Record {
        let kept = match shape.mode {
            Mode::Set => self.set_later(shape, from, NEVER, PROBES_MAX),
            Mode::One | Mode::Alike(_) => self.alike_later(shape, from),
            Mode::OneFirst => {
                // Several nodes, if that is earlier.
                let one = self.alike_later(shape, from);
                let (before, probes) =
                    one.as_ref().map_or((NEVER, PROBES_MAX), |one| (one.start, SPREAD_PROBES_MAX));
                self.set_later(shape, from, before, probes).or(one)
            }
        };
        Record { kept, single: shape.mode == Mode::One }
    }

    fn alike_later(&mut self, shape: &mut Shape<'_>, from: Millis) -> Option<Arc<Kept>> {
        let length = shape.full.length;
        let (part, count) = match shape.mode {
            Mode::One | Mode::OneFirst => (Part::Whole, 1),
            Mode::Alike(count) => (Part::Each, count as usize),
            Mode::Set => return None,
        };
        let search = shape.search(part, false, self.footprints, self.standing);
        let found = match count {
            1 => search.one(self.board, from).map(|(time, node)| (time, vec![node])),
            _ => search.several(self.board, count, from),
        };
        let (start, nodes) = found?;
        let footprint = search.footprint.clone();
        Some(self.keeping(&footprint, start, length, nodes))
    }

    /// The first of so many moments before `before` at which a set of nodes serves.
    fn set_later(
        &mut self,
        shape: &mut Shape<'_>,
        from: Millis,
        before: Millis,
        probes: usize,
    ) -> Option<Arc<Kept>> {
        let least = shape.demand.nodes_min.max(1) as usize;
        let search = shape.search(Part::Each, false, self.footprints, self.standing);
        // No earlier than the least number of nodes could hold the least on each.
        let (first, _) = search.several(self.board, least, from)?;
        let (footprint, order) = (search.footprint.clone(), search.order.clone());
        let first = match shape.full.none_before {
            (gives, time) if gives == self.board.gives => first.max(time),
            _ => first,
        };
        if first >= before {
            return None;
        }
        for (start, follows) in self.moments(&footprint, &order, first, probes) {
            if start >= before {
                break;
            }
            let nodes = self.free_at(shape, &footprint, &order, start);
            let space = Through::new(self.board, &nodes, &shape.pass, start, shape.full.length);
            if let Some(placement) = place(&shape.demand, &space, &nodes) {
                let part =
                    |(node, share): &(u32, _)| (*node, columns_of(self.board.config(*node), share));
                let parts = placement.shares.iter().map(part).collect();
                let end = end_of(start, shape.full.length);
                return Some(Arc::new(Kept { start, end, parts }));
            }
            if follows && from <= self.board.now {
                shape.full.none_before = (self.board.gives, start + 1);
            }
        }
        None
    }

    /// The first moment, and those after it at which something changes: all of the near ones, then
    /// ever fewer, and the last of all; each with whether none is left out before it.
    fn moments(
        &self,
        footprint: &Footprint,
        order: &Order,
        first: Millis,
        most: usize,
    ) -> Vec<(Millis, bool)> {
        let mut changes: Vec<Millis> = order
            .iter()
            .flat_map(|(_, rank)| {
                self.board.timeline(footprint.candidates[*rank as usize]).changes()
            })
            .filter(|time| *time > first && *time < NEVER)
            .collect();
        changes.sort_unstable();
        changes.dedup();
        let mut moments = vec![(first, true)];
        let (mut at, mut step) = (0, 1);
        while at < changes.len() && moments.len() < most {
            moments.push((changes[at], step == 1));
            if moments.len() > most / 2 {
                step *= 2;
            }
            at += step;
        }
        let last = changes.last().filter(|last| moments.last().is_some_and(|m| m.0 != **last));
        moments.extend(last.map(|last| (*last, false)));
        moments
    }

    fn free_at(
        &self,
        shape: &Shape<'_>,
        footprint: &Footprint,
        order: &Order,
        start: Millis,
    ) -> Vec<u32> {
        let length = shape.full.length;
        let mut ranks: Vec<u32> = order
            .iter()
            .take_while(|(key, _)| *key <= start)
            .filter(|(_, rank)| {
                let node = footprint.candidates[*rank as usize];
                self.board.earliest(node, footprint, &shape.pass, start, length) == Some(start)
            })
            .map(|(_, rank)| *rank)
            .collect();
        ranks.sort_unstable();
        if shape.demand.request.node_list.is_empty() {
            ranks.truncate(LATER_NODES_MAX);
        }
        ranks.into_iter().map(|rank| footprint.candidates[rank as usize]).collect()
    }
}

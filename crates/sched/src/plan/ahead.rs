//! What lies ahead of those that wait for more than resources: for a limit, for licences, for other jobs.
//!
//! ```text
//!   running, started, kept ─▶ ends and begins, in the order of time
//!                             │ gives back limits and licences, meets dependencies
//!                             ▼
//!   deferred ──────────────▶ tried again, in the order of the line ─▶ a place from then on, and its own end
//! ```
//!
//! For estimates only. Everybody is taken to run for the whole of its limit, and to end well.

mod events;
mod known;

use self::events::{Ahead, Begins, Block, Happens, Holding};
use super::Planner;
use crate::board::Kept;
use crate::gate::limits::{Claimant, Load};
use crate::memo::Place;
use crate::timeline::Millis;
use model::id::JobId;
use model::reason::Reason;
use std::cmp::Reverse;
use std::sync::Arc;

/// How many of those that wait for the same are tried at one moment before one of them must have a place.
const VAIN_MAX: usize = 16;

/// A turn that waits for more than resources, or may have to.
pub(super) struct Deferred {
    place: u32,
    why: Why,
}

enum Why {
    /// What others do.
    Others,
    Blocked(Block),
    /// Nothing now; but when it starts, a limit may be in its way.
    Expected,
}

impl<'a> Planner<'a> {
    pub(super) fn defer(&mut self, place: &Place, reason: &Reason) {
        if self.is_for_starts() {
            return;
        }
        let waiting = &self.view.queue[place.turn.waiting as usize];
        let why = match reason {
            Reason::Dependency | Reason::ArrayTaskLimit if !waiting.awaits.is_empty() => {
                Why::Others
            }
            Reason::Limit(limit) => match Block::of(limit, self.claimant(place.turn)) {
                None => return,
                Some(block) => Why::Blocked(block),
            },
            Reason::Licenses => Why::Blocked(Block::Licenses),
            Reason::Resources | Reason::Priority if self.may_be_limited(place) => Why::Expected,
            _ => return,
        };
        self.deferred.push(Deferred { place: self.at as u32, why });
    }

    pub(super) fn is_deferred(&self, job: JobId) -> bool {
        self.deferred.iter().any(|d| self.line.places[d.place as usize].job() == job)
    }

    /// Goes through the time to come, for those that wait for more than resources.
    pub fn foresee(&mut self) {
        if self.deferred.is_empty() {
            return;
        }
        let deferred = std::mem::take(&mut self.deferred);
        let mut ahead = Ahead::default();
        self.note_running(&mut ahead);
        self.note_starts(&mut ahead);
        self.note_expected(&mut ahead, &deferred);
        self.note_deferred(&mut ahead, &deferred);
        let known = self.estimates.len();
        ahead.settled = self.estimates.iter().map(|e| e.job).collect();
        while let Some(Reverse((time, first))) = ahead.events.pop() {
            let time = time.max(self.now.millis());
            self.happen(&mut ahead, time, first);
            while ahead.events.peek().is_some_and(|Reverse((at, _))| *at <= time) {
                let Some(Reverse((_, next))) = ahead.events.pop() else { break };
                self.happen(&mut ahead, time, next);
            }
            // Each turn but the last gives somebody a place.
            while self.try_ready(&mut ahead, &deferred, time) {}
            ahead.lifted.clear();
        }
        let mut at = 0..;
        let before = |at: Option<usize>| at.is_some_and(|at| at < known);
        let is_void = |job: &JobId| ahead.void.contains(job) || ahead.void_before.contains(job);
        self.estimates.retain(|e| !(before(at.next()) && is_void(&e.job)));
    }

    fn may_be_limited(&self, place: &Place) -> bool {
        !self.licenses_of(*place).is_empty()
            || (self.has_limits && self.usage.is_limited(self.claimant(place.turn)))
    }

    /// Tries the first of those whose time may have come; whether one of them has a place now.
    fn try_ready(&mut self, ahead: &mut Ahead<'a>, deferred: &[Deferred], time: Millis) -> bool {
        let mut ready = std::mem::take(&mut ahead.ready);
        for block in &ahead.lifted {
            ready.extend(ahead.blocked.get(block).into_iter().flatten().take(VAIN_MAX));
        }
        let mut any = false;
        for at in ready {
            let place = self.line.places[deferred[at].place as usize];
            ahead.unblock(at);
            if self.left[place.turn.waiting as usize] == 0 {
                continue;
            }
            // Another partition may have been earlier.
            if ahead.placed[at] == 0 && !ahead.settled.insert(place.job()) {
                continue;
            }
            match self.try_at(ahead, place, time) {
                Tried::Placed => {
                    ahead.placed[at] += 1;
                    any = true;
                    if ahead.placed[at] < self.tasks_ahead(&deferred[at]) {
                        ahead.ready.insert(at);
                    } else {
                        self.note_last(ahead, place);
                    }
                    continue;
                }
                Tried::Never => {}
                Tried::NotBefore(later) => {
                    ahead.open[at] = 1;
                    ahead.events.push(Reverse((later, Happens::Met(at))));
                }
                Tried::Blocked(block) => ahead.block(at, block),
            }
            if ahead.placed[at] == 0 {
                ahead.settled.remove(&place.job());
            }
        }
        any
    }

    /// How many tasks of the entry are looked at.
    fn tasks_ahead(&self, deferred: &Deferred) -> u32 {
        let place = &self.line.places[deferred.place as usize];
        let left = self.left[place.turn.waiting as usize];
        // When the next but one of a throttled array starts is not looked at.
        let most = match deferred.why {
            Why::Others => 1,
            Why::Blocked(_) | Why::Expected => self.view.policy.reserve.per_array,
        };
        left.min(most).max(1)
    }

    /// The last of its tasks that is looked at has a place.
    fn note_last(&self, ahead: &mut Ahead<'a>, place: Place) {
        let known = self.more_kept.get(&place.turn.waiting);
        if let Some((start, end)) = known.and_then(|known| known.first()) {
            let tasks = self.left[place.turn.waiting as usize];
            ahead.ends(place.job(), self.last_end(place, tasks, *start, *end));
        }
    }

    fn happen(&mut self, ahead: &mut Ahead<'a>, time: Millis, what: Happens) {
        match what {
            Happens::Given(at) => {
                let holding = &ahead.holdings[at];
                if let Some((claimant, load)) = &holding.claimant {
                    self.usage.give(*claimant, load);
                    ahead.lifted.extend(Block::lifted_by(self.view, *claimant));
                }
                for (name, count) in holding.licenses {
                    *self.licenses.entry(name.as_str()).or_default() += u64::from(*count);
                }
                if !holding.licenses.is_empty() {
                    ahead.lifted.insert(Block::Licenses);
                }
            }
            Happens::Taken(at) => self.begin(ahead, at, time),
            Happens::Begun(job) => ahead.begun(job, time),
            Happens::Ended(job) => {
                for at in ahead.by_end.remove(&job).unwrap_or_default() {
                    ahead.meet(at);
                }
            }
            Happens::Met(at) => ahead.meet(at),
        }
    }

    /// One that keeps a place begins, or waits again for a limit that others have used up by then.
    fn begin(&mut self, ahead: &mut Ahead<'a>, at: usize, time: Millis) {
        let Begins { job, holding, deferred, whole, .. } = ahead.begins[at];
        let Holding { claimant, licenses, .. } = &ahead.holdings[holding];
        let short = |(name, count): &(String, u32)| {
            self.licenses.get(name.as_str()).copied().unwrap_or(0) < u64::from(*count)
        };
        let broken = claimant.as_ref().and_then(|(claimant, load)| {
            let limit = self.usage.broken_by_load(*claimant, load)?;
            Some(Block::of(&limit, *claimant))
        });
        let blocked = match broken {
            Some(block) => Some(block),
            None => licenses.iter().any(short).then_some(Some(Block::Licenses)),
        };
        let Some(block) = blocked else {
            if let Some((claimant, load)) = claimant {
                self.usage.take(*claimant, load);
            }
            self.take_licenses(licenses);
            ahead.gives(holding);
            ahead.begun(job, time);
            ahead.ends(job, whole);
            return;
        };
        ahead.void.insert(job);
        ahead.settled.remove(&job);
        if let Some(kept) = ahead.begins[at].kept.take() {
            self.board.give_up(&kept);
        }
        self.kept.remove(&job);
        if let Some(block) = block {
            ahead.block(deferred, block);
        }
    }

    fn take_licenses(&mut self, licenses: &'a [(String, u32)]) {
        for (name, count) in licenses {
            let free = self.licenses.entry(name.as_str()).or_default();
            *free = free.saturating_sub(u64::from(*count));
        }
    }

    /// Whether nothing but resources is in its way from then on; if so it keeps a place.
    fn try_at(&mut self, ahead: &mut Ahead<'a>, place: Place, time: Millis) -> Tried {
        let waiting = &self.view.queue[place.turn.waiting as usize];
        let shape = place.shape as usize;
        if waiting.hold.is_some()
            || waiting.fixed_reason.is_some()
            || waiting.spec.components.len() != 1
            || waiting.het.is_some()
        {
            return Tried::Never;
        }
        if let Some(begin) = waiting.begin.filter(|begin| begin.millis() > time) {
            return Tried::NotBefore(begin.millis());
        }
        if self.board.windows.gate(waiting, time).is_some() {
            let pass = self.shape(shape).pass.clone();
            return match self.board.windows.begins(&pass, time).filter(|begin| *begin > time) {
                Some(begin) => Tried::NotBefore(begin),
                None => Tried::Never,
            };
        }
        let claimant = self.has_limits.then(|| self.claimant(place.turn));
        if let Some(reason) = self.shape(shape).gate.clone()
            && !claimant.is_some_and(|claimant| self.usage.lifts(claimant, &reason))
        {
            return Tried::Never;
        }
        if let Some(claimant) = claimant {
            if self.usage.closed_to(claimant).is_some() {
                return Tried::Never;
            }
            let (least, limit) = (self.shape(shape).least.clone(), self.shape(shape).time_limit);
            if let Some(broken) = self.usage.broken_by(claimant, &least, limit) {
                return Block::of(&broken, claimant).map_or(Tried::Never, Tried::Blocked);
            }
        }
        if !self.has_licenses(shape) {
            return Tried::Blocked(Block::Licenses);
        }
        let latest = self.shape(shape).latest_start();
        let (known, mut ground) = self.ground(shape);
        match ground.later(known, time).kept.filter(|kept| kept.start <= latest) {
            Some(kept) => {
                self.keep_ahead(ahead, place, kept);
                Tried::Placed
            }
            None => Tried::Never,
        }
    }

    fn keep_ahead(&mut self, ahead: &mut Ahead<'a>, place: Place, kept: Arc<Kept>) {
        let holder = self.shape(place.shape as usize).demand.holder;
        let nodes: Vec<u32> = kept.nodes().collect();
        let job = place.job();
        if ahead.void.remove(&job) {
            ahead.void_before.insert(job);
            self.more_kept.remove(&place.turn.waiting);
        }
        let kept_before = self.more_kept.entry(place.turn.waiting).or_default();
        kept_before.push((kept.start, kept.end));
        if kept_before.len() == 1 {
            let estimate = self.estimate_of(job, place.turn.partition, kept.start, &kept);
            self.estimates.push(estimate);
            ahead.events.push(Reverse((kept.start, Happens::Begun(job))));
        }
        self.board.keep(&kept, holder);
        let limited = self.weighed(place, &nodes);
        let licenses = self.licenses_of(place);
        if let Some((claimant, load)) = &limited {
            self.usage.take(*claimant, load);
        }
        self.take_licenses(licenses);
        let end = kept.end;
        let at = ahead.holds(Holding { claimant: limited, licenses, end });
        ahead.gives(at);
    }

    /// What it counts for against limits, if it is under any.
    fn weighed(&mut self, place: Place, nodes: &[u32]) -> Option<(Claimant<'a>, Load)> {
        let claimant = Some(self.claimant(place.turn)).filter(|c| self.usage.is_limited(*c))?;
        let least = self.shape(place.shape as usize).least.clone();
        let names = nodes.iter().map(|node| self.board.config(*node).name.clone()).collect();
        Some((claimant, self.usage.weigh(claimant, least, names)))
    }

    fn licenses_of(&self, place: Place) -> &'a [(String, u32)] {
        &self.view.queue[place.turn.waiting as usize].spec.request().licenses
    }
}

/// What became of a turn that was tried again.
enum Tried {
    Placed,
    /// Not at any time that can be foreseen.
    Never,
    NotBefore(Millis),
    Blocked(Block),
}

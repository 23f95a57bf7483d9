//! Events to come, and what blocks jobs until then.

use crate::free::backfill_slot::BackfillSlot;
use crate::free::timeline::{Millis, NEVER};
use crate::gate::limits::{Claimant, JobUsage, Total};
use crate::view::View;
use model::id::JobId;
use model::reason::{Limit, LimitKind};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

/// What a job waits for beside resources: a limit, or licenses.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocker<'a> {
    /// The total that the limit is compared with.
    Limit(Total<'a>),
    Licenses,
}

impl<'a> Blocker<'a> {
    /// `None` for a limit that no other job's end can lift: on what the job itself asks for, or on what has been used.
    pub fn of(view: &'a View, limit: &Limit, claimant: Claimant<'a>) -> Option<Self> {
        if matches!(limit.kind, LimitKind::TresMinutes(_) | LimitKind::Wall) {
            return None;
        }
        Total::compared_with(view, limit, claimant).map(Self::Limit)
    }

    /// What may be lifted when a job of this claimant ends.
    pub fn lifted_by(
        view: &'a View,
        claimant: Claimant<'a>,
    ) -> impl Iterator<Item = Self> + use<'a> {
        Total::counting(view, claimant).map(Self::Limit)
    }
}

/// An event. Events of one moment are applied in the order of the variants.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForecastEvent {
    /// The hold at this index ends.
    Released(usize),
    Started(JobId),
    Ended(JobId),
    /// An event that the deferred slot at this index waited for has happened.
    ConditionMet(usize),
    /// The backfill slot of the expected start at this index begins.
    SlotBegins(usize),
}

/// Usage and licenses that a job holds, or will hold, until `end`.
pub struct ResourceHold<'a> {
    pub claimant: Option<(Claimant<'a>, JobUsage)>,
    pub licenses: &'a [(String, u32)],
    pub end: Millis,
}

/// A job with a backfill slot that holds usage or licenses from its start on.
pub struct ExpectedStart {
    pub job: JobId,
    pub hold: usize,
    /// The job's index among the deferred slots: it is blocked again if a limit holds it back at its start.
    pub deferred: usize,
    pub kept: Option<Arc<BackfillSlot>>,
    /// When the last of its tasks ends.
    pub last_end: Millis,
}

/// The state of the forecast.
#[derive(Default)]
pub struct Forecast<'a> {
    pub events: BinaryHeap<Reverse<(Millis, ForecastEvent)>>,
    pub holds: Vec<ResourceHold<'a>>,
    pub expected_starts: Vec<ExpectedStart>,
    /// Jobs that do not start when they were expected to.
    pub void: HashSet<JobId>,
    /// Jobs of those that have another slot by now.
    pub void_before: HashSet<JobId>,
    /// Jobs that have a slot, or are being given one.
    pub settled: HashSet<JobId>,
    /// For each deferred slot the number of events that it still waits for.
    pub open: Vec<usize>,
    /// For each deferred slot the number of its tasks that have a backfill slot.
    pub placed: Vec<u32>,
    pub by_end: HashMap<JobId, Vec<usize>>,
    pub by_start: HashMap<JobId, Vec<(usize, u32)>>,
    /// Deferred slots by their blocker, in queue order; and the blocker of each.
    pub blocked: BTreeMap<Blocker<'a>, BTreeSet<usize>>,
    pub blocks: Vec<Option<Blocker<'a>>>,
    /// Blockers that may have been lifted at this moment.
    pub lifted: BTreeSet<Blocker<'a>>,
    /// Deferred slots whose events have all happened.
    pub ready: BTreeSet<usize>,
}

impl<'a> Forecast<'a> {
    /// Adds a hold. Returns its index.
    pub fn add_hold(&mut self, hold: ResourceHold<'a>) -> usize {
        self.holds.push(hold);
        self.holds.len() - 1
    }

    pub fn release_at_end(&mut self, at: usize) {
        let end = self.holds[at].end;
        if end < NEVER {
            self.events.push(Reverse((end, ForecastEvent::Released(at))));
        }
    }

    pub fn note_end(&mut self, job: JobId, end: Millis) {
        if end < NEVER {
            self.events.push(Reverse((end, ForecastEvent::Ended(job))));
        }
    }

    pub fn note_start(&mut self, job: JobId, time: Millis) {
        for (at, minutes) in self.by_start.remove(&job).unwrap_or_default() {
            self.meet_after(at, time, minutes);
        }
    }

    pub fn meet_after(&mut self, at: usize, start: Millis, minutes: u32) {
        let time = start.saturating_add(60_000 * i64::from(minutes));
        self.events.push(Reverse((time, ForecastEvent::ConditionMet(at))));
    }

    pub fn block(&mut self, at: usize, block: Blocker<'a>) {
        self.blocked.entry(block).or_default().insert(at);
        self.blocks[at] = Some(block);
    }

    pub fn unblock(&mut self, at: usize) {
        let Some(block) = self.blocks[at].take() else { return };
        if let Some(held) = self.blocked.get_mut(&block) {
            held.remove(&at);
        }
    }

    pub fn meet_condition(&mut self, at: usize) {
        if self.open[at] == 0 {
            return;
        }
        self.open[at] -= 1;
        if self.open[at] == 0 {
            self.ready.insert(at);
        }
    }
}

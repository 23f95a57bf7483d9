//! What is known of the time to come, and what holds turns back until then.

use crate::free::backfill_slot::BackfillSlot;
use crate::free::timeline::{Millis, NEVER};
use crate::gate::limits::{Claimant, JobUsage, qos_names};
use crate::view::View;
use model::id::JobId;
use model::reason::{Limit, LimitKind, LimitScope};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, HashMap, HashSet};
use std::sync::Arc;

/// What holds a turn back: whose use of which limit, or the licences.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Blocker {
    User(String, u32),
    Account(String, String),
    Qos(String),
    /// An account's or user's, with all below it.
    Below(String),
    /// An association's own count.
    Own(u32),
    Licenses,
}

impl Blocker {
    /// None for a limit on what the job itself asks for: that does not pass.
    pub fn of(limit: &Limit, claimant: Claimant<'_>) -> Option<Self> {
        let holder = || limit.holder.clone();
        if matches!(limit.kind, LimitKind::TresMinutes(_) | LimitKind::Wall) {
            return None;
        }
        match limit.scope {
            LimitScope::QosPerUser => Some(Self::User(holder(), claimant.uid)),
            LimitScope::QosPerAccount => {
                Some(Self::Account(holder(), claimant.account.to_string()))
            }
            LimitScope::QosGroup => Some(Self::Qos(holder())),
            LimitScope::AssociationGroup => Some(Self::Below(holder())),
            LimitScope::AssociationPerJob if limit.kind == LimitKind::Jobs => {
                claimant.association.map(Self::Own)
            }
            _ => None,
        }
    }

    /// What may be lifted when a job of this claimant ends.
    pub fn lifted_by(view: &View, claimant: Claimant<'_>) -> Vec<Self> {
        let account = claimant.account.to_string();
        let mut lifted: Vec<Self> = qos_names(claimant)
            .flat_map(|qos| {
                let qos = qos.to_string();
                [
                    Self::User(qos.clone(), claimant.uid),
                    Self::Account(qos.clone(), account.clone()),
                    Self::Qos(qos),
                ]
            })
            .collect();
        lifted.extend(view.accounting.chain(claimant.association).map(|(_, member)| {
            let association = &member.association;
            Self::Below(association.user.as_ref().unwrap_or(&association.account).clone())
        }));
        lifted.extend(claimant.association.map(Self::Own));
        lifted
    }
}

/// What comes about at a moment; of one moment, in this order.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ForecastEvent {
    /// One of those that hold something ends.
    Given(usize),
    Begun(JobId),
    Ended(JobId),
    /// What this turn waited for of another job has come about.
    Met(usize),
    /// One that keeps a place begins: it holds what it asked for, if its limits let it.
    Taken(usize),
}

/// Somebody who holds, or will hold, limits and licences.
pub struct ResourceHold<'a> {
    pub claimant: Option<(Claimant<'a>, JobUsage)>,
    pub licenses: &'a [(String, u32)],
    pub end: Millis,
}

/// One that keeps a place, and holds something from its start on.
pub struct ExpectedStart {
    pub job: JobId,
    pub holding: usize,
    /// The turn among those that are deferred: it waits again if a limit is in its way then.
    pub deferred: usize,
    pub kept: Option<Arc<BackfillSlot>>,
    /// When the last of its tasks ends.
    pub whole: Millis,
}

/// What is known of the time to come.
#[derive(Default)]
pub struct Forecast<'a> {
    pub events: BinaryHeap<Reverse<(Millis, ForecastEvent)>>,
    pub holdings: Vec<ResourceHold<'a>>,
    pub begins: Vec<ExpectedStart>,
    /// Jobs that do not start when they were expected to; and those of them that have another place by now.
    pub void: HashSet<JobId>,
    pub void_before: HashSet<JobId>,
    /// Jobs that have a place, or are being given one.
    pub settled: HashSet<JobId>,
    /// Of each deferred turn how much must still come about before it is tried, and how many of its tasks have a place.
    pub open: Vec<usize>,
    pub placed: Vec<u32>,
    pub by_end: HashMap<JobId, Vec<usize>>,
    pub by_start: HashMap<JobId, Vec<(usize, u32)>>,
    /// Deferred turns by what holds them, in the order of the line; and of each what that is.
    pub blocked: BTreeMap<Blocker, BTreeSet<usize>>,
    pub blocks: Vec<Option<Blocker>>,
    /// What may hold fewer at this moment, and those for whom something else has come about.
    pub lifted: BTreeSet<Blocker>,
    pub ready: BTreeSet<usize>,
}

impl<'a> Forecast<'a> {
    /// It holds this, or will, and gives it back at its end.
    pub fn holds(&mut self, holding: ResourceHold<'a>) -> usize {
        self.holdings.push(holding);
        self.holdings.len() - 1
    }

    pub fn releases(&mut self, at: usize) {
        let end = self.holdings[at].end;
        if end < NEVER {
            self.events.push(Reverse((end, ForecastEvent::Given(at))));
        }
    }

    pub fn ends(&mut self, job: JobId, end: Millis) {
        if end < NEVER {
            self.events.push(Reverse((end, ForecastEvent::Ended(job))));
        }
    }

    pub fn begun(&mut self, job: JobId, time: Millis) {
        for (at, minutes) in self.by_start.remove(&job).unwrap_or_default() {
            self.met_after(at, time, minutes);
        }
    }

    pub fn met_after(&mut self, at: usize, start: Millis, minutes: u32) {
        let time = start.saturating_add(60_000 * i64::from(minutes));
        self.events.push(Reverse((time, ForecastEvent::Met(at))));
    }

    pub fn block(&mut self, at: usize, block: Blocker) {
        self.blocked.entry(block.clone()).or_default().insert(at);
        self.blocks[at] = Some(block);
    }

    pub fn unblock(&mut self, at: usize) {
        let Some(block) = self.blocks[at].take() else { return };
        if let Some(held) = self.blocked.get_mut(&block) {
            held.remove(&at);
        }
    }

    pub fn meet(&mut self, at: usize) {
        if self.open[at] == 0 {
            return;
        }
        self.open[at] -= 1;
        if self.open[at] == 0 {
            self.ready.insert(at);
        }
    }
}

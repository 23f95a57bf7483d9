//! Places kept for later: who may keep one, and where it is.

use super::{Planner, Purpose};
use crate::board::Kept;
use crate::memo::{Place, Record};
use crate::order::Turn;
use crate::place::cores;
use crate::timeline::{CORE, CORES};
use crate::view::Estimate;
use model::id::JobId;
use model::reason::Reason;
use model::time::Timestamp;

impl<'a> Planner<'a> {
    pub(super) fn is_for_starts(&self) -> bool {
        self.purpose == Purpose::Starts
    }

    pub(super) fn may_reserve(&mut self, turn: Turn) -> bool {
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
    pub(super) fn expect_later(&mut self, place: Place, reason: &Reason) {
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
    pub(super) fn reserve(&mut self, turn: Turn, shape: usize, from: i64) {
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
        let estimate = self.estimate_of(job, turn.partition, kept.start, &kept);
        self.estimates.push(estimate);
        self.board.keep(&kept, holder);
        let first = (kept.start, kept.end);
        self.kept.insert(job, kept);
        if !self.is_for_starts() && more > 1 {
            self.more_kept.insert(turn.waiting, vec![first]);
            self.keep_more(turn, shape, from, more - 1);
        }
    }

    /// Places for further tasks of an array, in nobody's name.
    fn keep_more(&mut self, turn: Turn, shape: usize, from: i64, tasks: u32) {
        for _ in 0..tasks {
            let (known, mut ground) = self.ground(shape);
            let holder = known.demand.holder;
            let Some(kept) = ground.later(known, from).kept else { return };
            self.board.keep(&kept, holder);
            self.more_kept.entry(turn.waiting).or_default().push((kept.start, kept.end));
        }
    }

    /// The estimate of a job that has this place.
    pub(super) fn estimate_of(
        &self,
        job: JobId,
        partition: u32,
        start: i64,
        kept: &Kept,
    ) -> Estimate {
        let of_node = |(node, amounts): &(u32, Vec<u64>)| {
            let config = self.board.config(*node);
            let cores = amounts[CORES].div_ceil(CORE) as u32;
            (config.name.clone(), cores * cores::threads(config))
        };
        let (nodes, cpus): (Vec<String>, Vec<u32>) = kept.parts.iter().map(of_node).unzip();
        let cpus = cpus.into_iter().sum();
        Estimate { job, partition, start: Timestamp(start), nodes, cpus }
    }

    pub(super) fn give_up(&mut self, job: JobId) {
        if let Some(kept) = self.kept.remove(&job) {
            self.board.give_up(&kept);
            self.rerun.differ(kept.nodes());
            self.estimates.retain(|known| known.job != job);
        }
    }
}

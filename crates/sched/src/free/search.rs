//! The search for the earliest start of jobs of one shape.
//!
//! Nodes are taken from the sorted order of [`NodeNeeds`], the first to come free first. Where this plan has changed a
//! node, its time is worked out again and the node is put on a heap. Times only grow within a plan, so no node is looked
//! at before it can matter.

use crate::free::needs::{FreeOrder, NodeNeeds};
use crate::free::node_timelines::{NodeTimelines, SlotRank};
use crate::free::timeline::{BEGINNING, Millis, is_now, now_key};
use crate::index::Rank;
use crate::reservation::ReservationAccess;
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashSet};
use std::sync::Arc;

pub struct Search {
    pub needs: Arc<NodeNeeds>,
    pub order: Arc<FreeOrder>,
    access: ReservationAccess,
    length: Millis,
    /// How much of `order` has been moved to the heap or dropped.
    at: usize,
    heap: BinaryHeap<Reverse<RankedTime>>,
    /// Nodes drawn by searches for several nodes at once; they stay drawn.
    drawn: Vec<DrawnNode>,
    /// Ranks whose amounts would do now, but not their very cores and devices.
    refused: HashSet<Rank>,
    /// No node serves now, whatever its amounts say.
    all_refused: bool,
    /// [`NodeTimelines::releases`] as of the times that are known here.
    releases: u32,
}

/// A node whose time from now on is known, as of a version of its timeline.
#[derive(Debug, Clone, Copy)]
struct DrawnNode {
    key: Millis,
    rank: Rank,
    version: u32,
}

/// A candidate: when it could serve, and its rank.
type RankedTime = (Millis, Rank);

impl Search {
    pub fn new(
        needs: Arc<NodeNeeds>,
        order: Arc<FreeOrder>,
        access: ReservationAccess,
        length: Millis,
    ) -> Self {
        Self {
            needs,
            order,
            access,
            length,
            at: 0,
            heap: BinaryHeap::new(),
            drawn: Vec::new(),
            refused: HashSet::new(),
            all_refused: false,
            releases: 0,
        }
    }

    fn node(&self, rank: Rank) -> u32 {
        self.needs.candidate(rank)
    }

    /// The first of the candidates that are left. Its key is no later than its true time.
    fn peek(&self) -> Option<RankedTime> {
        let ordered = self.order.get(self.at).copied();
        let heaped = self.heap.peek().map(|Reverse(entry)| *entry);
        match (ordered, heaped) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    fn pop(&mut self) -> Option<RankedTime> {
        let ordered = self.order.get(self.at).copied();
        let heaped = self.heap.peek().map(|Reverse(entry)| *entry);
        match (ordered, heaped) {
            (Some(a), Some(b)) if b < a => self.heap.pop().map(|Reverse(entry)| entry),
            (Some(a), _) => {
                self.at += 1;
                Some(a)
            }
            (None, _) => self.heap.pop().map(|Reverse(entry)| entry),
        }
    }

    /// The true time of an entry from `from` on.
    fn time(
        &self,
        timelines: &NodeTimelines<'_>,
        (key, rank): RankedTime,
        from: Millis,
    ) -> Option<Millis> {
        let node = self.node(rank);
        let is_refused =
            self.all_refused || (!self.refused.is_empty() && self.refused.contains(&rank));
        let from = if is_refused { from.max(timelines.now + 1) } else { from };
        if timelines.is_unchanged(node)
            && timelines.is_available(node)
            && !self.access.is_confined()
        {
            return Some(key.max(from));
        }
        // Times only grow, so that nothing before its key need be looked at.
        timelines.earliest(node, &self.needs, &self.access, from.max(key), self.length)
    }

    /// The key of a time: whatever is free now comes before every time.
    fn key(&self, timelines: &NodeTimelines<'_>, rank: Rank, time: Millis) -> Millis {
        let now = || now_key(timelines.availability(self.node(rank)));
        if time <= timelines.now { now() } else { time }
    }

    /// Whether anything could start now.
    pub fn may_start_now(&self) -> bool {
        self.peek().is_some_and(|(key, _)| is_now(key))
    }

    /// The first node to be free for one, and when.
    pub fn one(&mut self, timelines: &NodeTimelines<'_>, from: Millis) -> Option<(Millis, u32)> {
        self.follow(timelines);
        self.put_back();
        if from > timelines.now {
            return self.one_from(timelines, from);
        }
        while let Some(entry) = self.peek() {
            let in_heap = self.heap.peek() == Some(&Reverse(entry));
            let time = self.time(timelines, entry, timelines.now);
            let found = time.map(|time| (self.key(timelines, entry.1, time), entry.1));
            // Replaced in place, because most stay near the top.
            match found {
                Some(found) if in_heap => {
                    if let Some(mut top) = self.heap.peek_mut() {
                        *top = Reverse(found);
                    }
                }
                _ => {
                    self.pop();
                    self.heap.extend(found.map(Reverse));
                }
            }
            if found == Some(entry) {
                return Some((time?, self.node(entry.1)));
            }
        }
        None
    }

    /// The first node to be free from a later moment on. What is known for now does not help and is left alone.
    fn one_from(&self, timelines: &NodeTimelines<'_>, from: Millis) -> Option<(Millis, u32)> {
        let mut best: Option<RankedTime> = None;
        for entry in self.order.iter() {
            if best.is_some_and(|(time, _)| entry.0 > time) {
                break;
            }
            if let Some(time) = self.time(timelines, *entry, from)
                && best.is_none_or(|best| (time, entry.1) < best)
            {
                best = Some((time, entry.1));
            }
        }
        best.map(|(time, rank)| (time, self.node(rank)))
    }

    /// Starts over if anything was released since.
    fn follow(&mut self, timelines: &NodeTimelines<'_>) {
        if self.releases != timelines.releases {
            self.releases = timelines.releases;
            self.at = 0;
            self.heap.clear();
            self.drawn.clear();
            self.look_at_vacated_first(timelines);
        }
    }

    /// Nodes that a preempted job will leave may come free before their order says: they are looked at first.
    fn look_at_vacated_first(&mut self, timelines: &NodeTimelines<'_>) {
        if timelines.vacated.is_empty() {
            return;
        }
        let ranked = self.needs.candidates.iter().zip(Rank::all());
        let left: HashSet<Rank> = ranked
            .filter(|(node, _)| timelines.vacated.contains(node))
            .map(|(_, rank)| rank)
            .collect();
        let stays = self.order.iter().filter(|(_, rank)| !left.contains(rank)).copied();
        let admitted = left.iter().filter(|rank| self.needs.admits(self.node(**rank)));
        let mut order: FreeOrder = admitted.map(|rank| (BEGINNING, *rank)).chain(stays).collect();
        order.sort_unstable();
        self.order = Arc::new(order);
    }

    fn put_back(&mut self) {
        for drawn in self.drawn.drain(..) {
            self.heap.push(Reverse((drawn.key, drawn.rank)));
        }
    }

    /// The node that `one` found does not serve now after all.
    pub fn refuse_now(&mut self, timelines: &NodeTimelines<'_>) {
        debug_assert_eq!(self.releases, timelines.releases, "what was found is still so");
        if let Some((_, rank)) = self.pop() {
            self.refused.insert(rank);
            self.heap.push(Reverse((timelines.now + 1, rank)));
        }
    }

    /// Nothing was free for the job now: no node serves before the next moment. Which of them were refused one by one is not known
    /// where what an earlier plan found answered for them.
    pub fn refuse_all_now(&mut self) {
        self.all_refused = true;
    }

    /// Every node that could serve now, by rank.
    pub fn ready_now(&mut self, timelines: &NodeTimelines<'_>, most: usize) -> Vec<u32> {
        self.follow(timelines);
        self.put_back();
        let is_bounded = most <= self.order.len();
        let mut ready: Vec<RankedTime> = Vec::with_capacity(if is_bounded { most } else { 0 });
        while ready.len() < most && self.may_start_now() {
            let Some(entry) = self.pop() else { break };
            let Some(time) = self.time(timelines, entry, timelines.now) else { continue };
            match (self.key(timelines, entry.1, time), entry.1) {
                found if is_now(found.0) => ready.push(found),
                later => self.heap.push(Reverse(later)),
            }
        }
        self.heap.extend(ready.iter().map(|found| Reverse(*found)));
        ready.iter().map(|(_, rank)| self.node(*rank)).collect()
    }

    /// The first moment from `from` on at which so many nodes are free for one each, with the first
    /// of them.
    pub fn several(
        &mut self,
        timelines: &NodeTimelines<'_>,
        count: usize,
        from: Millis,
    ) -> Option<(Millis, Vec<u32>)> {
        self.follow(timelines);
        self.renew(timelines);
        let time_of = |search: &Self, drawn: &DrawnNode, from: Millis| match drawn.key {
            key if key >= from => Some(key),
            key => search.time(timelines, (key, drawn.rank), from),
        };
        // At least so many nodes are drawn where the job can start at all: the lists do not grow node by node.
        let least = count.min(self.order.len());
        self.drawn.reserve(least);
        let mut times: Vec<Option<Millis>> = Vec::with_capacity(self.drawn.len() + least);
        times.extend(self.drawn.iter().map(|drawn| time_of(self, drawn, from)));
        let mut time = from;
        loop {
            while self.peek().is_some_and(|(key, _)| key <= time) {
                if self.draw(timelines) {
                    times.extend(self.drawn.last().map(|drawn| time_of(self, drawn, time)));
                }
            }
            if times.iter().filter(|t| **t == Some(time)).count() >= count {
                return Some((time, self.first_ranked(timelines, &times, time, count)));
            }
            // Not before the count-th of them could be free, each by itself.
            let mut earliest = EarliestTimes::new(count);
            times.iter().flatten().for_each(|time| earliest.add(*time));
            while self.peek().is_some_and(|(key, _)| earliest.would_add(key)) {
                if self.draw(timelines) {
                    let drawn_time = self.drawn.last().and_then(|d| time_of(self, d, time));
                    times.push(drawn_time);
                    drawn_time.into_iter().for_each(|time| earliest.add(time));
                }
            }
            time = earliest.last()?;
            for (at, known) in times.iter_mut().enumerate() {
                if known.is_some_and(|known| known < time) {
                    *known = time_of(self, &self.drawn[at], time);
                }
            }
        }
    }

    /// Works out again the times of nodes that changed since they were drawn.
    fn renew(&mut self, timelines: &NodeTimelines<'_>) {
        let mut drawn = std::mem::take(&mut self.drawn);
        drawn.retain_mut(|drawn| {
            let version = timelines.version(self.node(drawn.rank));
            if drawn.version == version {
                return true;
            }
            drawn.version = version;
            let time = self.time(timelines, (drawn.key, drawn.rank), timelines.now);
            drawn.key = time.map_or(drawn.key, |time| self.key(timelines, drawn.rank, time));
            time.is_some()
        });
        self.drawn = drawn;
    }

    /// Draws the next candidate. Returns false if it can never serve.
    fn draw(&mut self, timelines: &NodeTimelines<'_>) -> bool {
        let Some((key, rank)) = self.pop() else { return false };
        let Some(time) = self.time(timelines, (key, rank), timelines.now) else { return false };
        let version = timelines.version(self.node(rank));
        self.drawn.push(DrawnNode { key: self.key(timelines, rank, time), rank, version });
        true
    }

    fn first_ranked(
        &self,
        timelines: &NodeTimelines<'_>,
        times: &[Option<Millis>],
        time: Millis,
        count: usize,
    ) -> Vec<u32> {
        let free = times.iter().zip(&self.drawn).filter(|(t, _)| **t == Some(time));
        let mut ranks: Vec<Rank> = free.map(|(_, drawn)| drawn.rank).collect();
        if ranks.len() > count && timelines.narrow_jobs_end_first() {
            ranks = self.without_widest(timelines, ranks, time, count);
        }
        // Where no more serve than are needed there is nothing to choose.
        if ranks.len() > count {
            let ranked = |rank: &Rank| timelines.slot_rank(self.node(*rank), &self.needs, *rank);
            let mut slot_ranks: Vec<SlotRank> = ranks.iter().map(ranked).collect();
            slot_ranks.select_nth_unstable(count - 1);
            ranks = slot_ranks[..count].iter().map(|slot| slot.rank).collect();
        }
        let mut nodes: Vec<u32> = ranks.into_iter().map(|rank| self.node(rank)).collect();
        nodes.sort_unstable();
        nodes
    }

    /// Leaves out the nodes of the widest jobs that end at this very moment, as far as the others suffice.
    fn without_widest(
        &self,
        timelines: &NodeTimelines<'_>,
        ranks: Vec<Rank>,
        time: Millis,
        count: usize,
    ) -> Vec<Rank> {
        let (mut chosen, mut ending) = (Vec::new(), Vec::new());
        for rank in ranks {
            match timelines.ending_job(self.node(rank), time) {
                Some(job) => ending.push((job, rank)),
                None => chosen.push(rank),
            }
        }
        ending.sort_unstable();
        for of_job in ending.chunk_by(|(a, _), (b, _)| a == b) {
            if chosen.len() >= count {
                break;
            }
            chosen.extend(of_job.iter().map(|(_, rank)| *rank));
        }
        chosen
    }
}

/// The `count` earliest of the times that were added.
struct EarliestTimes {
    count: usize,
    times: BinaryHeap<Millis>,
}

impl EarliestTimes {
    fn new(count: usize) -> Self {
        Self { count, times: BinaryHeap::with_capacity(count + 1) }
    }

    fn add(&mut self, time: Millis) {
        if self.would_add(time) {
            self.times.push(time);
        }
        if self.times.len() > self.count {
            self.times.pop();
        }
    }

    fn would_add(&self, time: Millis) -> bool {
        self.times.len() < self.count || self.times.peek().is_some_and(|last| time < *last)
    }

    /// The latest of them, once there are `count`.
    fn last(&self) -> Option<Millis> {
        (self.times.len() == self.count).then(|| self.times.peek().copied()).flatten()
    }
}

//! Placements for jobs now, and backfill slots: the earliest time at which everything will be free if nothing runs over
//! its limit.
//!
//! Slots are taken from the timelines. A job that starts later in the queue finds only what they leave, so it never
//! delays a job with a slot.

use crate::free::backfill_slot::{BackfillSlot, end_of};
use crate::free::needs::{FreeOrder, NeedsScope, NodeNeeds};
use crate::free::node_free::NodeFree;
use crate::free::node_timelines::{FreeDuring, NodeTimelines, SlotRank};
use crate::free::shape::{ChangedNodes, PlacementMode, Shape, over_time};
use crate::free::timeline::{Millis, NEVER, columns_of, now_key};
use crate::index::{ClassIndex, Rank};
use crate::memo::{Baseline, GpuLosses, NeedsCache, NodeLoss, Replay, SlotRecord};
use crate::place::{Placement, fit, place};
use model::allocation::NodeShare;
use model::node::NodeConfig;
use model::price::Price;
use model::time::TimeLimit;
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;

/// Moments that are tried for a job whose nodes must be chosen as a whole; the last ones far apart.
const PROBES_MAX: usize = 48;
/// Moments that are tried to start a job on several nodes earlier than on one.
const SPREAD_PROBES_MAX: usize = 16;
/// Nodes that are looked at for such a job at a later moment.
const LATER_NODES_MAX: usize = 512;
/// Nodes that are compared for a job on one node, by what typical jobs could not use any more.
const COMPARED_NODES_MAX: usize = 4_096;
/// The same for all jobs that a plan starts. When many start at once, the last ones get the first nodes in order.
const COMPARED_IN_PLAN_MAX: usize = 1_000_000;
/// Nodes with a backfill slot that are looked at for a job that can start.
const RESERVED_NODES_MAX: usize = 512;

/// A node by what decides whether the job takes it: its power state, weight and price; what is lost, until when it stays free, how
/// many GPUs are left, and its position.
type NodeChoice = (Millis, u32, Price, (i64, Millis, u64, i64), u32);

/// What the search for placements and slots works on.
pub struct SlotFinder<'g, 'a> {
    pub timelines: &'g mut NodeTimelines<'a>,
    pub needs_cache: &'g mut NeedsCache,
    pub gpu_losses: &'g mut GpuLosses,
    pub baseline: &'a Baseline,
    pub replay: &'g Replay,
}

impl SlotFinder<'_, '_> {
    /// A placement from now on, for the shape's full length or its short one.
    pub fn place_now(&mut self, shape: &mut Shape<'_>, short: bool) -> Option<Placement> {
        if shape.search_of_length(short).failed {
            return None;
        }
        let placement = match shape.mode {
            PlacementMode::Single => self.place_single(shape, short),
            PlacementMode::SingleFirst => {
                self.place_single(shape, short).or_else(|| self.place_set(shape, short))
            }
            PlacementMode::EqualNodes(count) => self.place_equal(shape, short, count as usize),
            PlacementMode::NodeSet => self.place_set(shape, short),
        };
        let search = shape.search_of_length(short);
        search.failed = placement.is_none();
        search.nothing_free = search.failed;
        placement
    }

    /// A placement from now on, on those of the nodes that `is_within` marks.
    pub fn place_within(&mut self, shape: &mut Shape<'_>, is_within: &[bool]) -> Option<Placement> {
        let scope = match shape.mode {
            PlacementMode::Single => NeedsScope::WholeJob,
            _ => NeedsScope::EachNode,
        };
        let length = shape.search_of_length(false).length;
        let search = shape.search(scope, false, self.needs_cache, self.baseline);
        let mut ready = search.ready_now(self.timelines, usize::MAX);
        ready.retain(|node| is_within[*node as usize]);
        if (ready.len() as u64) < u64::from(shape.demand.nodes_min) {
            return None;
        }
        let space =
            FreeDuring::new(self.timelines, &ready, &shape.access, self.timelines.now, length);
        place(&shape.demand, &space, &ready)
    }

    fn place_single(&mut self, shape: &mut Shape<'_>, short: bool) -> Option<Placement> {
        let length = shape.search_of_length(short).length;
        if self.compares_nodes(shape)
            && let Some(placement) = self.place_on_best(shape, short)
        {
            return Some(placement);
        }
        let search = shape.search(NeedsScope::WholeJob, short, self.needs_cache, self.baseline);
        let most = search.needs.candidates.len();
        // Each refusal rules out one node, so the loop ends.
        for _ in 0..=most {
            let search = shape.search(NeedsScope::WholeJob, short, self.needs_cache, self.baseline);
            let (time, node) = search.one(self.timelines, self.timelines.now)?;
            if time > self.timelines.now {
                return None;
            }
            let needs = search.needs.clone();
            for node in self.reserved_first(shape, &needs, &[node], length) {
                let free = self.timelines.free_through(node, &shape.access, time, length);
                let config = self.timelines.config(node);
                let demand = &shape.demand;
                let granted =
                    fit::grant(demand, config, &free, demand.task_count(), &demand.job_totals());
                if let Some(share) = granted {
                    return Some(Placement { shares: vec![(node, share)] });
                }
            }
            let search = shape.search(NeedsScope::WholeJob, short, self.needs_cache, self.baseline);
            search.refuse_now(self.timelines);
        }
        None
    }

    /// Whether the first node in order that serves may not be the best.
    fn compares_nodes(&self, shape: &Shape<'_>) -> bool {
        self.timelines.compared_nodes < COMPARED_IN_PLAN_MAX
            && (!self.timelines.view.typical_jobs.is_empty() || self.is_packed_at_end(shape))
    }

    fn is_packed_at_end(&self, shape: &Shape<'_>) -> bool {
        self.timelines.view.policy.pack_serial_at_end && shape.demand.is_serial()
    }

    /// The best of the nodes that serve now. `None` also where the very cores and devices of none of those compared serve.
    fn place_on_best(&mut self, shape: &mut Shape<'_>, short: bool) -> Option<Placement> {
        let length = shape.search_of_length(short).length;
        let search = shape.search(NeedsScope::WholeJob, short, self.needs_cache, self.baseline);
        let ready = search.ready_now(self.timelines, COMPARED_NODES_MAX);
        let needs = search.needs.clone();
        let now = self.timelines.now;
        let mut best = self.best_first(shape, &needs, &ready);
        let demand = &shape.demand;
        let mut nodes = std::iter::from_fn(|| best.pop().map(|Reverse((.., node))| node));
        let placement = nodes.find_map(|node| {
            let free = self.timelines.free_through(node, &shape.access, now, length);
            let config = self.timelines.config(node);
            let share =
                fit::grant(demand, config, &free, demand.task_count(), &demand.job_totals())?;
            Some(Placement { shares: vec![(node, share)] })
        })?;
        // Only of jobs that start: a plan that remembers more looks for fewer in vain, and must choose the same.
        self.timelines.compared_nodes += ready.len();
        Some(placement)
    }

    /// These nodes, the one that the job takes first on top: by power state, weight and price, then by what becomes unusable for
    /// typical jobs, and where that is equal the one with the fewest GPUs left; a job of one CPU from the last in order, where the
    /// site says so.
    fn best_first(
        &mut self,
        shape: &Shape<'_>,
        needs: &Arc<NodeNeeds>,
        ready: &[u32],
    ) -> BinaryHeap<Reverse<NodeChoice>> {
        let from_last = self.is_packed_at_end(shape);
        let timelines = &*self.timelines;
        let key = |node: u32| {
            let rank = self.needs_cache.rank(shape.partition, node)?;
            let (weight, price) = timelines.weight_and_price(node);
            let power = now_key(timelines.availability(node));
            let position = i64::from(rank.0);
            let choice = if from_last {
                (-position, 0, 0, 0)
            } else {
                let now = timelines.node_now(node);
                let NodeLoss { added, gpus_left } =
                    self.gpu_losses.on_node(now, needs, self.baseline);
                let free_until = timelines.free_until(node, needs, &shape.access);
                (added, free_until, gpus_left, position)
            };
            Some(Reverse((power, weight, price, choice, node)))
        };
        // Mostly the first of them serves: they are not sorted.
        ready.iter().copied().filter_map(key).collect::<Vec<_>>().into()
    }

    fn place_equal(
        &mut self,
        shape: &mut Shape<'_>,
        short: bool,
        count: usize,
    ) -> Option<Placement> {
        let length = shape.search_of_length(short).length;
        let now = self.timelines.now;
        let nothing = vec![0; shape.demand.gres.len()];
        let mut shares: Vec<(u32, NodeShare)> = Vec::with_capacity(count);
        let search = shape.search(NeedsScope::EachNode, short, self.needs_cache, self.baseline);
        let ready = search.ready_now(self.timelines, count);
        if ready.len() < count {
            return None;
        }
        let needs = search.needs.clone();
        let ready = self.reserved_first(shape, &needs, &ready, length);
        let each = shape.demand.tasks_on_each();
        // Most nodes of a wide job are alike and have the same free: it gets the same of each.
        let mut last: Option<(ClassIndex, NodeFree)> = None;
        for &node in ready.iter().take(count) {
            let free = self.timelines.free_through(node, &shape.access, now, length);
            let (class, config) = (self.timelines.class(node), self.timelines.config(node));
            let before = last.as_ref().filter(|(of, known)| (*of, known) == (class, &free));
            let share = match (before, shares.last()) {
                (Some(_), Some((_, share))) => Some(on_node(share, config)),
                _ => fit::grant(&shape.demand, config, &free, each, &nothing),
            };
            last = share.is_some().then_some((class, free));
            shares.extend(share.map(|share| (node, share)));
        }
        if shares.len() < count {
            // The amounts suffice, but the very cores of some nodes do not serve: every node is looked at.
            return self.place_set(shape, short);
        }
        shares.sort_unstable_by_key(|(node, _)| *node);
        Some(Placement { shares })
    }

    /// Nodes that serve a job now, in the order in which it takes them: those in `found`, and those that serve and are
    /// reserved for a backfill slot later. A slot's nodes come first, the one that is needed back soonest before the others:
    /// what no slot needs stays free for jobs that run longer. Power state, weight and price count before that.
    fn reserved_first(
        &self,
        shape: &Shape<'_>,
        needs: &NodeNeeds,
        found: &[u32],
        length: Millis,
    ) -> Vec<u32> {
        let timelines = &*self.timelines;
        let reserved = timelines.reserved_nodes();
        if reserved.is_empty() {
            return found.to_vec();
        }
        let serves = |node: &u32| {
            needs.admits(*node) && timelines.serves_now(*node, needs, &shape.access, length)
        };
        let key = |node: u32| {
            let rank = self.needs_cache.rank(shape.partition, node)?;
            let (weight, price) = timelines.weight_and_price(node);
            let power = now_key(timelines.availability(node));
            let free_until = timelines.free_until(node, needs, &shape.access);
            Some((power, weight, price, free_until, rank, node))
        };
        let reserved = &reserved[..reserved.len().min(RESERVED_NODES_MAX)];
        let others = reserved.iter().copied().filter(serves);
        let mut keyed = Vec::with_capacity(found.len() + reserved.len());
        keyed.extend(found.iter().copied().chain(others).filter_map(key));
        keyed.sort_unstable();
        keyed.dedup();
        keyed.into_iter().map(|(.., node)| node).collect()
    }

    fn place_set(&mut self, shape: &mut Shape<'_>, short: bool) -> Option<Placement> {
        let length = shape.search_of_length(short).length;
        let search = shape.search(NeedsScope::EachNode, short, self.needs_cache, self.baseline);
        let ready = search.ready_now(self.timelines, usize::MAX);
        if (ready.len() as u64) < u64::from(shape.demand.nodes_min) {
            return None;
        }
        let space =
            FreeDuring::new(self.timelines, &ready, &shape.access, self.timelines.now, length);
        place(&shape.demand, &space, &ready)
    }

    /// The longest time limit, up to the shape's own, for which the placement stays free.
    pub fn longest_limit(&self, shape: &Shape<'_>, placement: &Placement) -> TimeLimit {
        let holder = shape.demand.holder;
        let ends = placement.shares.iter().map(|(node, share)| {
            let amounts = columns_of(self.timelines.config(*node), share);
            let lasts =
                self.timelines.of_node(*node).free_until(self.timelines.now, &amounts, holder);
            lasts.min(self.timelines.windows.next_closed(*node, &shape.access, self.timelines.now))
        });
        let over_time = over_time(&self.timelines.view.policy);
        let minutes = (ends.min().unwrap_or(NEVER) - over_time - self.timelines.now) / 60_000;
        let longest = TimeLimit::Minutes(u32::try_from(minutes.max(0)).unwrap_or(u32::MAX));
        let least = shape.demand.request.time_min.unwrap_or(shape.time_limit);
        longest.min(shape.time_limit).max(least)
    }

    /// Nothing was free for a job of the shape at this point of the last plan. Unless a node that changed could serve,
    /// nothing is now.
    pub fn fail_unless_changed(&mut self, shape: &mut Shape<'_>) {
        if !self.replay.is_active || shape.full.failed {
            return;
        }
        let (part, short) = match shape.mode {
            PlacementMode::Single => (NeedsScope::WholeJob, shape.short.is_some()),
            _ => (NeedsScope::EachNode, shape.short.is_some()),
        };
        let now = self.timelines.now;
        if self.first_changed(shape, part, short, now).is_none_or(|(time, _)| time > now) {
            shape.fail_for_nodes();
        }
    }

    /// The first of the nodes that changed since the last plan to serve: when, and its rank.
    fn first_changed(
        &mut self,
        shape: &mut Shape<'_>,
        part: NeedsScope,
        short: bool,
        from: Millis,
    ) -> Option<(Millis, Rank)> {
        let partition = shape.partition;
        let needs = shape.needs(part, self.needs_cache, self.baseline);
        let mut asked = std::mem::take(&mut shape.search_of_length(short).differing);
        if asked.from != from {
            asked = ChangedNodes { from, ..ChangedNodes::default() };
        }
        let length = shape.search_of_length(short).length;
        let access = &shape.access;
        let changed = self.replay.changed_nodes();
        asked.answers.reserve(changed.len().saturating_sub(asked.answers.len()));
        for (at, &node) in changed.iter().enumerate() {
            let version = self.timelines.version(node);
            if asked.answers.get(at).is_some_and(|(of, _)| *of == version) {
                continue;
            }
            let rank = self.needs_cache.rank(partition, node).filter(|_| needs.admits(node));
            let earliest =
                |rank| Some((self.timelines.earliest(node, &needs, access, from, length)?, rank));
            let answer = (version, rank.and_then(earliest));
            match asked.answers.get_mut(at) {
                Some(known) => *known = answer,
                None => asked.answers.push(answer),
            }
        }
        let first = asked.answers.iter().filter_map(|(_, answer)| *answer).min();
        shape.search_of_length(short).differing = asked;
        first
    }

    /// The same as `find_slot`, where the last plan's answer is known: it is compared with what the changed nodes offer,
    /// as long as that settles it.
    pub fn find_slot_as_before(
        &mut self,
        shape: &mut Shape<'_>,
        from: Millis,
        before: &SlotRecord,
    ) -> SlotRecord {
        // A slot that should have begun by now is looked for again: the job had to wait for more than nodes. So is one that begins
        // at once: which nodes serve then depends on whether this plan has looked for any that serve now.
        let first = from.max(self.timelines.now + 2);
        let is_past = before.slot.as_ref().is_some_and(|kept| kept.start < first);
        let settled = match (before.single, shape.mode) {
            _ if is_past || !self.replay.is_active => None,
            (true, _) => self.single_as_before(shape, from, before),
            // Which nodes such a slot takes also depends on how many others serve when it begins.
            (false, PlacementMode::EqualNodes(_)) if self.timelines.narrow_jobs_end_first() => {
                self.replay.changed_nodes().is_empty().then(|| before.clone())
            }
            (false, PlacementMode::EqualNodes(count)) => {
                self.equal_as_before(shape, from, before, count)
            }
            _ => None,
        };
        settled.unwrap_or_else(|| self.find_slot(shape, from))
    }

    /// A single node: nodes that did not change serve no earlier than the one of the last plan.
    fn single_as_before(
        &mut self,
        shape: &mut Shape<'_>,
        from: Millis,
        before: &SlotRecord,
    ) -> Option<SlotRecord> {
        // The amounts of a node may do now, and its very cores and devices not.
        let from = if shape.full.nothing_free { from.max(self.timelines.now + 1) } else { from };
        let differing = self.first_changed(shape, NeedsScope::WholeJob, false, from);
        let found = match &before.slot {
            None => differing,
            Some(kept) => {
                let node = kept.amounts[0].0;
                let known = (kept.start, self.needs_cache.rank(shape.partition, node)?);
                match differing {
                    Some(first) if first < known => Some(first),
                    Some(first) if first == known => differing,
                    _ if self.replay.is_changed(node) => return None,
                    _ => return Some(before.clone()),
                }
            }
        };
        let Some((start, rank)) = found else { return Some(before.clone()) };
        let needs = shape.needs(NeedsScope::WholeJob, self.needs_cache, self.baseline);
        let node = needs.candidate(rank);
        let kept = self.slot_on(&needs, start, shape.full.length, vec![node]);
        Some(SlotRecord { slot: Some(kept), single: true })
    }

    /// Several equal nodes: before the last plan's start too few serve, unless a changed node does. At that moment, the
    /// other nodes that serve come behind all nodes of the last plan's slot.
    fn equal_as_before(
        &mut self,
        shape: &mut Shape<'_>,
        from: Millis,
        before: &SlotRecord,
        count: u32,
    ) -> Option<SlotRecord> {
        let first = self.first_changed(shape, NeedsScope::EachNode, false, from);
        let Some(kept) = &before.slot else {
            return first.is_none().then(|| before.clone());
        };
        if first.is_some_and(|(time, _)| time < kept.start) {
            return None;
        }
        let differs = kept.nodes().any(|node| self.replay.is_changed(node));
        if !differs && first.is_none_or(|(time, _)| time > kept.start) {
            return Some(before.clone());
        }
        let (partition, length) = (shape.partition, shape.full.length);
        let needs = shape.needs(NeedsScope::EachNode, self.needs_cache, self.baseline);
        let rank = |node: u32| {
            let rank = self.needs_cache.rank(partition, node)?;
            Some(self.timelines.slot_rank(node, &needs, rank))
        };
        // Whether a changed node was free then is not known: it came no earlier than as one that was not.
        let least_rank = |node: u32| {
            let rank = rank(node)?;
            Some(if self.replay.is_changed(node) { rank.if_busy() } else { rank })
        };
        let last = kept.nodes().filter_map(least_rank).max()?;
        let serves = |node: &u32| {
            let time = self.timelines.earliest(*node, &needs, &shape.access, from, length);
            needs.admits(*node) && time == Some(kept.start)
        };
        let differing = self.replay.changed_nodes().iter().copied().filter(serves);
        let staying = kept.nodes().filter(|node| !self.replay.is_changed(*node));
        let mut ranks: Vec<SlotRank> =
            staying.chain(differing).filter_map(rank).filter(|rank| *rank <= last).collect();
        if ranks.len() < count as usize {
            return None;
        }
        ranks.sort_unstable();
        let nodes = ranks.into_iter().take(count as usize);
        let mut nodes: Vec<u32> = nodes.map(|rank| needs.candidate(rank.rank)).collect();
        nodes.sort_unstable();
        let kept = self.slot_on(&needs, kept.start, length, nodes);
        Some(SlotRecord { slot: Some(kept), single: false })
    }

    /// The slot on these nodes.
    fn slot_on(
        &self,
        needs: &NodeNeeds,
        start: Millis,
        length: Millis,
        nodes: Vec<u32>,
    ) -> Arc<BackfillSlot> {
        let end = end_of(start, length);
        let part = |node: u32| {
            let (free, _) = self.timelines.of_node(node).least_free(start, end);
            (node, needs.amounts(self.timelines.class(node), &free))
        };
        Arc::new(BackfillSlot { start, end, amounts: nodes.into_iter().map(part).collect() })
    }

    /// The earliest slot from `from` on; none if what is in the way has no end.
    pub fn find_slot(&mut self, shape: &mut Shape<'_>, from: Millis) -> SlotRecord {
        let kept = match shape.mode {
            PlacementMode::NodeSet => self.set_slot(shape, from, NEVER, PROBES_MAX),
            PlacementMode::Single | PlacementMode::EqualNodes(_) => self.equal_slot(shape, from),
            PlacementMode::SingleFirst => {
                // Several nodes serve if that is earlier.
                let one = self.equal_slot(shape, from);
                let (before, probes) =
                    one.as_ref().map_or((NEVER, PROBES_MAX), |one| (one.start, SPREAD_PROBES_MAX));
                self.set_slot(shape, from, before, probes).or(one)
            }
        };
        SlotRecord { slot: kept, single: shape.mode == PlacementMode::Single }
    }

    fn equal_slot(&mut self, shape: &mut Shape<'_>, from: Millis) -> Option<Arc<BackfillSlot>> {
        let length = shape.full.length;
        let (part, count) = match shape.mode {
            PlacementMode::Single | PlacementMode::SingleFirst => (NeedsScope::WholeJob, 1),
            PlacementMode::EqualNodes(count) => (NeedsScope::EachNode, count as usize),
            PlacementMode::NodeSet => return None,
        };
        let nothing_free = shape.full.nothing_free;
        let search = shape.search(part, false, self.needs_cache, self.baseline);
        if nothing_free && part == NeedsScope::WholeJob {
            search.refuse_all_now();
        }
        let found = match count {
            1 => search.one(self.timelines, from).map(|(time, node)| (time, vec![node])),
            _ => search.several(self.timelines, count, from),
        };
        let (start, nodes) = found?;
        let needs = search.needs.clone();
        Some(self.slot_on(&needs, start, length, nodes))
    }

    /// The slot at the first of `probes` moments before `before` at which a set of nodes serves.
    fn set_slot(
        &mut self,
        shape: &mut Shape<'_>,
        from: Millis,
        before: Millis,
        probes: usize,
    ) -> Option<Arc<BackfillSlot>> {
        let least = shape.demand.nodes_min.max(1) as usize;
        let search = shape.search(NeedsScope::EachNode, false, self.needs_cache, self.baseline);
        // The set cannot start before the least number of nodes could hold the least on each.
        let (first, _) = search.several(self.timelines, least, from)?;
        let (needs, order) = (search.needs.clone(), search.order.clone());
        let first = match shape.full.none_before {
            (releases, time) if releases == self.timelines.releases => first.max(time),
            _ => first,
        };
        if first >= before {
            return None;
        }
        for (start, follows) in self.moments(&needs, &order, first, probes) {
            if start >= before {
                break;
            }
            let nodes = self.free_at(shape, &needs, &order, start);
            let space =
                FreeDuring::new(self.timelines, &nodes, &shape.access, start, shape.full.length);
            if let Some(placement) = place(&shape.demand, &space, &nodes) {
                let part = |(node, share): &(u32, _)| {
                    (*node, columns_of(self.timelines.config(*node), share))
                };
                let parts = placement.shares.iter().map(part).collect();
                let end = end_of(start, shape.full.length);
                return Some(Arc::new(BackfillSlot { start, end, amounts: parts }));
            }
            if follows && from <= self.timelines.now {
                shape.full.none_before = (self.timelines.releases, start + 1);
            }
        }
        None
    }

    /// The first moment, and later ones at which something changes: all of the near ones, then ever fewer, and the last of
    /// all. Each comes with whether no moment is left out before it.
    fn moments(
        &self,
        needs: &NodeNeeds,
        order: &FreeOrder,
        first: Millis,
        most: usize,
    ) -> Vec<(Millis, bool)> {
        let mut changes: Vec<Millis> = order
            .iter()
            .flat_map(|(_, rank)| self.timelines.of_node(needs.candidate(*rank)).changes())
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
        needs: &NodeNeeds,
        order: &FreeOrder,
        start: Millis,
    ) -> Vec<u32> {
        let length = shape.full.length;
        let mut ranks: Vec<Rank> = order
            .iter()
            .take_while(|(key, _)| *key <= start)
            .filter(|(_, rank)| {
                let node = needs.candidate(*rank);
                self.timelines.earliest(node, needs, &shape.access, start, length) == Some(start)
            })
            .map(|(_, rank)| *rank)
            .collect();
        ranks.sort_unstable();
        if shape.demand.request.node_list.is_empty() {
            ranks.truncate(LATER_NODES_MAX);
        }
        ranks.into_iter().map(|rank| needs.candidate(rank)).collect()
    }
}

/// The same share of another node of the class.
fn on_node(share: &NodeShare, config: &NodeConfig) -> NodeShare {
    let NodeShare { node: _, cpus, memory, gres, tasks, sharers, disk, price } = share;
    NodeShare {
        node: config.name.clone(),
        cpus: cpus.clone(),
        memory: *memory,
        gres: gres.clone(),
        tasks: *tasks,
        sharers: *sharers,
        disk: *disk,
        price: *price,
    }
}

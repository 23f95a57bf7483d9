//! Whether enough nodes are free now for a shape that an earlier plan worked out.
//!
//! Most jobs of a long queue wait because too few nodes are free. Jobs with the same needs differ only in how long they run: the
//! nodes that are free now, each with the moment until which it stays so, answer for all of them.

use crate::free::backfill_slot::end_of;
use crate::free::needs::NodeNeeds;
use crate::free::node_timelines::NodeTimelines;
use crate::free::timeline::{BEGINNING, Millis, NEVER};
use crate::free::waiting_shape::WaitingShape;
use crate::memo::{NeedsCache, Replay};
use crate::reservation::ReservationAccess;
use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};
use std::sync::Arc;

/// With more nodes that have a free core than this, a search is as quick as counting them.
const COUNTED_NODES_MAX: usize = 1_024;

/// The nodes that are free now, for each of the needs that were asked for in this plan.
#[derive(Default)]
pub struct FreeNow {
    /// Nodes with a free core, before this plan takes any; worked out when first asked for.
    nodes: Option<Vec<u32>>,
    counted: ByNeeds,
    /// The same, of the nodes that changed since the last plan.
    changed: ByNeeds,
}

/// What is known for each of the needs, by their address: the memo holds them as long as the plan lasts. Neighbours in the queue mostly
/// have the same needs, so that those which were asked for last are looked at first.
#[derive(Default)]
struct ByNeeds {
    times: Vec<FreeTimes>,
    positions: HashMap<usize, usize, BuildHasherDefault<AddressHasher>>,
    /// The address and the position.
    last: Option<(usize, usize)>,
}

impl ByNeeds {
    fn position(&mut self, address: usize) -> Option<usize> {
        if let Some((_, at)) = self.last.filter(|(of, _)| *of == address) {
            return Some(at);
        }
        let at = *self.positions.get(&address)?;
        self.last = Some((address, at));
        Some(at)
    }

    fn add(&mut self, address: usize, times: FreeTimes) -> usize {
        let at = self.times.len();
        self.times.push(times);
        self.positions.insert(address, at);
        self.last = Some((address, at));
        at
    }
}

/// Jobs of a long queue are looked up in every plan. Addresses are not chosen by anybody outside: a multiplication mixes them
/// well enough.
#[derive(Default)]
struct AddressHasher(u64);

impl Hasher for AddressHasher {
    fn write(&mut self, bytes: &[u8]) {
        bytes.iter().for_each(|byte| self.write_usize(usize::from(*byte)));
    }

    fn write_usize(&mut self, address: usize) {
        let mixed = (self.0 ^ address as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = mixed.rotate_left(32);
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

/// Until when the nodes stay free that serve now; the latest first.
struct FreeTimes {
    as_of: AsOf,
    until: Vec<Millis>,
}

/// The point of a plan that something is known as of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct AsOf {
    modifications: u64,
    releases: u32,
    changed_nodes: usize,
}

/// What a plan works on.
pub struct PlanNodes<'p, 'a> {
    pub timelines: &'p NodeTimelines<'a>,
    pub needs_cache: &'p NeedsCache,
    pub replay: &'p Replay,
}

/// What is known of the needs that neighbours in the queue have, while the plan changes nothing.
#[derive(Clone, Copy)]
pub struct NeighbourTimes {
    /// The address of the needs.
    needs: usize,
    /// Until when the longest of the nodes that changed since the last plan stays free. Before any time if none serves.
    changed_until: Millis,
    /// The position among the counted needs.
    counted: Option<usize>,
    releases: u32,
}

impl FreeNow {
    /// What is known of the needs of this shape.
    pub fn neighbour_times(
        &mut self,
        shape: &WaitingShape,
        plan: &PlanNodes<'_, '_>,
    ) -> NeighbourTimes {
        let needs = Arc::as_ptr(&shape.needs).addr();
        let nodes = plan.replay.changed_nodes();
        let changed_until = match plan.replay.is_active {
            // What nothing was free for in the last plan is not known.
            false => NEVER,
            true if nodes.is_empty() => BEGINNING,
            true => {
                let holds = |times: &FreeTimes| times.as_of == plan.as_of();
                let times = known(&mut self.changed, shape, plan, holds, nodes);
                times.until.first().copied().unwrap_or(BEGINNING)
            }
        };
        let counted = self.counted.position(needs);
        NeighbourTimes { needs, changed_until, counted, releases: plan.timelines.releases }
    }

    /// Whether it is known that no job of the shape can start now, as [`Self::is_too_little`] says it, by what is known already.
    pub fn is_known_too_little(
        &self,
        shape: &WaitingShape,
        nothing_free: bool,
        of: &NeighbourTimes,
        now: Millis,
    ) -> bool {
        let end = end_of(now, shape.length);
        if nothing_free && of.changed_until < end {
            return true;
        }
        let counted = of.counted.filter(|_| shape.node_count > 1).map(|at| &self.counted.times[at]);
        counted.is_some_and(|times| {
            times.as_of.releases == of.releases && !times.are_enough(shape.node_count, end)
        })
    }

    /// Whether it is known that no job of the shape can start now. `nothing_free` says that at this point of the last plan nothing
    /// was free for the job: then only a node that changed since could serve it.
    pub fn is_too_little(
        &mut self,
        shape: &WaitingShape,
        nothing_free: bool,
        plan: &PlanNodes<'_, '_>,
    ) -> bool {
        let end = end_of(plan.timelines.now, shape.length);
        let is_known = nothing_free && plan.replay.is_active;
        if is_known && plan.replay.changed_nodes().is_empty() {
            return true;
        }
        if is_known && !self.has_changed_node(shape, end, plan) {
            return true;
        }
        shape.node_count > 1 && self.are_too_few(shape, end, plan)
    }

    /// Whether a node that changed since the last plan serves until then.
    fn has_changed_node(
        &mut self,
        shape: &WaitingShape,
        end: Millis,
        plan: &PlanNodes<'_, '_>,
    ) -> bool {
        let nodes = plan.replay.changed_nodes();
        let times =
            known(&mut self.changed, shape, plan, |times| times.as_of == plan.as_of(), nodes);
        times.are_enough(1, end)
    }

    fn are_too_few(&mut self, shape: &WaitingShape, end: Millis, plan: &PlanNodes<'_, '_>) -> bool {
        let nodes = self.nodes.get_or_insert_with(|| plan.timelines.nodes_with_free_cores());
        if nodes.len() > COUNTED_NODES_MAX {
            return false;
        }
        let (count, as_of) = (shape.node_count, plan.as_of());
        // A plan only takes, but for releases: what was too little earlier in the plan still is.
        let holds = |times: &FreeTimes| {
            let is_less = times.as_of.releases == as_of.releases && !times.are_enough(count, end);
            is_less || times.as_of.modifications == as_of.modifications
        };
        !known(&mut self.counted, shape, plan, holds, nodes).are_enough(count, end)
    }
}

/// What is known of the shape's needs, worked out again over these nodes unless it `holds`.
fn known<'k>(
    by_needs: &'k mut ByNeeds,
    shape: &WaitingShape,
    plan: &PlanNodes<'_, '_>,
    holds: impl Fn(&FreeTimes) -> bool,
    nodes: &[u32],
) -> &'k FreeTimes {
    let address = Arc::as_ptr(&shape.needs).addr();
    let at = match by_needs.position(address) {
        Some(at) => at,
        None => by_needs.add(address, FreeTimes::new(shape, plan, nodes)),
    };
    let times = &mut by_needs.times[at];
    if !holds(times) {
        *times = FreeTimes::new(shape, plan, nodes);
    }
    times
}

impl PlanNodes<'_, '_> {
    fn as_of(&self) -> AsOf {
        AsOf {
            modifications: self.timelines.modifications,
            releases: self.timelines.releases,
            changed_nodes: self.replay.changed_nodes().len(),
        }
    }

    /// Whether jobs with these needs may be on the node at all.
    fn admits(&self, node: u32, shape: &WaitingShape) -> bool {
        let needs: &NodeNeeds = &shape.needs;
        self.timelines.is_available(node)
            && self.needs_cache.rank(shape.partition, node).is_some()
            && needs.admits(node)
    }
}

impl NeighbourTimes {
    pub fn are_of(&self, shape: &WaitingShape) -> bool {
        self.needs == Arc::as_ptr(&shape.needs).addr()
    }
}

impl FreeTimes {
    fn new(shape: &WaitingShape, plan: &PlanNodes<'_, '_>, nodes: &[u32]) -> Self {
        let everybody = ReservationAccess::default();
        let until = |node: u32| plan.timelines.free_until(node, &shape.needs, &everybody);
        let admitted = nodes.iter().copied().filter(|node| plan.admits(*node, shape));
        let mut times: Vec<Millis> = Vec::with_capacity(nodes.len());
        times.extend(admitted.map(until).filter(|until| *until > plan.timelines.now));
        times.sort_unstable_by(|a, b| b.cmp(a));
        Self { as_of: plan.as_of(), until: times }
    }

    /// Whether so many nodes stay free until then.
    fn are_enough(&self, node_count: u32, end: Millis) -> bool {
        let last_needed = self.until.get((node_count as usize).saturating_sub(1));
        last_needed.is_some_and(|until| *until >= end)
    }
}

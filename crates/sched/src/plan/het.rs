//! Heterogeneous jobs: their components start together or not at all, when the first has its turn.
//!
//! ```text
//!   the largest first ─▶ a placement now, beside those of the components before ─▶ all have one: they start
//!                        │ one has none: what was taken is undone
//!                        └─▶ the first moment at which all fit: each gets a backfill slot from then on
//! ```
//!
//! Components do not share the shapes of other jobs: a search that fails beside the other components does not fail for
//! everybody.
//!
//! Components that ask for nodes below one switch, as the groups of a distributed task do, are one placement: all of them are in
//! one partition, and below one switch, the lowest that is large enough for all.

use super::Planner;
use crate::free::backfill_slot::BackfillSlot;
use crate::free::node_timelines::Checkpoint;
use crate::free::shape::{EmptyNodes, Shape};
use crate::free::slot_finder::SlotFinder;
use crate::gate;
use crate::gate::limits::{Claimant, JobUsage};
use crate::memo::{OrderedQueue, QueueSlot};
use crate::order::JobInPartition;
use crate::place::demand::Demand;
use crate::place::{Placement, candidates, place};
use crate::topology::Switches;
use crate::view::View;
use model::id::JobId;
use model::reason::Reason;
use model::run::HetComponent;
use model::time::TimeLimit;
use model::tres::TresKind;
use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

/// The most moments that are tried for slots for all components.
const MOMENTS_MAX: usize = 64;

/// By the first component's job: for each component's offset its queue slots, one for each of its partitions.
pub(super) type HetGroups = HashMap<JobId, BTreeMap<u32, Vec<usize>>>;

pub(super) fn groups(view: &View, queue: &OrderedQueue) -> HetGroups {
    let mut groups = HetGroups::new();
    if !queue.traits.has_het_jobs {
        return groups;
    }
    for (at, slot) in queue.slots.iter().enumerate() {
        if let Some(het) = view.queue[slot.entry.waiting as usize].het {
            let group = groups.entry(het.first).or_default();
            group.entry(het.offset).or_default().push(at);
        }
    }
    groups
}

/// A component with a placement now, which is taken from the timelines already.
struct PlacedComponent<'a> {
    entry: JobInPartition,
    placement: Placement,
    time_limit: TimeLimit,
    saved: Checkpoint,
    counted: Option<(Claimant<'a>, JobUsage)>,
    licenses: &'a [(String, u32)],
}

/// The shape of a component in each of its partitions.
type ComponentShapes<'a> = Vec<(JobInPartition, Shape<'a>)>;

/// A component with a backfill slot, which is taken from the timelines already.
struct ReservedComponent {
    entry: JobInPartition,
    kept: Arc<BackfillSlot>,
    saved: Checkpoint,
}

impl<'a> Planner<'a> {
    pub(super) fn visit_het(&mut self, slot: &QueueSlot) {
        let waiting = slot.entry.waiting;
        let Some(het) = self.view.queue[waiting as usize].het else { return };
        let group = self.groups.get(&het.first).cloned().unwrap_or_default();
        if !group.contains_key(&0) {
            self.note_reason(waiting, Reason::NotPlanned);
        }
        if !het.is_leader() || self.left[waiting as usize] == 0 {
            return;
        }
        let Some(reason) = self.start_het(slot, het, &group) else { return };
        for slots in group.values() {
            let of_group = self.queue.slots[slots[0]].entry.waiting;
            self.note_reason(of_group, reason.clone());
        }
    }

    /// Starts all components, or returns why they wait.
    fn start_het(
        &mut self,
        slot: &QueueSlot,
        het: HetComponent,
        group: &BTreeMap<u32, Vec<usize>>,
    ) -> Option<Reason> {
        if group.len() != het.size as usize {
            return Some(Reason::NotPlanned);
        }
        let is_together = self.view.queue[slot.entry.waiting as usize].spec.request().one_switch;
        let partition_of = |at: &usize| self.queue.slots[*at].entry.partition;
        let may_be = |at: &usize| !is_together || partition_of(at) == slot.entry.partition;
        let of_partition: Vec<Vec<usize>> =
            group.values().map(|slots| slots.iter().copied().filter(may_be).collect()).collect();
        let mut members: Vec<&[usize]> = of_partition.iter().map(Vec::as_slice).collect();
        let own = [self.at];
        members[0] = &own;
        if members.iter().any(|slots| slots.is_empty()) {
            return Some(Reason::Resources);
        }
        // The large first, because small components fit beside large ones more often than the other way round.
        members.sort_by_cached_key(|slots| {
            let shape = self.own_shape(&self.queue.slots[slots[0]]);
            Reverse(shape.least().amount(&TresKind::Cpu))
        });
        for slots in &members {
            let waiting = &self.view.queue[self.queue.slots[slots[0]].entry.waiting as usize];
            // A slot that the component had through another partition must not be in its way.
            self.release_slot(waiting.job);
            let closed = || self.timelines.windows.gate(waiting, self.timelines.now);
            if let Some(reason) = gate::job(waiting, self.now).or_else(closed) {
                return Some(reason);
            }
        }
        let placed = if is_together {
            self.place_together_now(&members)
        } else {
            self.place_all_now(&members, None)
        };
        let blocked = match placed {
            Ok(mut all) => {
                all.sort_by_key(|found| self.view.queue[found.entry.waiting as usize].job);
                all.into_iter().for_each(|f| self.record_start(f.entry, f.placement, f.time_limit));
                return None;
            }
            Err(reason) => reason,
        };
        if blocked != Reason::Resources {
            return Some(blocked);
        }
        let is_first = self.blocked[slot.entry.partition as usize] == 0;
        for slots in &members {
            self.blocked[self.queue.slots[slots[0]].entry.partition as usize] += 1;
        }
        if self.may_reserve(slot.entry) {
            self.backfill_slots[slot.entry.partition as usize] += 1;
            self.reserve_all(&members);
        }
        Some(if is_first { Reason::Resources } else { Reason::Priority })
    }

    /// A placement now for each component, all below one switch of the lowest level at which one could hold them if its nodes
    /// were empty. They wait for such a switch rather than lie below a higher one.
    fn place_together_now(
        &mut self,
        members: &[&[usize]],
    ) -> Result<Vec<PlacedComponent<'a>>, Reason> {
        let Some(switches) = self.switches.clone() else {
            return self.place_all_now(members, None);
        };
        let Some(level) = self.level_for_all(&switches, members) else {
            // Several blocks are one network.
            let is_joined = switches.are_blocks();
            return if is_joined {
                self.place_all_now(members, None)
            } else {
                Err(Reason::Resources)
            };
        };
        let mut why = Reason::Resources;
        for is_below in switches.below_each(level) {
            match self.place_all_now(members, Some(is_below)) {
                Ok(all) => return Ok(all),
                Err(reason) => why = reason,
            }
        }
        Err(why)
    }

    /// The lowest level at which a switch could hold all components on nodes of their own, if nothing ran there.
    fn level_for_all(&self, switches: &Switches, members: &[&[usize]]) -> Option<u32> {
        let empty = EmptyNodes { view: self.view, in_service_only: false };
        let demands: Vec<(Demand<'a>, Arc<[u32]>)> = members
            .iter()
            .map(|slots| {
                let slot = self.queue.slots[slots[0]];
                let demand = Demand { switches: None, ..self.own_shape(&slot).demand };
                (demand, candidates(self.view, slot.entry.partition))
            })
            .collect();
        let holds = |is_below: &[bool]| {
            let mut taken: HashSet<u32> = HashSet::new();
            demands.iter().all(|(demand, nodes)| {
                let is_free = |node: &u32| is_below[*node as usize] && !taken.contains(node);
                let free: Vec<u32> = nodes.iter().copied().filter(is_free).collect();
                let placement = place(demand, &empty, &free);
                taken.extend(placement.iter().flat_map(|p| p.shares.iter().map(|(node, _)| *node)));
                placement.is_some()
            })
        };
        switches.levels().into_iter().find(|level| switches.below_each(*level).any(&holds))
    }

    /// A placement now for each component, on the nodes that `is_within` marks. If one has none, nothing stays taken.
    fn place_all_now(
        &mut self,
        members: &[&[usize]],
        is_within: Option<&[bool]>,
    ) -> Result<Vec<PlacedComponent<'a>>, Reason> {
        let mut all: Vec<PlacedComponent<'a>> = Vec::with_capacity(members.len());
        for slots in members {
            let mut why = Reason::Resources;
            let found = slots.iter().find_map(|at| {
                let slot = self.queue.slots[*at];
                self.place_component_now(slot, is_within).map_err(|reason| why = reason).ok()
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

    /// Finds and takes a placement for one component beside those that are taken.
    fn place_component_now(
        &mut self,
        slot: QueueSlot,
        is_within: Option<&[bool]>,
    ) -> Result<PlacedComponent<'a>, Reason> {
        let entry = slot.entry;
        let mut shape = self.own_shape(&slot);
        let claimant = self.has_limits.then(|| self.claimant(entry));
        self.may_start(&slot, &shape, claimant)?;
        let (now, partition) = (self.timelines.now, entry.partition as usize);
        if (!self.view.policy.backfill && self.blocked[partition] > 0) || self.has_all_starts() {
            return Err(Reason::Resources);
        }
        let mut finder = self.own_finder();
        let placement = match is_within {
            Some(nodes) => {
                // All of these nodes are below the switch that was chosen for the whole run.
                shape.demand.switches = None;
                finder.place_within(&mut shape, nodes)
            }
            None => finder.place_now(&mut shape, false),
        };
        let Some(placement) = placement else {
            let never = shape.reason_never(self.view, self.needs_cache, self.baseline);
            return Err(never.cloned().unwrap_or(Reason::Resources));
        };
        let time_limit = shape.limit_until_deadline(shape.time_limit, now);
        if let Some(limit) = claimant.and_then(|c| self.broken_limit(c, &placement, time_limit)) {
            return Err(Reason::Limit(Box::new(limit)));
        }
        let saved = self.timelines.checkpoint(placement.shares.iter().map(|(node, _)| *node));
        let length = shape.length_of(time_limit, &self.view.policy);
        self.timelines.start(&placement, shape.demand.holder, &shape.access, length);
        let shares = placement.shares.iter().map(|(_, share)| share);
        let counted = claimant.and_then(|c| Some((c, self.usage.add(c, shares)?)));
        let licenses = &self.view.queue[entry.waiting as usize].spec.request().licenses;
        self.take_licenses(licenses);
        Ok(PlacedComponent { entry, placement, time_limit, saved, counted, licenses })
    }

    /// Checks what may hold the component back beside resources.
    fn may_start(
        &mut self,
        slot: &QueueSlot,
        shape: &Shape<'a>,
        claimant: Option<Claimant<'a>>,
    ) -> Result<(), Reason> {
        if self.timelines.now > shape.latest_start() {
            return Err(Reason::Deadline);
        }
        if let Some(reason) = &shape.gate
            && !claimant.is_some_and(|claimant| self.usage.lifts(claimant, reason))
        {
            return Err(reason.clone());
        }
        if let Some(claimant) = claimant {
            if let Some(reason) = self.usage.threshold_reason(claimant) {
                return Err(reason);
            }
            if let Some(limit) = self.usage.broken_by(claimant, shape.least(), shape.time_limit) {
                return Err(Reason::Limit(Box::new(limit)));
            }
        }
        if self.has_licenses(slot.shape) { Ok(()) } else { Err(Reason::Licenses) }
    }

    fn undo(&mut self, found: PlacedComponent<'a>) {
        self.timelines.restore(found.saved);
        if let Some((claimant, load)) = &found.counted {
            self.usage.remove_usage(*claimant, load);
        }
        self.release_licenses(found.licenses);
    }

    /// Reserves a slot for each component, at the first moment at which all fit. Reserves nothing if none of so many
    /// moments serves.
    fn reserve_all(&mut self, members: &[&[usize]]) {
        let (mut from, mut last_change) = (self.timelines.now, None);
        // Worked out once for all moments. What their searches know is void after a moment in vain: it ends with a release.
        let of_slot = |at: &usize| {
            let slot = &self.queue.slots[*at];
            (slot.entry, self.own_shape(slot))
        };
        let mut members: Vec<ComponentShapes<'a>> =
            members.iter().map(|slots| slots.iter().map(of_slot).collect()).collect();
        for _ in 0..MOMENTS_MAX {
            let Some(all) = self.find_slots_for_all(&mut members, from) else { return };
            let latest = all.iter().map(|later| later.kept.start).max().unwrap_or(from);
            if all.iter().any(|later| later.kept.start < latest) {
                all.into_iter().rev().for_each(|later| self.timelines.restore(later.saved));
                // From then on everything stays as it is: components that do not fit together then never do.
                if from > *last_change.get_or_insert_with(|| self.timelines.last_change()) {
                    return;
                }
                from = latest;
                continue;
            }
            let window =
                self.view.policy.backfill_limits.window_min.filter(|_| self.is_for_starts());
            let most = window.map_or(i64::MAX, |min| self.timelines.now + 60_000 * i64::from(min));
            if latest > most {
                all.into_iter().rev().for_each(|later| self.timelines.restore(later.saved));
                return;
            }
            let mut all = all;
            all.sort_by_key(|later| self.view.queue[later.entry.waiting as usize].job);
            for ReservedComponent { entry, kept, .. } in all {
                let job = self.view.queue[entry.waiting as usize].job;
                self.replay.mark_changed(kept.nodes());
                self.next_plan.touched_nodes.extend(kept.nodes());
                let estimate = self.estimate_of(job, entry.partition, latest, &kept);
                self.estimates.push(estimate);
                self.slot_of_job.insert(job, kept);
            }
            return;
        }
    }

    /// Takes a slot for each component from `from` on. Returns `None`, with nothing taken, if a component never fits.
    fn find_slots_for_all(
        &mut self,
        members: &mut [ComponentShapes<'a>],
        from: i64,
    ) -> Option<Vec<ReservedComponent>> {
        let mut all: Vec<ReservedComponent> = Vec::with_capacity(members.len());
        for shapes in members {
            let options = shapes.iter_mut().filter_map(|(entry, shape)| {
                let kept = self.own_finder().find_slot(shape, from).slot?;
                let holder = shape.demand.holder;
                (kept.start <= shape.latest_start()).then_some((*entry, kept, holder))
            });
            let Some((entry, kept, holder)) = options.min_by_key(|(_, kept, _)| kept.start) else {
                all.into_iter().rev().for_each(|later| self.timelines.restore(later.saved));
                return None;
            };
            let saved = self.timelines.checkpoint(kept.nodes());
            self.timelines.reserve(&kept, holder);
            all.push(ReservedComponent { entry, kept, saved });
        }
        Some(all)
    }

    fn own_shape(&self, slot: &QueueSlot) -> Shape<'a> {
        let key = &self.queue.shapes[slot.shape.at()];
        Shape::new(self.view, key, self.switches.as_ref())
    }

    fn own_finder(&mut self) -> SlotFinder<'_, 'a> {
        SlotFinder {
            timelines: &mut self.timelines,
            needs_cache: self.needs_cache,
            gpu_losses: self.gpu_losses,
            baseline: self.baseline,
            replay: &self.replay,
        }
    }
}

//! Preemption: which running jobs give way to a job that may preempt them.
//!
//! The plan only says which jobs to preempt and for whom; when they are gone, a later plan starts the job. Jobs that are
//! ending already count as gone, so that no others are preempted for the same job in the meantime.

use crate::free::backfill_slot::end_of;
use crate::free::needs::{NeedsScope, NodeNeeds};
use crate::free::node_timelines::FreeDuring;
use crate::free::shape::{PlacementMode, Shape};
use crate::free::slot_finder::SlotFinder;
use crate::free::timeline::{BEGINNING, CORES, Columns, Millis, NEVER, Timeline, columns_of};
use crate::index::{Rank, ShapeIndex};
use crate::place::place;
use crate::view::{PreemptBy, Preemption, RunningJob, View};
use foldhash::fast::RandomState;
use model::account::Qos;
use model::id::JobId;
use model::preempt::PreemptMode;
use model::time::Timestamp;
use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

/// Jobs that others are preempted for in one plan.
const PREEMPTORS_MAX: usize = 256;
/// Victims that are tried one by one whether they could be spared.
const SPARED_MAX: usize = 64;

pub struct PreemptionSearch<'a> {
    view: &'a View,
    now: Timestamp,
    /// A job runs that could be preempted.
    pub is_active: bool,
    /// Jobs whose resources this plan has promised to another.
    claimed: HashSet<JobId, RandomState>,
    preemptors: usize,
    /// Shapes and rights for which no victims were found. The queue is in order of priority, so later jobs find none
    /// either.
    failed: HashSet<(ShapeIndex, u32, String), RandomState>,
}

/// What decides which jobs a job may preempt.
#[derive(Debug, Clone, Copy)]
pub struct PreemptRights<'a> {
    pub tier: u32,
    pub qos: &'a str,
    pub priority: u64,
}

/// The victims for one job, and what it takes of their nodes.
pub struct PreemptionPlan {
    pub victims: Vec<Preemption>,
    /// What the job takes of each node, by column.
    pub parts: Vec<(u32, Columns)>,
    /// What ending jobs release: the node, until when they would have held it, how much.
    pub left: Vec<(u32, Millis, Columns)>,
    pub start: Millis,
}

/// A running job on one node.
type OnNode<'s> = &'s (Arc<RunningJob>, u32);

impl<'a> PreemptionSearch<'a> {
    pub fn new(view: &'a View, now: Timestamp) -> Self {
        let mut preempt = Self {
            view,
            now,
            is_active: false,
            claimed: HashSet::default(),
            preemptors: 0,
            failed: HashSet::default(),
        };
        preempt.is_active = view.policy.preempt.by != PreemptBy::Nothing
            && view.running.iter().any(|running| preempt.mode(running) != PreemptMode::Off);
        preempt
    }

    fn qos(&self, name: &str) -> Option<&'a Qos> {
        self.view.qos.iter().find(|qos| qos.name == name).map(|qos| &**qos)
    }

    /// What happens to the job if it is preempted.
    fn mode(&self, running: &RunningJob) -> PreemptMode {
        let policy = &self.view.policy.preempt;
        let own = match policy.by {
            PreemptBy::Nothing => return PreemptMode::Off,
            PreemptBy::Partition => {
                let info = self.view.partitions.get(running.partition as usize);
                info.and_then(|info| info.partition.preempt_mode.as_deref())
            }
            PreemptBy::Qos => self.qos(&running.qos).and_then(|qos| qos.preempt_mode.as_deref()),
        };
        match own.and_then(PreemptMode::parse).unwrap_or(policy.mode) {
            PreemptMode::Requeue if !running.requeue => PreemptMode::Cancel,
            mode => mode,
        }
    }

    fn grace_s(&self, running: &RunningJob) -> u32 {
        match self.view.policy.preempt.by {
            PreemptBy::Qos => self.qos(&running.qos).map_or(0, |qos| qos.grace_time_s),
            _ => {
                let info = self.view.partitions.get(running.partition as usize);
                info.map_or(0, |info| info.partition.grace_time_s)
            }
        }
    }

    /// Whether jobs of a lower priority give way to others of the same QOS.
    fn is_within(&self, qos: &Qos) -> bool {
        self.view.policy.preempt.within
            || qos.preempt_mode.as_deref().is_some_and(PreemptMode::is_within)
    }

    /// Whether the job has run for longer than the exempt time.
    fn is_past_exempt_time(&self, running: &RunningJob, mode: PreemptMode) -> bool {
        let exempt = self.qos(&running.qos).and_then(|qos| qos.preempt_exempt_s);
        let exempt_s = exempt.unwrap_or(self.view.policy.preempt.exempt_s);
        mode == PreemptMode::Suspend
            || self.now.since(running.start).as_secs() >= u64::from(exempt_s)
    }

    fn may_preempt(&self, rights: PreemptRights<'_>, running: &RunningJob) -> bool {
        if running.is_ending || running.suspended || self.claimed.contains(&running.job) {
            return false;
        }
        let mode = self.mode(running);
        let below = match self.view.policy.preempt.by {
            PreemptBy::Nothing => false,
            PreemptBy::Partition => {
                let info = self.view.partitions.get(running.partition as usize);
                info.is_some_and(|info| info.partition.priority_tier < rights.tier)
            }
            PreemptBy::Qos => self.qos(rights.qos).is_some_and(|qos| {
                qos.preempt.contains(&running.qos)
                    || (running.qos == qos.name
                        && running.priority < rights.priority
                        && self.is_within(qos))
            }),
        };
        below && mode != PreemptMode::Off && self.is_past_exempt_time(running, mode)
    }

    /// Finds victims whose resources let one job of the shape start.
    pub fn find_victims(
        &mut self,
        finder: &mut SlotFinder<'_, 'a>,
        shape: &mut Shape<'_>,
        index: ShapeIndex,
        rights: PreemptRights<'_>,
        job: JobId,
    ) -> Option<PreemptionPlan> {
        if !self.is_active || self.preemptors >= PREEMPTORS_MAX {
            return None;
        }
        let key = (index, rights.tier, rights.qos.to_string());
        if self.failed.contains(&key) {
            return None;
        }
        let found = match shape.mode {
            PlacementMode::Single => {
                self.on_equal_nodes(finder, shape, NeedsScope::WholeJob, 1, rights)
            }
            PlacementMode::SingleFirst => self
                .on_equal_nodes(finder, shape, NeedsScope::WholeJob, 1, rights)
                .or_else(|| self.on_node_set(finder, shape, rights)),
            PlacementMode::EqualNodes(count) => {
                self.on_equal_nodes(finder, shape, NeedsScope::EachNode, count as usize, rights)
            }
            PlacementMode::NodeSet => self.on_node_set(finder, shape, rights),
        };
        let Some((parts, victims)) = found else {
            self.failed.insert(key);
            return None;
        };
        self.preemptors += 1;
        let left = self.released_by(finder, &parts, &victims);
        let grace_s = victims.iter().map(|victim| self.grace_s(victim)).max().unwrap_or(0);
        let start = finder.timelines.now + 1_000 * i64::from(grace_s);
        let victims = victims.into_iter().map(|victim| Preemption {
            victim: victim.job,
            mode: self.mode(&victim),
            grace_s: self.grace_s(&victim),
            by: job,
        });
        Some(PreemptionPlan { victims: victims.collect(), parts, left, start })
    }

    /// What the victims release, wherever they run, and what jobs release that were ending anyway on the nodes in
    /// question.
    fn released_by(
        &mut self,
        finder: &SlotFinder<'_, 'a>,
        parts: &[(u32, Columns)],
        victims: &[Arc<RunningJob>],
    ) -> Vec<(u32, Millis, Columns)> {
        let on_nodes = parts.iter().flat_map(|(node, _)| finder.baseline.on_node(*node));
        let ending = on_nodes.map(|(running, _)| running).filter(|running| running.is_ending);
        let mut left = Vec::new();
        for running in ending.chain(victims) {
            if !self.claimed.insert(running.job) {
                continue;
            }
            for (node, at) in running.shares.nodes().zip(0u32..) {
                let given = self.amounts_released(finder, node, &(running.clone(), at));
                left.push((node, end_at(running, finder.timelines.now), given));
            }
        }
        left
    }

    /// What a job releases of its node when it is preempted.
    fn amounts_released(
        &self,
        finder: &SlotFinder<'_, 'a>,
        node: u32,
        (running, share): OnNode<'_>,
    ) -> Columns {
        let config = finder.timelines.config(node);
        let mut given = columns_of(config, running.shares.get(*share));
        if !running.is_ending && self.mode(running) == PreemptMode::Suspend {
            given[CORES + 1..].fill(0);
        }
        given
    }

    /// Whether the job is ending, and its resources are promised to nobody.
    fn is_leaving(&self, running: &RunningJob) -> bool {
        running.is_ending && !self.claimed.contains(&running.job)
    }

    /// The node's timeline as if these jobs were gone.
    fn timeline_without(
        &self,
        finder: &SlotFinder<'_, 'a>,
        node: u32,
        gone: &[OnNode<'_>],
    ) -> Timeline {
        let mut timeline = finder.timelines.of_node(node).clone();
        for on in gone {
            let end = end_at(&on.0, finder.timelines.now);
            timeline.give(BEGINNING, end, &self.amounts_released(finder, node, on));
        }
        timeline
    }

    fn fits(
        &self,
        finder: &SlotFinder<'_, 'a>,
        shape: &Shape<'_>,
        needs: &NodeNeeds,
        node: u32,
        timeline: &Timeline,
    ) -> bool {
        let (now, class) = (finder.timelines.now, finder.timelines.class(node));
        let fits = |free: &[u64], there: &_| needs.fits(class, free, there);
        let end = end_of(now, shape.full.length);
        timeline.earliest(now, shape.full.length, fits) == Some(now)
            && finder.timelines.windows.blocked_until(node, &shape.access, now, end).is_none()
    }

    /// The fewest and youngest jobs of one node that must go for the needs to fit, besides those that are ending.
    fn victims_on<'s>(
        &self,
        finder: &SlotFinder<'_, 'a>,
        shape: &Shape<'_>,
        needs: &NodeNeeds,
        node: u32,
        rights: PreemptRights<'_>,
        on: &'s [(Arc<RunningJob>, u32)],
    ) -> Option<Vec<OnNode<'s>>> {
        let mut gone: Vec<OnNode<'s>> = on.iter().filter(|on| self.is_leaving(&on.0)).collect();
        let ending = gone.len();
        let mut eligible: Vec<OnNode<'s>> =
            on.iter().filter(|on| self.may_preempt(rights, &on.0)).collect();
        eligible.sort_by_key(|on| (Reverse(on.0.start), Reverse(on.0.job)));
        // Most nodes have nobody who could go, and are looked at as they are.
        let as_is = finder.timelines.of_node(node);
        let fits = |gone: &[OnNode<'s>]| match gone {
            [] => self.fits(finder, shape, needs, node, as_is),
            gone => {
                self.fits(finder, shape, needs, node, &self.timeline_without(finder, node, gone))
            }
        };
        let mut more = eligible.into_iter();
        while !fits(&gone) {
            gone.push(more.next()?);
        }
        // A victim chosen early may not be needed any more. The oldest is spared first.
        let mut at = gone.len();
        while at > ending {
            at -= 1;
            let spared = gone.remove(at);
            if !fits(&gone) {
                gone.insert(at, spared);
            }
        }
        gone.drain(..ending);
        Some(gone)
    }

    fn on_equal_nodes(
        &self,
        finder: &mut SlotFinder<'_, 'a>,
        shape: &mut Shape<'_>,
        part: NeedsScope,
        count: usize,
        rights: PreemptRights<'_>,
    ) -> Option<PreemptionChoice> {
        let needs = shape.needs(part, finder.needs_cache, finder.baseline);
        let mut options = Vec::new();
        for (&node, rank) in needs.candidates.iter().zip(Rank::all()) {
            if !finder.timelines.is_available(node) || !needs.admits(node) {
                continue;
            }
            let on = finder.baseline.on_node(node);
            let Some(gone) = self.victims_on(finder, shape, &needs, node, rights, on) else {
                continue;
            };
            let lost: u64 = gone.iter().map(|on| self.now.since(on.0.start).as_secs()).sum();
            options.push(((gone.len(), lost, rank), node, gone));
        }
        if options.len() < count {
            return None;
        }
        options.sort_by_key(|(cost, _, _)| *cost);
        options.truncate(count);
        let mut victims: Vec<Arc<RunningJob>> = Vec::new();
        let mut parts = Vec::new();
        for (_, node, gone) in &options {
            let leaving = finder.baseline.on_node(*node).iter().filter(|on| self.is_leaving(&on.0));
            let gone: Vec<OnNode<'_>> = gone.iter().copied().chain(leaving).collect();
            let timeline = self.timeline_without(finder, *node, &gone);
            let end = end_of(finder.timelines.now, shape.full.length);
            let (free, _) = timeline.least_free(finder.timelines.now, end);
            parts.push((*node, needs.amounts(finder.timelines.class(*node), &free)));
            for on in gone.iter().filter(|on| !on.0.is_ending) {
                if !victims.iter().any(|known| known.job == on.0.job) {
                    victims.push(on.0.clone());
                }
            }
        }
        parts.sort_unstable_by_key(|(node, _)| *node);
        Some((parts, victims))
    }

    /// Nodes chosen as a whole: first as if every possible victim were gone, then with as many spared as can be.
    fn on_node_set(
        &self,
        finder: &mut SlotFinder<'_, 'a>,
        shape: &mut Shape<'_>,
        rights: PreemptRights<'_>,
    ) -> Option<PreemptionChoice> {
        let needs = shape.needs(NeedsScope::EachNode, finder.needs_cache, finder.baseline);
        let baseline = finder.baseline;
        let candidates: Vec<u32> = needs
            .candidates
            .iter()
            .copied()
            .filter(|&node| finder.timelines.is_available(node) && needs.admits(node))
            .collect();
        let placed = |finder: &mut SlotFinder<'_, 'a>, spared: &HashSet<JobId>, nodes: &[u32]| {
            let free = nodes.iter().filter_map(|&node| {
                let leaves = |on: &OnNode<'_>| {
                    self.is_leaving(&on.0)
                        || (!spared.contains(&on.0.job) && self.may_preempt(rights, &on.0))
                };
                let gone: Vec<OnNode<'_>> = baseline.on_node(node).iter().filter(leaves).collect();
                let timeline = self.timeline_without(finder, node, &gone);
                self.fits(finder, shape, &needs, node, &timeline).then(|| {
                    (node, finder.timelines.free_by_amounts(node, &timeline, shape.full.length))
                })
            });
            let free: Vec<_> = free.collect();
            let nodes: Vec<u32> = free.iter().map(|(node, _)| *node).collect();
            let mut space = FreeDuring { view: self.view, free };
            space.free.sort_unstable_by_key(|(node, _)| *node);
            place(&shape.demand, &space, &nodes)
        };
        let mut spared = HashSet::new();
        let placement = placed(finder, &spared, &candidates)?;
        let nodes: Vec<u32> = placement.shares.iter().map(|(node, _)| *node).collect();
        let mut victims: Vec<Arc<RunningJob>> = Vec::new();
        for on in nodes.iter().flat_map(|&node| baseline.on_node(node)) {
            let known = victims.iter().any(|known| known.job == on.0.job);
            if !known && self.may_preempt(rights, &on.0) {
                victims.push(on.0.clone());
            }
        }
        victims.sort_by_key(|running| (running.start, running.job));
        for victim in victims.iter().take(SPARED_MAX) {
            spared.insert(victim.job);
            if placed(finder, &spared, &nodes).is_none() {
                spared.remove(&victim.job);
            }
        }
        victims.retain(|victim| !spared.contains(&victim.job));
        let placement = placed(finder, &spared, &nodes)?;
        let part =
            |(node, share): &(u32, _)| (*node, columns_of(finder.timelines.config(*node), share));
        Some((placement.shares.iter().map(part).collect(), victims))
    }
}

/// What the job takes of which nodes, and the victims.
type PreemptionChoice = (Vec<(u32, Columns)>, Vec<Arc<RunningJob>>);

fn end_at(running: &RunningJob, now: Millis) -> Millis {
    running.end.map_or(NEVER, |end| end.millis()).max(now + 1)
}

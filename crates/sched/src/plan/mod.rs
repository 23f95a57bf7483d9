//! The plan: which jobs start now and where, and why the others wait.
//!
//! ```text
//!   queue ─▶ order ─▶ gate ─────────▶ place ─────────▶ start ─▶ the next task, or the next entry
//!            tier,    holds, times,   the whole job    │
//!            priority partition,      beside every     └─▶ nothing is free: the first of its partition get a
//!            …        limits          backfill slot        backfill slot; the very first waits for Resources,
//!                     │                                    those after it for their Priority
//!                     └─▶ waits for a reason of its own and delays nobody
//! ```
//!
//! One pass over the queue. Resources are only taken in that pass, never freed: what did not fit once is not tried
//! again.

mod answer;
mod backfill_slots;
mod forecast;
mod het;
mod licenses;
mod preemption;
mod reservations;
mod shapes;
mod start;

use crate::free::backfill_slot::BackfillSlot;
use crate::free::free_now::{FreeNow, NeighbourTimes, PlanNodes};
use crate::free::node_timelines::NodeTimelines;
use crate::free::shape::Shape;
use crate::free::slot_finder::SlotFinder;
use crate::free::waiting_shape::WaitingShape;
use crate::gate;
use crate::gate::limits::{Claimant, Usage};
use crate::index::ShapeIndex;
use crate::memo::{
    Baseline, GpuLosses, Memo, NeedsCache, OrderedQueue, QueueSlot, Replay, Scratch, SlotRecord,
};
use crate::order::JobInPartition;
use crate::preempt::PreemptionSearch;
use crate::topology::Switches;
use crate::view::{Estimate, Plan, Preemption, RunningJob, Start, View};
use model::id::JobId;
use model::reason::Reason;
use model::time::Timestamp;
use shapes::PlanShapes;
use std::cmp::Reverse;
use std::collections::HashMap;
use std::sync::Arc;

pub fn plan(view: &View, now: Timestamp, memo: &mut Memo) -> Plan {
    memo.refresh(view, now);
    debug_assert!(memo.queue.slots.is_sorted_by_key(|slot| slot.key), "the queue is in order");
    let replay = memo.replay_log.begin(view.nodes.len());
    let mut planner = Planner::new(view, now, memo, replay, Purpose::Starts);
    planner.walk();
    let (plan, known) = planner.finish();
    memo.replay_log.end(known.records, &known.touched_nodes);
    for (slot, nothing_free) in memo.queue.slots.iter_mut().zip(known.nothing_free) {
        slot.nothing_free = nothing_free;
        slot.is_recorded = false;
    }
    memo.queue.add_waiting_shapes(known.waiting_shapes);
    for at in known.recorded {
        memo.queue.slots[at].is_recorded = true;
    }
    plan
}

/// What the next plan may reuse.
#[derive(Default)]
pub struct NextPlanFacts {
    records: HashMap<JobId, SlotRecord>,
    /// Queue slots with a record.
    recorded: Vec<usize>,
    /// Nodes on which a job starts, or has a backfill slot without a record. For the next plan they count as changed.
    touched_nodes: Vec<u32>,
    /// For each queue slot whether a start was tried and nothing was free.
    nothing_free: Vec<bool>,
    /// Shapes that waited for nothing but nodes, and were not known to.
    waiting_shapes: Vec<(ShapeIndex, WaitingShape)>,
}

/// What a walk over the queue is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Which jobs start now. The first that wait get backfill slots.
    Starts,
    /// When every job is expected to start.
    Estimates,
}

pub struct Planner<'a> {
    purpose: Purpose,
    view: &'a View,
    now: Timestamp,
    baseline: &'a Baseline,
    needs_cache: &'a mut NeedsCache,
    gpu_losses: &'a mut GpuLosses,
    queue: &'a OrderedQueue,
    timelines: NodeTimelines<'a>,
    usage: Usage<'a>,
    has_limits: bool,
    shapes: PlanShapes<'a>,
    /// For each entry of the queue the tasks that have not started.
    left: &'a mut Vec<u32>,
    /// For each entry how many more tasks its throttle lets start now.
    allowed: &'a mut Vec<u32>,
    /// In queue order.
    reasons: Vec<(JobId, Reason)>,
    /// For entries with several slots the position of their reason.
    reason_at: HashMap<u32, usize>,
    /// The queue slot that is being visited.
    at: usize,
    /// For each partition how many jobs wait for resources.
    blocked: Vec<u32>,
    /// For each partition how many jobs have a backfill slot.
    backfill_slots: Vec<u32>,
    backfill_slots_by_user: HashMap<u32, u32>,
    slot_of_job: HashMap<JobId, Arc<BackfillSlot>>,
    switches: Option<Arc<Switches>>,
    preempt: PreemptionSearch<'a>,
    /// Free licenses.
    licenses: HashMap<&'a str, u64>,
    preemptions: Vec<Preemption>,
    /// Jobs that a preemption suspended, with their tiers. The first to resume is the last.
    suspended: Vec<(u32, &'a RunningJob)>,
    resumes: Vec<JobId>,
    replay: Replay,
    free_now: FreeNow,
    /// The last plan's slot of the job that is being visited.
    record: Option<SlotRecord>,
    next_plan: NextPlanFacts,
    starts: Vec<Start>,
    /// The estimates of jobs with a backfill slot, in queue order.
    estimates: Vec<Estimate>,
    /// Starts that overtook a job which waits for resources.
    backfilled: u32,
    /// For estimates only: slots that wait for more than resources.
    deferred: Vec<forecast::DeferredSlot<'a>>,
    /// For estimates only: for entries that are arrays the start and end of each task that has a backfill slot.
    array_task_times: HashMap<u32, Vec<(i64, i64)>>,
    groups: het::HetGroups,
}

impl<'a> Planner<'a> {
    pub fn new(
        view: &'a View,
        now: Timestamp,
        memo: &'a mut Memo,
        mut replay: Replay,
        purpose: Purpose,
    ) -> Self {
        let Memo { baseline, needs_cache, gpu_losses, queue, scratch, windows, switches, .. } =
            memo;
        let (baseline, queue, windows) = (&*baseline, &*queue, &*windows);
        let Scratch { nodes, shape_positions, left, allowed } = scratch;
        left.clear();
        left.extend(queue.summaries.iter().map(|entry| entry.tasks));
        allowed.clear();
        allowed.extend(queue.summaries.iter().map(|entry| entry.tasks_allowed));
        let recorded = queue.slots.iter().filter(|slot| slot.is_recorded);
        replay.retain_jobs(recorded.map(|slot| slot.job()));
        // Which jobs a reservation's window admits changes as time passes.
        replay.mark_changed(windows.nodes());
        let usage = Usage::of_running(view, now);
        let suspended =
            if baseline.has_resumable_jobs() { preemption::suspended(view) } else { Vec::new() };
        Self {
            purpose,
            view,
            now,
            timelines: NodeTimelines::new(view, now.millis(), baseline, nodes, windows),
            baseline,
            needs_cache,
            gpu_losses,
            has_limits: usage.has_limits(),
            usage,
            shapes: PlanShapes::new(shape_positions, queue.shapes.len()),
            left,
            allowed,
            reasons: Vec::with_capacity(queue.summaries.len()),
            reason_at: HashMap::new(),
            at: 0,
            queue,
            blocked: vec![0; view.partitions.len()],
            backfill_slots: vec![0; view.partitions.len()],
            backfill_slots_by_user: HashMap::new(),
            slot_of_job: HashMap::new(),
            switches: switches.clone(),
            preempt: PreemptionSearch::new(view, now),
            licenses: view.licenses.iter().map(|(name, free)| (name.as_str(), *free)).collect(),
            preemptions: Vec::new(),
            suspended,
            resumes: Vec::new(),
            replay,
            free_now: FreeNow::default(),
            record: None,
            next_plan: NextPlanFacts {
                nothing_free: vec![false; queue.slots.len()],
                ..NextPlanFacts::default()
            },
            starts: Vec::new(),
            estimates: Vec::new(),
            backfilled: 0,
            deferred: Vec::new(),
            array_task_times: HashMap::new(),
            groups: het::groups(view, queue),
        }
    }

    pub fn walk(&mut self) {
        let mut at = 0;
        while at < self.queue.slots.len() {
            at += self.pass_waiting(at);
            if at < self.queue.slots.len() {
                self.visit(at);
                at += 1;
            }
        }
        self.resume_down_to(0);
    }

    /// Settles the slots from this one on that wait like those before them, as [`Self::waits_like_others`] would one by one: most of
    /// a long queue does, and while none starts and none gets a backfill slot, nothing of the plan changes between them. Returns how
    /// many were settled.
    fn pass_waiting(&mut self, first: usize) -> usize {
        let may_pass = self.purpose == Purpose::Starts
            && !self.preempt.is_active
            && self.suspended.is_empty()
            && self.timelines.windows.is_empty();
        if !may_pass {
            return 0;
        }
        let (view, queue) = (self.view, self.queue);
        let plan = PlanNodes {
            timelines: &self.timelines,
            needs_cache: &*self.needs_cache,
            replay: &self.replay,
        };
        let now = plan.timelines.now;
        let policy = &view.policy;
        let mut times: Option<NeighbourTimes> = None;
        // The partition of the last slot: its jobs wait for those before them, and get no backfill slots.
        let mut settled = None;
        let mut count = 0;
        let nothing_free = &mut self.next_plan.nothing_free[first..];
        for (slot, nothing_free) in queue.slots[first..].iter().zip(nothing_free) {
            if !slot.is_plain || slot.is_recorded {
                break;
            }
            // What a limit holds back has a reason of its own.
            if self.has_limits && self.usage.is_limited(claimant_of(view, slot.entry)) {
                break;
            }
            let partition = slot.entry.partition as usize;
            if settled != Some(partition) {
                let has_slots_left =
                    policy.backfill && self.backfill_slots[partition] < policy.backfill_slots_max;
                if self.blocked[partition] == 0 || has_slots_left {
                    break;
                }
                settled = Some(partition);
            }
            let waits = match self.shapes.get(slot.shape) {
                Some(shape) => shape.is_settled(),
                None => queue.waiting_shape(slot.shape).is_some_and(|known| {
                    let of = match times {
                        Some(of) if of.are_of(known) => of,
                        _ => *times.insert(self.free_now.neighbour_times(known, &plan)),
                    };
                    self.free_now.is_known_too_little(known, slot.nothing_free, &of, now)
                }),
            };
            if !waits {
                break;
            }
            self.blocked[partition] += 1;
            *nothing_free = true;
            self.reasons.push((slot.job(), Reason::Priority));
            count += 1;
        }
        count
    }

    /// Visits one queue slot, after the suspended jobs that come before it.
    fn visit(&mut self, at: usize) {
        self.at = at;
        let slot = &self.queue.slots[at];
        if !self.suspended.is_empty() {
            let Reverse(tier) = slot.key.0;
            self.resume_down_to(tier);
        }
        if slot.is_plain && self.waits_like_others(slot) {
            return;
        }
        if self.queue.summaries[slot.entry.waiting as usize].is_het {
            self.visit_het(slot);
            return;
        }
        if slot.is_recorded {
            self.record = self.replay.take_record(slot.job());
        }
        if let Some(reason) = self.try_start(*slot) {
            self.defer(slot, &reason);
            self.note_reason(slot.entry.waiting, reason);
        }
        // The job had a slot last time and has not looked for one now.
        if let Some(SlotRecord { slot: Some(kept), .. }) = self.record.take() {
            self.replay.mark_changed(kept.nodes());
        }
    }

    /// Settles most of a long queue at once: nothing is free for the shape, and no more slots are reserved.
    fn waits_like_others(&mut self, slot: &QueueSlot) -> bool {
        let partition = slot.entry.partition as usize;
        let waits = self.purpose == Purpose::Starts
            && !self.preempt.is_active
            && !slot.is_recorded
            && self.blocked[partition] > 0
            && !self.has_slots_left(partition)
            && !self.is_limited(slot)
            && self.has_nothing_free(slot);
        if waits {
            self.blocked[partition] += 1;
            self.next_plan.nothing_free[self.at] = true;
            self.reasons.push((slot.job(), Reason::Priority));
        }
        waits
    }

    fn is_limited(&self, slot: &QueueSlot) -> bool {
        self.has_limits && self.usage.is_limited(self.claimant(slot.entry))
    }

    /// Whether it is known, without a search, that nothing but nodes keeps the slot's shape from starting and that too few are
    /// free.
    fn has_nothing_free(&mut self, slot: &QueueSlot) -> bool {
        // Once the shape is worked out in this plan, its own search is quicker.
        if let Some(shape) = self.shapes.get(slot.shape) {
            return shape.is_settled();
        }
        let queue = self.queue;
        let Some(known) = queue.waiting_shape(slot.shape) else { return false };
        let plan = PlanNodes {
            timelines: &self.timelines,
            needs_cache: &*self.needs_cache,
            replay: &self.replay,
        };
        plan.timelines.windows.is_empty()
            && self.free_now.is_too_little(known, slot.nothing_free, &plan)
    }

    /// Starts the tasks of the entry that can start. Returns why the rest waits.
    fn try_start(&mut self, slot: QueueSlot) -> Option<Reason> {
        let entry = slot.entry;
        let waiting = entry.waiting as usize;
        if self.left[waiting] == 0 {
            return None;
        }
        if !self.queue.summaries[waiting].is_open
            && let Some(reason) = gate::job(&self.view.queue[waiting], self.now)
        {
            self.reserve_from_begin(slot, &reason);
            return Some(reason);
        }
        if !self.queue.summaries[waiting].is_open
            && let Some(reason) =
                self.timelines.windows.gate(&self.view.queue[waiting], self.timelines.now)
        {
            self.reserve_from_begin(slot, &reason);
            return Some(reason);
        }
        let shape = slot.shape;
        if self.timelines.now > self.shape(shape).latest_start() {
            return Some(Reason::Deadline);
        }
        let claimant = self.has_limits.then(|| self.claimant(entry));
        if let Some(reason) = self.shape(shape).gate.clone()
            && !claimant.is_some_and(|claimant| self.usage.lifts(claimant, &reason))
        {
            return Some(reason);
        }
        if let Some(reason) = claimant.and_then(|claimant| self.usage.threshold_reason(claimant)) {
            return Some(reason);
        }
        loop {
            if self.left[waiting] == 0 {
                return None;
            }
            if self.allowed[waiting] == 0 {
                return Some(Reason::ArrayTaskLimit);
            }
            if let Some(claimant) = claimant {
                let known = self.shapes.get(shape)?;
                let broken = self.usage.broken_by(claimant, known.least(), known.time_limit);
                if let Some(limit) = broken {
                    return Some(Reason::Limit(Box::new(limit)));
                }
            }
            if !self.has_licenses(shape) {
                return Some(Reason::Licenses);
            }
            let Some((placement, time_limit)) = self.find_placement(entry, shape) else {
                // A job that only this plan may not start may find nodes free in the next.
                self.next_plan.nothing_free[self.at] = !self.has_all_starts();
                if self.preempt_for(entry, shape) {
                    return Some(Reason::Resources);
                }
                return Some(self.blocked_reason(entry, shape));
            };
            // The placement may be more than was asked: cores and a node's memory are granted whole.
            if let Some(limit) = claimant.and_then(|c| self.broken_limit(c, &placement, time_limit))
            {
                return Some(Reason::Limit(Box::new(limit)));
            }
            self.start(entry, shape, claimant, placement, time_limit);
        }
    }

    fn claimant(&self, entry: JobInPartition) -> Claimant<'a> {
        claimant_of(self.view, entry)
    }

    fn shape(&mut self, shape: ShapeIndex) -> &mut Shape<'a> {
        let (view, queue, switches) = (self.view, self.queue, self.switches.as_ref());
        self.shapes
            .get_or_insert_with(shape, || Shape::new(view, &queue.shapes[shape.at()], switches))
    }

    /// The shape, and the search for it.
    fn finder(&mut self, shape: ShapeIndex) -> (&mut Shape<'a>, SlotFinder<'_, 'a>) {
        let (view, queue, switches) = (self.view, self.queue, self.switches.as_ref());
        let shape = self
            .shapes
            .get_or_insert_with(shape, || Shape::new(view, &queue.shapes[shape.at()], switches));
        let finder = SlotFinder {
            timelines: &mut self.timelines,
            needs_cache: self.needs_cache,
            gpu_losses: self.gpu_losses,
            baseline: self.baseline,
            replay: &self.replay,
        };
        (shape, finder)
    }
}

fn claimant_of(view: &View, entry: JobInPartition) -> Claimant<'_> {
    Claimant::pending(view, &view.queue[entry.waiting as usize], entry.partition)
}

//! The results of a walk over the queue: the plan, the estimates, the reasons.

use super::{NextPlanFacts, Planner};
use crate::free::shape::Shape;
use crate::free::slot_finder::SlotFinder;
use crate::free::waiting_shape::WaitingShape;
use crate::index::ShapeIndex;
use crate::memo::QueueSlot;
use crate::view::{DependencyState, Estimate, EstimatedNodes, Plan, Start};
use model::id::JobId;
use model::reason::Reason;
use std::collections::{HashMap, HashSet};

impl<'a> Planner<'a> {
    /// Walks until the job's estimate is known: the same as [`Self::into_estimates`] has after a walk over all.
    pub fn expect(&mut self, job: JobId) -> Option<Estimate> {
        let slots = &self.queue.slots;
        let entry = |slot: &QueueSlot| slot.entry.waiting as usize;
        let group = |slot: &QueueSlot| self.view.queue[entry(slot)].het.map(|het| het.first);
        let of_job = group(slots.iter().find(|slot| slot.job() == job)?);
        // The components of a heterogeneous job get their slots together, at the turn of the first.
        let is_of_job =
            |slot: &QueueSlot| slot.job() == job || (of_job.is_some() && group(slot) == of_job);
        let last = slots.iter().rposition(is_of_job)?;
        for at in 0..=last {
            self.visit(at);
        }
        if self.is_deferred(job) {
            // Jobs after it in the queue may use up the limit that it waits for.
            for at in last + 1..self.queue.slots.len() {
                self.visit(at);
            }
            self.resume_down_to(0);
            self.forecast_deferred();
        }
        let now = self.starts.iter().find(|start| start.job == job);
        let now = now.map(|start| self.estimate_now(start));
        now.or_else(|| self.estimates.iter().find(|estimate| estimate.job == job).cloned())
    }

    fn estimate_now(&self, start: &Start) -> Estimate {
        let allocation = &start.allocation;
        Estimate {
            job: start.job,
            partition: self.partition_named(&allocation.partition),
            start: self.now,
            nodes: EstimatedNodes::Granted(allocation.clone()),
            cpus: allocation.cpu_count(),
        }
    }

    fn partition_named(&self, name: &str) -> u32 {
        let at = self.view.partitions.iter().position(|info| info.partition.name == name);
        at.unwrap_or(0) as u32
    }

    /// The indices of the job's queue slots.
    pub fn slots_of(&self, job: JobId) -> Vec<usize> {
        let slots = self.queue.slots.iter().enumerate();
        slots.filter(|(_, slot)| slot.job() == job).map(|(at, _)| at).collect()
    }

    /// How many entries come before this queue slot in its partition, and the first few of them; without those that never start.
    pub fn jobs_ahead_of(&self, entry: usize, most: usize) -> (u32, Vec<JobId>) {
        let slots = &self.queue.slots;
        let partition = slots[entry].entry.partition;
        let is_ahead = |slot: &&QueueSlot| {
            let waiting = &self.view.queue[slot.entry.waiting as usize];
            slot.entry.partition == partition && waiting.dependency != DependencyState::Never
        };
        let ahead = || slots[..entry].iter().filter(is_ahead);
        (ahead().count() as u32, ahead().take(most).map(|slot| slot.job()).collect())
    }

    /// Visits the queue slots in this range, but those of a job that is left out.
    pub fn walk_range(&mut self, range: std::ops::Range<usize>, left_out: Option<JobId>) {
        for at in range {
            if Some(self.queue.slots[at].job()) != left_out {
                self.visit(at);
            }
        }
    }

    /// The shape of the job in this queue slot, and the search for it.
    pub fn finder_at(&mut self, entry: usize) -> (&mut Shape<'a>, SlotFinder<'_, 'a>) {
        let shape = self.queue.slots[entry].shape;
        self.finder(shape)
    }

    /// Notes why an entry waits. Of the reasons in several partitions the one nearest to a start is kept.
    pub(super) fn note_reason(&mut self, waiting: u32, reason: Reason) {
        let entry = &self.queue.summaries[waiting as usize];
        if entry.partition_count <= 1 && !entry.is_het {
            self.reasons.push((entry.job, reason));
            return;
        }
        let distance = |reason: &Reason| match reason {
            Reason::Resources => 0,
            Reason::Priority => 1,
            _ => 2,
        };
        match self.reason_at.get(&waiting) {
            None => {
                self.reason_at.insert(waiting, self.reasons.len());
                self.reasons.push((entry.job, reason));
            }
            Some(&at) => {
                let known = &mut self.reasons[at].1;
                if distance(&reason) < distance(known) {
                    *known = reason;
                }
            }
        }
    }

    /// The estimates of all entries in queue order. A job that starts is expected now.
    pub fn into_estimates(self) -> Vec<Estimate> {
        let starting = self.starts.iter().map(|start| self.estimate_now(start));
        let mut by_job: HashMap<JobId, Estimate> = HashMap::new();
        for estimate in starting.chain(self.estimates.iter().cloned()) {
            by_job.entry(estimate.job).or_insert(estimate);
        }
        self.queue.slots.iter().filter_map(|slot| by_job.remove(&slot.job())).collect()
    }

    /// The shapes that waited for nothing but nodes, as far as earlier plans do not know them.
    fn waiting_shapes(&mut self) -> Vec<(ShapeIndex, WaitingShape)> {
        let (queue, baseline) = (self.queue, self.baseline);
        let needs_cache = &mut *self.needs_cache;
        let worked_out = self.shapes.iter_mut();
        let unknown = worked_out.filter(|(at, _)| queue.waiting_shape(*at).is_none());
        let waiting =
            unknown.filter_map(|(at, shape)| Some((at, shape.waiting(needs_cache, baseline)?)));
        waiting.collect()
    }

    pub fn finish(mut self) -> (Plan, NextPlanFacts) {
        // An entry that is in no partition was not visited.
        let mut without_partition = self.queue.without_partition.clone();
        without_partition.sort_unstable_by_key(|&at| self.view.queue[at as usize].job);
        for &waiting in &without_partition {
            self.note_reason(waiting, Reason::NotPlanned);
        }
        // A reason from one partition is void if the rest of the entry started in another.
        let started = |(waiting, _): &(&u32, &usize)| self.left[**waiting as usize] == 0;
        let void: HashSet<usize> =
            self.reason_at.iter().filter(started).map(|(_, at)| *at).collect();
        if !void.is_empty() {
            let mut at = 0..;
            self.reasons.retain(|_| at.next().is_none_or(|at| !void.contains(&at)));
        }
        self.next_plan.waiting_shapes = self.waiting_shapes();
        let plan = Plan {
            starts: self.starts,
            reasons: self.reasons,
            estimates: self.estimates,
            preemptions: self.preemptions,
            resumes: self.resumes,
            backfilled: self.backfilled,
        };
        (plan, self.next_plan)
    }
}

//! What `plan` may remember between calls. An empty memo gives the same plan.
//!
//! ```text
//!   baseline       what runs on each node, and its timeline: worked out again where the view changed
//!   needs_cache    for each demand the nodes in the order in which they come free; one order for all that take the same of a node
//!   gpu_losses     what jobs on nodes make unusable for typical jobs, for each of the needs and for what a node has free
//!   ordered_queue  the queue in order, with the shape of each entry, and what each shape takes of a node
//!   replay         which job had which backfill slot last time
//!   same_run       how far two lists are the same
//!   scratch        lists of an earlier plan, for their allocations
//! ```
//!
//! All of it is a function of the view and the time alone. What is pointed to by the same `Arc` as
//! last time is taken as unchanged.

mod baseline;
mod gpu_losses;
mod needs_cache;
mod ordered_queue;
mod replay;
mod same_run;
mod scratch;

pub(crate) use baseline::{Baseline, is_resumable};
pub(crate) use gpu_losses::{GpuLosses, NodeLoss, NodeNow};
pub(crate) use needs_cache::NeedsCache;
pub(crate) use ordered_queue::{OrderedQueue, QueueSlot, ShapeKey};
pub(crate) use replay::{Replay, ReplayLog, SlotRecord};
pub(crate) use scratch::{NodeScratch, Scratch};

use crate::reservation::ReservationWindows;
use crate::topology::Switches;
use crate::view::{PartitionInfo, SchedulerPolicy, View};
use model::time::Timestamp;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Memo {
    pub(crate) baseline: Baseline,
    pub(crate) needs_cache: NeedsCache,
    pub(crate) gpu_losses: GpuLosses,
    pub(crate) queue: OrderedQueue,
    pub(crate) replay_log: ReplayLog,
    pub(crate) scratch: Scratch,
    partitions: Vec<PartitionInfo>,
    policy: SchedulerPolicy,
    pub(crate) windows: ReservationWindows,
    pub(crate) switches: Option<Arc<Switches>>,
}

impl Memo {
    /// Brings everything up to date with the view.
    pub(crate) fn refresh(&mut self, view: &View, now: Timestamp) {
        let is_known = !self.baseline.is_new()
            && are_same(&self.partitions, &view.partitions)
            && self.policy == view.policy;
        let changed = if is_known { self.baseline.refresh(view, now.millis()) } else { None };
        match changed {
            Some(changed) => {
                self.gpu_losses.refresh(&view.typical_jobs, &self.baseline, &changed);
                self.replay_log.add_changed(&changed);
                self.needs_cache.refresh(&self.baseline, changed);
            }
            None => self.begin_anew(view, now),
        }
        if self.baseline.availability_changed {
            self.queue.forget_waiting_shapes();
        }
        let windows = ReservationWindows::of(view, now.millis());
        if windows != self.windows {
            self.queue = OrderedQueue::default();
            self.replay_log.forget();
        }
        self.windows = windows;
        let is_same = match &self.switches {
            None => view.topology.is_none(),
            Some(switches) => switches.is_of(view),
        };
        if !is_same {
            self.switches = Switches::of(view);
            self.replay_log.forget();
            self.queue.forget_waiting_shapes();
        }
        let (owned_nodes, projects) =
            (self.baseline.has_user_exclusive_nodes(), self.baseline.projects_with_nodes());
        self.queue.refresh(view, owned_nodes, projects, &self.windows, now);
    }

    /// Forgets everything: the view has other nodes, partitions or policies.
    fn begin_anew(&mut self, view: &View, now: Timestamp) {
        let (partitions, policy) = (view.partitions.clone(), view.policy.clone());
        *self = Self { partitions, policy, ..Self::default() };
        let changed = self.baseline.refresh(view, now.millis()).unwrap_or_default();
        self.gpu_losses.refresh(&view.typical_jobs, &self.baseline, &changed);
        self.needs_cache = NeedsCache::over(view, &self.baseline);
    }
}

fn are_same(known: &[PartitionInfo], new: &[PartitionInfo]) -> bool {
    let same = |(a, b): (&PartitionInfo, &PartitionInfo)| {
        (Arc::ptr_eq(&a.partition, &b.partition) || a.partition == b.partition)
            && a.nodes == b.nodes
    };
    known.len() == new.len() && known.iter().zip(new).all(same)
}

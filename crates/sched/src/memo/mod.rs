//! What `plan` may remember between calls. An empty one gives the same plan.
//!
//! ```text
//!   standing    nodes, what runs on each, its timeline: worked out again where the view changed
//!   footprints  for each sort of demand the nodes in the order in which they come free
//!   line        the queue in order, with the shape of each entry
//!   replay      who kept which place last time
//! ```
//!
//! All of it is a function of the view and the time alone. What is pointed to by the same `Arc` as
//! last time is taken as unchanged.

mod footprints;
mod line;
mod replay;
mod standing;

pub(crate) use footprints::Footprints;
pub(crate) use line::{Line, Place, ShapeKey};
pub(crate) use replay::{Record, Replay, Rerun};
pub(crate) use standing::Standing;

use crate::reserved::Windows;
use crate::timeline::Timeline;
use crate::topology::Switches;
use crate::view::{PartitionInfo, SchedulerPolicy, View};
use model::time::Timestamp;
use std::sync::Arc;

#[derive(Debug, Clone, Default)]
pub struct Memo {
    pub(crate) standing: Standing,
    pub(crate) footprints: Footprints,
    pub(crate) line: Line,
    pub(crate) replay: Replay,
    /// Timelines of an earlier plan, for their room.
    pub(crate) scratch: Vec<Timeline>,
    partitions: Vec<PartitionInfo>,
    policy: SchedulerPolicy,
    pub(crate) windows: Windows,
    pub(crate) switches: Option<Arc<Switches>>,
}

impl Memo {
    /// Brings everything in line with the view.
    pub(crate) fn refresh(&mut self, view: &View, now: Timestamp) {
        let all_new = !self.standing.is_of(view)
            || !are_same(&self.partitions, &view.partitions)
            || self.policy != view.policy;
        if all_new {
            let (partitions, policy) = (view.partitions.clone(), view.policy.clone());
            *self = Self { partitions, policy, ..Self::default() };
        }
        let changed = self.standing.refresh(view, now.millis());
        if all_new {
            self.footprints = Footprints::over(view, &self.standing);
        } else {
            self.replay.add_changed(&changed);
            self.footprints.refresh(&self.standing, changed);
        }
        let windows = Windows::of(view, now.millis());
        if windows != self.windows {
            self.line = Line::default();
            self.replay.forget();
        }
        self.windows = windows;
        let is_same = match &self.switches {
            None => view.topology.is_none(),
            Some(switches) => switches.is_of(view),
        };
        if !is_same {
            self.switches = Switches::of(view);
            self.replay.forget();
        }
        self.line.refresh(view, self.standing.has_owners(), &self.windows, now);
    }
}

fn are_same(known: &[PartitionInfo], new: &[PartitionInfo]) -> bool {
    let same = |(a, b): (&PartitionInfo, &PartitionInfo)| {
        (Arc::ptr_eq(&a.partition, &b.partition) || a.partition == b.partition)
            && a.nodes == b.nodes
    };
    known.len() == new.len() && known.iter().zip(new).all(same)
}

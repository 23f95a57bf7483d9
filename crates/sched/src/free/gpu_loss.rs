//! What a job on a node adds to what typical jobs cannot use: worked out once for all nodes of a class with as much free.

use crate::free::needs::NodeNeeds;
use crate::free::node_timelines::NodeTimelines;
use crate::place::fragmentation;
use std::collections::HashMap;

#[derive(Default)]
pub struct GpuLoss {
    /// By the class of the node and what it has free now, by column.
    known: HashMap<(u32, Vec<u64>), i64>,
}

impl GpuLoss {
    /// By how much more is lost to typical jobs if the job takes its part of the node now.
    pub fn added_by(&mut self, timelines: &NodeTimelines<'_>, node: u32, needs: &NodeNeeds) -> i64 {
        let class = timelines.class(node);
        let timeline = timelines.of_node(node);
        let free = timeline.free(timeline.at(timelines.now));
        *self.known.entry((class.0, free.to_vec())).or_insert_with(|| {
            let taken = needs.amounts(class, free);
            let typical = &timelines.view.typical_jobs;
            fragmentation::growth(timelines.config(node), free, &taken, typical)
        })
    }
}

//! What a job on a node adds to what typical jobs cannot use: worked out once for all nodes of a class with as much free.

use crate::free::needs::NodeNeeds;
use crate::free::node_timelines::NodeTimelines;
use crate::place::fragmentation;
use std::collections::HashMap;

#[derive(Default)]
pub struct GpuLoss {
    /// By the class of the node and what it has free now, by column.
    known: HashMap<(u32, Vec<u64>), NodeLoss>,
}

/// What a placement on a node costs typical jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NodeLoss {
    /// By how much more is lost to typical jobs if the job takes its part of the node now.
    pub added: i64,
    /// What the node has left of its GPUs before that: among equals, nodes with many free GPUs stay whole.
    pub gpus_left: u64,
}

impl GpuLoss {
    /// What the job costs typical jobs if it takes its part of the node now.
    pub fn on_node(
        &mut self,
        timelines: &NodeTimelines<'_>,
        node: u32,
        needs: &NodeNeeds,
    ) -> NodeLoss {
        let class = timelines.class(node);
        let timeline = timelines.of_node(node);
        let free = timeline.free(timeline.at(timelines.now));
        *self.known.entry((class.0, free.to_vec())).or_insert_with(|| {
            let taken = needs.amounts(class, free);
            let typical = &timelines.view.typical_jobs;
            let config = timelines.config(node);
            NodeLoss {
                added: fragmentation::growth(config, free, &taken, typical),
                gpus_left: fragmentation::gpus_left(config, free),
            }
        })
    }
}

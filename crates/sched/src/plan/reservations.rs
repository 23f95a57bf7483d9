//! Nodes that advance reservations withhold from a job.

use super::Planner;
use crate::index::ShapeIndex;
use crate::order::JobInPartition;
use std::collections::HashSet;

/// How many blocked jobs of a partition are looked at for nodes that reservations withhold from them.
const RESERVED_CHECKS_MAX: u32 = 100;

impl Planner<'_> {
    /// Whether reservations withhold nodes that the job cannot do without. Only the first jobs of a long queue are looked
    /// at.
    pub(super) fn is_reserved_for_others(
        &mut self,
        entry: JobInPartition,
        shape: ShapeIndex,
    ) -> bool {
        let windows = self.timelines.windows;
        if windows.is_empty() || self.blocked[entry.partition as usize] >= RESERVED_CHECKS_MAX {
            return false;
        }
        let now = self.timelines.now;
        let view = self.view;
        let known = self.shape(shape);
        let (request, access) = (known.demand.request, &known.access);
        let end = now.saturating_add(known.full.length);
        let nodes = &view.partitions[entry.partition as usize].nodes;
        let kept = || nodes.iter().filter(|node| windows.is_closed(**node, access, now, end));
        let names: HashSet<&str> = request.node_list.iter().map(String::as_str).collect();
        let named = |node: &u32| names.contains(view.nodes[*node as usize].config.name.as_str());
        kept().any(named) || nodes.len() - kept().count() < request.nodes.min as usize
    }
}

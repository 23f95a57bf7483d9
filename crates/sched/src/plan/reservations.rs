//! What reservations keep from a job: nodes and licences.

use super::Planner;
use crate::order::JobInPartition;

/// The jobs of a partition that are asked whether reservations keep their nodes from them.
const KEPT_LOOKED_AT_MAX: u32 = 100;

impl Planner<'_> {
    pub(super) fn has_licenses(&mut self, shape: usize) -> bool {
        let known = self.shape(shape);
        let wanted = &known.demand.request.licenses;
        if wanted.is_empty() {
            return true;
        }
        let (access, end) = (known.access.clone(), known.full.length);
        let (windows, now) = (self.timelines.windows, self.timelines.now);
        let free = |name: &str| {
            let end = now.saturating_add(end);
            let kept = windows.licenses_reserved(self.view, &access, name, now, end);
            self.licenses.get(name).copied().unwrap_or(0).saturating_sub(kept)
        };
        wanted.iter().all(|(name, count)| free(name) >= u64::from(*count))
    }

    /// Whether reservations keep nodes that the job cannot do without. Of a long line only the first are asked.
    pub(super) fn is_reserved_for_others(&mut self, entry: JobInPartition, shape: usize) -> bool {
        let windows = self.timelines.windows;
        if windows.is_empty() || self.blocked[entry.partition as usize] >= KEPT_LOOKED_AT_MAX {
            return false;
        }
        let now = self.timelines.now;
        let view = self.view;
        let known = self.shape(shape);
        let (request, access) = (known.demand.request, &known.access);
        let end = now.saturating_add(known.full.length);
        let nodes = &view.partitions[entry.partition as usize].nodes;
        let kept = || nodes.iter().filter(|node| windows.is_closed(**node, access, now, end));
        let named =
            |node: &u32| request.node_list.contains(&view.nodes[*node as usize].config.name);
        kept().any(named) || nodes.len() - kept().count() < request.nodes.min as usize
    }
}

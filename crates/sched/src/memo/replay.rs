//! The last plan's backfill slots, for the next plan to find again without a search.
//!
//! Walking the same queue, a job finds its slot of last time unless a node differs from what it was at that point: it
//! changed since, or a job before took more or less of it. Those nodes are marked as changed. As long as there are few,
//! a search over the changed nodes alone says whether last time's slot is still the best. Entries that are the same as
//! last time are in the same order; an entry that changed counts as new.

use crate::free::backfill_slot::BackfillSlot;
use model::id::JobId;
use std::collections::HashMap;
use std::sync::Arc;

/// With more changed nodes than this, a new search is quicker.
const CHANGED_MAX: usize = 2_048;

#[derive(Debug, Clone, Default)]
pub struct ReplayLog {
    records: HashMap<JobId, SlotRecord>,
    /// Nodes that changed since the records were made.
    changed: Vec<u32>,
}

/// The result of a search for a backfill slot.
#[derive(Debug, Clone, PartialEq)]
pub struct SlotRecord {
    /// `None` if the job could never start.
    pub slot: Option<Arc<BackfillSlot>>,
    /// The slot is the earliest single node. Nothing else was considered.
    pub single: bool,
}

impl ReplayLog {
    pub fn add_changed(&mut self, nodes: &[u32]) {
        if self.changed.len() <= CHANGED_MAX {
            self.changed.extend(nodes);
        }
    }

    pub fn forget(&mut self) {
        *self = Self::default();
    }

    pub fn begin(&mut self, nodes: usize) -> Replay {
        let changed = std::mem::take(&mut self.changed);
        let mut replay = Replay {
            is_active: !self.records.is_empty() && changed.len() <= CHANGED_MAX,
            records: std::mem::take(&mut self.records),
            changed_nodes: Vec::new(),
            is_changed: Vec::new(),
        };
        if replay.is_active {
            replay.is_changed = vec![false; nodes];
            replay.changed_nodes.reserve(nodes.min(CHANGED_MAX));
            changed.into_iter().for_each(|node| replay.mark(node));
        }
        replay
    }

    pub fn end(&mut self, records: HashMap<JobId, SlotRecord>, started_on: &[u32]) {
        self.records = records;
        self.add_changed(started_on);
    }
}

/// The last plan's slots while the next plan is made.
#[derive(Default)]
pub struct Replay {
    pub is_active: bool,
    records: HashMap<JobId, SlotRecord>,
    changed_nodes: Vec<u32>,
    is_changed: Vec<bool>,
}

impl Replay {
    /// The nodes that differ from what they were at this point of the last plan.
    pub fn changed_nodes(&self) -> &[u32] {
        &self.changed_nodes
    }

    pub fn is_changed(&self, node: u32) -> bool {
        self.is_changed[node as usize]
    }

    fn mark(&mut self, node: u32) {
        if !self.is_changed[node as usize] {
            self.is_changed[node as usize] = true;
            self.changed_nodes.push(node);
            self.is_active &= self.changed_nodes.len() <= CHANGED_MAX;
        }
    }

    pub fn mark_changed(&mut self, nodes: impl Iterator<Item = u32>) {
        if self.is_active {
            nodes.for_each(|node| self.mark(node));
        }
    }

    /// Retains only the records of these jobs. The nodes of the other records count as changed.
    pub fn retain_jobs(&mut self, jobs: impl Iterator<Item = JobId>) {
        if !self.is_active {
            return;
        }
        let mut gone = std::mem::take(&mut self.records);
        // No more of them are looked for than there are records: few jobs of a long queue have one, and those are the first.
        let jobs = jobs.take(gone.len());
        self.records = jobs.filter_map(|job| Some((job, gone.remove(&job)?))).collect();
        let kept = gone.into_values().filter_map(|record| record.slot);
        self.mark_changed(kept.flat_map(|kept| kept.nodes().collect::<Vec<_>>()));
    }

    /// Takes the job's record out.
    pub fn take_record(&mut self, job: JobId) -> Option<SlotRecord> {
        if self.is_active { self.records.remove(&job) } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_jobs_are_looked_at_than_there_are_records() {
        let record = |id| (JobId(id), SlotRecord { slot: None, single: false });
        let mut replay = Replay {
            is_active: true,
            records: HashMap::from([record(1), record(3)]),
            ..Replay::default()
        };
        let mut looked_at = 0;
        replay.retain_jobs((2..100).map(JobId).inspect(|_| looked_at += 1));
        assert_eq!(looked_at, 2);
        assert!(replay.take_record(JobId(1)).is_none() && replay.take_record(JobId(3)).is_some());
    }
}

//! The last plan's places, for the next plan to find again without a search.
//!
//! Walking the same line, a job finds its place of last time unless a node differs from what it was
//! at that turn: a node that changed since, or that somebody before it in line took more or less of.
//! Those nodes are listed. As long as there are few of them, a search over the listed nodes alone
//! says whether last time's place is still the best. Entries of the line that are the same as last
//! time stand in the same order; one that changed counts as new.

use crate::board::Kept;
use model::id::JobId;
use std::collections::HashMap;
use std::sync::Arc;

/// With more nodes than this that differ, searching anew is quicker.
const DIFFERING_MAX: usize = 2_048;

#[derive(Debug, Clone, Default)]
pub struct Replay {
    records: HashMap<JobId, Record>,
    /// Nodes that changed since the records were made.
    changed: Vec<u32>,
}

/// What became of a job that looked for a place to keep.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// None: there was no place for it, ever.
    pub kept: Option<Arc<Kept>>,
    /// It was the first of single nodes: nothing else decided.
    pub single: bool,
}

impl Replay {
    pub fn add_changed(&mut self, nodes: &[u32]) {
        if self.changed.len() <= DIFFERING_MAX {
            self.changed.extend(nodes);
        }
    }

    pub fn forget(&mut self) {
        *self = Self::default();
    }

    pub fn begin(&mut self, nodes: usize) -> Rerun {
        let changed = std::mem::take(&mut self.changed);
        let mut rerun = Rerun {
            is_active: !self.records.is_empty() && changed.len() <= DIFFERING_MAX,
            records: std::mem::take(&mut self.records),
            differs: Vec::new(),
            is_listed: Vec::new(),
        };
        if rerun.is_active {
            rerun.is_listed = vec![false; nodes];
            changed.into_iter().for_each(|node| rerun.list(node));
        }
        rerun
    }

    pub fn end(&mut self, records: HashMap<JobId, Record>, started_on: &[u32]) {
        self.records = records;
        self.add_changed(started_on);
    }
}

/// One plan that follows another.
#[derive(Default)]
pub struct Rerun {
    pub is_active: bool,
    records: HashMap<JobId, Record>,
    differs: Vec<u32>,
    is_listed: Vec<bool>,
}

impl Rerun {
    /// The nodes that differ from what they were at this turn of the last plan.
    pub fn differing(&self) -> &[u32] {
        &self.differs
    }

    pub fn is_listed(&self, node: u32) -> bool {
        self.is_listed[node as usize]
    }

    fn list(&mut self, node: u32) {
        if !self.is_listed[node as usize] {
            self.is_listed[node as usize] = true;
            self.differs.push(node);
            self.is_active &= self.differs.len() <= DIFFERING_MAX;
        }
    }

    pub fn differ(&mut self, nodes: impl Iterator<Item = u32>) {
        if self.is_active {
            nodes.for_each(|node| self.list(node));
        }
    }

    /// Leaves only the records of these jobs; the others are gone or count as new.
    pub fn keep_only(&mut self, jobs: impl Iterator<Item = JobId>) {
        if !self.is_active {
            return;
        }
        let mut gone = std::mem::take(&mut self.records);
        self.records = jobs.filter_map(|job| Some((job, gone.remove(&job)?))).collect();
        let kept = gone.into_values().filter_map(|record| record.kept);
        self.differ(kept.flat_map(|kept| kept.nodes().collect::<Vec<_>>()));
    }

    /// The job's record, as its turn comes.
    pub fn meet(&mut self, job: JobId) -> Option<Record> {
        if self.is_active { self.records.remove(&job) } else { None }
    }
}

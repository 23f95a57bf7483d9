//! The sort key of the queue: tier, priority, submit time, job id.

use crate::view::{PendingJob, View};
use model::id::JobId;
use model::time::Timestamp;
use std::cmp::Reverse;

/// One waiting entry seen through one of its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JobInPartition {
    /// Position in `View::queue`.
    pub waiting: u32,
    /// Position in `View::partitions`.
    pub partition: u32,
}

/// Tier, priority, submit time, job, and the position of the partition among those asked for.
pub type QueueKey = (Reverse<u32>, Reverse<u64>, Timestamp, JobId, u32);

/// An entry once for each partition it may use. The keys depend on what the entries say, never on their position in the
/// view.
pub fn job_in_partitions(
    view: &View,
    waiting: u32,
) -> impl Iterator<Item = (QueueKey, JobInPartition)> + '_ {
    let entry = &view.queue[waiting as usize];
    entry.partitions.iter().enumerate().filter_map(move |(asked, &partition)| {
        let tier = view.partitions.get(partition as usize)?.partition.priority_tier;
        let priority = priority_in(entry, asked as u32);
        let key = (Reverse(tier), Reverse(priority), entry.submit, entry.job, asked as u32);
        Some((key, JobInPartition { waiting, partition }))
    })
}

/// The priority of an entry in the partition at this position among those that it asked for.
pub fn priority_in(entry: &PendingJob, asked: u32) -> u64 {
    entry.priorities.get(asked as usize).copied().unwrap_or(entry.priority)
}

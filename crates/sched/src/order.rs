//! The order in which jobs have their turn: tier, priority, submit time, job id.

use crate::view::View;
use std::cmp::Reverse;

/// One waiting entry seen through one of its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turn {
    /// Position in `View::queue`.
    pub waiting: usize,
    /// Position in `View::partitions`.
    pub partition: u32,
}

/// Every entry once for each partition it may use. The order depends on what the entries say, never
/// on where they stand in the view.
pub fn turns(view: &View) -> Vec<Turn> {
    let mut keyed: Vec<_> = view
        .queue
        .iter()
        .enumerate()
        .flat_map(|(waiting, entry)| {
            entry.partitions.iter().enumerate().filter_map(move |(asked, &partition)| {
                let tier = view.partitions.get(partition as usize)?.partition.priority_tier;
                let key = (Reverse(tier), Reverse(entry.priority), entry.submit, entry.job, asked);
                Some((key, Turn { waiting, partition }))
            })
        })
        .collect();
    keyed.sort_unstable_by_key(|(key, _)| *key);
    keyed.into_iter().map(|(_, turn)| turn).collect()
}

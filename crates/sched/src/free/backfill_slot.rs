//! A backfill slot: what a waiting job has reserved of its nodes for later.

use super::timeline::{Columns, Millis, NEVER};

/// The amounts that a job takes of each of its nodes, by column, from `start` to `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackfillSlot {
    pub start: Millis,
    pub end: Millis,
    pub amounts: Vec<(u32, Columns)>,
}

impl BackfillSlot {
    pub fn nodes(&self) -> impl Iterator<Item = u32> + '_ {
        self.amounts.iter().map(|(node, _)| *node)
    }
}

/// When a job that starts then and lasts so long is over.
pub fn end_of(start: Millis, length: Millis) -> Millis {
    if length == NEVER { NEVER } else { start.saturating_add(length) }
}

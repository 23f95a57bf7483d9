//! The ranges of ids that users of images have on nodes, beside their root: one for each account that has started a job, the
//! same on every node, so that no two accounts have the same ids in a folder that nodes share.

use model::site::ID_RANGES;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// Each account's range, for ever.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct IdRangeTable {
    /// The number of the range by that of the account; at most [`ID_RANGES`].
    by_account: BTreeMap<u32, u32>,
}

impl IdRangeTable {
    pub fn is_empty(&self) -> bool {
        self.by_account.is_empty()
    }

    /// Every range is an account's.
    pub fn is_full(&self) -> bool {
        self.by_account.len() >= ID_RANGES as usize
    }

    /// The number of the account's range.
    pub fn of(&self, uid: u32) -> Option<u32> {
        self.by_account.get(&uid).copied()
    }

    /// The account whose range has this number.
    pub fn account_of(&self, number: u32) -> Option<u32> {
        self.by_account.iter().find(|(_, of)| **of == number).map(|(account, _)| *account)
    }

    /// Gives an account without a range the one that follows from its number; if that is another's, the highest that is
    /// nobody's, which follows from the number of few accounts.
    pub(crate) fn give(&mut self, uid: u32) {
        if self.by_account.contains_key(&uid) || self.is_full() {
            return;
        }
        let taken: BTreeSet<u32> = self.by_account.values().copied().collect();
        let mut wanted = std::iter::once(uid % ID_RANGES).chain((0..ID_RANGES).rev());
        if let Some(free) = wanted.find(|range| !taken.contains(range)) {
            self.by_account.insert(uid, free);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_whose_numbers_differ_by_a_multiple_have_ranges_of_their_own() {
        let mut table = IdRangeTable::default();
        for uid in [1000, 1000 + ID_RANGES, 1000 + 2 * ID_RANGES, 1001, ID_RANGES - 1, 1000] {
            table.give(uid);
        }
        assert_eq!(table.of(1000), Some(1000), "by its number, as long as that is nobody else's");
        assert_eq!(table.of(1001), Some(1001));
        assert_eq!(table.of(1000 + ID_RANGES), Some(ID_RANGES - 1));
        assert_eq!(table.of(1000 + 2 * ID_RANGES), Some(ID_RANGES - 2));
        assert_eq!(table.of(ID_RANGES - 1), Some(ID_RANGES - 3), "it came after");
        assert_eq!(table.of(7), None, "it has started nothing");
        assert_eq!(table.account_of(ID_RANGES - 2), Some(1000 + 2 * ID_RANGES));
        assert_eq!(table.account_of(7), None);
        let text = serde_json::to_string(&table).expect("JSON");
        assert_eq!(serde_json::from_str::<IdRangeTable>(&text).expect("a table"), table);
    }

    #[test]
    fn no_range_is_given_twice_when_all_are_given() {
        let by_account = (0..ID_RANGES).map(|uid| (uid, uid)).collect();
        let mut table = IdRangeTable { by_account };
        table.give(ID_RANGES);
        assert!(table.is_full());
        assert_eq!(table.of(ID_RANGES), None);
    }
}

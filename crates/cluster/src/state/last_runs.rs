//! How long the last jobs of each user ran: what the next one is expected to take, for `priority/sluice`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Users whose runs are noted; of more nothing is known.
const USERS_MAX: usize = 100_000;

/// The lengths of a user's last two jobs, seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct LastTwo {
    last_s: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before_s: Option<u32>,
}

/// By user id.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct LastRuns(BTreeMap<u32, LastTwo>);

impl LastRuns {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn note(&mut self, uid: u32, run_s: u32) {
        let before_s = self.0.get(&uid).map(|runs| runs.last_s);
        if before_s.is_some() || self.0.len() < USERS_MAX {
            self.0.insert(uid, LastTwo { last_s: run_s, before_s });
        }
    }

    /// How long the user's next job is expected to run: the mean of the last two. `None` of a user without any.
    pub fn expected_s(&self, uid: u32) -> Option<u32> {
        let LastTwo { last_s, before_s } = *self.0.get(&uid)?;
        Some(last_s.midpoint(before_s.unwrap_or(last_s)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_run_is_expected_to_be_the_mean_of_the_last_two() {
        let mut runs = LastRuns::default();
        assert_eq!(runs.expected_s(7), None);
        for (run_s, expected_s) in [(100, 100), (300, 200), (50, 175)] {
            runs.note(7, run_s);
            assert_eq!((runs.expected_s(7), runs.expected_s(8)), (Some(expected_s), None));
        }
    }
}

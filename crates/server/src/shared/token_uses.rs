//! When each token was last used. Only tokens that the state knows are noted; those that are gone since are forgotten when
//! there are many.

use model::time::Timestamp;
use std::collections::HashMap;
use std::sync::Mutex;

/// Beyond so many, the older half is forgotten.
const USES_MAX: usize = 100_000;

#[derive(Default)]
pub struct TokenUses(Mutex<HashMap<String, Timestamp>>);

impl TokenUses {
    /// Notes a use of a token that the state knows, by its hash.
    pub fn note(&self, hash: &str, at: Timestamp) {
        let mut uses = self.lock();
        if uses.len() >= USES_MAX {
            let mut times: Vec<Timestamp> = uses.values().copied().collect();
            let middle = times.len() / 2;
            let (_, median, _) = times.select_nth_unstable(middle);
            let median = *median;
            uses.retain(|_, last| *last > median);
        }
        match uses.get_mut(hash) {
            Some(last) => *last = at,
            None => drop(uses.insert(hash.to_string(), at)),
        }
    }

    pub fn last(&self, hash: &str) -> Option<Timestamp> {
        self.lock().get(hash).copied()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashMap<String, Timestamp>> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }
}

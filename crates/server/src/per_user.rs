//! Counts of what each user, or each node, has open at the same time.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex};

/// How many each has; those with none are not listed.
#[derive(Clone)]
pub struct Counts<K> {
    of_each: Arc<Mutex<HashMap<K, usize>>>,
}

pub type UserCounts = Counts<u32>;
pub type CountedUser = Counted<u32>;

impl<K> Default for Counts<K> {
    fn default() -> Self {
        Self { of_each: Arc::default() }
    }
}

/// Counts as one of its owner's until it is dropped.
pub struct Counted<K: Eq + Hash> {
    owner: K,
    counts: Counts<K>,
}

impl<K: Eq + Hash + Clone> Counts<K> {
    /// One more of this owner, who may have `most` at the same time; `None` when he has.
    pub fn enter(&self, owner: K, most: usize) -> Option<Counted<K>> {
        let mut of_each = self.of_each.lock().expect("no panic with it held");
        let count = of_each.entry(owner.clone()).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(Counted { owner, counts: Counts { of_each: self.of_each.clone() } })
    }

    /// How many this owner has.
    pub fn count(&self, owner: &K) -> usize {
        self.of_each.lock().expect("no panic with it held").get(owner).copied().unwrap_or_default()
    }
}

impl<K: Eq + Hash> Drop for Counted<K> {
    fn drop(&mut self) {
        let mut of_each = self.counts.of_each.lock().expect("no panic with it held");
        let left = of_each.get_mut(&self.owner).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            of_each.remove(&self.owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn user_at_the_bound_is_refused_until_one_is_dropped_and_others_are_not() {
        let counts = UserCounts::default();
        let first = counts.enter(1000, 2);
        let second = counts.enter(1000, 2);
        assert!(first.is_some() && second.is_some() && counts.enter(1000, 2).is_none());
        assert!(counts.enter(1001, 2).is_some());
        assert_eq!((counts.count(&1000), counts.count(&1001)), (2, 0));
        drop(first);
        assert!(counts.enter(1000, 2).is_some());
        drop(second);
        assert!(counts.of_each.lock().unwrap().is_empty(), "nobody is kept for nothing");
    }
}

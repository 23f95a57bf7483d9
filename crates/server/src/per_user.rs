//! Counts of what each user has open at the same time.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// How many each user has; users with none are not listed.
#[derive(Clone, Default)]
pub struct UserCounts {
    users: Arc<Mutex<HashMap<u32, usize>>>,
}

/// Counts as one of its user's until it is dropped.
pub struct CountedUser {
    user: u32,
    counts: UserCounts,
}

impl UserCounts {
    /// One more of this user, who may have `most` at the same time; `None` when he has.
    pub fn enter(&self, user: u32, most: usize) -> Option<CountedUser> {
        let mut users = self.users.lock().expect("no panic with it held");
        let count = users.entry(user).or_default();
        if *count >= most {
            return None;
        }
        *count += 1;
        Some(CountedUser { user, counts: self.clone() })
    }
}

impl Drop for CountedUser {
    fn drop(&mut self) {
        let mut users = self.counts.users.lock().expect("no panic with it held");
        let left = users.get_mut(&self.user).map_or(0, |count| {
            *count -= 1;
            *count
        });
        if left == 0 {
            users.remove(&self.user);
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
        drop(first);
        assert!(counts.enter(1000, 2).is_some());
        drop(second);
        assert!(counts.users.lock().unwrap().is_empty(), "nobody is kept for nothing");
    }
}

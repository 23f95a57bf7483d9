//! A bound on how often something happens: so many at once, and then one in each interval.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// Owners that are remembered.
const OWNERS_MAX: usize = 4096;

#[derive(Debug, Clone, Copy)]
pub struct RateLimit {
    pub burst: u32,
    pub interval: Duration,
}

/// What one owner has used of a limit.
#[derive(Debug, Clone, Copy, Default)]
pub struct RateUse {
    /// Until when the intervals of what was taken reach.
    taken_until: Option<Instant>,
}

impl RateLimit {
    /// Takes one if it may happen now.
    pub fn take(&self, used: &mut RateUse, now: Instant) -> bool {
        let from = used.taken_until.map_or(now, |until| until.max(now));
        let until = from + self.interval;
        if until - now > self.interval * self.burst {
            return false;
        }
        used.taken_until = Some(until);
        true
    }

    /// How long it is until one may happen.
    pub fn wait(&self, used: &RateUse, now: Instant) -> Duration {
        let taken =
            used.taken_until.map_or(Duration::ZERO, |until| until.saturating_duration_since(now));
        (taken + self.interval).saturating_sub(self.interval * self.burst)
    }

    /// Whether as much may happen as if nothing ever had.
    pub fn is_unused(&self, used: &RateUse, now: Instant) -> bool {
        used.taken_until.is_none_or(|until| until <= now)
    }
}

/// What each of a bounded number of owners has used of a limit. Anybody can make owners up, as addresses are.
pub struct OwnerRates<K> {
    uses: Mutex<HashMap<K, RateUse>>,
    owners_max: usize,
}

impl<K> Default for OwnerRates<K> {
    fn default() -> Self {
        Self { uses: Mutex::default(), owners_max: OWNERS_MAX }
    }
}

impl<K: Hash + Eq + Clone> OwnerRates<K> {
    /// Takes one of this owner's. The error is how long to wait until there is one.
    pub fn take(&self, limit: RateLimit, owner: K, now: Instant) -> Result<(), Duration> {
        let mut uses = self.uses.lock().expect("no panic with the rates held");
        if uses.len() >= self.owners_max && !uses.contains_key(&owner) {
            uses.retain(|_, used| !limit.is_unused(used, now));
            make_room(&mut uses, self.owners_max, |used| used.taken_until);
        }
        let used = uses.entry(owner).or_default();
        if limit.take(used, now) { Ok(()) } else { Err(limit.wait(used, now)) }
    }
}

/// Where there are as many owners as may be, the one that has used least makes room.
fn make_room<K: Hash + Eq + Clone, V>(
    owners: &mut HashMap<K, V>,
    max: usize,
    used: impl Fn(&V) -> Option<Instant>,
) {
    if owners.len() >= max {
        let least = owners.iter().min_by_key(|(_, value)| used(value));
        if let Some(least) = least.map(|(owner, _)| owner.clone()) {
            owners.remove(&least);
        }
    }
}

/// Lines of the log by whom they are about. What is beyond the limit is counted, and not written.
pub struct LineRates<K> {
    lines: Mutex<HashMap<K, Lines>>,
    owners_max: usize,
}

#[derive(Default)]
struct Lines {
    used: RateUse,
    unlogged: u64,
}

impl<K> Default for LineRates<K> {
    fn default() -> Self {
        Self { lines: Mutex::default(), owners_max: OWNERS_MAX }
    }
}

impl<K: Hash + Eq + Clone> LineRates<K> {
    /// How many lines were left out before this one; `None` where it is left out too.
    pub fn take(&self, limit: RateLimit, about: K, now: Instant) -> Option<u64> {
        let mut all = self.lines.lock().expect("no panic with the lines held");
        if all.len() >= self.owners_max && !all.contains_key(&about) {
            all.retain(|_, lines| lines.unlogged > 0 || !limit.is_unused(&lines.used, now));
            // What was left out of somebody's lines and was never told is forgotten with him.
            make_room(&mut all, self.owners_max, |lines| lines.used.taken_until);
        }
        let lines = all.entry(about).or_default();
        if limit.take(&mut lines.used, now) {
            return Some(std::mem::take(&mut lines.unlogged));
        }
        lines.unlogged += 1;
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn burst_is_free_and_then_one_in_each_interval() {
        let limit = RateLimit { burst: 3, interval: Duration::from_secs(10) };
        let (mut used, start) = (RateUse::default(), Instant::now());
        let mut at = |seconds: u64| limit.take(&mut used, start + Duration::from_secs(seconds));
        assert_eq!([at(0), at(0), at(0), at(0)], [true, true, true, false]);
        assert_eq!([at(9), at(10), at(10), at(19)], [false, true, false, false]);
        assert_eq!([at(20), at(100), at(100), at(100)], [true, true, true, true]);
        assert!(!at(100));
        assert!(!limit.is_unused(&used, start + Duration::from_secs(129)));
        assert!(limit.is_unused(&used, start + Duration::from_secs(130)));
    }

    #[test]
    fn wait_is_the_time_until_the_next_one() {
        let limit = RateLimit { burst: 2, interval: Duration::from_secs(10) };
        let (mut used, start) = (RateUse::default(), Instant::now());
        assert_eq!(limit.wait(&used, start), Duration::ZERO);
        assert!(limit.take(&mut used, start) && limit.take(&mut used, start));
        for (seconds, wait) in [(0, 10), (4, 6), (10, 0), (60, 0)] {
            let now = start + Duration::from_secs(seconds);
            assert_eq!(limit.wait(&used, now), Duration::from_secs(wait), "after {seconds} s");
        }
    }

    #[test]
    fn owners_are_bounded_and_who_has_used_most_is_remembered() {
        let limit = RateLimit { burst: 3, interval: Duration::from_secs(10) };
        let start = Instant::now();
        let rates = OwnerRates { uses: Mutex::default(), owners_max: 4 };
        for _ in 0..3 {
            assert_eq!(rates.take(limit, 0, start), Ok(()));
        }
        for stranger in 1..1_000 {
            assert_eq!(rates.take(limit, stranger, start), Ok(()));
            assert!(rates.uses.lock().expect("held").len() <= 4);
        }
        assert_eq!(rates.take(limit, 0, start), Err(limit.interval), "it is known still");
    }

    #[test]
    fn those_whom_lines_are_about_are_bounded_whatever_was_left_out() {
        let limit = RateLimit { burst: 1, interval: Duration::from_secs(10) };
        let start = Instant::now();
        let lines = LineRates { lines: Mutex::default(), owners_max: 4 };
        for about in 0..1_000 {
            assert_eq!(lines.take(limit, about, start), Some(0));
            assert_eq!(lines.take(limit, about, start), None);
            assert!(lines.lines.lock().expect("held").len() <= 4);
        }
        let later = start + Duration::from_secs(100);
        assert_eq!(lines.take(limit, 999, later), Some(1), "the newest are counted still");
    }
}

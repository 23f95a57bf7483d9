//! When requests came: a count for each second of the longest window.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};

/// The longest window of `scaling`.
const SECONDS_MAX: u64 = 300;

pub struct Arrivals {
    start: Instant,
    /// A second since the start, and its requests. The newest is at the end.
    seconds: Mutex<VecDeque<(u64, u64)>>,
}

impl Default for Arrivals {
    fn default() -> Self {
        Self { start: Instant::now(), seconds: Mutex::default() }
    }
}

impl Arrivals {
    fn held(&self) -> MutexGuard<'_, VecDeque<(u64, u64)>> {
        self.seconds.lock().expect("no panic with the counts held")
    }

    pub fn note(&self, now: Instant) {
        self.note_many(1, now);
    }

    /// Notes so many at once, of none nothing.
    pub fn note_many(&self, count: u64, now: Instant) {
        if count == 0 {
            return;
        }
        let second = now.saturating_duration_since(self.start).as_secs();
        let mut seconds = self.held();
        match seconds.back_mut() {
            Some((last, sum)) if *last == second => *sum = sum.saturating_add(count),
            _ => seconds.push_back((second, count)),
        }
        while seconds.front().is_some_and(|(first, _)| first + SECONDS_MAX < second) {
            seconds.pop_front();
        }
    }

    /// How many came within the window before now: in as many seconds as it has, of which the last is not over yet. One more would
    /// make a steady load look like more than it is.
    pub fn within(&self, window: Duration, now: Instant) -> u64 {
        let second = now.saturating_duration_since(self.start).as_secs();
        let from = (second + 1).saturating_sub(window.as_secs());
        let held = self.held();
        let within = held.iter().filter(|(at, _)| *at >= from);
        // A gateway may report any number.
        within.fold(0, |sum: u64, (_, count)| sum.saturating_add(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_window_are_counted_and_older_ones_forgotten() {
        let arrivals = Arrivals::default();
        let at = |s: u64| arrivals.start + Duration::from_secs(s);
        for second in [0, 0, 10, 40] {
            arrivals.note(at(second));
        }
        assert_eq!(arrivals.within(Duration::from_secs(30), at(40)), 1);
        assert_eq!(arrivals.within(Duration::from_secs(31), at(40)), 2);
        assert_eq!(arrivals.within(Duration::from_secs(300), at(40)), 4);
        assert_eq!(arrivals.within(Duration::from_secs(30), at(100)), 0);
        arrivals.note_many(u64::MAX, at(999));
        arrivals.note_many(u64::MAX, at(1000));
        assert_eq!(arrivals.within(Duration::from_secs(30), at(1000)), u64::MAX);
        arrivals.note(at(2000));
        assert_eq!(arrivals.held().len(), 1, "what no window needs is gone");
    }

    #[test]
    fn steady_load_never_looks_like_more_than_it_is() {
        let (arrivals, window) = (Arrivals::default(), Duration::from_secs(30));
        for tenth in 0..1000 {
            let now = arrivals.start + Duration::from_millis(100 * tenth);
            arrivals.note(now);
            let found = arrivals.within(window, now);
            assert!(found <= 300 && (tenth < 300 || found > 290), "{found} at {tenth}");
        }
    }
}

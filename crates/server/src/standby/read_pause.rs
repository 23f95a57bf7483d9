//! How long a standby waits before it reads the whole state once more. One that cannot apply the history, as where a newer program
//! leads, would do nothing else, and the database would send it the snapshot over and over.

use std::time::{Duration, Instant};

/// So many times as long as the reading took lie between two.
const PAUSE_FACTOR: u32 = 10;
const PAUSE_MAX: Duration = Duration::from_secs(30);

#[derive(Default)]
pub struct ReadPause {
    until: Option<Instant>,
}

impl ReadPause {
    pub fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now >= until)
    }

    /// Begins after the state was read, from `begun` until `now`.
    pub fn begin(&mut self, begun: Instant, now: Instant) {
        let took = now.saturating_duration_since(begun);
        self.until = Some(now + took.saturating_mul(PAUSE_FACTOR).min(PAUSE_MAX));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn state_that_takes_long_to_read_is_read_more_seldom() {
        let (mut pause, begun) = (ReadPause::default(), Instant::now());
        assert!(pause.is_over(begun), "the first reading waits for nothing");
        for (took, expected) in [(0, 0), (200, 2000), (60_000, 30_000)] {
            let [took, expected] = [took, expected].map(Duration::from_millis);
            let now = begun + took;
            pause.begin(begun, now);
            assert!(pause.is_over(now + expected), "{took:?}");
            let before = expected.saturating_sub(Duration::from_millis(1));
            assert_eq!(pause.is_over(now + before), expected.is_zero(), "{took:?}");
        }
    }
}

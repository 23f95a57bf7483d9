//! The pause between two tries to dial a server that does not answer.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

const MIN: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff(Duration);

impl Backoff {
    pub fn new() -> Backoff {
        Backoff(MIN)
    }

    /// A connection was made: the next outage begins with the shortest pause.
    pub fn reset(&mut self) {
        self.0 = MIN;
    }

    /// Whether nothing failed since the last connection.
    pub fn is_reset(&self) -> bool {
        self.0 == MIN
    }

    /// Between half of it and all: agents that lost the same server do not all come at the same moment.
    pub fn pause(&self) -> Duration {
        let random = RandomState::new().build_hasher().finish();
        self.0 / 2 + self.0.mul_f64(0.5 * (random as f64 / u64::MAX as f64))
    }

    pub fn lengthen(&mut self) {
        self.0 = (self.0 * 2).min(MAX);
    }
}

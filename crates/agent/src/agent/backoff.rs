//! The pause between two tries to dial a server that does not answer.

use std::hash::{BuildHasher, Hasher, RandomState};
use std::time::Duration;

const MIN: Duration = Duration::from_millis(100);
const MAX: Duration = Duration::from_secs(2);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Backoff {
    pause: Duration,
    /// A connection was made since the last failure.
    connected: bool,
}

impl Backoff {
    pub fn new() -> Backoff {
        Backoff { pause: MIN, connected: false }
    }

    /// A connection was made: the next outage begins with the shortest pause.
    pub fn reset(&mut self) {
        *self = Backoff { pause: MIN, connected: true };
    }

    /// Whether a connection was made, and nothing failed since.
    pub fn is_reset(&self) -> bool {
        self.connected
    }

    /// Between half of it and all: agents that lost the same server do not all come at the same moment.
    pub fn pause(&self) -> Duration {
        let random = RandomState::new().build_hasher().finish();
        self.pause / 2 + self.pause.mul_f64(0.5 * (random as f64 / u64::MAX as f64))
    }

    pub fn lengthen(&mut self) {
        *self = Backoff { pause: (self.pause * 2).min(MAX), connected: false };
    }
}

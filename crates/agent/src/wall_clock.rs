//! The node's clock. Orders and reports carry the server's time: the difference is measured at each welcome, and again when
//! this machine's clock is set.

use model::time::Timestamp;
use nix::time::{ClockId, clock_gettime};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

pub(crate) fn now() -> Timestamp {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_millis(i64::try_from(since.as_millis()).unwrap_or(i64::MAX))
}

/// Days since 1970, as shadow entries count them.
pub(crate) fn today() -> i64 {
    now().secs() / (24 * 60 * 60)
}

/// Clocks that are so far apart are worth a line.
const NOTICED_S: i64 = 5;

/// How far the server's clock is ahead of ours.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Skew {
    ahead_ms: i64,
}

impl Skew {
    pub fn between(server: Timestamp, own: Timestamp) -> Skew {
        Skew { ahead_ms: server.millis().saturating_sub(own.millis()) }
    }

    /// How many seconds the clocks are apart, where it is worth a line: times are converted, but files and logs are not.
    pub fn noticeable_s(self) -> Option<i64> {
        let seconds = self.ahead_ms / 1000;
        (seconds.abs() >= NOTICED_S).then_some(seconds)
    }

    /// Whether another measurement says that one of the clocks was set since this one.
    pub fn is_outdated_by(self, newer: Skew) -> bool {
        Skew { ahead_ms: newer.ahead_ms.saturating_sub(self.ahead_ms) }.noticeable_s().is_some()
    }

    pub fn to_server(self, own: Timestamp) -> Timestamp {
        Timestamp::from_millis(own.millis().saturating_add(self.ahead_ms))
    }

    pub fn to_own(self, server: Timestamp) -> Timestamp {
        Timestamp::from_millis(server.millis().saturating_sub(self.ahead_ms))
    }
}

/// The server's clock as its welcome told it, carried on by a clock of this machine that nobody sets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ServerClock {
    told: Timestamp,
    /// Since this machine's start, the time in which it was suspended included: orders grow old meanwhile.
    at: Duration,
}

fn since_boot() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

impl ServerClock {
    pub fn told(now: Timestamp) -> ServerClock {
        ServerClock { told: now, at: since_boot() }
    }

    /// The difference to this machine's clock as it is now.
    pub fn skew(self) -> Skew {
        Skew::between(self.told + since_boot().saturating_sub(self.at), now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_convert_between_the_clocks_and_back() {
        let at = Timestamp::from_millis;
        let skew = Skew::between(at(5_000), at(2_000));
        assert_eq!(skew.to_server(at(2_500)), at(5_500));
        assert_eq!(skew.to_own(skew.to_server(at(7))), at(7));
        assert_eq!(skew.noticeable_s(), None);
        assert_eq!(Skew::between(at(0), at(60_000)).noticeable_s(), Some(-60));
    }

    #[test]
    fn clock_that_was_set_is_told_from_one_that_drifts() {
        let at = Timestamp::from_millis;
        let first = Skew::between(at(60_000), at(0));
        assert!(!first.is_outdated_by(Skew::between(at(60_900), at(0))), "0.9 s");
        assert!(first.is_outdated_by(Skew::between(at(0), at(0))), "set by a minute");
        let clock = ServerClock::told(now() + std::time::Duration::from_secs(3600));
        assert!(!Skew::between(clock.told, now()).is_outdated_by(clock.skew()));
    }
}

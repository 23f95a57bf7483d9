//! A bound on how often something happens: so many at once, and then one in each interval.

use std::time::{Duration, Instant};

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

    /// Whether as much may happen as if nothing ever had.
    pub fn is_unused(&self, used: &RateUse, now: Instant) -> bool {
        used.taken_until.is_none_or(|until| until <= now)
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
}

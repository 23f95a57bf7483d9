//! The CPU time that a job may use on its node: when it can be used up at the earliest, and whether it is.

use crate::spool::LaunchRecord;
use model::time::Timestamp;
use std::time::Duration;

/// The shortest time between two looks, at a job that runs and at one that sleeps; so long the limit may be overrun.
const LOOK_MIN: Duration = Duration::from_millis(100);
const LOOK_MIN_ASLEEP: Duration = Duration::from_secs(1);
/// Who uses less from one look to the next sleeps.
const ASLEEP_BELOW: Duration = Duration::from_millis(10);
/// The longest: the clock of the wall may be set, the one of the CPUs is not.
const LOOK_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuLimit {
    limit: Duration,
    /// That can run at once.
    cpus: u32,
    /// By the last look.
    used: Duration,
    look_at: Timestamp,
}

impl CpuLimit {
    pub fn of(record: &LaunchRecord, now: Timestamp) -> Option<CpuLimit> {
        let limits = &record.limits;
        let limit = Duration::from_secs(limits.cpu_seconds?);
        let machine = match record.machine_cpus {
            0 => std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            cpus => cpus,
        };
        let pinned = limits.cpus.as_ref().map(|cpus| cpus.len());
        let cpus = [Some(machine), pinned, limits.cpu_time].into_iter().flatten().min();
        Some(CpuLimit::new(limit, cpus.unwrap_or(1), now))
    }

    fn new(limit: Duration, cpus: u32, now: Timestamp) -> CpuLimit {
        let cpus = cpus.max(1);
        let first = (limit / cpus).clamp(LOOK_MIN, LOOK_MAX);
        CpuLimit { limit, cpus, used: Duration::ZERO, look_at: now + first }
    }

    /// When it is worth to look again.
    pub fn look_at(&self) -> Timestamp {
        self.look_at
    }

    /// Whether so much is all of it; where not, the next look is when the rest can be gone.
    pub fn is_used_up(&mut self, used: Duration, now: Timestamp) -> bool {
        let left = self.limit.saturating_sub(used);
        let sleeps = used.saturating_sub(self.used) < ASLEEP_BELOW;
        let least = if sleeps { LOOK_MIN_ASLEEP } else { LOOK_MIN };
        self.used = used;
        self.look_at = now + (left / self.cpus).clamp(least, LOOK_MAX);
        left.is_zero()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_next_look_is_when_all_cpus_together_can_have_used_the_rest() {
        let start = Timestamp::from_secs(100);
        let mut limit = CpuLimit::new(ms(60_000), 4, start);
        assert_eq!(limit.look_at(), start + ms(15_000));
        let now = start + ms(15_000);
        assert!(!limit.is_used_up(ms(20_000), now));
        assert_eq!(limit.look_at(), now + ms(10_000));
        assert!(!limit.is_used_up(ms(59_999), now));
        assert_eq!(limit.look_at(), now + LOOK_MIN, "not for a last millisecond");
        assert!(!limit.is_used_up(ms(59_999), now));
        assert_eq!(limit.look_at(), now + LOOK_MIN_ASLEEP, "it sleeps");
        assert!(limit.is_used_up(ms(60_000), now) && limit.is_used_up(ms(70_000), now));
        assert_eq!(CpuLimit::new(ms(u64::MAX), 1, start).look_at(), start + LOOK_MAX);
    }
}

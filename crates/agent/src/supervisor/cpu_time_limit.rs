//! The limit of CPU time that a job may use on its node: when it can be reached at the earliest, and whether it is.

use crate::spool::LaunchRecord;
use model::time::Timestamp;
use std::time::Duration;

/// The shortest time between two readings, of a job that runs and of one that sleeps. The limit may be overrun by as
/// much.
const READING_PAUSE_MIN: Duration = Duration::from_millis(100);
const READING_PAUSE_MIN_ASLEEP: Duration = Duration::from_secs(1);
/// A job that used less since the last reading counts as asleep.
const ASLEEP_BELOW: Duration = Duration::from_millis(10);
/// The longest time between two readings: the wall clock may be set meanwhile, the CPU clock is not.
const READING_PAUSE_MAX: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct CpuLimit {
    limit: Duration,
    /// CPUs that can run the job's processes at once.
    cpus: u32,
    /// CPU time at the last reading.
    used: Duration,
    next_reading: Timestamp,
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
        let first = (limit / cpus).clamp(READING_PAUSE_MIN, READING_PAUSE_MAX);
        CpuLimit { limit, cpus, used: Duration::ZERO, next_reading: now + first }
    }

    /// When the CPU time must be read again.
    pub fn next_reading(&self) -> Timestamp {
        self.next_reading
    }

    /// Whether `used` reaches the limit. If not, the next reading is due when all CPUs together can have used the rest.
    pub fn is_used_up(&mut self, used: Duration, now: Timestamp) -> bool {
        let left = self.limit.saturating_sub(used);
        let sleeps = used.saturating_sub(self.used) < ASLEEP_BELOW;
        let least = if sleeps { READING_PAUSE_MIN_ASLEEP } else { READING_PAUSE_MIN };
        self.used = used;
        self.next_reading = now + (left / self.cpus).clamp(least, READING_PAUSE_MAX);
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
    fn next_reading_is_when_all_cpus_together_can_have_used_the_rest() {
        let start = Timestamp::from_secs(100);
        let mut limit = CpuLimit::new(ms(60_000), 4, start);
        assert_eq!(limit.next_reading(), start + ms(15_000));
        let now = start + ms(15_000);
        assert!(!limit.is_used_up(ms(20_000), now));
        assert_eq!(limit.next_reading(), now + ms(10_000));
        assert!(!limit.is_used_up(ms(59_999), now));
        assert_eq!(limit.next_reading(), now + READING_PAUSE_MIN, "not for a last millisecond");
        assert!(!limit.is_used_up(ms(59_999), now));
        assert_eq!(limit.next_reading(), now + READING_PAUSE_MIN_ASLEEP, "it sleeps");
        assert!(limit.is_used_up(ms(60_000), now) && limit.is_used_up(ms(70_000), now));
        assert_eq!(CpuLimit::new(ms(u64::MAX), 1, start).next_reading(), start + READING_PAUSE_MAX);
    }
}

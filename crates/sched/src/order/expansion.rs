//! `priority/sluice`: the queue by expansion factor.
//!
//! The expansion factor is how many times its expected length a job takes, with its wait so far. It grows quickly for short
//! jobs and slowly for long ones. Of the jobs that have waited for the site's maximum age, the few that were submitted first come
//! before all others, whatever their factors, so that none is overtaken for ever. They are few, because under a load that lasts
//! most of a queue is as old: with all of these first, it would be the order of submission again.

/// A job that is expected to be shorter counts as this long, seconds: below it, lengths say nothing.
const SHORTEST_S: u64 = 10;

/// The priority of a job with an expansion factor of one.
const ONE: f64 = 10_000.0;

/// The priority of a job that comes first because of its age; the seconds of its wait are added.
const FIRST: u64 = 1 << 31;

/// So many of the jobs that have waited for the maximum age come first at a time, of those that ask for the same partitions.
pub const FIRST_MAX: usize = 3;

/// A job that has waited for so many times the maximum age comes first, however many do: those before it may be kept by a limit.
const FIRST_AT_LAST: u64 = 5;

/// The priority of a job that has waited so long, and is expected to run so long. One that `is_longest` has waited for the maximum
/// age and is among the few of these that were submitted first.
pub fn priority(waited_s: u64, expected_s: u64, max_age_s: u64, is_longest: bool) -> u64 {
    if is_longest || waited_s >= max_age_s.saturating_mul(FIRST_AT_LAST) {
        return FIRST + waited_s.min(FIRST - 1);
    }
    let expected_s = expected_s.max(SHORTEST_S) as f64;
    let factor = (waited_s as f64 + expected_s) / expected_s;
    ((ONE * factor) as u64).min(FIRST - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_grow_with_the_wait_and_the_longest_waits_come_first() {
        let max_age = 60 * 3_600;
        let by_factor = |waited_s, expected_s| priority(waited_s, expected_s, max_age, false);
        assert_eq!(by_factor(0, 7_200), 10_000);
        assert_eq!(by_factor(3_600, 7_200), 15_000);
        assert_eq!(by_factor(3_600, 60), 610_000);
        // A second counts as ten.
        assert_eq!(by_factor(100, 1), by_factor(100, 10));
        let first = priority(max_age, 1_000_000, max_age, true);
        assert!(first > by_factor(5 * max_age - 1, 1));
        assert!(priority(max_age + 1, 1, max_age, true) > first);
        assert!(by_factor(5 * max_age, 1_000_000) > first, "it has waited longer than any should");
        // Slurm's priorities have 32 bits.
        assert!(priority(u64::MAX, 1, max_age, true) <= u64::from(u32::MAX));
    }
}

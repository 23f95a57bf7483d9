//! `priority/sluice`: the queue by expansion factor.
//!
//! The expansion factor is how many times its expected length a job takes, with its wait so far. It grows quickly for short
//! jobs and slowly for long ones. A job that has waited for the site's maximum age comes before all that have not, whatever
//! their factors, so that none is overtaken for ever.

/// A job that is expected to be shorter counts as this long, seconds: below it, lengths say nothing.
const SHORTEST_S: u64 = 10;

/// The priority of a job with an expansion factor of one.
const ONE: f64 = 10_000.0;

/// The priority of a job that has waited too long; the seconds of its wait are added.
const OVERDUE: u64 = 1 << 31;

/// The priority of a job that has waited so long, and is expected to run so long.
pub fn priority(waited_s: u64, expected_s: u64, max_age_s: u64) -> u64 {
    if waited_s >= max_age_s {
        return OVERDUE + waited_s.min(OVERDUE - 1);
    }
    let expected_s = expected_s.max(SHORTEST_S) as f64;
    let factor = (waited_s as f64 + expected_s) / expected_s;
    ((ONE * factor) as u64).min(OVERDUE - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_grow_with_the_wait_and_jobs_that_waited_too_long_come_first() {
        let max_age = 60 * 3_600;
        assert_eq!(priority(0, 7_200, max_age), 10_000);
        assert_eq!(priority(3_600, 7_200, max_age), 15_000);
        assert_eq!(priority(3_600, 60, max_age), 610_000);
        // A second counts as ten.
        assert_eq!(priority(100, 1, max_age), priority(100, 10, max_age));
        let shortest = priority(max_age - 1, 1, max_age);
        let overdue = priority(max_age, 1_000_000, max_age);
        assert!(overdue > shortest && priority(max_age + 1, 1, max_age) > overdue);
        // Slurm's priorities have 32 bits.
        assert!(priority(u64::MAX, 1, max_age) <= u64::from(u32::MAX));
    }
}

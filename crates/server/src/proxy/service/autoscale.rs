//! How many replicas a service is to have, as a function of its load.

use model::service::Scaling;
use std::time::Duration;

/// The load of a service.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Requests that came within the window.
    pub requests: u64,
    /// Requests that wait for the first replica.
    pub waiting: usize,
    /// Requests that replicas have not answered yet.
    pub outstanding: usize,
    /// Replicas that run or are to run.
    pub replicas: u32,
    /// Since the number of replicas was last changed.
    pub unchanged: Duration,
}

/// A replica is given up only if those that are left have at most this part of their target: a steady load near a target changes
/// nothing.
const DOWN_PERCENT: u64 = 90;

/// The number of replicas that a service of at most `most` is to have.
pub fn wanted(scaling: &Scaling, most: u32, load: &Load) -> u32 {
    let current = load.replicas;
    if current > most {
        return most;
    }
    let up = replicas_for(scaling, load.requests, 100);
    if current < scaling.min {
        // A deployment that takes the place of another one has its load at once: the delay is for services that answer.
        return up.clamp(scaling.min, most);
    }
    if current == 0 {
        // A client that waits is there: the delay is for services that answer.
        return if load.waiting > 0 { up.clamp(1, most) } else { 0 };
    }
    if up > current {
        let is_due = load.unchanged >= Duration::from_secs(scaling.up_delay_s.into());
        return if is_due { up.min(most) } else { current };
    }
    let is_used = load.outstanding + load.waiting > 0;
    let down = replicas_for(scaling, load.requests, DOWN_PERCENT).max(u32::from(is_used));
    let is_due = load.unchanged >= Duration::from_secs(scaling.down_delay_s.into());
    if is_due { down.max(scaling.min).min(current) } else { current }
}

/// The replicas of which each has at most so many percent of its target.
fn replicas_for(scaling: &Scaling, requests: u64, percent: u64) -> u32 {
    let per_second_milli = requests.saturating_mul(1000) / u64::from(scaling.window_s.max(1));
    let each = scaling.target_milli.max(1).saturating_mul(percent);
    u32::try_from(per_second_milli.saturating_mul(100).div_ceil(each)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten requests a second for each of 0 to 5 replicas.
    const SCALING: Scaling =
        Scaling { min: 0, target_milli: 10_000, window_s: 60, up_delay_s: 300, down_delay_s: 600 };
    const MOST: u32 = 5;

    fn load(requests: u64, replicas: u32, unchanged_s: u64) -> Load {
        let unchanged = Duration::from_secs(unchanged_s);
        Load { requests, waiting: 0, outstanding: 0, replicas, unchanged }
    }

    #[test]
    fn replicas_follow_the_load_after_their_delays() {
        for (requests, replicas, unchanged_s, expected) in [
            // 60 s of 10 a second each.
            (600, 1, 1000, 1),
            (601, 1, 1000, 2),
            (1800, 1, 299, 1),
            (1800, 1, 300, 3),
            (100_000, 1, 300, 5),
            (600, 3, 599, 3),
            (600, 3, 600, 2),
            (540, 3, 600, 1),
            (0, 3, 600, 0),
            (0, 1, 599, 1),
            (1, 1, 10_000, 1),
            // Beyond the bounds, which may have been changed.
            (0, 9, 0, 5),
        ] {
            let found = wanted(&SCALING, MOST, &load(requests, replicas, unchanged_s));
            assert_eq!(found, expected, "{requests} {replicas} {unchanged_s}");
        }
        let least = Scaling { min: 2, ..SCALING };
        assert_eq!(wanted(&least, MOST, &load(0, 1, 0)), 2);
        assert_eq!(wanted(&least, MOST, &load(0, 4, 600)), 2);
        // A new deployment, of which all are held at first, has the load of the one before it.
        assert_eq!(wanted(&least, MOST, &load(1800, 0, 0)), 3);
        assert_eq!(wanted(&least, MOST, &load(100_000, 0, 0)), 5);
    }

    #[test]
    fn service_without_replicas_starts_for_whoever_waits_and_for_nobody_else() {
        let waiting = |waiting, requests| Load { waiting, ..load(requests, 0, 0) };
        assert_eq!(wanted(&SCALING, MOST, &waiting(0, 600)), 0);
        assert_eq!(wanted(&SCALING, MOST, &waiting(1, 1)), 1);
        assert_eq!(wanted(&SCALING, MOST, &waiting(9, 1800)), 3);
        let streaming = Load { outstanding: 1, ..load(0, 2, 600) };
        assert_eq!(wanted(&SCALING, MOST, &streaming), 1, "the last one is in use");
    }

    #[test]
    fn steady_load_near_a_target_does_not_make_the_number_oscillate() {
        for rate in [3_u64, 95, 99, 100, 101, 150, 199, 200, 201, 333] {
            let (mut replicas, mut unchanged_s, mut changes) = (1, 100_000, 0);
            for second in 0..20_000_u64 {
                // In a tenth of a request a second, now somewhat more and now somewhat less.
                let noise = [97, 100, 103][(second % 3) as usize];
                let requests = rate * 6 * noise / 100;
                let found = wanted(&SCALING, MOST, &load(requests, replicas, unchanged_s));
                if found != replicas {
                    (replicas, unchanged_s, changes) = (found, 0, changes + 1);
                }
                unchanged_s += 1;
            }
            assert!(changes <= 2, "{rate}: {changes} changes, {replicas} replicas");
        }
    }
}

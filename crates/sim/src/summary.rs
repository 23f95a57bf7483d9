//! The figures of a replay.

use crate::estimate_error::EstimateError;
use serde::Serialize;

/// A run time below this counts as this much in the bounded slowdown, seconds.
const SLOWDOWN_THRESHOLD_S: f64 = 10.0;

/// The first jobs, one in so many, are left out of the means: the machine is empty when they come.
const WARM_UP_PART: usize = 100;

/// The quality of a schedule. Waits and slowdowns are of all jobs but the first 1 %.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub jobs: u64,
    /// The part of the machine that was in use from the first submission to the last end.
    pub utilisation: f64,
    pub mean_wait_s: f64,
    pub max_wait_s: f64,
    pub mean_bounded_slowdown: f64,
    /// Empty unless it was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub estimate_errors: Vec<EstimateError>,
}

/// How long one job waited and ran, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobTimes {
    pub wait_s: f64,
    pub run_s: f64,
}

impl JobTimes {
    /// How many times as long as it ran it took, where short jobs count as if they ran for the threshold.
    fn bounded_slowdown(self) -> f64 {
        ((self.wait_s + self.run_s) / self.run_s.max(SLOWDOWN_THRESHOLD_S)).max(1.0)
    }
}

impl Summary {
    /// The figures of these jobs, in the order of their submission.
    pub fn of(jobs: &[JobTimes], utilisation: f64) -> Self {
        let counted = &jobs[jobs.len() / WARM_UP_PART..];
        let mean = |of: fn(JobTimes) -> f64| {
            counted.iter().map(|job| of(*job)).sum::<f64>() / counted.len().max(1) as f64
        };
        Self {
            jobs: jobs.len() as u64,
            utilisation: rounded(utilisation),
            mean_wait_s: rounded(mean(|job| job.wait_s)),
            max_wait_s: rounded(counted.iter().map(|job| job.wait_s).fold(0.0, f64::max)),
            mean_bounded_slowdown: rounded(mean(JobTimes::bounded_slowdown)),
            estimate_errors: Vec::new(),
        }
    }
}

/// To six places: more mean nothing.
fn rounded(figure: f64) -> f64 {
    (figure * 1e6).round() / 1e6
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_jobs_count_as_ten_seconds_and_the_first_hundredth_is_left_out() {
        let job = |wait_s, run_s| JobTimes { wait_s, run_s };
        // The slowdowns are (30 + 10) / 10, (5 + 2) / 10 but at least one, and (0 + 50) / 50.
        let figures = Summary::of(&[job(30.0, 10.0), job(5.0, 2.0), job(0.0, 50.0)], 0.5);
        assert_eq!(figures.mean_bounded_slowdown, 2.0);
        assert_eq!((figures.mean_wait_s, figures.max_wait_s), (11.666667, 30.0));
        let mut jobs = vec![job(1.0, 100.0); 200];
        (jobs[0].wait_s, jobs[1].wait_s, jobs[2].wait_s) = (1e6, 1e6, 7.0);
        let figures = Summary::of(&jobs, 0.5);
        assert_eq!((figures.jobs, figures.max_wait_s), (200, 7.0));
    }
}

//! The figures of a replay.

use crate::estimate_error::EstimateError;
use crate::job_times::{JobTimes, counted, mean, rounded};
use crate::kinds::KindWaits;
use serde::Serialize;

/// The quality of a schedule. Waits and slowdowns are of all jobs but the first 1 %.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Summary {
    pub jobs: u64,
    /// The part of the machine that was in use from the first submission to the last end.
    pub utilisation: f64,
    pub mean_wait_s: f64,
    pub max_wait_s: f64,
    pub mean_bounded_slowdown: f64,
    /// Records without a run time or processors, which are no jobs.
    pub records_left_out: u64,
    /// Jobs that the cluster could never start.
    pub jobs_left_out: u64,
    /// Empty unless it was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub estimate_errors: Vec<EstimateError>,
    /// Empty unless it was measured.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub kinds: Vec<KindWaits>,
}

impl Summary {
    /// The figures of these jobs, in the order of their submission.
    pub fn of(jobs: &[JobTimes], utilisation: f64) -> Self {
        let counted = counted(jobs);
        Self {
            jobs: jobs.len() as u64,
            utilisation: rounded(utilisation),
            mean_wait_s: rounded(mean(counted, |job| job.wait_s)),
            max_wait_s: rounded(counted.iter().map(|job| job.wait_s).fold(0.0, f64::max)),
            mean_bounded_slowdown: rounded(mean(counted, JobTimes::bounded_slowdown)),
            records_left_out: 0,
            jobs_left_out: 0,
            estimate_errors: Vec::new(),
            kinds: Vec::new(),
        }
    }
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

//! How long jobs waited and ran, and means of it.

/// A run time below this counts as this much in the bounded slowdown, seconds.
const SLOWDOWN_THRESHOLD_S: f64 = 10.0;

/// The first jobs, one in so many, are left out of the means: the machine is empty when they come.
const WARM_UP_PART: usize = 100;

/// How long one job waited and ran, seconds.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct JobTimes {
    pub wait_s: f64,
    pub run_s: f64,
}

impl JobTimes {
    /// How many times as long as it ran it took, where short jobs count as if they ran for the threshold.
    pub fn bounded_slowdown(self) -> f64 {
        ((self.wait_s + self.run_s) / self.run_s.max(SLOWDOWN_THRESHOLD_S)).max(1.0)
    }
}

/// The jobs that means and maxima are of.
pub fn counted<T>(jobs: &[T]) -> &[T] {
    &jobs[jobs.len() / WARM_UP_PART..]
}

pub fn mean(jobs: &[JobTimes], of: fn(JobTimes) -> f64) -> f64 {
    jobs.iter().map(|job| of(*job)).sum::<f64>() / jobs.len().max(1) as f64
}

/// To six places: more mean nothing.
pub fn rounded(figure: f64) -> f64 {
    (figure * 1e6).round() / 1e6
}

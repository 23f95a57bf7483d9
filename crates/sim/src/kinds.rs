//! The waits of short and long, narrow and wide jobs: whom a policy serves, and whom it does not.

use crate::job_times::{JobTimes, counted, mean, rounded};
use serde::Serialize;

/// Jobs of one kind and how they fared.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct KindWaits {
    /// The shortest run time of these jobs, and the one that they are all shorter than; `None`: no bound.
    pub run_s_min: u32,
    pub run_s_below: Option<u32>,
    /// The fewest and the most processors of these jobs.
    pub processors_min: u32,
    pub processors_max: Option<u32>,
    pub jobs: u64,
    pub mean_wait_s: f64,
    pub max_wait_s: f64,
    pub mean_bounded_slowdown: f64,
}

/// The shortest run time of each length: minutes, hours, and what runs through a night.
const LENGTHS_S: [u32; 3] = [0, 600, 4 * 3_600];

/// The fewest processors of each width.
const WIDTHS: [u32; 2] = [1, 9];

/// The waits by kind, from the processors and times of each job in the order of submission. As everywhere the first 1 % of all jobs
/// are left out. A kind without jobs is left out as well.
pub fn by_kind(jobs: &[(u32, JobTimes)]) -> Vec<KindWaits> {
    let bounds = |bounds: &'static [u32]| {
        bounds.iter().enumerate().map(move |(at, least)| (*least, bounds.get(at + 1).copied()))
    };
    let kinds = bounds(&LENGTHS_S).flat_map(|length| bounds(&WIDTHS).map(move |w| (length, w)));
    let is_in = |value: f64, (least, below): (u32, Option<u32>)| {
        value >= f64::from(least) && below.is_none_or(|below| value < f64::from(below))
    };
    let of_kind = |(length, width): ((u32, Option<u32>), (u32, Option<u32>))| {
        let is_of = |(processors, times): &&(u32, JobTimes)| {
            is_in(times.run_s, length) && is_in(f64::from(*processors), width)
        };
        let of_kind: Vec<JobTimes> =
            counted(jobs).iter().filter(is_of).map(|(_, times)| *times).collect();
        (!of_kind.is_empty()).then(|| KindWaits {
            run_s_min: length.0,
            run_s_below: length.1,
            processors_min: width.0,
            processors_max: width.1.map(|below| below - 1),
            jobs: of_kind.len() as u64,
            mean_wait_s: rounded(mean(&of_kind, |job| job.wait_s)),
            max_wait_s: rounded(of_kind.iter().map(|job| job.wait_s).fold(0.0, f64::max)),
            mean_bounded_slowdown: rounded(mean(&of_kind, JobTimes::bounded_slowdown)),
        })
    };
    kinds.filter_map(of_kind).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_are_counted_by_run_time_and_processors() {
        let job = |processors, wait_s, run_s| (processors, JobTimes { wait_s, run_s });
        let jobs = [
            job(1, 10.0, 100.0),
            job(8, 30.0, 599.0),
            job(9, 40.0, 599.0),
            job(1, 7.0, 600.0),
            job(64, 0.0, 14_400.0),
        ];
        let shown: Vec<_> = by_kind(&jobs)
            .iter()
            .map(|kind| {
                let bounds = (kind.run_s_min, kind.run_s_below);
                let width = (kind.processors_min, kind.processors_max);
                (bounds, width, kind.jobs, kind.mean_wait_s, kind.max_wait_s)
            })
            .collect();
        let (short, middle, long) = ((0, Some(600)), (600, Some(14_400)), (14_400, None));
        let (narrow, wide) = ((1, Some(8)), (9, None));
        let expected = [
            (short, narrow, 2, 20.0, 30.0),
            (short, wide, 1, 40.0, 40.0),
            (middle, narrow, 1, 7.0, 7.0),
            (long, wide, 1, 0.0, 0.0),
        ];
        assert_eq!(shown, expected);
    }
}

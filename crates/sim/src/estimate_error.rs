//! How far the expected starts of waiting jobs were from their starts, by the jobs' size.

use serde::Serialize;

/// Jobs of one size that waited, and the error of the start that was expected when they were submitted.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EstimateError {
    /// The fewest and the most processors of these jobs; `None`: no bound.
    pub processors_min: u32,
    pub processors_max: Option<u32>,
    pub jobs: u64,
    pub median_s: f64,
    /// Nine of ten errors are no larger.
    pub ninetieth_percentile_s: f64,
}

/// The fewest processors of each size.
const SIZES: [u32; 4] = [1, 2, 9, 65];

/// The errors by size, from (processors, seconds) of each job.
pub fn by_size(errors: &[(u32, f64)]) -> Vec<EstimateError> {
    let of_size = |(at, &processors_min): (usize, &u32)| {
        let processors_max = SIZES.get(at + 1).map(|next| next - 1);
        let is_in =
            |count: u32| count >= processors_min && processors_max.is_none_or(|m| count <= m);
        let in_size = errors.iter().filter(|(count, _)| is_in(*count));
        let mut seconds: Vec<f64> = in_size.map(|(_, error_s)| *error_s).collect();
        seconds.sort_by(f64::total_cmp);
        (!seconds.is_empty()).then(|| EstimateError {
            processors_min,
            processors_max,
            jobs: seconds.len() as u64,
            median_s: at_part(&seconds, 0.5),
            ninetieth_percentile_s: at_part(&seconds, 0.9),
        })
    };
    SIZES.iter().enumerate().filter_map(of_size).collect()
}

/// The smallest value that this part of all is no larger than; `sorted` is not empty.
fn at_part(sorted: &[f64], part: f64) -> f64 {
    let rank = (part * sorted.len() as f64).ceil() as usize;
    sorted[rank.clamp(1, sorted.len()) - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn median_and_ninetieth_percentile_are_of_each_size() {
        let ten = (1..=10).map(|error| (2, f64::from(error)));
        let errors: Vec<(u32, f64)> = ten.chain([(1, 7.0), (8, 0.0), (200, 3.0)]).collect();
        let found = by_size(&errors);
        let shown: Vec<_> = found
            .iter()
            .map(|e| {
                (e.processors_min, e.processors_max, e.jobs, e.median_s, e.ninetieth_percentile_s)
            })
            .collect();
        let expected =
            [(1, Some(1), 1, 7.0, 7.0), (2, Some(8), 11, 5.0, 9.0), (65, None, 1, 3.0, 3.0)];
        assert_eq!(shown, expected);
    }
}

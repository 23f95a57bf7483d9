//! The sizes of the jobs that wait in a replay: on how many processors, and for how long.

use crate::trace::TraceJob;
use std::collections::BTreeMap;

/// For each number of processors how many jobs wait with each estimate.
#[derive(Debug, Default)]
pub struct WaitingSizes(BTreeMap<u32, BTreeMap<u32, u32>>);

impl WaitingSizes {
    pub fn add(&mut self, job: &TraceJob) {
        let of_width = self.0.entry(job.processors).or_default();
        *of_width.entry(job.estimate_s).or_insert(0) += 1;
    }

    /// Takes out a job that was added.
    pub fn remove(&mut self, job: &TraceJob) {
        let Some(of_width) = self.0.get_mut(&job.processors) else { return };
        let Some(count) = of_width.get_mut(&job.estimate_s) else { return };
        *count -= 1;
        if *count == 0 {
            of_width.remove(&job.estimate_s);
        }
        if of_width.is_empty() {
            self.0.remove(&job.processors);
        }
    }

    /// The fewest processors that one asks for.
    pub fn narrowest(&self) -> Option<u32> {
        self.0.keys().next().copied()
    }

    /// Whether a job waits that asks for no more than this one, for no longer.
    pub fn has_one_within(&self, job: &TraceJob) -> bool {
        let shortest = |of_width: &BTreeMap<u32, u32>| of_width.keys().next().copied();
        let mut shortest_of_each = self.0.range(..=job.processors).map(|(_, of)| shortest(of));
        shortest_of_each.any(|least| least.is_some_and(|least| least <= job.estimate_s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(processors: u32, estimate_s: u32) -> TraceJob {
        TraceJob { processors, estimate_s, ..TraceJob::default() }
    }

    #[test]
    fn job_is_within_another_if_it_asks_for_no_more_and_for_no_longer() {
        let mut waiting = WaitingSizes::default();
        assert!(!waiting.has_one_within(&job(64, 9_000)), "nothing waits");
        [job(2, 600), job(2, 60), job(2, 60), job(8, 10)].iter().for_each(|job| waiting.add(job));
        let table =
            [(2, 60, true), (2, 59, false), (1, 9_000, false), (3, 60, true), (8, 9, false)];
        for (processors, estimate_s, expected) in table {
            let found = waiting.has_one_within(&job(processors, estimate_s));
            assert_eq!(found, expected, "{processors} processors for {estimate_s} s");
        }
        waiting.remove(&job(2, 60));
        assert!(waiting.has_one_within(&job(2, 60)), "one of two is left");
        waiting.remove(&job(2, 60));
        assert!(!waiting.has_one_within(&job(2, 599)) && waiting.has_one_within(&job(2, 600)));
        assert_eq!(waiting.narrowest(), Some(2));
        waiting.remove(&job(2, 600));
        assert_eq!(waiting.narrowest(), Some(8));
    }
}

//! The real scheduler against a model that only counts processors: on nodes of one processor both must start every job at
//! the same second, in the order of submission and under EASY backfill.

use sim::machine::single_processor_nodes;
use sim::{Measures, Policy, Trace, TraceJob, replay};

/// A pseudo-random sequence, the same in every run.
struct Sequence(u64);

impl Sequence {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

fn random_trace(seed: u64, processors: u32, jobs: u64) -> Trace {
    let mut sequence = Sequence(seed);
    let mut submit_s = 0;
    let job = |line| {
        submit_s += sequence.below(90) as i64;
        let magnitude = 4 + sequence.below(7);
        let run_s = 1 + sequence.below(1 << magnitude) as u32;
        let wide = sequence.below(4) == 0;
        let most = if wide { u64::from(processors) } else { 3 };
        let estimate_s = run_s + sequence.below(3) as u32 * sequence.below(400) as u32;
        // Users like round numbers, so that many jobs are expected to end at the same second.
        let rounded_to = if sequence.below(2) == 0 { 300 } else { 1 };
        TraceJob {
            line,
            submit_s,
            run_s,
            processors: 1 + sequence.below(most) as u32,
            estimate_s: estimate_s.next_multiple_of(rounded_to),
            user: sequence.below(5) as i64,
            ..TraceJob::default()
        }
    };
    let jobs = (1..=jobs).map(job).collect();
    Trace { jobs, processors: Some(processors), ..Trace::default() }
}

/// What is left over when the first waiting job is to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LeftOver {
    /// All that is free at that second.
    All,
    /// What comes free at that second counts only until the job has enough, narrow jobs first.
    NarrowFirst,
}

/// The waits of all jobs when only the number of free processors is counted.
fn counted_waits(trace: &Trace, processors: u32, policy: Policy, left_over: LeftOver) -> Vec<i64> {
    let jobs = &trace.jobs;
    let (mut next, mut now, mut free) = (0, 0, processors);
    // The real end, the expected end, and the processors of what runs.
    let mut running: Vec<(i64, i64, u32)> = Vec::new();
    let mut queue: Vec<usize> = Vec::new();
    let mut waits = vec![0; jobs.len()];
    while next < jobs.len() || !queue.is_empty() {
        let ends = running.iter().map(|(end, ..)| *end);
        let submits = jobs.get(next).map(|job| job.submit_s);
        now = ends.chain(submits).min().unwrap_or(now);
        free += running.iter().filter(|(end, ..)| *end <= now).map(|job| job.2).sum::<u32>();
        running.retain(|(end, ..)| *end > now);
        while jobs.get(next).is_some_and(|job| job.submit_s <= now) {
            queue.push(next);
            next += 1;
        }
        // From when on the first that waits can start, and what it leaves over then.
        let mut first_waiting: Option<(i64, u32)> = None;
        queue.retain(|&at| {
            let job = &jobs[at];
            let expected_end = now + i64::from(job.estimate_s);
            let fits = job.processors <= free;
            let starts = match (&mut first_waiting, policy) {
                (None, _) => fits,
                (Some(_), Policy::Fcfs) => false,
                (Some((start, _)), _) if expected_end <= *start => fits,
                (Some((_, left)), _) => {
                    let fits = fits && job.processors <= *left;
                    *left -= if fits { job.processors } else { 0 };
                    fits
                }
            };
            if starts {
                free -= job.processors;
                running.push((now + i64::from(job.run_s), expected_end, job.processors));
                waits[at] = now - job.submit_s;
            } else if first_waiting.is_none() {
                let mut expected: Vec<(i64, u32)> =
                    running.iter().map(|&(_, end, count)| (end, count)).collect();
                expected.sort_unstable();
                let mut then = free;
                let mut start = now;
                for &(end, count) in &expected {
                    let is_later = end > start || left_over == LeftOver::NarrowFirst;
                    if then >= job.processors && is_later {
                        break;
                    }
                    (then, start) = (then + count, end);
                }
                first_waiting = Some((start, then - job.processors));
            }
            !starts
        });
    }
    waits
}

fn assert_same(policy: Policy, left_over: LeftOver) {
    for seed in 1..=12 {
        let processors = [4, 16, 31][seed as usize % 3];
        let trace = random_trace(seed, processors, 150);
        let counted = counted_waits(&trace, processors, policy, left_over);
        let mut config = single_processor_nodes(processors, policy);
        let limits = &mut config.parameters.backfill_limits;
        limits.narrow_jobs_end_first = left_over == LeftOver::NarrowFirst;
        let measures = Measures { history: true, ..Measures::default() };
        let outcome = replay(&trace, config, measures, |_| {}).expect("a replay");
        let waits: Vec<i64> = outcome.history.waits.iter().map(|(_, wait)| *wait as i64).collect();
        assert!(counted.iter().any(|wait| *wait > 0), "seed {seed}: nothing waits");
        assert_eq!(waits, counted, "seed {seed}");
    }
}

#[test]
fn backfill_with_one_slot_is_easy_as_counted() {
    assert_same(Policy::Easy, LeftOver::NarrowFirst);
}

#[test]
fn server_counts_all_that_comes_free_at_once_as_left_over() {
    assert_same(Policy::Easy, LeftOver::All);
}

#[test]
fn without_backfill_jobs_start_in_order_as_counted() {
    assert_same(Policy::Fcfs, LeftOver::All);
}

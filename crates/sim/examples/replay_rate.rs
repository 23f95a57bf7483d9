//! How many jobs a minute a replay takes through the real state machine and scheduler.
//!
//! `cargo run --release -p sim --example replay_rate [JOBS [DAYS]]`: a synthetic load of 70 % on 1,000 nodes, all of it submitted in
//! the first half of every week, so that about 500 jobs wait in the mean. With more days the queue is longer.
//! `… replay_rate TRACE POLICY [estimates]` replays a trace, with `estimates` as `sluice sim --estimates` does: each job that waits when
//! it is submitted costs a walk over the queue.

use sim::machine::single_processor_nodes;
use sim::trace::swf;
use sim::{Measures, Outcome, Policy, Processors, Trace, TraceJob, replay};
use std::time::Instant;

const NODES: u32 = 1_000;
const LOAD: f64 = 0.7;
const DAY_S: f64 = 86_400.0;
const PERIOD_DAYS: f64 = 7.0;
const JOBS: u64 = 100_000;

/// A pseudo-random sequence, the same in every run.
struct Sequence(u64);

impl Sequence {
    /// From 0 to 1.
    fn part(&mut self) -> f64 {
        self.0 = self.0.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.0 >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// So many jobs, in the first half of each period.
fn synthetic(count: u64, period_days: f64) -> Trace {
    let mut sequence = Sequence(7);
    let mut drawn = |line| {
        let processors = 1_u32 << (sequence.part() * sequence.part() * 7.0) as u32;
        // From seconds to half a day, as many short ones as long ones by their magnitude.
        let run_s = 10.0 * 4_000_f64.powf(sequence.part());
        let estimate_s = (run_s * (1.0 + 4.0 * sequence.part())) as u32;
        let user = (sequence.part() * 50.0) as i64;
        let run_s = run_s as u32;
        TraceJob { line, run_s, processors, estimate_s, user, ..TraceJob::default() }
    };
    let mut jobs: Vec<TraceJob> = (1..=count).map(&mut drawn).collect();
    let work_s: f64 = jobs.iter().map(|job| f64::from(job.run_s) * f64::from(job.processors)).sum();
    let period_s = period_days * DAY_S;
    let periods = work_s / (LOAD * f64::from(NODES) * period_s);
    for (at, job) in jobs.iter_mut().enumerate() {
        let period = at as f64 / count as f64 * periods;
        job.submit_s = ((period.floor() + period.fract() / 2.0) * period_s) as i64;
    }
    Trace { jobs, processors: Some(NODES), ..Trace::default() }
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let count = args.first().map_or(Some(JOBS), |text| text.parse::<u64>().ok());
    let days = args.get(1).and_then(|text| text.parse::<f64>().ok()).unwrap_or(PERIOD_DAYS);
    let has_estimates = args.get(2).is_some_and(|word| word == "estimates");
    let (trace, policy) = match (count, args.as_slice()) {
        (Some(count), _) => (synthetic(count, days), Policy::Easy),
        (None, [path, policy, ..]) if args.len() == 2 || has_estimates => {
            let file = std::fs::File::open(path).expect("the trace");
            let trace = swf::read(file, Processors::FromHeader).expect("a trace");
            (trace, Policy::from_word(policy).expect("a policy"))
        }
        _ => panic!("replay_rate [JOBS [DAYS]], or replay_rate TRACE POLICY [estimates]"),
    };
    let mut config = single_processor_nodes(trace.processors.unwrap_or(NODES), policy);
    // Backfill as the server has it, not as replays of traces count.
    config.parameters.backfill_limits.narrow_jobs_end_first &= count.is_none();
    let measures = Measures { history: true, estimates: has_estimates, ..Measures::default() };
    let began = Instant::now();
    let Outcome { figures, history, .. } =
        replay(&trace, config, measures, |_| {}).expect("a replay");
    let took_s = began.elapsed().as_secs_f64();
    let waiting: u64 = history.moments.iter().map(|moment| moment.waiting_jobs).sum();
    let waiting = waiting as f64 / history.moments.len().max(1) as f64;
    println!("{figures:?}");
    println!(
        "{:.0} jobs a minute; {:.1} min mean wait, {:.1} h at most; a queue of {waiting:.0} in the mean of {} moments",
        60.0 * figures.jobs as f64 / took_s,
        figures.mean_wait_s / 60.0,
        figures.max_wait_s / 3600.0,
        history.moments.len()
    );
}

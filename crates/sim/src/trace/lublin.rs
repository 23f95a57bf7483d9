//! Synthetic load in the manner of Lublin and Feitelson's model of batch workloads ("The workload on parallel supercomputers",
//! 2003): sizes in two steps with many serial jobs and powers of two, run times of two kinds that grow with the size, and
//! arrivals with a daily cycle. The figures are those of their paper; users and their estimates are ours.

use super::{Numbering, Trace, TraceJob};
use crate::chance::Chance;
use std::f64::consts::TAU;

/// What is drawn.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Synthetic {
    pub jobs: u32,
    /// The machine's.
    pub processors: u32,
    /// The processors of the largest job that the machine takes.
    pub largest: u32,
    /// The part of the machine's time that the jobs ask for.
    pub load: f64,
    pub seed: u64,
}

const SERIAL: f64 = 0.244;
const POWER_OF_TWO: f64 = 0.576;

/// The logarithm of a parallel job's size is at least this.
const SIZE_LEAST: f64 = 0.8;
/// Below the largest size by so much is the border between the two steps, and how many jobs are below it.
const SIZE_BORDER: f64 = 2.5;
const BELOW_BORDER: f64 = 0.86;

/// Shape and scale of the logarithm of run times: of short jobs, and of long ones.
const SHORT: (f64, f64) = (4.2, 0.94);
const LONG: (f64, f64) = (312.0, 0.03);
/// How likely a job is short, by its size.
const SHORT_SLOPE: f64 = -0.0054;
const SHORT_SERIAL: f64 = 0.78;

/// Shape and scale of the logarithm of the time between two arrivals, before it is fitted to the load.
const GAPS: (f64, f64) = (10.23, 0.4871);
/// The longest such time.
const GAP_MAX_S: f64 = 432_000.0;
/// Shape and scale of the arrivals over the half hours of a day, which begins at 05:30.
const DAY: (f64, f64) = (8.1737, 3.9631);
const HALF_HOURS: usize = 48;
const DAY_BEGINS: usize = 11;
const HALF_HOUR_S: f64 = 1_800.0;
const DAY_S: f64 = HALF_HOURS as f64 * HALF_HOUR_S;

const RUN_MAX_S: f64 = 129_600.0;

/// The limits that users choose from, minutes.
const LIMITS_MIN: [u32; 13] = [5, 10, 15, 30, 60, 120, 240, 480, 720, 1_080, 1_440, 2_160, 2_880];

/// The jobs of so many users at most.
const USERS_MAX: u64 = 200;

/// Draws a trace. The same options give the same trace.
pub fn generate(options: &Synthetic) -> Trace {
    let mut chance = Chance::new(options.seed);
    let count = options.jobs.max(1);
    let users = (u64::from(count) / 50).clamp(5, USERS_MAX);
    let (mut jobs, mut gaps, mut work) = (Vec::new(), Vec::new(), 0.0);
    for line in 1..=u64::from(count) {
        let processors = size(&mut chance, options.largest.max(1));
        let run_s = run_time(&mut chance, processors);
        work += f64::from(processors) * f64::from(run_s);
        gaps.push(gamma(&mut chance, GAPS).exp().min(GAP_MAX_S));
        let estimate_s = estimate(&mut chance, run_s);
        // A few users submit most of the jobs.
        let user = (users as f64 * chance.fraction().powi(2)) as i64;
        let job = TraceJob { line, run_s, processors, estimate_s, user, ..TraceJob::default() };
        jobs.push(job);
    }
    // As long as the machine needs for the work at this load.
    let span_s = work / (f64::from(options.processors.max(1)) * options.load.max(0.01));
    let all: f64 = gaps.iter().sum();
    let cycle = DailyCycle::new();
    let mut passed = 0.0;
    for (job, gap) in jobs.iter_mut().zip(gaps) {
        passed += gap * span_s / all;
        job.submit_s = cycle.clock_s(passed) as i64;
    }
    let (processors, numbering) = (Some(options.processors), Numbering::Jobs);
    Trace { jobs, processors, numbering, ..Trace::default() }
}

fn size(chance: &mut Chance, most: u32) -> u32 {
    if most == 1 || chance.fraction() < SERIAL {
        return 1;
    }
    let largest = f64::from(most).log2();
    let border = (largest - SIZE_BORDER).max(SIZE_LEAST);
    let is_below = chance.fraction() < BELOW_BORDER;
    let (from, to) = if is_below { (SIZE_LEAST, border) } else { (border, largest) };
    let (from, to) = (from.min(largest), to.min(largest));
    let log = from + (to - from) * chance.fraction();
    let is_power = chance.fraction() < POWER_OF_TWO;
    let size = if is_power { log.round().exp2() } else { log.exp2().round() };
    (size as u32).clamp(1, most)
}

fn run_time(chance: &mut Chance, processors: u32) -> u32 {
    let short = (SHORT_SLOPE * f64::from(processors) + SHORT_SERIAL).clamp(0.0, 1.0);
    let kind = if chance.fraction() < short { SHORT } else { LONG };
    gamma(chance, kind).exp().clamp(1.0, RUN_MAX_S) as u32
}

/// What a user says: a fifth are as near as the usual limits allow, the others ask for more.
fn estimate(chance: &mut Chance, run_s: u32) -> u32 {
    let factor = if chance.one_in(5) { 1.0 } else { 1.0 - 2.0 * (1.0 - chance.fraction()).ln() };
    let wanted_s = f64::from(run_s) * factor;
    let limits = LIMITS_MIN.iter().map(|minutes| 60 * minutes);
    let largest = 60 * LIMITS_MIN[LIMITS_MIN.len() - 1];
    let mut fitting = limits.filter(|limit| f64::from(*limit) >= wanted_s);
    fitting.next().unwrap_or(largest).max(run_s)
}

/// A number that is distributed by this shape, above 1, and scale (Marsaglia and Tsang).
fn gamma(chance: &mut Chance, (shape, scale): (f64, f64)) -> f64 {
    let d = shape - 1.0 / 3.0;
    let c = 1.0 / (9.0 * d).sqrt();
    loop {
        let x = normal(chance);
        let v = (1.0 + c * x).powi(3);
        if v <= 0.0 {
            continue;
        }
        let u = 1.0 - chance.fraction();
        if u.ln() < 0.5 * x * x + d - d * v + d * v.ln() {
            return d * v * scale;
        }
    }
}

/// A number of the standard normal distribution (Box and Muller).
fn normal(chance: &mut Chance) -> f64 {
    let (radius, angle) = (1.0 - chance.fraction(), chance.fraction());
    (-2.0 * radius.ln()).sqrt() * (TAU * angle).cos()
}

/// How much of a day's arrivals have come by each half hour of it, from none to all.
struct DailyCycle(Vec<f64>);

impl DailyCycle {
    fn new() -> Self {
        let (shape, scale) = DAY;
        let density = |slot: usize| {
            let x = (DAY_BEGINS + slot) as f64 + 0.5;
            ((shape - 1.0) * x.ln() - x / scale).exp()
        };
        let all: f64 = (0..HALF_HOURS).map(density).sum();
        let mut come = 0.0;
        let mut sums = vec![0.0];
        sums.extend((0..HALF_HOURS).map(|slot| {
            come += density(slot) / all;
            come
        }));
        Self(sums)
    }

    /// The time by the clock when so many seconds' worth of an even day's arrivals have come.
    fn clock_s(&self, even_s: f64) -> f64 {
        let (day, part) = ((even_s / DAY_S).floor(), (even_s / DAY_S).fract());
        let slot = self.0.partition_point(|sum| *sum <= part).clamp(1, HALF_HOURS) - 1;
        let (from, to) = (self.0[slot], self.0[slot + 1]);
        let within = if to > from { (part - from) / (to - from) } else { 0.0 };
        day * DAY_S + (DAY_BEGINS as f64 + slot as f64 + within) * HALF_HOUR_S
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Synthetic =
        Synthetic { jobs: 5_000, processors: 128, largest: 128, load: 0.7, seed: 1 };

    /// The load is the part of the whole machine, also where no job may have all of it.
    #[test]
    fn load_is_the_one_that_was_asked_for_and_the_same_seed_gives_the_same_trace() {
        let trace = generate(&OPTIONS);
        assert_eq!(trace, generate(&OPTIONS));
        assert_ne!(trace, generate(&Synthetic { seed: 2, ..OPTIONS }));
        let narrow = generate(&Synthetic { largest: 8, ..OPTIONS });
        assert!(narrow.jobs.iter().all(|job| job.processors <= 8));
        for trace in [trace, narrow] {
            let work: f64 =
                trace.jobs.iter().map(|job| f64::from(job.processors) * f64::from(job.run_s)).sum();
            let (first, last) = (trace.jobs[0].submit_s, trace.jobs[4_999].submit_s);
            let load = work / (128.0 * (last - first) as f64);
            assert!((load - 0.7).abs() < 0.05, "{load}");
        }
    }

    #[test]
    fn jobs_are_in_order_within_the_machine_and_within_their_estimates() {
        let trace = generate(&OPTIONS);
        assert!(trace.jobs.is_sorted_by_key(|job| job.submit_s));
        for job in &trace.jobs {
            assert!((1..=128).contains(&job.processors) && job.run_s >= 1, "{job:?}");
            assert!(job.estimate_s >= job.run_s && job.submit_s >= 0, "{job:?}");
        }
        let part = |is_it: &dyn Fn(&TraceJob) -> bool| {
            trace.jobs.iter().filter(|job| is_it(job)).count() as f64 / 5_000.0
        };
        let serial = part(&|job| job.processors == 1);
        assert!((0.2..0.35).contains(&serial), "{serial}");
        let powers = part(&|job| job.processors.is_power_of_two());
        assert!(powers > 0.6, "{powers}");
        // By night fewer jobs come than by day.
        let hour = |job: &TraceJob| (job.submit_s / 3_600) % 24;
        let night = part(&|job| (2..6).contains(&hour(job)));
        let day = part(&|job| (12..16).contains(&hour(job)));
        assert!(3.0 * night < day, "{night} {day}");
    }
}

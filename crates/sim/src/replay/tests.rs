//! Traces whose starts are worked out by hand, and replays that must give the same starts.

use super::*;
use crate::estimate_error::EstimateError;
use crate::machine::single_processor_nodes;
use crate::policy::Policy;
use model::partition::OverSubscribe;

/// Submit, run, processors, estimate; times in seconds.
type Job = (i64, u32, u32, u32);

fn trace(jobs: &[Job]) -> Trace {
    let job = |(line, &(submit_s, run_s, processors, estimate_s)): (usize, &Job)| TraceJob {
        line: line as u64 + 1,
        submit_s,
        run_s,
        processors,
        estimate_s,
        user: 1,
        ..TraceJob::default()
    };
    let jobs = jobs.iter().enumerate().map(job).collect();
    Trace { jobs, processors: Some(4), ..Trace::default() }
}

fn starts(trace: &Trace, config: ClusterConfig) -> Vec<i64> {
    starts_of(Replay::new(trace, config).expect("a replay"))
}

fn starts_of(mut replay: Replay<'_>) -> Vec<i64> {
    while let Some(now) = replay.next_instant() {
        replay.pass(now).expect("a moment");
    }
    assert_eq!(replay.ended, replay.trace.jobs.len());
    replay.starts.iter().map(|start| start.expect("all start").secs()).collect()
}

/// Four processors and five jobs; what follows is worked out by hand.
///
/// 1. Two processors from 0; expected to end at 100, and does at 80.
/// 2. Three processors for 100 s, from 1: the first that waits, expected to start at 100.
/// 3. All four for 50 s, from 2: waits behind job 2, expected to start at 200.
/// 4. One for 250 s, from 3: beside job 2 there is room for it, but it would delay job 3.
/// 5. One for 50 s, from 4: done before job 2 needs anything.
fn five_jobs() -> Trace {
    trace(&[(0, 80, 2, 100), (1, 100, 3, 100), (2, 50, 4, 50), (3, 250, 1, 250), (4, 50, 1, 50)])
}

/// In order: job 2 when job 1 has ended, job 3 when job 2 has, jobs 4 and 5 when job 3 has.
#[test]
fn five_jobs_in_order_start_when_worked_out_by_hand() {
    let config = single_processor_nodes(4, Policy::Fcfs);
    assert_eq!(starts(&five_jobs(), config), [0, 80, 180, 230, 230]);
}

/// All five take all four processors, one after another. Priorities are worked out at 70, 130 and so on, each minute from
/// when the first job waits.
///
/// 1. From 0 to 1000.
/// 2. Has waited for 960 s at 970, with a limit of 6000: an expansion factor of 1.16.
/// 3. Has waited for 950 s at 970, with a limit of 60: 16.8. It starts at 1000, and job 2 at 1050, to 1550.
/// 4. Is expected to run for its limit of 700, since job 1 ran longer: at 1510 it has waited for 500, a factor of 1.71.
/// 5. Is expected to run for 525, the mean of jobs 1 and 3, whatever its limit: at 1510 it has waited for 450, a factor
///    of 1.86. It starts at 1550, and job 4 at 1560.
#[test]
fn five_jobs_by_expansion_factor_start_when_worked_out_by_hand() {
    let five = trace(&[
        (0, 1000, 4, 1000),
        (10, 500, 4, 6000),
        (20, 50, 4, 60),
        (1010, 100, 4, 700),
        (1060, 10, 4, 100_000),
    ]);
    let config = single_processor_nodes(4, Policy::Sluice);
    assert_eq!(starts(&five, config), [0, 1050, 1000, 1560, 1550]);
}

/// Jobs run for up to eight hours. Under the policy whose clock decides every minute most ticks start nothing; the order of the
/// queue changes all the same, and now and then a job starts because of it.
#[test]
fn moments_without_a_plan_start_nothing() {
    for (seed, policy) in (1..=2_u64).flat_map(|seed| Policy::ALL.map(|policy| (seed, policy))) {
        let mut drawn = seed;
        let mut below = |bound: u64| {
            drawn = drawn.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (drawn >> 33) % bound
        };
        let mut submit_s = 0;
        let jobs: Vec<Job> = (0..80)
            .map(|_| {
                submit_s += below(1_500) as i64;
                let longest_s = if below(3) == 0 { 30_000 } else { 2_400 };
                let widest = if below(4) == 0 { 12 } else { 3 };
                let run_s = 60 + below(longest_s) as u32;
                let processors = 1 + below(widest) as u32;
                (submit_s, run_s, processors, run_s + below(9_000) as u32)
            })
            .collect();
        let trace = trace(&jobs);
        let replay = || Replay::new(&trace, single_processor_nodes(12, policy)).expect("a replay");
        assert!(replay().has_quiet_moments, "{policy}");
        let with_all_plans = Replay { has_quiet_moments: false, ..replay() };
        let (few, all) = (starts_of(replay()), starts_of(with_all_plans));
        assert_eq!(few, all, "seed {seed}, {policy}");
    }
}

fn pass_to(replay: &mut Replay<'_>, end_s: i64) {
    while let Some(now) = replay.next_instant().filter(|now| now.secs() <= end_s) {
        replay.pass(now).expect("a moment");
    }
}

/// Job 1 has three of four processors until 100, and job 2 waits for all of them. Job 3 may start: it is done at 30. Job 4 asks for
/// more than is free. Job 5 would delay job 2, and so would job 6, which asks for no less.
#[test]
fn no_plan_is_made_for_a_job_that_asks_too_much() {
    let six = trace(&[
        (0, 100, 3, 100),
        (10, 10, 4, 10),
        (20, 10, 1, 10),
        (40, 10, 2, 10),
        (50, 10, 1, 200),
        (60, 10, 1, 300),
    ]);
    let [_, _, third, fourth, fifth, sixth] = six.jobs[..] else { panic!("six jobs") };
    let mut replay = Replay::new(&six, single_processor_nodes(4, Policy::Easy)).expect("a replay");
    pass_to(&mut replay, 10);
    assert!(replay.starts_nothing(None) && !replay.asks_too_much(&third));
    pass_to(&mut replay, 30);
    assert!(replay.starts_nothing(None) && replay.asks_too_much(&fourth));
    assert!(!replay.asks_too_much(&fifth), "one processor is free");
    pass_to(&mut replay, 50);
    assert!(replay.starts_nothing(None) && replay.asks_too_much(&sixth));
    assert_eq!(replay.starts[1], None);
    pass_to(&mut replay, 100);
    assert_eq!(replay.starts[1], Some(Timestamp::from_secs(100)), "job 1 has ended");
}

/// One processor that two jobs share: the second starts at once, though none is free.
#[test]
fn job_starts_on_a_processor_that_it_shares() {
    let two = trace(&[(0, 100, 1, 100), (10, 100, 1, 100)]);
    let mut config = single_processor_nodes(1, Policy::Easy);
    config.partitions[0].over_subscribe = OverSubscribe::Force(2);
    assert_eq!(starts(&two, config), [0, 10]);
}

/// A tick that is put off costs no command: the cluster is told of few of them.
#[test]
fn most_ticks_of_a_long_wait_are_put_off() {
    let two = trace(&[(0, 86_400, 4, 86_400), (10, 60, 4, 60)]);
    let mut replay =
        Replay::new(&two, single_processor_nodes(4, Policy::Sluice)).expect("a replay");
    let (mut passed, mut put_off) = (0, 0);
    while let Some(now) = replay.next_instant() {
        replay.pass(now).expect("a moment");
        passed += 1;
        put_off += usize::from(replay.tick_put_off.is_some());
    }
    assert!(passed > 1_000 && passed - put_off < 10, "{put_off} of {passed}");
}

/// Jobs 4 and 5 overtake at once. Job 3 starts when job 4 has ended, at 253.
#[test]
fn five_jobs_under_easy_backfill_start_when_worked_out_by_hand() {
    let config = single_processor_nodes(4, Policy::Easy);
    assert_eq!(starts(&five_jobs(), config), [0, 80, 253, 3, 4]);
}

/// Job 5 delays nobody and overtakes at once. Job 4 starts behind job 3.
#[test]
fn five_jobs_under_conservative_backfill_start_when_worked_out_by_hand() {
    let config = single_processor_nodes(4, Policy::Conservative);
    assert_eq!(starts(&five_jobs(), config), [0, 80, 180, 230, 4]);
}

/// Under EASY the waits are 0, 79, 251, 0 and 0 s, the slowdowns 1, 1.79, 6.02, 1 and 1; 960 of 4 times 303 processor
/// seconds are used.
#[test]
fn figures_of_five_jobs_are_those_worked_out_by_hand() {
    let config = single_processor_nodes(4, Policy::Easy);
    let measures = Measures { estimates: true, history: true, kinds: false };
    let Outcome { figures, history, .. } =
        replay(&five_jobs(), config, measures, |_| {}).expect("a replay");
    let expected = Summary {
        jobs: 5,
        utilisation: 0.792079,
        mean_wait_s: 66.0,
        max_wait_s: 251.0,
        mean_bounded_slowdown: 2.162,
        records_left_out: 0,
        jobs_left_out: 0,
        // Job 2 was expected at 100 and started at 80, job 3 at 200 and at 253.
        estimate_errors: vec![EstimateError {
            processors_min: 2,
            processors_max: Some(8),
            jobs: 2,
            median_s: 20.0,
            ninetieth_percentile_s: 53.0,
        }],
        kinds: Vec::new(),
    };
    assert_eq!(figures, expected);
    // When job 5 comes all wait or run: two processors of job 1, one each of jobs 4 and 5.
    let then = history.moments.iter().find(|moment| moment.time.secs() == 4).expect("a moment");
    assert_eq!((then.busy_processors, then.waiting_jobs), (4, 2));
    assert_eq!(history.moments.last().map(|moment| moment.busy_processors), Some(0));
    let bars: Vec<_> = history.bars.iter().map(|bar| (bar.line, bar.nodes.len())).collect();
    assert_eq!(bars, [(5, 1), (1, 2), (2, 3), (4, 1), (3, 4)]);
}

/// Job 3 would end at 62, a second after job 2 can start: in whole minutes there would be room for it.
#[test]
fn estimates_count_to_the_second() {
    let jobs = trace(&[(0, 61, 1, 61), (1, 10, 2, 10), (2, 60, 1, 60)]);
    assert_eq!(starts(&jobs, single_processor_nodes(2, Policy::Easy)), [0, 61, 71]);
}

#[test]
fn same_replay_twice_gives_the_same_figures() {
    let once = || {
        let jobs: Vec<_> = (0..400_u32)
            .map(|n| {
                let run = 10 + n * 7919 % 500;
                (i64::from(n) * 40, run, 1 + n * 31 % 4, run + n * 13 % 300)
            })
            .collect();
        let config = single_processor_nodes(4, Policy::Easy);
        let replay = replay(&trace(&jobs), config, Measures::default(), |_| {});
        replay.expect("a replay").figures
    };
    let first = once();
    assert_eq!(first, once());
    assert!(first.mean_wait_s > 0.0 && first.utilisation > 0.5, "{first:?}");
}

//! Begin times, deadlines, `--time-min`, and which jobs get a backfill slot.

use crate::testing::*;
use crate::view::View;
use crate::{Memo, estimates};
use insta::assert_snapshot;
use model::time::TimeLimit;

/// One node; job 1 holds 16 of its 32 CPUs for 30 minutes.
fn half_busy() -> View {
    let mut view = cluster(gpu_nodes(1)).with_jobs([job(1).cpus(16).for_min(30)]);
    let plan = view.plan();
    view.carry_out(&plan);
    view
}

#[test]
fn time_min_lets_a_job_be_cut_to_the_time_available() {
    let least = |id: u32, minutes| {
        job(id).cpus(8).for_min(600).asking(|r| r.time_min = Some(TimeLimit::Minutes(minutes)))
    };
    let view = half_busy().with_jobs([job(10).cpus(32).for_min(60), least(11, 20), least(12, 31)]);
    let plan = view.plan();
    let limits: Vec<_> = plan.starts.iter().map(|s| (s.job.0, s.time_limit)).collect();
    assert_eq!(limits, [(11, TimeLimit::Minutes(30))], "until the place of 10 begins");
    let free = half_busy().with_jobs([least(11, 20)]).plan();
    assert_eq!(free.starts[0].time_limit, TimeLimit::Minutes(600));
}

#[test]
fn unmeetable_deadline_is_the_reason_and_a_meetable_one_cuts_the_time_limit() {
    let by = |id: u32, minutes: i64| job(id).asking(|r| r.deadline = Some(after_min(minutes)));
    let view = half_busy().with_jobs([
        by(1, 59),
        by(2, 60),
        by(3, 59).asking(|r| r.time_min = Some(TimeLimit::Minutes(10))),
        by(4, 89).cpus(32),
        by(5, 120).cpus(32),
    ]);
    let plan = view.plan();
    assert_snapshot!(text(&plan), @r#"
    2 starts: node1 cpu 16 mem 1024M x1
    3 starts: node1 cpu 17 mem 1024M x1
    1 waits: Deadline
    4 waits: Resources
    5 waits: Priority
    5 expected in 60 min on node1
    "#);
    assert_eq!(plan.starts[1].time_limit, TimeLimit::Minutes(59));
}

#[test]
fn every_job_has_an_estimate() {
    let view = half_busy().with_jobs([
        job(10).cpus(32).for_min(60),
        job(11).cpus(32).for_min(60),
        job(12).with(|w| w.begin = Some(after_min(45))),
        job(13).for_min(30),
        job(14).with(|w| w.hold = Some(model::run::Hold::User)),
        job(15).cpus(64),
        job(16).cpus(32).with(|w| w.tasks = 3),
        job(17).cpus(32),
    ]);
    let minutes: Vec<_> = estimates(&view, NOW, &mut Memo::default())
        .into_iter()
        .map(|e| (e.job.0, (e.start.secs() - NOW.secs()) / 60))
        .collect();
    assert_eq!(minutes, [(10, 30), (11, 90), (12, 150), (13, 0), (16, 210), (17, 390)]);
}

#[test]
fn backfill_slots_follow_the_scheduler_parameters() {
    let mut view = half_busy().with_jobs([
        job(10).cpus(32).of_user(7),
        job(11).cpus(32).of_user(7),
        job(12).cpus(32).of_user(8),
        job(13).cpus(32).of_user(9).with(|w| w.priority = 10),
    ]);
    let kept = |view: &View| -> Vec<u32> {
        view.plan().estimates.iter().map(|estimate| estimate.job.0).collect()
    };
    assert_eq!(kept(&view), [10, 11, 12, 13]);
    view.policy.backfill_limits.per_user = Some(1);
    assert_eq!(kept(&view), [10, 12, 13]);
    view.policy.backfill_limits.priority_min = Some(50);
    assert_eq!(kept(&view), [10, 12]);
    view.policy.backfill_limits.window_min = Some(60);
    assert_eq!(kept(&view), [10]);
    view.policy.backfill_limits.age_min_s = u32::MAX;
    assert_eq!(kept(&view), [] as [u32; 0]);
    let mut starts = cluster(gpu_nodes(1)).with_jobs((1..=5).map(job));
    starts.policy.backfill_limits.starts_max = Some(2);
    assert_eq!(starts.plan().starts.len(), 2);
}

/// A slot that begins beyond `bf_window` is none, and has come into it half an hour later, when nothing else has changed.
#[test]
fn slot_that_comes_into_the_window_is_kept_from_later_jobs() {
    let mut view = cluster(gpu_nodes(2)).with_jobs([job(1).cpus(32).for_min(90)]);
    view.policy.backfill_limits.window_min = Some(60);
    let mut memo = Memo::default();
    let plan = crate::plan(&view, NOW, &mut memo);
    view.carry_out(&plan);
    view = view.with_jobs([job(2).nodes(2).cpus(32)]);
    let plan = crate::plan(&view, NOW, &mut memo);
    assert_eq!(plan.estimates, [], "it begins after the window");
    let view = view.with_jobs([job(3).cpus(32).for_min(500)]);
    let later = after_min(31);
    let plan = crate::plan(&view, later, &mut memo);
    assert_eq!(plan, crate::plan(&view, later, &mut Memo::default()));
    assert_eq!(plan.starts, [], "job 2 begins in 59 minutes on both nodes");
}

/// The first two jobs go to one node and the third takes the whole other one. Only the most starts of a plan keep it from that:
/// what a plan knows of the last one is not that the node was taken, nor that the job could begin back then.
#[test]
fn jobs_beyond_the_most_starts_of_a_plan_start_with_the_next() {
    let mut view = cluster(gpu_nodes(2)).with_jobs([job(1), job(2), job(3).cpus(32)]);
    view.policy.backfill_limits.starts_max = Some(1);
    let mut memo = Memo::default();
    for id in 1..=3_u32 {
        let now = after_min(10 * i64::from(id));
        let plan = crate::plan(&view, now, &mut memo);
        assert_eq!(plan, crate::plan(&view, now, &mut Memo::default()));
        let started: Vec<u32> = plan.starts.iter().map(|start| start.job.0).collect();
        assert_eq!(started, [id]);
        view.carry_out(&plan);
    }
}

//! Estimates of jobs that wait for more than resources: for a limit, for licenses, for other jobs.

use crate::testing::*;
use crate::view::{AwaitedEvent, DependencyState, Estimate, PendingJob, View};
use crate::{Memo, estimates};
use model::account::Qos;
use model::id::JobId;
use model::request::Per;
use model::tres::Tres;
use std::sync::Arc;

/// `12+60` is job 12, in an hour.
fn expected(view: &View) -> String {
    let shown = |e: &Estimate| format!("{}+{}", e.job, (e.start.secs() - NOW.secs()) / 60);
    let all = estimates(view, NOW, &mut Memo::default());
    all.iter().map(shown).collect::<Vec<_>>().join(" ")
}

fn capped_at(set: impl Fn(&mut Qos)) -> View {
    let mut capped = Qos::named("capped");
    set(&mut capped);
    let mut view = cluster(gpu_nodes(2));
    view.qos = vec![Arc::new(Qos::named("normal")), Arc::new(capped)];
    view
}

fn capped(id: u32) -> PendingJob {
    job(id).with(|w| w.qos = "capped".to_string())
}

fn after(waiting: PendingJob, awaits: &[AwaitedEvent]) -> PendingJob {
    waiting.with(|w| {
        w.dependency = DependencyState::Waiting;
        w.awaits = awaits.to_vec();
    })
}

fn carried_out(view: View, jobs: impl IntoIterator<Item = PendingJob>) -> View {
    let mut view = view.with_jobs(jobs);
    let plan = view.plan();
    view.carry_out(&plan);
    view
}

#[test]
fn limit_is_released_job_by_job_in_the_forecast() {
    let view = capped_at(|q| q.max_jobs_per_user = Some(1));
    let view = carried_out(view, [capped(1).for_min(30)]);
    let view = view.with_jobs([
        capped(11).for_min(20),
        capped(12).for_min(10),
        capped(13).for_min(5).of_user(7),
        capped(14).for_min(5),
    ]);
    assert_eq!(expected(&view), "11+30 12+50 13+0 14+60");
}

#[test]
fn small_job_may_start_while_a_large_one_waits_for_a_limit() {
    let gpus = Tres::parse("gres/gpu=4").expect("it reads");
    let view = capped_at(|q| q.max_tres_per_user = gpus.clone());
    let of = |id, count, minutes| capped(id).gpus(Per::Node, count).for_min(minutes);
    let view = carried_out(view, [of(1, 2, 30), of(2, 2, 60)]);
    // Four come free with the second only; two with the first.
    let view = view.with_jobs([of(11, 4, 10), of(12, 2, 10)]);
    assert_eq!(expected(&view), "11+60 12+30");
}

#[test]
fn job_with_a_slot_counts_against_its_limit_from_the_slots_start() {
    let view = capped_at(|q| q.max_jobs_per_user = Some(1));
    let view = carried_out(view, [job(1).nodes(2).cpus(32).for_min(30)]);
    // Nothing is free for half an hour; then one after the other, and the other user's with the first.
    let view = view.with_jobs([
        capped(11).for_min(20),
        capped(12).for_min(10),
        capped(13).for_min(10).of_user(7),
        capped(14).for_min(10).with(|w| w.tasks = 3),
    ]);
    assert_eq!(expected(&view), "11+30 12+50 13+30 14+60");
}

#[test]
fn job_that_breaks_a_limit_alone_has_no_estimate() {
    let gpus = Tres::parse("gres/gpu=4").expect("it reads");
    let view = capped_at(|q| q.max_tres_per_job = gpus.clone());
    let view = view.with_jobs([capped(11).gpus(Per::Node, 5), capped(12)]);
    assert_eq!(expected(&view), "12+0");
}

#[test]
fn dependent_job_is_expected_after_the_end_of_each_job_in_its_chain() {
    let view = carried_out(cluster(gpu_nodes(2)), [job(1).for_min(40)]);
    let end_of = |id| AwaitedEvent::EndOf(JobId(id));
    let view = view.with_jobs([
        after(job(11).for_min(10), &[end_of(1)]),
        // Submitted before the one that it waits for had its turn.
        after(job(12).for_min(10), &[end_of(13), end_of(1)]).with(|w| w.priority = 500),
        job(13).for_min(90),
        after(job(14), &[end_of(11), end_of(12)]),
        after(job(15), &[AwaitedEvent::StartOf { job: JobId(1), minutes: 5 }]),
        after(job(16), &[AwaitedEvent::StartOf { job: JobId(12), minutes: 5 }]),
        after(job(17), &[]),
        after(job(18), &[end_of(17)]),
        after(job(19), &[end_of(13), end_of(1)]).with(|w| w.awaits_any = true),
    ]);
    assert_eq!(expected(&view), "12+90 11+40 13+0 14+100 15+5 16+95 19+40");
}

#[test]
fn licenses_are_released_when_their_jobs_end_in_the_forecast() {
    let mut view = cluster(gpu_nodes(2));
    view.licenses = vec![("matlab".to_string(), 2)];
    let with = |id, count, minutes| {
        let licenses = vec![("matlab".to_string(), count)];
        job(id).for_min(minutes).asking(|r| r.licenses = licenses)
    };
    let mut view = carried_out(view, [with(1, 1, 20), with(2, 1, 50)]);
    view.licenses = vec![("matlab".to_string(), 0)];
    let view = view.with_jobs([with(11, 2, 10), with(12, 1, 10)]);
    assert_eq!(expected(&view), "11+50 12+20");
}

#[test]
fn throttled_array_continues_when_a_task_ends() {
    let view = carried_out(cluster(gpu_nodes(2)), [job(1).for_min(25), job(2).for_min(50)]);
    let view = view.with_jobs([job(11).with(|w| {
        (w.tasks, w.tasks_allowed) = (5, Some(0));
        w.awaits = vec![AwaitedEvent::EndOf(JobId(1)), AwaitedEvent::EndOf(JobId(2))];
        w.awaits_any = true;
    })]);
    assert_eq!(expected(&view), "11+25");
}

#[test]
fn job_whose_dependency_ends_still_waits_for_resources() {
    let view =
        carried_out(cluster(gpu_nodes(1)), [job(1).for_min(30), job(2).cpus(31).for_min(90)]);
    let wide = after(job(11).cpus(32), &[AwaitedEvent::EndOf(JobId(1))]);
    assert_eq!(expected(&view.with_jobs([wide])), "11+90");
}

#[test]
fn an_explanation_expects_what_the_estimates_do() {
    let view = capped_at(|q| q.max_jobs_per_user = Some(1));
    let view = carried_out(view, [capped(1).for_min(30)]);
    let view = view.with_jobs([capped(11).for_min(20), capped(12)]);
    let explained = crate::explain(&view, NOW, &mut Memo::default(), JobId(12)).expect("it waits");
    assert_eq!(explained.expected.map(|e| e.start), Some(after_min(50)));
}

#[test]
fn long_queue_under_one_limit_is_forecast_to_its_end() {
    let view = capped_at(|q| q.max_jobs_per_user = Some(2));
    let view = view.with_jobs((1..=2_000).map(|id| capped(id).for_min(10)));
    let all = estimates(&view, NOW, &mut Memo::default());
    assert_eq!(all.len(), 2_000);
    // Two at a time, ten minutes each.
    assert_eq!(all.last().map(|e| e.start), Some(after_min(999 * 10)));
}

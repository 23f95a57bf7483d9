//! Decisions of the clock alone: deadlines, wait policies, time limits, and the purge of old records.

use crate::job_builder::{Ask, alice, ask};
use crate::testbed::{START, World, ended, world};
use cluster::Command;
use model::change::{JobChange, JobField, JobRef};
use model::node::SlotState;
use model::reason::Refusal;
use model::request::WaitPolicy;
use model::run::{Hold, JobState, Outcome};
use model::time::{TimeLimit, Timestamp};
use std::sync::Arc;
use std::time::Duration;

fn after(secs: u64) -> Timestamp {
    START + Duration::from_secs(secs)
}

#[test]
fn job_whose_wait_is_over_ends_with_no_capacity() {
    let mut w = world(1);
    w.started(ask().cpus(8));
    let until =
        |a: crate::job_builder::Ask| a.asking(|r| r.wait_policy = WaitPolicy::Until(after(60)));
    let job = w.submit(until(ask()));
    let array = w.submit(until(ask().array("0-3")));
    w.pass(59);
    assert_eq!((w.is(job), w.is(array)), (JobState::Pending, JobState::Pending));
    w.pass(1);
    for id in [job, array] {
        assert_eq!(w.job(id).ended().map(|e| e.outcome), Some(Outcome::NoCapacity));
    }
}

/// Its minute begins when its parent has ended.
#[test]
fn wait_for_another_job_is_no_wait_for_capacity() {
    let mut w = world(1);
    let until = |ask: Ask| ask.asking(|r| r.wait_policy = WaitPolicy::Until(after(60)));
    let parent = w.started(ask().cpus(8)).job;
    let child = w.submit(until(ask().after(&format!("afterany:{parent}"))));
    w.pass(600);
    assert_eq!(w.is(child), JobState::Pending);
    w.end(parent, 0);
    w.pass(59);
    assert_eq!(w.is(child), JobState::Pending, "its parent ended just now");
    w.pass(1);
    assert_eq!(w.job(child).ended().map(|e| e.outcome), Some(Outcome::NoCapacity));
}

#[test]
fn hold_and_the_throttle_of_an_array_are_no_wait_for_capacity() {
    let mut w = world(1);
    let until = |ask: Ask| ask.asking(|r| r.wait_policy = WaitPolicy::Until(after(60)));
    let held = w.submit(until(ask()));
    w.change(held, JobChange::Hold { by: Hold::Admin }).expect("root may");
    let array = w.submit(until(ask().array("0-3%1")));
    assert_eq!(w.plan().len(), 1, "one task");
    w.pass(600);
    assert_eq!((w.is(held), w.is(array)), (JobState::Pending, JobState::Pending));
    w.change(held, JobChange::Release).expect("root may");
    w.tick();
    assert_eq!(w.is(held), JobState::Pending, "the hold was longer than its minute");
}

/// Its minute begins when one of its tasks ends, or when `%N` is raised; no task is planned meanwhile.
#[test]
fn array_waits_for_capacity_from_when_its_throttle_lets_more_tasks_start() {
    let until = |ask: Ask| ask.asking(|r| r.wait_policy = WaitPolicy::Until(after(60)));
    let raised = JobChange::Fields(vec![JobField::ArrayThrottle(Some(2))]);
    for raise in [false, true] {
        let mut w = world(1);
        let array = w.submit(until(ask().array("0-3%1")));
        let first = w.plan();
        assert_eq!(first.len(), 1, "one task");
        w.pass(600);
        assert_eq!(w.is(array), JobState::Pending, "its throttle holds it back");
        if raise {
            w.change(array, raised.clone()).expect("root may");
        } else {
            w.end(first[0].job, 0);
        }
        w.pass(59);
        assert_eq!(w.is(array), JobState::Pending, "since just now it waits for capacity");
        w.pass(1);
        assert_eq!(w.job(array).ended().map(|e| e.outcome), Some(Outcome::NoCapacity));
    }
}

#[test]
fn deadline_ends_waiting_and_running_jobs() {
    let mut w = world(1);
    let late = |a: crate::job_builder::Ask| a.asking(|r| r.deadline = Some(after(7200)));
    let runs = w.started(late(ask().cpus(8))).job;
    let waits = w.submit(late(ask()));
    // An hour before the deadline is the last moment for a job of an hour.
    w.pass(3600);
    assert_eq!((w.is(runs), w.is(waits)), (JobState::Running, JobState::Pending));
    w.pass(1);
    assert_eq!((w.is(runs), w.is(waits)), (JobState::Running, JobState::Deadline));
    w.pass(3599);
    assert_eq!(w.is(runs), JobState::Completing);
    w.tick();
    w.end(runs, 0);
    assert_eq!(w.is(runs), JobState::Deadline);
}

#[test]
fn begin_time_delays_the_start() {
    let mut w = world(1);
    w.submit(ask().asking(|r| r.begin = Some(after(60))));
    assert_eq!(w.plan(), []);
    w.pass(60);
    assert_eq!(w.plan().len(), 1);
}

#[test]
fn time_limit_counts_from_the_start_and_changes_only_by_its_own_update() {
    let mut w = world(1);
    let job = w.started(ask()).job;
    let limit = |w: &crate::testbed::World| w.job(job).attempt().expect("it runs").end_limit;
    assert_eq!(limit(&w), Some(after(3600)));
    w.pass(60);
    let fields = |field| JobChange::Fields(vec![field]);
    let minutes = |m| fields(JobField::TimeLimit(TimeLimit::Minutes(m)));
    w.change(job, fields(JobField::Comment("soon done".into()))).expect("root may");
    assert_eq!(limit(&w), Some(after(3600)));
    w.change_as(alice(), JobRef::whole(job), minutes(30)).expect("an owner may shorten");
    assert_eq!(limit(&w), Some(after(1800)));
    let longer = w.change_as(alice(), JobRef::whole(job), minutes(90));
    assert_eq!(longer, Err(Refusal::OperatorsOnly), "only an operator lengthens what runs");
    w.change(job, fields(JobField::TimeLimit(TimeLimit::Unlimited))).expect("root may");
    assert_eq!(limit(&w), None);
}

#[test]
fn limit_of_a_task_counts_in_seconds_unless_it_was_changed() {
    let brief = |minutes| {
        ask()
            .task()
            .with(|spec| Arc::make_mut(&mut spec.launch).limit_s = Some(30))
            .asking(move |r| r.time_limit = Some(TimeLimit::Minutes(minutes)))
    };
    for (minutes, ends_s) in [(1, 30), (10, 600)] {
        let mut w = world(1);
        let job = w.started(brief(minutes)).job;
        let limit = w.job(job).attempt().expect("it runs").end_limit;
        assert_eq!(limit, Some(after(ends_s)), "{minutes} minutes");
    }
}

#[test]
fn other_updates_do_not_change_a_time_limit_from_the_partition() {
    let mut w = crate::testbed::world_with(1, |c| {
        c.partitions[0].max_time = TimeLimit::Minutes(120);
    });
    let job = w.started(ask().asking(|r| r.time_limit = None)).job;
    assert_eq!(w.job(job).attempt().expect("it runs").end_limit, Some(after(7200)));
    let max = model::change::PartitionChange::MaxTime(TimeLimit::Minutes(30));
    w.run(Command::ChangePartition { name: "main".into(), change: max });
    w.change(job, JobChange::Fields(vec![JobField::Name("x".into())])).expect("root may");
    assert_eq!(w.job(job).attempt().expect("it runs").end_limit, Some(after(7200)));
}

#[test]
fn ended_records_are_purged_after_min_job_age_and_once_booked() {
    let mut w = world(1);
    let attempt = w.started(ask());
    w.end(attempt.job, 0);
    w.pass(299);
    assert!(w.state.jobs.contains_key(&attempt.job));
    w.now = w.now + Duration::from_secs(1);
    w.run(Command::Tick { booked: false });
    assert!(w.state.jobs.contains_key(&attempt.job), "the books do not have it yet");
    w.tick();
    assert!(w.state.jobs.is_empty() && w.state.runs.is_empty());
    w.report("n1", attempt, ended(0));
    assert_eq!(w.submit(ask()).0, 2, "its id is not given again");
}

#[test]
fn tick_fails_all_silent_nodes_and_ends_the_jobs_that_they_share_once() {
    let mut w = world(3);
    let job = w.started(ask().nodes(2)).job;
    for node in ["n1", "n2", "n3"] {
        w.run(Command::NodeLost { node: node.into() });
    }
    w.pass(300);
    assert!(w.state.nodes.values().all(|node| node.slot == SlotState::Down));
    assert_eq!((w.is(job), w.records.len()), (JobState::NodeFail, 1));
    assert!(w.state.nodes.values().all(|node| node.holders.is_empty()));
}

#[test]
fn many_silent_nodes_are_down_after_a_few_ticks() {
    let mut w = world(300);
    for node in 1..=300 {
        w.run(Command::NodeLost { node: format!("n{node}") });
    }
    let down = |w: &World| w.state.nodes.values().filter(|n| n.slot == SlotState::Down).count();
    w.pass(300);
    assert_eq!(down(&w), 256);
    w.tick();
    assert_eq!(down(&w), 300);
}

#[test]
fn suspended_time_does_not_count_against_the_limit() {
    let mut w = world(1);
    let attempt = w.started(ask());
    let limit =
        |w: &World| w.job(attempt.job).attempt().and_then(|a| a.end_limit).expect("a limit");
    let before = limit(&w);
    w.change(attempt.job, JobChange::Suspend).expect("root may suspend");
    w.pass(100);
    assert_eq!(limit(&w), before);
    w.change(attempt.job, JobChange::Resume).expect("root may resume");
    assert_eq!(limit(&w), before + Duration::from_secs(100));
}

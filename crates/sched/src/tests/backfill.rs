//! Backfill slots, and which jobs may start before them.

use crate::testing::*;
use crate::view::View;
use insta::assert_snapshot;
use model::request::Per;
use model::time::TimeLimit;
use std::sync::Arc;

/// Two nodes; job 1 holds 30 CPUs of node1 for 30 minutes, job 2 as many of node2 for 90.
fn busy() -> View {
    let mut view =
        cluster(gpu_nodes(2)).with_jobs([job(1).cpus(30).for_min(30), job(2).cpus(30).for_min(90)]);
    let plan = view.plan();
    view.carry_out(&plan);
    view
}

#[test]
fn job_is_backfilled_if_it_ends_in_time_or_uses_other_nodes() {
    let view = busy().with_jobs([
        job(10).cpus(32).for_min(60),
        job(11).cpus(2).for_min(30),
        job(12).cpus(2).for_min(31),
        job(13).cpus(1).for_min(31),
    ]);
    assert_snapshot!(text(&view.plan()), @r#"
    11 starts: node1 cpu 30-31 mem 1024M x1
    12 starts: node2 cpu 30-31 mem 1024M x1
    10 waits: Resources
    13 waits: Priority
    10 expected in 30 min on node1
    13 expected in 31 min on node2
    "#);
}

#[test]
fn unlimited_job_is_never_backfilled_into_a_slot() {
    let unlimited = |id| job(id).asking(|r| r.time_limit = Some(TimeLimit::Unlimited));
    let view = busy().with_jobs([job(10).nodes(2).cpus(31), unlimited(11).cpus(2), unlimited(12)]);
    assert_snapshot!(text(&view.plan()), @r#"
    12 starts: node1 cpu 30 mem 1024M x1
    10 waits: Resources
    11 waits: Priority
    10 expected in 90 min on node1,node2
    11 expected in 150 min on node1
    "#);
}

#[test]
fn devices_that_a_backfill_slot_does_not_need_are_granted() {
    let view = busy().with_jobs([
        job(10).cpus(4).gpus(Per::Node, 6),
        job(11).gpus(Per::Node, 2).for_min(500),
        job(12).gpus(Per::Node, 1).for_min(500),
    ]);
    assert_snapshot!(text(&view.plan()), @r#"
    11 starts: node1 cpu 30 mem 1024M gpu:h100[0, 1] x1
    12 starts: node2 cpu 30 mem 1024M gpu:h100[0] x1
    10 waits: Resources
    10 expected in 30 min on node1
    "#);
}

#[test]
fn several_backfill_slots_stand_beside_each_other() {
    let mut view = busy().with_jobs([
        job(10).cpus(32).for_min(20),
        job(11).cpus(32).for_min(20),
        job(12).cpus(32).for_min(50),
        job(13).cpus(2).for_min(40),
        job(14).cpus(2).for_min(30),
    ]);
    view.policy.backfill_slots_max = 3;
    assert_snapshot!(text(&view.plan()), @r#"
    13 starts: node2 cpu 30-31 mem 1024M x1
    14 starts: node1 cpu 30-31 mem 1024M x1
    10 waits: Resources
    11 waits: Priority
    12 waits: Priority
    10 expected in 30 min on node1
    11 expected in 50 min on node1
    12 expected in 70 min on node1
    "#);
}

#[test]
fn job_blocked_for_ever_has_no_estimate() {
    let mut view = cluster(gpu_nodes(1))
        .with_jobs([job(1).asking(|r| r.time_limit = Some(TimeLimit::Unlimited))]);
    let plan = view.plan();
    view.carry_out(&plan);
    let view = view.with_jobs([job(2).cpus(32), job(3)]);
    assert_snapshot!(text(&view.plan()), @r#"
    3 starts: node1 cpu 1 mem 1024M x1
    2 waits: Resources
    "#);
}

#[test]
fn job_over_its_time_limit_is_not_counted_as_gone() {
    let mut view = busy().with_jobs([job(10).cpus(32)]);
    Arc::make_mut(&mut view.running[0]).end = Some(after_min(-5));
    assert_snapshot!(text(&view.plan()), @r#"
    10 waits: Resources
    10 expected in 0 min on node1
    "#);
}

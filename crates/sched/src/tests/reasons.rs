//! Why jobs wait.

use crate::testing::*;
use crate::view::{Availability, DependencyState, View};
use insta::assert_snapshot;
use model::partition::PartitionState;
use model::reason::Reason;
use model::request::Per;
use model::run::Hold;
use model::time::TimeLimit;
use std::sync::Arc;

fn two() -> View {
    cluster(gpu_nodes(2))
}

fn plan_text(view: &View) -> String {
    text(&view.plan())
}

#[test]
fn held_dependent_and_later_jobs_have_their_reason_and_block_nobody() {
    let view = two().with_jobs([
        job(1).with(|w| w.hold = Some(Hold::User)),
        job(2).with(|w| w.hold = Some(Hold::Admin)),
        job(3).with(|w| w.dependency = DependencyState::Waiting),
        job(4).with(|w| w.dependency = DependencyState::Never),
        job(5).with(|w| w.begin = Some(after_min(1))),
        job(6).with(|w| w.begin = Some(NOW)),
        job(7).with(|w| w.fixed_reason = Some(Reason::LaunchFailed)),
        job(8).with(|w| w.partitions.clear()),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    6 starts: node1 cpu 0 mem 1024M x1
    1 waits: HeldByUser
    2 waits: HeldByAdmin
    3 waits: Dependency
    4 waits: DependencyNeverSatisfied
    5 waits: BeginTime
    7 waits: LaunchFailed
    8 waits: NotPlanned
    "#);
}

#[test]
fn partition_policy_gives_its_reason() {
    let view = two()
        .with_main(|p| p.max_time = TimeLimit::Minutes(100))
        .with_partition("down", &[0], |p| p.state = PartitionState::Down)
        .with_partition("inactive", &[0], |p| p.state = PartitionState::Inactive)
        .with_partition("small", &[0, 1], |p| p.max_nodes = Some(1))
        .with_partition("drain", &[1], |p| p.state = PartitionState::Drain)
        .with_jobs([
            job(1).nodes(3),
            job(2).for_min(101),
            job(3).with(|w| w.partitions = vec![1]),
            job(4).with(|w| w.partitions = vec![2]),
            job(5).nodes(2).with(|w| w.partitions = vec![3]),
            job(6).with(|w| w.partitions = vec![4]),
            job(7).asking(|r| r.time_limit = None),
            job(8).asking(|r| r.time_limit = Some(TimeLimit::Minutes(0))),
        ]);
    let plan = view.plan();
    assert_snapshot!(text(&plan), @r#"
    6 starts: node2 cpu 0 mem 1024M x1
    7 starts: node1 cpu 0 mem 1024M x1
    1 waits: PartitionNodeLimit
    2 waits: PartitionTimeLimit
    3 waits: PartitionDown
    4 waits: PartitionInactive
    5 waits: PartitionNodeLimit
    8 waits: PartitionTimeLimit
    "#);
    let limit = plan.starts.iter().find(|s| s.job.0 == 7).map(|s| s.time_limit);
    assert_eq!(limit, Some(TimeLimit::Minutes(100)), "the partition's, where none was said");
}

#[test]
fn first_in_the_queue_waits_for_resources_and_the_rest_for_priority() {
    let view = two().with_jobs([
        job(1).nodes(2).cpus(30),
        job(2).cpus(30).with(|w| w.priority = 50),
        job(3).cpus(30),
        job(4).cpus(3).for_min(61),
        job(5).cpus(2),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0-29 mem 1024M x1; node2 cpu 0-29 mem 1024M x1
    5 starts: node1 cpu 30-31 mem 1024M x1
    3 waits: Resources
    4 waits: Priority
    2 waits: Priority
    3 expected in 60 min on node1
    4 expected in 60 min on node2
    2 expected in 120 min on node1
    "#);
}

#[test]
fn nodes_out_of_service_are_named_where_they_were_asked_for() {
    let mut view = two().with_jobs([
        job(1).asking(|r| r.node_list = vec!["node1".to_string()]),
        job(2).nodes(2),
        job(3),
    ]);
    Arc::make_mut(&mut view.nodes[0]).availability = Availability::Drained;
    assert_snapshot!(plan_text(&view), @r#"
    3 starts: node2 cpu 0 mem 1024M x1
    1 waits: RequiredNodesUnavailable { nodes: ["node1"] }
    2 waits: NodesDown
    "#);
    Arc::make_mut(&mut view.nodes[1]).availability = Availability::Silent;
    assert_snapshot!(plan_text(&view), @r#"
    1 waits: RequiredNodesUnavailable { nodes: ["node1"] }
    2 waits: NodesDown
    3 waits: Resources
    "#);
}

#[test]
fn job_that_no_node_can_hold_has_its_reason_and_blocks_nobody() {
    let view = two().with_jobs([job(1).cpus(64), job(2)]);
    assert_snapshot!(plan_text(&view), @r#"
    2 starts: node1 cpu 0 mem 1024M x1
    1 waits: BadConstraints
    "#);
}

#[test]
fn a_throttled_array_waits_for_its_own_tasks() {
    let view = two().with_jobs([
        job(1).with(|w| (w.tasks, w.tasks_allowed) = (100, Some(2))),
        job(2).with(|w| (w.tasks, w.tasks_allowed) = (100, Some(0))),
        job(3).gpus(Per::Node, 8).with(|w| (w.tasks, w.tasks_allowed) = (100, Some(50))),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0 mem 1024M x1
    1 starts: node1 cpu 1 mem 1024M x1
    3 starts: node1 cpu 2 mem 1024M gpu:h100[0, 1, 2, 3, 4, 5, 6, 7] x1
    3 starts: node2 cpu 0 mem 1024M gpu:h100[0, 1, 2, 3, 4, 5, 6, 7] x1
    1 waits: ArrayTaskLimit
    2 waits: ArrayTaskLimit
    3 waits: Resources
    3 expected in 60 min on node1
    "#);
}

#[test]
fn a_higher_tier_comes_first_and_the_next_partition_is_tried() {
    let view = two().with_partition("urgent", &[0], |p| p.priority_tier = 10).with_jobs([
        job(1).cpus(32).with(|w| w.priority = 900),
        job(2).cpus(32).with(|w| w.partitions = vec![1]),
        job(3).cpus(32).with(|w| w.partitions = vec![1, 0]),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    2 starts: node1 cpu 0-31 mem 1024M x1
    1 starts: node2 cpu 0-31 mem 1024M x1
    3 waits: Resources
    3 expected in 60 min on node1
    "#);
}

#[test]
fn without_backfill_no_job_overtakes_in_its_partition() {
    let mut view = two().with_jobs([job(1).nodes(2).cpus(31), job(2).cpus(2), job(3).for_min(1)]);
    view.policy.backfill = false;
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0-30 mem 1024M x1; node2 cpu 0-30 mem 1024M x1
    2 waits: Resources
    3 waits: Priority
    "#);
}

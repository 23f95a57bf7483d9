//! Cores close to devices, nodes close to each other, and licenses.

use crate::testing::*;
use crate::view::{PendingJob, View};
use insta::assert_snapshot;
use model::cpuset::CpuSet;
use model::request::{GresBinding, Per, Switches};
use model::time::Timestamp;
use model::topology::{Switch, Topology};
use std::sync::Arc;

/// GPUs 0-3 close to cores 0-15, GPUs 4-7 close to cores 16-31.
fn two_sockets() -> View {
    let mut node = gpu_node("node1");
    let near = |first: u32, cores: &str| {
        let mut line = gpus("h100", 4, first);
        line.cores = Some(cores.parse::<CpuSet>().expect("it reads"));
        line
    };
    node.gres = vec![near(0, "0-15"), near(4, "16-31")];
    cluster(vec![node])
}

#[test]
fn cores_are_taken_beside_free_devices() {
    let view = two_sockets().with_jobs([
        job(1).gpus(Per::Node, 4),
        job(2).cpus(2).gpus(Per::Node, 1),
        job(3).cpus(2),
        job(4).cpus(2).gpus(Per::Node, 1).asking(|r| r.gres_binding = GresBinding::Ignore),
    ]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 starts: node1 cpu 0 mem 1024M gpu:h100[0, 1, 2, 3] x1
    2 starts: node1 cpu 16-17 mem 1024M gpu:h100[4] x1
    3 starts: node1 cpu 1-2 mem 1024M x1
    4 starts: node1 cpu 3-4 mem 1024M gpu:h100[5] x1
    "#);
}

#[test]
fn enforced_gres_binding_waits_for_cores_beside_the_device() {
    // All cores of the second socket are taken, none of its GPUs.
    let mut view = two_sockets().with_jobs([job(1).cpus(16), job(2).cpus(16).for_min(30)]);
    let plan = view.plan();
    view.carry_out(&plan);
    view.end(0);
    let four = |id| job(id).cpus(2).gpus(Per::Node, 4);
    let view = view.with_jobs([
        four(3),
        four(4).asking(|r| r.gres_binding = GresBinding::Enforce),
        four(5),
    ]);
    let plan = view.plan();
    let starts: Vec<u32> = plan.starts.iter().map(|start| start.job.0).collect();
    assert_eq!(starts, [3], "{}", text(&plan));
    let preferred = {
        let mut view = view.clone();
        view.queue.remove(1);
        view.plan()
    };
    let starts: Vec<u32> = preferred.starts.iter().map(|start| start.job.0).collect();
    assert_eq!(starts, [3, 5], "{}", text(&preferred));
}

/// Six nodes, three on each of two leaves under one root.
pub(super) fn tree() -> View {
    let leaf = |name: &str, nodes: [u32; 3]| Switch {
        name: name.to_string(),
        nodes: nodes.iter().map(|at| format!("node{at}")).collect(),
        switches: Vec::new(),
        link_speed: 1,
    };
    let root = Switch {
        name: "root".to_string(),
        nodes: Vec::new(),
        switches: vec!["left".to_string(), "right".to_string()],
        link_speed: 1,
    };
    let mut view = cluster(gpu_nodes(6));
    let switches = vec![root, leaf("left", [1, 2, 3]), leaf("right", [4, 5, 6])];
    view.topology = Some(Arc::new(Topology { switches, ..Topology::default() }));
    view
}

#[test]
fn nodes_of_a_job_are_below_one_switch_where_possible() {
    let view = tree().with_jobs([
        job(1).cpus(32),
        job(2).nodes(3).cpus(16),
        job(3).nodes(2).cpus(32),
        job(4).nodes(3).cpus(16),
    ]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 starts: node1 cpu 0-31 mem 1024M x1
    2 starts: node4 cpu 0-15 mem 1024M x1; node5 cpu 0-15 mem 1024M x1; node6 cpu 0-15 mem 1024M x1
    3 starts: node2 cpu 0-31 mem 1024M x1; node3 cpu 0-31 mem 1024M x1
    4 starts: node4 cpu 16-31 mem 1024M x1; node5 cpu 16-31 mem 1024M x1; node6 cpu 16-31 mem 1024M x1
    "#);
}

#[test]
fn job_waits_for_its_switches_as_long_as_it_asked_to() {
    let one_switch = |id: u32, waited_s: i64| {
        job(id)
            .nodes(3)
            .cpus(32)
            .asking(|r| r.switches = Some(Switches { count: 1, wait_s: Some(100) }))
            .with(|w| w.submit = Timestamp::from_secs(NOW.secs() - waited_s))
    };
    let busy = || {
        let mut view = tree().with_jobs([
            job(1).cpus(32).asking(|r| r.node_list = vec!["node1".to_string()]).for_min(10),
            job(2).cpus(32).asking(|r| r.node_list = vec!["node4".to_string()]).for_min(20),
        ]);
        let plan = view.plan();
        view.carry_out(&plan);
        view
    };
    assert_snapshot!(text(&busy().with_jobs([one_switch(9, 99)]).plan()), @r#"
    9 waits: Resources
    9 expected in 10 min on node1,node2,node3
    "#);
    assert_snapshot!(text(&busy().with_jobs([one_switch(9, 100)]).plan()), @r#"
    9 starts: node2 cpu 0-31 mem 1024M x1; node3 cpu 0-31 mem 1024M x1; node5 cpu 0-31 mem 1024M x1
    "#);
}

pub(super) fn below_one(id: u32, nodes: u32) -> PendingJob {
    job(id).nodes(nodes).cpus(32).asking(|r| r.one_switch = true)
}

#[test]
fn distributed_run_waits_for_one_switch_and_never_spans_two() {
    // Two nodes are free on each leaf. Another job of three nodes spans the leaves; the run waits, however long.
    let mut view = tree().with_jobs([
        job(1).cpus(32).asking(|r| r.node_list = vec!["node1".to_string()]).for_min(10),
        job(2).cpus(32).asking(|r| r.node_list = vec!["node4".to_string()]).for_min(20),
    ]);
    let plan = view.plan();
    view.carry_out(&plan);
    let long_ago = Timestamp::from_secs(NOW.secs() - 1_000_000);
    let run = below_one(9, 3).with(|w| w.submit = long_ago);
    assert_snapshot!(text(&view.clone().with_jobs([run]).plan()), @r#"
    9 waits: Resources
    9 expected in 10 min on node1,node2,node3
    "#);
    let other = job(9).nodes(3).cpus(32);
    assert_snapshot!(text(&view.clone().with_jobs([other]).plan()), @r#"
    9 starts: node2 cpu 0-31 mem 1024M x1; node3 cpu 0-31 mem 1024M x1; node5 cpu 0-31 mem 1024M x1
    "#);
    assert_snapshot!(text(&view.with_jobs([below_one(9, 2)]).plan()), @r#"
    9 starts: node2 cpu 0-31 mem 1024M x1; node3 cpu 0-31 mem 1024M x1
    "#);
}

#[test]
fn distributed_run_is_below_the_lowest_switch_that_is_large_enough() {
    // No leaf has four nodes, so the root is the lowest switch for it.
    assert_snapshot!(text(&tree().with_jobs([below_one(9, 4)]).plan()), @r#"
    9 starts: node1 cpu 0-31 mem 1024M x1; node2 cpu 0-31 mem 1024M x1; node3 cpu 0-31 mem 1024M x1; node4 cpu 0-31 mem 1024M x1
    "#);
    // The topology is optional for others, not for it.
    let mut view = tree();
    let mut topology = (**view.topology.as_ref().expect("a tree")).clone();
    topology.optional = true;
    view.topology = Some(Arc::new(topology));
    let first = job(1).cpus(32).asking(|r| r.node_list = vec!["node1".to_string()]);
    assert_snapshot!(text(&view.with_jobs([first, below_one(9, 3)]).plan()), @r#"
    1 starts: node1 cpu 0-31 mem 1024M x1
    9 starts: node4 cpu 0-31 mem 1024M x1; node5 cpu 0-31 mem 1024M x1; node6 cpu 0-31 mem 1024M x1
    "#);
}

/// The leaves without the root: two networks.
fn two_trees() -> View {
    let mut view = tree();
    let mut topology = (**view.topology.as_ref().expect("a tree")).clone();
    topology.switches.retain(|switch| switch.name != "root");
    view.topology = Some(Arc::new(topology));
    view
}

#[test]
fn distributed_run_that_no_switch_can_hold_is_refused_at_submit() {
    let refusal = |view: &View, nodes: u32| {
        let run = below_one(9, nodes);
        let refused = crate::query::feasible::check(view, &run.spec, "", &run.partitions);
        refused.err().map(|why| why.to_string())
    };
    let never = "no node can ever satisfy the request: 4 nodes below one switch, the largest has 3 that fit";
    assert_eq!(refusal(&two_trees(), 4).as_deref(), Some(never));
    assert_eq!(refusal(&two_trees(), 3), None);
    assert_eq!(refusal(&tree(), 6), None);
    assert_eq!(refusal(&cluster(gpu_nodes(6)), 6), None, "without a topology all is one network");
    // Where a topology comes later, it says that nothing will ever do.
    let plan = two_trees().with_jobs([below_one(9, 4)]).plan();
    assert_eq!(text(&plan), "9 waits: BadConstraints\n");
}

#[test]
fn nodes_of_a_fleet_over_ssh_are_one_network_beside_the_topology() {
    let mut view = tree();
    for node in &mut view.nodes[3..] {
        Arc::make_mut(&mut Arc::make_mut(node).config).fleet = "lab".to_string();
    }
    let mut topology = (**view.topology.as_ref().expect("a tree")).clone();
    topology.switches.retain(|switch| switch.name == "left");
    view.topology = Some(Arc::new(topology));
    assert_snapshot!(text(&view.clone().with_jobs([below_one(1, 3), below_one(2, 3)]).plan()), @r#"
    1 starts: node1 cpu 0-31 mem 1024M x1; node2 cpu 0-31 mem 1024M x1; node3 cpu 0-31 mem 1024M x1
    2 starts: node4 cpu 0-31 mem 1024M x1; node5 cpu 0-31 mem 1024M x1; node6 cpu 0-31 mem 1024M x1
    "#);
    assert_eq!(text(&view.with_jobs([below_one(1, 4)]).plan()), "1 waits: BadConstraints\n");
}

#[test]
fn distributed_run_is_in_one_block_or_where_none_is_large_enough_in_several() {
    let mut view = two_trees();
    let mut topology = (**view.topology.as_ref().expect("a tree")).clone();
    topology.block_sizes = vec![3];
    view.topology = Some(Arc::new(topology));
    let first = || job(1).cpus(32).asking(|r| r.node_list = vec!["node1".to_string()]);
    assert_snapshot!(text(&view.clone().with_jobs([first(), below_one(2, 3)]).plan()), @r#"
    1 starts: node1 cpu 0-31 mem 1024M x1
    2 starts: node4 cpu 0-31 mem 1024M x1; node5 cpu 0-31 mem 1024M x1; node6 cpu 0-31 mem 1024M x1
    "#);
    let plan = view.with_jobs([below_one(2, 4)]).plan();
    assert!(text(&plan).starts_with("2 starts: node1"), "{}", text(&plan));
}

#[test]
fn licenses_are_counted() {
    let mut view = cluster(gpu_nodes(1));
    view.licenses = vec![("matlab".to_string(), 3)];
    let with = |id: u32, name: &str, count| {
        job(id).asking(|r| r.licenses = vec![(name.to_string(), count)])
    };
    let view = view.with_jobs([with(1, "matlab", 2), with(2, "matlab", 2), with(3, "matlab", 1)]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 starts: node1 cpu 0 mem 1024M x1
    3 starts: node1 cpu 1 mem 1024M x1
    2 waits: Licenses
    "#);
}

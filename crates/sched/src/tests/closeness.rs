//! Cores close to devices, nodes close to each other, and licenses.

use crate::testing::*;
use crate::view::View;
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
fn tree() -> View {
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

//! Nodes that are powered down: jobs may have them, and begin later.

use crate::testing::*;
use crate::view::{Availability, View};
use crate::{Memo, estimates};
use std::sync::Arc;

fn powered(mut view: View, states: &[Availability]) -> View {
    for (node, state) in view.nodes.iter_mut().zip(states) {
        Arc::make_mut(node).availability = *state;
    }
    view
}

const STATES: [Availability; 4] = [
    Availability::PoweredDown,
    Availability::PoweringUp,
    Availability::Available,
    Availability::Reconciling,
];

#[test]
fn nodes_that_are_up_come_first_then_those_that_come_up_then_those_that_are_off() {
    let view = powered(cluster(gpu_nodes(4)), &STATES);
    let jobs = (1..=4).map(|id| job(id).cpus(32));
    let plan = view.with_jobs(jobs).plan();
    let nodes: Vec<&str> =
        plan.starts.iter().flat_map(|start| start.allocation.node_names()).collect();
    assert_eq!(nodes, ["node3", "node2", "node1"], "one that goes down takes nothing");
    let all = powered(cluster(gpu_nodes(4)), &STATES);
    let two = all.with_jobs([job(1).cpus(32).nodes(2)]);
    let plan = two.plan();
    let nodes: Vec<&str> = plan.starts[0].allocation.node_names().collect();
    assert_eq!(nodes, ["node2", "node3"]);
}

#[test]
fn weight_counts_among_nodes_of_the_same_power() {
    let mut nodes = gpu_nodes(3);
    (nodes[0].weight, nodes[1].weight, nodes[2].weight) = (5, 1, 9);
    let off = Availability::PoweredDown;
    let view = powered(cluster(nodes), &[off, off, Availability::Available]);
    let plan = view.with_jobs((1..=3).map(|id| job(id).cpus(32))).plan();
    let nodes: Vec<&str> =
        plan.starts.iter().flat_map(|start| start.allocation.node_names()).collect();
    assert_eq!(nodes, ["node3", "node2", "node1"]);
}

#[test]
fn estimate_on_a_node_that_is_off_is_later_by_the_time_that_it_may_take_to_boot() {
    let mut view = powered(cluster(gpu_nodes(1)), &[Availability::PoweredDown]);
    view.policy.resume_timeout_s = 300;
    let view = view.with_jobs([job(1).with(|w| w.begin = Some(after_min(10)))]);
    let minutes: Vec<_> = estimates(&view, NOW, &mut Memo::default())
        .into_iter()
        .map(|e| (e.start.secs() - NOW.secs()) / 60)
        .collect();
    assert_eq!(minutes, [15]);
}

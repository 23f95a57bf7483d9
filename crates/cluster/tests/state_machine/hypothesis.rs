//! The state as it would be under another configuration.

use crate::job_builder::{ask, root};
use crate::testbed::{config, world};
use cluster::Context;

#[test]
fn configuration_that_is_asked_about_changes_a_copy_and_brings_its_nodes_up() {
    let mut world = world(1);
    let first = world.started(ask().cpus(8)).job;
    let second = world.submit(ask().cpus(8));
    let context = Context { now: world.now, random: 1, by: root() };
    let before = world.state.clone();
    let larger = world.state.under(config(&["n1", "n2"]), &context).expect("a configuration");
    assert_eq!(world.state, before);
    let view = cluster::view::view(&larger, world.now);
    let plan = sched::plan(&view, world.now, &mut sched::Memo::default());
    let starts: Vec<_> = plan.starts.iter().map(|start| start.job).collect();
    assert_eq!(starts, [second]);
    assert_eq!(plan.starts[0].allocation.nodes[0].node, "n2");
    assert!(larger.job(first).is_some_and(|job| job.attempt().is_some()), "it runs on");
}

//! Long queues of few shapes: each shape is worked out once, and nothing is looked for where
//! nothing is free.

use crate::testing::*;
use crate::{Memo, plan};
use model::request::Per;

#[test]
fn a_long_queue_fills_the_cluster_and_waits() {
    let arrays = (1..=10).map(|id| job(id).gpus(Per::Node, 1).with(|w| w.tasks = 5_000));
    let singles =
        (11..20_011).map(|id| job(id).gpus(Per::Node, u64::from(id % 4)).for_min(id % 7 + 1));
    let view = cluster(gpu_nodes(500)).with_jobs(arrays.chain(singles));
    let plan = view.plan();
    let gpus = |start: &crate::Start| start.allocation.nodes[0].gres_count("gpu");
    assert_eq!(plan.starts.iter().map(gpus).sum::<u64>(), 4_000);
    // Jobs without GPUs start until the CPUs are gone.
    let cpus: u32 = plan.starts.iter().map(|s| s.allocation.cpu_count()).sum();
    let without = view.queue.iter().filter(|w| w.spec.request().gres[0].count.min == 0).count();
    assert_eq!(cpus as usize, 4_000 + without);
    assert_eq!(plan.reasons.len() + without, 20_010);
}

/// Each job has a length of its own, so that no two are of one shape: what an earlier plan knows of them settles most at once.
#[test]
fn a_long_queue_of_many_lengths_is_planned_alike_with_and_without_a_memo() {
    let jobs = (1..=150).map(|id| job(id).nodes(id % 3 + 1).cpus(4 + id % 29).for_min(10 + id));
    let mut view = cluster(gpu_nodes(8)).with_jobs(jobs);
    view.policy.backfill_slots_max = 1;
    let mut memo = Memo::default();
    while !view.queue.is_empty() {
        let known = plan(&view, NOW, &mut memo);
        assert_eq!(text(&known), text(&view.plan()));
        view.carry_out(&known);
        view.running.sort_by_key(|running| running.job);
        assert!(!view.running.is_empty(), "nothing runs and {} wait", view.queue.len());
        // Short and long jobs end in turn.
        view.end(view.queue.len() % view.running.len());
    }
}

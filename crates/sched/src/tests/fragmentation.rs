//! Placement among equal fits: what typical jobs could not use any more decides.

use crate::testing::*;
use crate::view::{PendingJob, TypicalGpus, TypicalJob};
use model::request::Per;
use std::sync::Arc;

fn typical(cpus: u32, gpus: u64) -> TypicalJob {
    let gpus = TypicalGpus::Whole(gpus);
    TypicalJob { cpus, memory_mib: 1_024, gpus, kinds: Vec::new(), weight: 1 }
}

/// The node that this job gets of two of eight GPUs, one of which a job has on the second.
fn node_of(job_2: PendingJob, typical_jobs: Vec<TypicalJob>) -> String {
    let on_second = |job: PendingJob| job.asking(|r| r.node_list = vec!["node2".to_string()]);
    let first = on_second(job(1).gpus(Per::Node, 1));
    let mut view = cluster(gpu_nodes(2)).with_jobs([first]);
    let plan = view.plan();
    view.carry_out(&plan);
    view.typical_jobs = Arc::new(typical_jobs);
    let plan = view.with_jobs([job_2]).plan();
    plan.starts[0].allocation.nodes[0].node.clone()
}

#[test]
fn job_takes_the_gpu_whose_loss_typical_jobs_feel_least() {
    let one_gpu = || job(2).gpus(Per::Node, 1);
    assert_eq!(node_of(one_gpu(), vec![]), "node1", "the first in order");
    assert_eq!(node_of(one_gpu(), vec![typical(8, 8)]), "node2", "the other stays whole");
}

/// A node on which a GPU is taken is filled before one on which none is, whatever jobs are typical.
#[test]
fn job_takes_the_node_with_the_fewest_gpus_left_where_nothing_is_lost() {
    assert_eq!(node_of(job(2).gpus(Per::Node, 1), vec![typical(1, 1)]), "node2");
    assert_eq!(node_of(job(2).cpus(1), vec![typical(1, 1)]), "node2");
}

#[test]
fn job_that_any_gpu_serves_leaves_those_of_the_kind_that_weighs_more() {
    let node_of = |weights: [u32; 2]| {
        let mut nodes = gpu_nodes(2);
        nodes[0].gres = vec![gpus("a100", 8, 0)];
        let mut view = cluster(nodes).with_jobs([job(1).gpus(Per::Node, 1)]);
        let of_kind = |kind: &str, weight: u32| {
            let kinds = vec![kind.to_string()];
            TypicalJob { kinds, weight, ..typical(1, 1) }
        };
        view.typical_jobs =
            Arc::new(vec![of_kind("a100", weights[0]), of_kind("h100", weights[1])]);
        let plan = view.plan();
        plan.starts[0].allocation.nodes[0].node.clone()
    };
    assert_eq!(node_of([1, 2]), "node1");
    assert_eq!(node_of([2, 1]), "node2");
}

#[test]
fn job_without_gpus_leaves_the_cpus_that_go_with_them() {
    let cpus = || job(2).cpus(4);
    assert_eq!(node_of(cpus(), vec![]), "node1");
    assert_eq!(node_of(cpus(), vec![typical(32, 8)]), "node2");
}

#[test]
fn weight_counts_before_what_is_lost() {
    let heavy = |view: &mut crate::View| {
        let node = Arc::make_mut(&mut view.nodes[1]);
        Arc::make_mut(&mut node.config).weight = 9;
    };
    let mut view = cluster(gpu_nodes(2));
    heavy(&mut view);
    view.typical_jobs = Arc::new(vec![typical(8, 8)]);
    let plan = view.with_jobs([job(1).gpus(Per::Node, 1), job(2).gpus(Per::Node, 1)]).plan();
    let nodes = plan.starts.iter().map(|start| start.allocation.nodes[0].node.as_str());
    assert_eq!(nodes.collect::<Vec<_>>(), ["node1", "node1"]);
}

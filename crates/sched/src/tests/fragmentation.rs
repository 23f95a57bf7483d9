//! Placement among equal fits: what typical jobs could not use any more decides.

use crate::Memo;
use crate::testing::*;
use crate::view::{PendingJob, TypicalGpus, TypicalJob};
use model::amount::Bytes;
use model::id::JobId;
use model::node::{NodeConfig, NodeGres};
use model::range::Range;
use model::request::{GresRequest, Memory, Per};
use proptest::prelude::*;
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

/// Nodes of two kinds whose GPUs are granted whole or in tenths.
fn nodes_with_shares() -> Vec<NodeConfig> {
    let mut nodes = gpu_nodes(4);
    for (at, node) in nodes.iter_mut().enumerate() {
        let (kind, count) = if at % 2 == 0 { ("h100", 2) } else { ("a100", 3) };
        let share =
            |gpu| NodeGres { share_of: Some(gpu), ..NodeGres::plain("shard", Some(kind), 10) };
        node.gres = vec![gpus(kind, count, 0)];
        node.gres.extend((0..count as u32).map(share));
    }
    nodes
}

/// Jobs of the sorts that a step of the test below may bring.
fn job_of_sort(id: u32, sort: u32, count: u64) -> PendingJob {
    let shares = |kinds: &[&str]| GresRequest {
        name: "shard".to_string(),
        ..gpu_request(Per::Node, kinds, 2 * count)
    };
    match sort {
        0 => job(id).cpus(3 * count as u32),
        1 => job(id).gpus(Per::Node, count),
        2 => job(id).asking(|r| r.gres.push(shares(&[]))),
        3 => job(id).asking(|r| r.gres.push(shares(&["a100"]))),
        _ => job(id).asking(|r| r.gres.push(shares(&["a100", "h100"]))).cpus(4),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, failure_persistence: None, ..ProptestConfig::default() })]

    /// Several jobs come at once, so that a plan also finds nodes of which it has taken something.
    #[test]
    fn plans_that_remember_what_is_lost_are_those_made_from_nothing(
        steps in proptest::collection::vec(
            (proptest::collection::vec((0u32..5, 1u64..=4), 0..4), 0usize..8, 0usize..8),
            1..24,
        ),
    ) {
        let shares = TypicalJob { gpus: TypicalGpus::Shares(4), weight: 3, ..typical(2, 0) };
        let rare = TypicalJob { kinds: vec!["a100".to_string()], ..typical(1, 1) };
        let tables = [
            vec![],
            vec![typical(4, 1), typical(8, 2)],
            vec![shares.clone(), typical(8, 1)],
            vec![rare, shares],
        ];
        let tables = tables.map(Arc::new);
        let mut view = cluster(nodes_with_shares());
        let mut memo = Memo::default();
        let mut id = 0;
        for (jobs, ended, table) in steps {
            // Mostly the same jobs stay typical.
            if let Some(table) = tables.get(table) {
                view.typical_jobs = table.clone();
            }
            for (sort, count) in jobs {
                id += 1;
                view = view.with_jobs([job_of_sort(id, sort, count)]);
            }
            let plan = crate::plan(&view, NOW, &mut memo);
            prop_assert_eq!(&plan, &view.plan());
            view.carry_out(&plan);
            if ended < view.running.len() {
                view.end(ended);
            }
            view.running.sort_by_key(|running| running.job);
            view.queue.retain(|waiting| waiting.job > JobId(id.saturating_sub(6)));
        }
    }
}

/// What is lost is worked out again only for the node that changed.
#[test]
fn nodes_that_did_not_change_are_not_worked_out_again() {
    let mut view = cluster(gpu_nodes(6));
    view.typical_jobs = Arc::new(vec![typical(4, 1), typical(8, 2)]);
    let mut memo = Memo::default();
    let mut worked_out = Vec::new();
    for id in 1..=4 {
        view = view.with_jobs([job(id).gpus(Per::Node, 2)]);
        let plan = crate::plan(&view, NOW, &mut memo);
        assert_eq!(plan, view.plan());
        view.carry_out(&plan);
        worked_out.push(memo.gpu_losses.worked_out());
    }
    // At first one state for all six nodes; then the new one of the node on which the last job started.
    assert_eq!(worked_out, [1, 2, 3, 4]);
}

/// A node of which another amount is free in each plan.
#[test]
fn what_is_lost_in_states_of_before_is_forgotten_once_there_are_many() {
    const PLANS: u32 = 1_500;
    let mut view = cluster(gpu_nodes(1));
    view.typical_jobs = Arc::new(vec![typical(4, 1)]);
    let mut memo = Memo::default();
    for id in 1..=PLANS {
        let memory = Memory::PerNode(Range::exactly(Bytes::from_mib(u64::from(id))));
        view = view.with_jobs([job(id).gpus(Per::Node, 1).asking(|r| r.memory = memory)]);
        let plan = crate::plan(&view, NOW, &mut memo);
        view.carry_out(&plan);
        if id > 1 {
            view.end(0);
        }
    }
    assert!(memo.gpu_losses.worked_out() < PLANS as usize);
    let view = view.with_jobs([job(PLANS + 1).gpus(Per::Node, 1)]);
    assert_eq!(crate::plan(&view, NOW, &mut memo), view.plan());
}

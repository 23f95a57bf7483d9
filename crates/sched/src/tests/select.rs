//! What is granted whole, which jobs share cores, and which nodes are chosen together.

use super::devices::wanting;
use crate::testing::*;
use crate::view::View;
use insta::assert_snapshot;
use model::amount::Bytes;
use model::constraint::Constraint;
use model::node::{NodeConfig, NodeGres};
use model::partition::{DefaultMemory, OverSubscribe};
use model::range::Range;
use model::request::{Grant, Memory, Per, Sharing};
use model::select::{PartitionSelect, Select, Unit};
use model::topology::{Switch, Topology};
use proptest::prelude::*;
use std::sync::Arc;

/// Two sockets of four cores of two threads: 16 CPUs.
pub fn threaded(name: &str) -> NodeConfig {
    let mut node = NodeConfig::plain(name, 16, Bytes::from_mib(16_000));
    (node.sockets, node.cores_per_socket, node.threads_per_core) = (2, 4, 2);
    node
}

fn nodes(count: u32) -> Vec<NodeConfig> {
    (1..=count).map(|at| threaded(&format!("n{at}"))).collect()
}

fn granting(unit: Unit) -> View {
    let mut view = cluster(nodes(2));
    view.policy.select = Select { unit, ..Select::default() };
    view
}

fn tasks(id: u32, count: u32) -> crate::view::PendingJob {
    job(id).asking(|r| r.tasks = Some(count))
}

#[test]
fn cpus_cores_sockets_and_nodes_are_granted_as_a_whole() {
    let plan = |unit| {
        let view = granting(unit).with_jobs([tasks(1, 1), tasks(2, 3), tasks(3, 5)]);
        text(&view.plan())
    };
    assert_snapshot!(plan(Unit::Cpu), @r"
    1 starts: n1 cpu 0 mem 1024M x1
    2 starts: n1 cpu 2-4 mem 1024M x3
    3 starts: n1 cpu 6-10 mem 1024M x5
    ");
    assert_snapshot!(plan(Unit::Core), @r"
    1 starts: n1 cpu 0-1 mem 1024M x1
    2 starts: n1 cpu 2-5 mem 1024M x3
    3 starts: n1 cpu 6-11 mem 1024M x5
    ");
    assert_snapshot!(plan(Unit::Socket), @r"
    1 starts: n1 cpu 0-7 mem 1024M x1
    2 starts: n1 cpu 8-15 mem 1024M x3
    3 starts: n2 cpu 0-7 mem 1024M x5
    ");
    assert_snapshot!(plan(Unit::Node), @r"
    1 starts: n1 cpu 0-15 mem 1024M x1
    2 starts: n2 cpu 0-15 mem 1024M x3
    3 waits: Resources
    3 expected in 60 min on n1
    ");
}

#[test]
fn partition_may_have_its_own_select_parameters() {
    let mut view = granting(Unit::Socket).with_main(|p| {
        p.select = Some(PartitionSelect { unit: Unit::Core, memory: false });
    });
    view = view.with_jobs([tasks(1, 1), tasks(2, 1)]);
    // Its memory is not counted: it only leaves out nodes that have less.
    assert_snapshot!(text(&view.plan()), @r"
    1 starts: n1 cpu 0-1 mem 0M x1
    2 starts: n1 cpu 2-3 mem 0M x1
    ");
    let large = |id| {
        tasks(id, 1).asking(|r| r.memory = Memory::PerNode(Range::exactly(Bytes::from_mib(16_000))))
    };
    view.queue.clear();
    let view = view.with_jobs([large(3), large(4)]);
    assert_eq!(view.plan().starts.len(), 2, "{}", text(&view.plan()));
    let view = granting(Unit::Core)
        .with_main(|p| p.select = Some(PartitionSelect { unit: Unit::Core, memory: false }))
        .with_jobs([
            large(5).asking(|r| r.memory = Memory::PerNode(Range::exactly(Bytes::from_gib(99))))
        ]);
    assert!(view.plan().starts.is_empty());
}

#[test]
fn forced_sharing_puts_that_many_jobs_on_a_core() {
    let view = cluster(nodes(1))
        .with_main(|p| p.over_subscribe = OverSubscribe::Force(2))
        .with_jobs((1..=5).map(|id| tasks(id, 8)));
    assert_snapshot!(text(&view.plan()), @r"
    1 starts: n1 cpu 0-7 mem 1024M x8
    2 starts: n1 cpu 8-15 mem 1024M x8
    3 starts: n1 cpu 0-7 mem 1024M x8
    4 starts: n1 cpu 8-15 mem 1024M x8
    5 waits: Resources
    5 expected in 60 min on n1
    ");
    let mut after = view.clone();
    after.carry_out(&view.plan());
    assert_eq!(after.plan().starts.len(), 0, "{}", text(&after.plan()));
    after.end(0);
    assert_snapshot!(text(&after.plan()), @"5 starts: n1 cpu 0-7 mem 1024M x8");
    // Nobody can ask to be alone, and devices are never shared.
    let mut gpus = nodes(1);
    gpus[0].gres = vec![NodeGres::plain("gpu", None, 1)];
    let view = cluster(gpus).with_main(|p| p.over_subscribe = OverSubscribe::Force(2)).with_jobs([
        tasks(1, 16).asking(|r| r.sharing = Sharing::Node),
        tasks(2, 16).gpus(Per::Node, 1),
        tasks(3, 1).gpus(Per::Node, 1),
    ]);
    let plan = view.plan();
    assert_eq!(plan.starts.len(), 2, "{}", text(&plan));
}

#[test]
fn offer_of_whole_hosts_is_one_also_where_sharing_is_forced() {
    let hosts = |id| {
        job(id).asking(|r| {
            (r.sharing, r.grant) = (Sharing::Node, Grant::Offer);
            (r.nodes, r.nodes_given, r.tasks_per_node) = (Range::exactly(2), true, Some(1));
        })
    };
    let view = cluster(nodes(2))
        .with_main(|p| p.over_subscribe = OverSubscribe::Force(2))
        .with_jobs([hosts(1), hosts(2), tasks(3, 1)]);
    let plan = view.plan();
    let started: Vec<u32> = plan.starts.iter().map(|start| start.job.0).collect();
    assert_eq!(started, [1], "{}", text(&plan));
}

#[test]
fn allowed_oversubscription_applies_to_jobs_that_ask_for_it() {
    let asks = |id| tasks(id, 16).asking(|r| r.sharing = Sharing::Oversubscribe);
    let view = cluster(nodes(2))
        .with_main(|p| p.over_subscribe = OverSubscribe::Yes(2))
        .with_jobs([asks(1), tasks(2, 16), asks(3), asks(4), tasks(5, 16)]);
    assert_snapshot!(text(&view.plan()), @r"
    1 starts: n1 cpu 0-15 mem 1024M x16
    2 starts: n2 cpu 0-15 mem 1024M x16
    3 starts: n1 cpu 0-15 mem 1024M x16
    4 waits: Resources
    5 waits: Priority
    4 expected in 60 min on n1
    5 expected in 60 min on n2
    ");
}

#[test]
fn memory_is_counted_for_jobs_that_share_cores() {
    let half = |id| {
        tasks(id, 1).asking(|r| r.memory = Memory::PerNode(Range::exactly(Bytes::from_mib(8_000))))
    };
    let view = cluster(nodes(1))
        .with_main(|p| p.over_subscribe = OverSubscribe::Force(4))
        .with_jobs([half(1), half(2), half(3)]);
    assert_eq!(view.plan().starts.len(), 2);
}

#[test]
fn cpus_are_shared_where_only_memory_is_consumed() {
    let mut view = cluster(nodes(1));
    view.policy.select = Select { shares_cpus: true, ..Select::default() };
    let view = view.with_jobs((1..=5).map(|id| tasks(id, 16)));
    assert_eq!(view.plan().starts.len(), 4, "{}", text(&view.plan()));
}

#[test]
fn job_gets_no_more_cpus_of_a_socket_than_the_partition_allows() {
    let view = cluster(nodes(1))
        .with_main(|p| p.max_cpus_per_socket = Some(4))
        .with_jobs([tasks(1, 8), tasks(2, 2)]);
    assert_snapshot!(text(&view.plan()), @r"
    1 starts: n1 cpu 0-3,8-11 mem 1024M x8
    2 starts: n1 cpu 4-5 mem 1024M x2
    ");
    let nine =
        cluster(nodes(1)).with_main(|p| p.max_cpus_per_socket = Some(4)).with_jobs([tasks(1, 9)]);
    assert!(nine.plan().starts.is_empty());
}

#[test]
fn memory_beyond_max_mem_per_cpu_takes_more_cpus() {
    let mut view = cluster(nodes(1));
    view.policy.max_memory = Some(DefaultMemory::PerCpu(Bytes::from_mib(1_000)));
    let view = view.with_jobs([
        tasks(1, 2).asking(|r| r.memory = Memory::PerCpu(Bytes::from_mib(2_500))),
        tasks(2, 1).asking(|r| r.memory = Memory::PerNode(Range::exactly(Bytes::from_mib(5_000)))),
    ]);
    assert_snapshot!(text(&view.plan()), @r"
    1 starts: n1 cpu 0-5 mem 5004M x2
    2 starts: n1 cpu 6-11 mem 5000M x1
    ");
}

#[test]
fn tasks_on_whole_nodes_are_distributed_evenly_unless_packed() {
    let ask = |id| tasks(id, 6).nodes(2).asking(|r| r.sharing = Sharing::Node);
    let mut view = cluster(nodes(2)).with_jobs([ask(1)]);
    let tasks_of = |view: &View| -> Vec<u32> {
        view.plan().starts[0].allocation.nodes.iter().map(|share| share.tasks).collect()
    };
    assert_eq!(tasks_of(&view), [3, 3]);
    view.policy.select.pack_nodes = true;
    assert_eq!(tasks_of(&view), [4, 2]);
    let shared = cluster(nodes(2)).with_jobs([tasks(1, 4).nodes(2)]);
    assert_eq!(tasks_of(&shared), [2, 2], "a core of each holds two");
}

#[test]
fn least_loaded_node_comes_first_with_lln() {
    let mut view = cluster(nodes(3)).with_main(|p| p.least_loaded = true);
    for id in 1..=4 {
        view = view.with_jobs([tasks(id, 2)]);
        let plan = view.plan();
        view.carry_out(&plan);
    }
    let on: Vec<u32> = view.running.iter().flat_map(|r| r.shares.nodes()).collect();
    assert_eq!(on, [0, 1, 2, 0]);
}

fn racks() -> View {
    let mut nodes = nodes(6);
    for (at, node) in nodes.iter_mut().enumerate() {
        node.features = vec![if at < 3 { "rack1" } else { "rack2" }.to_string()];
    }
    nodes[2].features.push("big".to_string());
    cluster(nodes)
}

fn on(view: &View) -> Vec<String> {
    let plan = view.plan();
    let Some(start) = plan.starts.first() else { return Vec::new() };
    start.allocation.node_names().map(str::to_string).collect()
}

fn with(text: &str) -> Option<Constraint> {
    Some(Constraint::parse(text).expect("it reads"))
}

#[test]
fn constraints_with_counts_alternatives_and_preferences_are_met() {
    let table: [(&str, u32, &[&str]); 8] = [
        ("rack1*2", 4, &["n1", "n2", "n3", "n4"]),
        ("rack2*2", 3, &["n1", "n4", "n5"]),
        ("[rack1*1&rack2*2]", 0, &["n1", "n4", "n5"]),
        ("[rack1*1&big*1]", 0, &["n1", "n3"]),
        ("[rack1|rack2]", 3, &["n1", "n2", "n3"]),
        ("[rack1|rack2]&big", 1, &["n3"]),
        ("(rack1|rack2)&big", 1, &["n3"]),
        ("[rack1|rack2]", 4, &[]),
    ];
    for (constraint, count, expected) in table {
        let ask = job(1).asking(|r| r.constraint = with(constraint));
        let ask = if count > 0 { ask.nodes(count) } else { ask };
        assert_eq!(on(&racks().with_jobs([ask])), expected, "{constraint} on {count}");
    }
    let wish = |count: u32, require: &str| {
        job(1).nodes(count).asking(|r| {
            r.prefer = with("rack2");
            r.constraint = (!require.is_empty()).then(|| with(require)).flatten();
        })
    };
    assert_eq!(on(&racks().with_jobs([wish(1, "")])), ["n4"]);
    assert_eq!(on(&racks().with_jobs([wish(2, "rack1")])), ["n4", "n5"]);
    // What was wished for is taken: what is required will do.
    let mut view = racks().with_jobs([job(9).nodes(6).cpus(12).asking(|r| {
        r.node_list = vec!["n4".into(), "n5".into(), "n6".into()];
        r.nodes = Range::exactly(3);
    })]);
    let plan = view.plan();
    view.carry_out(&plan);
    let busy = view.with_jobs([wish(2, "rack1").cpus(8)]);
    assert_eq!(on(&busy), ["n1", "n2"]);
}

#[test]
fn only_listed_node_counts_serve() {
    let ask = |counts: &[u32], few: bool| {
        let counts = counts.to_vec();
        job(1).cpus(16).asking(move |r| {
            let (min, max) = (counts[0], counts[counts.len() - 1]);
            (r.nodes, r.nodes_given) = (Range::between(min, max), true);
            (r.node_counts, r.fewest_nodes) = (counts, few);
        })
    };
    let five = || cluster(nodes(5));
    assert_eq!(on(&five().with_jobs([ask(&[1, 2, 4, 8], false)])).len(), 4);
    assert_eq!(on(&five().with_jobs([ask(&[2, 4, 8], true)])).len(), 2);
    assert_eq!(on(&five().with_jobs([ask(&[6, 8], false)])).len(), 0);
    let spread = job(1).asking(|r| (r.spread, r.tasks) = (true, Some(4)));
    assert_eq!(on(&five().with_jobs([spread])).len(), 4);
}

/// Six nodes in blocks of three.
fn blocks() -> View {
    let mut view = cluster(nodes(6));
    let block = |name: &str, nodes: [u32; 3]| Switch {
        name: name.into(),
        nodes: nodes.iter().map(|at| format!("n{at}")).collect(),
        ..Switch::default()
    };
    view.topology = Some(Arc::new(Topology {
        switches: vec![block("b1", [1, 2, 3]), block("b2", [4, 5, 6])],
        block_sizes: vec![3],
        ..Topology::default()
    }));
    view
}

#[test]
fn segments_stay_within_blocks() {
    let ask =
        |nodes: u32, segment: Option<u32>| job(1).nodes(nodes).asking(move |r| r.segment = segment);
    assert_eq!(on(&blocks().with_jobs([ask(4, Some(2))])), ["n1", "n2", "n4", "n5"]);
    assert_eq!(on(&blocks().with_jobs([ask(3, None)])), ["n1", "n2", "n3"]);
    assert_eq!(on(&blocks().with_jobs([ask(4, None)])).len(), 4);
    assert_eq!(on(&blocks().with_jobs([ask(6, Some(3))])).len(), 6);
    // No block has four.
    assert!(on(&blocks().with_jobs([ask(4, Some(4))])).is_empty());
}

#[test]
fn job_does_not_span_nodes_that_no_network_joins() {
    let mut view = blocks();
    let mut tree = (*view.topology.clone().expect("there is one")).clone();
    tree.block_sizes.clear();
    view.topology = Some(Arc::new(tree));
    assert_eq!(on(&view.clone().with_jobs([job(1).nodes(3)])).len(), 3);
    assert!(on(&view.clone().with_jobs([job(1).nodes(4)])).is_empty());
    // One that is spread out does not care.
    let spread = job(1).nodes(4).asking(|r| r.spread = true);
    assert_eq!(on(&view.with_jobs([spread])).len(), 4);
}

/// Two sockets where there are as many cores, and of each GPU four shares.
fn furnished(mut node: NodeConfig) -> NodeConfig {
    if node.cores_per_socket.is_multiple_of(2) {
        (node.sockets, node.cores_per_socket) = (2, node.cores_per_socket / 2);
    }
    let gpus = node.gres_total("gpu") as u32;
    let shard =
        |gpu: u32| NodeGres { share_of: Some(gpu), ..NodeGres::plain("shard", Some("h100"), 4) };
    node.gres.extend((0..gpus).map(shard));
    node
}

/// A cluster that grants in any of the ways, with jobs that share cores, and GPUs in shares.
fn any_way() -> impl Strategy<Value = View> {
    let units = [Unit::Cpu, Unit::Core, Unit::Socket, Unit::Node];
    let over = [OverSubscribe::No, OverSubscribe::Force(2), OverSubscribe::Yes(3)];
    let unit = proptest::sample::select(units.to_vec());
    let sharing =
        (proptest::sample::select(over.to_vec()), proptest::sample::select(over.to_vec()));
    let marks = proptest::collection::vec(0u8..8, 40);
    (super::properties::view(), unit, sharing, marks, any::<bool>()).prop_map(
        |(mut view, unit, (first, second), marks, memory)| {
            let furnish = |info: &mut Arc<crate::NodeInfo>| {
                let info = Arc::make_mut(info);
                info.config = Arc::new(furnished((*info.config).clone()));
                info.used = Default::default();
            };
            view.nodes.iter_mut().for_each(furnish);
            view.running.clear();
            view.policy.select = Select { unit, memory, ..Select::default() };
            for (info, over) in view.partitions.iter_mut().zip([first, second]) {
                Arc::make_mut(&mut info.partition).over_subscribe = over;
            }
            for (waiting, mark) in view.queue.iter_mut().zip(marks) {
                let changed = (**waiting).clone().asking(|r| match mark {
                    0 | 1 => r.sharing = Sharing::Oversubscribe,
                    2 => r.gres = wanting(0, "shard", 2).spec.request().gres.clone(),
                    _ => {}
                });
                *waiting = Arc::new(changed);
            }
            view
        },
    )
}

/// Two nodes of two sockets of two cores, with a partition whose jobs share sockets and one whose jobs do not. On each node jobs that
/// share are on both sockets: by the number of cores a socket is free, and none is.
#[test]
fn job_whose_sockets_are_never_whole_is_expected_where_a_plan_from_nothing_expects_it() {
    let socketed = |name: &str| {
        let mut node = NodeConfig::plain(name, 4, Bytes::from_mib(16_000));
        (node.sockets, node.cores_per_socket) = (2, 2);
        node
    };
    let mut view = cluster(vec![socketed("n1"), socketed("n2")])
        .with_main(|p| p.over_subscribe = OverSubscribe::Force(2))
        .with_partition("alone", &[0, 1], |_| {});
    view.policy.select = Select { unit: Unit::Socket, ..Select::default() };
    let on_node = |id: u32, name: &str| {
        let name = name.to_string();
        job(id).asking(move |r| r.node_list = vec![name])
    };
    let sharing = [(1, "n1"), (2, "n1"), (3, "n2"), (4, "n2"), (5, "n2")];
    let mut view = view.with_jobs(sharing.map(|(id, name)| on_node(id, name)));
    view.carry_out(&view.plan());
    assert_eq!(view.running.len(), 5);
    let mut view = view.with_jobs([job(10).with(|w| w.partitions = vec![1])]);
    let mut memo = crate::Memo::default();
    let expected = "10 waits: Resources\n10 expected in 0 min on n1\n";
    assert_eq!(text(&crate::plan(&view, NOW, &mut memo)), expected);
    // One that shares n2 ends: by the number of cores a socket of n2 is free now too.
    view.end(4);
    assert_eq!(text(&crate::plan(&view, NOW, &mut memo)), expected);
    assert_eq!(text(&view.plan()), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Carrying a plan out checks every share: no core beyond as many jobs as share it, no GPU in both forms.
    #[test]
    fn nothing_is_granted_beyond_what_is_free_with_any_select_parameters(view in any_way()) {
        let mut memo = crate::Memo::default();
        let mut after = view;
        for round in 0..3 {
            let plan = crate::plan(&after, NOW, &mut memo);
            let anew = after.plan();
            prop_assert_eq!(text(&plan), text(&anew), "round {}", round);
            after.carry_out(&plan);
            if !after.running.is_empty() {
                after.end(0);
            }
        }
    }
}

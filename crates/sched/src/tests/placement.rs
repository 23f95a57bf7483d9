//! Where jobs go: golden plans.

use crate::testing::*;
use crate::view::{PendingJob, View};
use insta::assert_snapshot;
use model::amount::Bytes;
use model::constraint::Constraint;
use model::cpuset::CpuSet;
use model::node::{Architecture, NodeConfig, NodeGres};
use model::partition::DefaultMemory;
use model::range::Range;
use model::request::{Grant, Memory, Per, Sharing};

fn two() -> View {
    cluster(gpu_nodes(2))
}

fn plan_text(view: &View) -> String {
    text(&view.plan())
}

#[test]
fn a_job_gets_the_lowest_cores_and_devices_that_are_free() {
    let view =
        two().with_jobs([job(1).cpus(4).gpus(Per::Node, 2), job(2).gpus(Per::Node, 1), job(3)]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0-3 mem 1024M gpu:h100[0, 1] x1
    2 starts: node1 cpu 4 mem 1024M gpu:h100[2] x1
    3 starts: node1 cpu 5 mem 1024M x1
    "#);
}

#[test]
fn tasks_are_distributed_in_blocks_with_one_for_every_node() {
    let view = two().with_jobs([
        job(1).nodes(2).cpus(2).asking(|r| r.tasks = Some(4)),
        job(2).nodes(2).asking(|r| r.tasks_per_node = Some(2)).gpus(Per::Node, 2),
        job(3).asking(|r| r.tasks = Some(40)),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0-5 mem 1024M x3; node2 cpu 0-1 mem 1024M x1
    2 starts: node1 cpu 6-7 mem 1024M gpu:h100[0, 1] x2; node2 cpu 2-3 mem 1024M gpu:h100[0, 1] x2
    3 starts: node1 cpu 8-31 mem 1024M x24; node2 cpu 4-19 mem 1024M x16
    "#);
}

#[test]
fn job_without_a_node_count_gets_the_fewest_nodes_and_a_range_the_most() {
    let view = cluster(gpu_nodes(4)).with_jobs([
        job(1).asking(|r| r.tasks = Some(33)),
        job(2).asking(|r| (r.nodes, r.nodes_given) = (Range::between(2, 3), true)),
        job(3).gpus(Per::Job, 17),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0-31 mem 1024M x32; node2 cpu 0 mem 1024M x1
    2 starts: node2 cpu 1 mem 1024M x1; node3 cpu 0 mem 1024M x1; node4 cpu 0 mem 1024M x1
    3 starts: node2 cpu 2 mem 1024M gpu:h100[0, 1, 2, 3, 4, 5, 6, 7] x1; node3 cpu 1 mem 1024M gpu:h100[0, 1, 2, 3, 4, 5, 6, 7] x1; node4 cpu 1 mem 1024M gpu:h100[0] x1
    "#);
}

#[test]
fn gpus_per_task_and_cpus_per_gpu_follow_the_tasks() {
    let view = two().with_jobs([job(1).gpus(Per::Job, 2).gpus(Per::Task, 1).asking(|r| {
        r.tasks = Some(2);
        r.cpus_per_gpu = Some(2);
        r.memory = Memory::PerGpu(Bytes::from_gib(1));
    })]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0-3 mem 2048M gpu:h100[0, 1] x2
    "#);
}

#[test]
fn devices_close_to_the_granted_cores_are_taken_first() {
    let mut node = gpu_node("node1");
    let near = |first: u32, cores: &str| {
        let mut line = gpus("h100", 4, first);
        line.cores = Some(cores.parse::<CpuSet>().unwrap());
        line
    };
    node.gres = vec![near(0, "16-31"), near(4, "0-15")];
    let view = cluster(vec![node]).with_jobs([
        job(1).gpus(Per::Node, 2),
        job(2).cpus(16).gpus(Per::Node, 1),
        job(3).cpus(8).gpus(Per::Node, 2),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0 mem 1024M gpu:h100[4, 5] x1
    2 starts: node1 cpu 16-31 mem 1024M gpu:h100[0] x1
    3 starts: node1 cpu 1-8 mem 1024M gpu:h100[6, 7] x1
    "#);
}

#[test]
fn untyped_gpu_request_leaves_a_kind_to_those_who_ask_for_it() {
    let mut node = gpu_node("node1");
    node.gres = vec![gpus("h100", 1, 0), gpus("a100", 2, 1)];
    let view = cluster(vec![node]).with_jobs([
        job(1).asking(|r| {
            r.gres = vec![gpu_request(Per::Node, &[], 1), gpu_request(Per::Node, &["A100"], 2)]
        }),
        job(2).asking(|r| r.gres = vec![gpu_request(Per::Node, &["a100"], 1)]),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0 mem 1024M gpu:h100[0] gpu:a100[1, 2] x1
    2 waits: Resources
    2 expected in 60 min on node1
    "#);
}

#[test]
fn cores_are_granted_whole() {
    let mut node = NodeConfig::plain("smt", 16, Bytes::from_gib(16));
    (node.cores_per_socket, node.threads_per_core) = (8, 2);
    let view = cluster(vec![node]).with_jobs([
        job(1),
        job(2).cpus(3),
        job(3).cpus(2).asking(|r| r.threads_per_core = Some(1)),
        job(4).asking(|r| (r.tasks, r.tasks_per_core) = (Some(2), Some(1))),
        job(5).asking(|r| r.memory = Memory::PerCpu(Bytes::from_gib(1))),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: smt cpu 0-1 mem 1024M x1
    2 starts: smt cpu 2-5 mem 1024M x1
    3 starts: smt cpu 6-9 mem 1024M x1
    4 starts: smt cpu 10-13 mem 1024M x2
    5 starts: smt cpu 14-15 mem 2048M x1
    "#);
}

#[test]
fn default_memory_is_the_partitions_then_the_clusters_then_the_nodes() {
    let unsaid = |id| job(id).cpus(4).asking(|r| r.memory = Memory::Default);
    let granted =
        |view: View| view.with_jobs([unsaid(1)]).plan().starts[0].allocation.nodes[0].memory.mib();
    let partition = |default| two().with_main(|p| p.default_memory = Some(default));
    let policy = |default| {
        let mut view = two();
        view.policy.default_memory = Some(default);
        view
    };
    assert_eq!(granted(two()), 128_000);
    assert_eq!(granted(partition(DefaultMemory::PerCpu(Bytes::from_mib(100)))), 400);
    assert_eq!(granted(partition(DefaultMemory::PerNode(Bytes::from_mib(300)))), 300);
    assert_eq!(granted(partition(DefaultMemory::PerGpu(Bytes::from_mib(300)))), 128_000);
    assert_eq!(granted(policy(DefaultMemory::PerCpu(Bytes::from_mib(50)))), 200);
    let mut by_core = two();
    by_core.policy.memory_by_core = true;
    assert_eq!(granted(by_core), 128_000 / 32 * 4);
}

#[test]
fn nodes_are_chosen_by_name_exclusion_feature_and_weight() {
    let mut nodes = gpu_nodes(4);
    nodes[0].weight = 10;
    nodes[3].features = vec!["ib".to_string()];
    let view = cluster(nodes).with_jobs([
        job(1),
        job(2).asking(|r| r.node_list = vec!["node3".to_string()]),
        job(3).nodes(2).asking(|r| r.node_list = vec!["node3".to_string()]),
        job(4).asking(|r| r.exclude = vec!["node3".to_string(), "node2".to_string()]),
        job(5).asking(|r| r.constraint = Some(Constraint::parse("ib").unwrap())),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node2 cpu 0 mem 1024M x1
    2 starts: node3 cpu 0 mem 1024M x1
    3 starts: node2 cpu 1 mem 1024M x1; node3 cpu 1 mem 1024M x1
    4 starts: node4 cpu 0 mem 1024M x1
    5 starts: node4 cpu 1 mem 1024M x1
    "#);
}

#[test]
fn nodes_are_of_a_pool_and_of_an_architecture() {
    let mut nodes = gpu_nodes(4);
    nodes[0].architecture = Some(Architecture::X86);
    nodes[1].architecture = Some(Architecture::Arm);
    let names = |names: &[&str]| names.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    let view = cluster(nodes).with_jobs([
        job(1).asking(|r| r.architecture = Some(Architecture::Arm)),
        job(2).asking(|r| r.architecture = Some(Architecture::X86)),
        job(3).asking(|r| r.node_pool = names(&["node4", "node3"])),
        job(4).nodes(2).asking(|r| r.node_pool = names(&["node2", "node4", "node1"])),
        job(5).asking(|r| {
            r.node_pool = names(&["node3", "node4"]);
            r.node_list = names(&["node4"]);
        }),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node2 cpu 0 mem 1024M x1
    2 starts: node1 cpu 0 mem 1024M x1
    3 starts: node3 cpu 0 mem 1024M x1
    4 starts: node1 cpu 1 mem 1024M x1; node2 cpu 1 mem 1024M x1
    5 starts: node4 cpu 0 mem 1024M x1
    "#);
}

#[test]
fn an_exclusive_job_has_the_node_to_itself() {
    let view = two().with_jobs([
        job(1),
        job(2).asking(|r| r.sharing = Sharing::Node),
        job(3).asking(|r| r.sharing = Sharing::Node),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0 mem 1024M x1
    2 starts: node2 cpu 0-31 mem 1024M gpu:h100[0, 1, 2, 3, 4, 5, 6, 7] x1
    3 waits: Resources
    3 expected in 60 min on node1
    "#);
}

#[test]
fn node_exclusive_to_a_user_takes_no_other_users_jobs() {
    let view = cluster(gpu_nodes(1)).with_jobs([
        job(1).of_user(7).asking(|r| r.sharing = Sharing::User),
        job(2).of_user(8),
        job(3).of_user(7),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0 mem 1024M x1
    3 starts: node1 cpu 1 mem 1024M x1
    2 waits: Resources
    2 expected in 60 min on node1
    "#);
}

#[test]
fn an_offer_is_the_smallest_number_of_blocks_clipped_to_the_ranges() {
    let offer = |id: u32, cpus: Range<u32>, memory: Range<Bytes>, gpus: Option<Range<u64>>| {
        job(id).asking(|r| {
            r.grant = Grant::Offer;
            r.cpus_per_task = cpus;
            r.memory = Memory::PerNode(memory);
            if let Some(count) = gpus {
                let mut request = gpu_request(Per::Node, &[], 1);
                request.count = count;
                r.gres = vec![request];
            }
        })
    };
    let open = Range::at_least(Bytes::from_gib(8));
    let view = two().with_jobs([
        offer(1, Range::at_least(2), open, Some(Range::exactly(1))),
        offer(2, Range::at_least(6), open, Some(Range::between(1, 4))),
        offer(3, Range::exactly(2), Range::exactly(Bytes::from_gib(8)), Some(Range::exactly(1))),
        offer(4, Range::at_least(2), Range::at_least(Bytes::from_gib(40)), None),
    ]);
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node1 cpu 0-3 mem 16000M gpu:h100[0] x1
    2 starts: node1 cpu 4-11 mem 32000M gpu:h100[1, 2] x1
    3 starts: node1 cpu 12-13 mem 8192M gpu:h100[3] x1
    4 starts: node1 cpu 14-25 mem 48000M x1
    "#);
}

/// A run that asks for so much memory of its GPUs together, within a range of counts.
fn by_memory(id: u32, count: Range<u64>, total_gib: Range<u64>) -> PendingJob {
    job(id).asking(|r| {
        r.grant = Grant::Offer;
        r.memory = Memory::PerNode(Range::at_least(Bytes::from_gib(1)));
        let mut request = gpu_request(Per::Node, &[], 1);
        (request.count, request.total_memory) =
            (count, Some(total_gib.map(|n| Bytes::from_gib(*n))));
        r.gres = vec![request];
    })
}

#[test]
fn offer_has_as_many_gpus_as_have_the_memory_together() {
    let any = || Range::at_least(1);
    let of_80 =
        || vec![NodeGres { device_memory: Some(Bytes::from_gib(80)), ..gpus("h100", 8, 0) }];
    // What the kind says counts where nobody has measured; a size that nobody knows serves nothing.
    let mixed = || vec![gpus("a100_40gb", 4, 0), gpus("h100_80gb", 4, 4)];
    let unknown = || vec![gpus("card", 8, 0)];
    let table = [
        (of_80(), any(), Range::at_least(160), Some("h100[0, 1]")),
        (of_80(), any(), Range::at_least(161), Some("h100[0, 1, 2]")),
        (of_80(), any(), Range::between(100, 200), Some("h100[0, 1]")),
        (of_80(), Range::at_least(3), Range::at_least(80), Some("h100[0, 1, 2]")),
        (of_80(), any(), Range::exactly(80), Some("h100[0]")),
        (of_80(), any(), Range::between(90, 150), None),
        (of_80(), Range::between(1, 2), Range::at_least(240), None),
        (of_80(), any(), Range::at_least(641), None),
        (mixed(), any(), Range::at_least(160), Some("h100_80gb[4, 5]")),
        (mixed(), Range::exactly(4), Range::exactly(160), Some("a100_40gb[0, 1, 2, 3]")),
        (mixed(), Range::at_least(5), Range::exactly(200), None),
        (unknown(), any(), Range::at_least(1), None),
    ];
    for (gres, count, total, expected) in table {
        let mut nodes = gpu_nodes(1);
        nodes[0].gres = gres;
        let text = plan_text(&cluster(nodes).with_jobs([by_memory(1, count, total)]));
        let granted = text.split("gpu:").nth(1).map(|rest| rest.trim_end().trim_end_matches(" x1"));
        assert_eq!(granted, expected, "{count:?} {total:?}: {text}");
    }
}

/// The first share leaves too little memory on the node for the second, which waits for it.
#[test]
fn memory_of_gpus_together_is_reached_with_what_is_free() {
    let mut nodes = gpu_nodes(1);
    nodes[0].gres = vec![gpus("h100_80gb", 4, 0)];
    let first = by_memory(1, Range::at_least(1), Range::at_least(240));
    let second = by_memory(2, Range::at_least(1), Range::at_least(160));
    let third = by_memory(3, Range::at_least(1), Range::at_least(80));
    let text = plan_text(&cluster(nodes).with_jobs([first, second, third]));
    assert!(text.contains("1 starts: node1") && text.contains("[0, 1, 2]"), "{text}");
    assert!(text.contains("2 waits: Resources") && !text.contains("2 starts"), "{text}");
}

#[test]
fn offer_of_a_fleet_with_blocks_is_a_number_of_them() {
    let offer = |id: u32, cpus: Range<u32>, gpus: Range<u64>| {
        job(id).asking(|r| {
            r.grant = Grant::Offer;
            r.cpus_per_task = cpus;
            r.memory = Memory::PerNode(Range::at_least(Bytes::from_gib(8)));
            let mut request = gpu_request(Per::Node, &[], 1);
            request.count = gpus;
            r.gres = vec![request];
        })
    };
    let plan_of = |blocks: u32| {
        let mut nodes = gpu_nodes(1);
        nodes[0].blocks = Some(blocks);
        let one = offer(1, Range::at_least(2), Range::at_least(1));
        let two = offer(2, Range::at_least(9), Range::exactly(1));
        plan_text(&cluster(nodes).with_jobs([one, two]))
    };
    assert_snapshot!(plan_of(4), @r#"
    1 starts: node1 cpu 0-7 mem 32000M gpu:h100[0, 1] x1
    2 starts: node1 cpu 8-23 mem 64000M gpu:h100[2] x1
    "#);
    // Three do not divide eight GPUs: a block is a GPU, as without a number.
    assert_snapshot!(plan_of(3), @r#"
    1 starts: node1 cpu 0-3 mem 16000M gpu:h100[0] x1
    2 starts: node1 cpu 4-15 mem 48000M gpu:h100[1] x1
    "#);
}

#[test]
fn array_starts_as_many_tasks_as_fit() {
    let view = two().with_jobs([job(14).with(|w| w.tasks = 24).gpus(Per::Node, 1)]);
    let plan = view.plan();
    assert_eq!(plan.starts.len(), 16);
    let on = |name: &str| plan.starts.iter().filter(|s| s.allocation.nodes[0].node == name).count();
    assert_eq!((on("node1"), on("node2")), (8, 8));
    assert_eq!(plan.reasons, [(model::id::JobId(14), model::reason::Reason::Resources)]);
}

#[test]
fn jobs_of_one_cpu_get_the_last_nodes_where_the_site_packs_them_at_the_end() {
    let mut view = two().with_jobs([job(1), job(2).cpus(2), job(3)]);
    view.policy.pack_serial_at_end = true;
    assert_snapshot!(plan_text(&view), @r#"
    1 starts: node2 cpu 0 mem 1024M x1
    2 starts: node1 cpu 0-1 mem 1024M x1
    3 starts: node2 cpu 1 mem 1024M x1
    "#);
}

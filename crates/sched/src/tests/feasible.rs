//! What is refused at submit, and what a plan of dstack's lists.

use crate::testing::*;
use crate::view::{Availability, PendingJob};
use model::amount::Bytes;
use model::constraint::Constraint;
use model::range::Range;
use model::reason::{NeverFits, Refusal};
use model::request::{Grant, GresRequest, Memory, Per};

fn refusal(job: PendingJob) -> Option<String> {
    let mut nodes = gpu_nodes(2);
    nodes[1].features = vec!["ib".to_string()];
    let mut view = cluster(nodes).with_partition("one", &[0], |p| p.max_nodes = Some(1));
    // Neither use nor state matters to what could ever be.
    std::sync::Arc::make_mut(&mut view.nodes[0]).availability = Availability::Down;
    let all = view.nodes[1].config.usable_cpus();
    std::sync::Arc::make_mut(&mut view.nodes[1]).used.cpus = all;
    crate::query::feasible::check(&view, &job.spec, &job.account, &job.partitions)
        .err()
        .map(|refusal| refusal.to_string())
}

fn memory(gib: u64) -> PendingJob {
    job(1).asking(|r| r.memory = Memory::PerNode(Range::exactly(Bytes::from_gib(gib))))
}

fn constraint(text: &str) -> PendingJob {
    job(1).asking(|r| r.constraint = Some(Constraint::parse(text).unwrap()))
}

fn named(name: &str) -> PendingJob {
    job(1).asking(|r| r.node_list = vec![name.to_string()])
}

fn bogus() -> GresRequest {
    GresRequest { name: "bogus".to_string(), ..gpu_request(Per::Node, &[], 1) }
}

/// A GPU with exactly so much memory.
fn gpu_of(gib: u64) -> GresRequest {
    let device_memory = Some(Range::exactly(Bytes::from_gib(gib)));
    GresRequest { device_memory, ..gpu_request(Per::Node, &[], 1) }
}

#[test]
fn slurms_refusals_and_what_slurm_lets_wait() {
    let never = |why: &str| Some(format!("no node can ever satisfy the request: {why}"));
    let said = |why: &str| Some(why.to_string());
    let table = [
        (job(1), None),
        (job(1).nodes(3), None),
        (
            job(1).nodes(3).asking(|r| r.grant = Grant::Offer),
            never("3 nodes, the partition has 2 that fit"),
        ),
        (job(1).nodes(2).asking(|r| r.grant = Grant::Offer), None),
        (job(1).nodes(3).cpus(64), never("64 CPUs on one node, the largest has 32")),
        (job(1).cpus(64), never("64 CPUs on one node, the largest has 32")),
        (memory(900), never("921600 MiB of memory on one node, the largest has 128000")),
        (job(1).gpus(Per::Node, 16), never("16 of gpu on one node, the largest has 8")),
        (job(1).gpus(Per::Job, 16), None),
        (job(1).gpus(Per::Job, 17), never("3 nodes, the partition has 2 that fit")),
        (job(1).asking(|r| r.tasks = Some(64)), None),
        (job(1).asking(|r| r.tasks = Some(65)), never("3 nodes, the partition has 2 that fit")),
        (
            job(1).asking(|r| r.gres = vec![gpu_request(Per::Node, &["v100"], 1)]),
            never("1 of gpu:v100 on one node, the largest has 0"),
        ),
        (
            job(1).asking(|r| r.gres = vec![gpu_of(24)]),
            never(
                "1 of gpu with 24GB of memory (those here have 80GB or 94GB) on one node, the largest has 0",
            ),
        ),
        (
            job(1).asking(|r| r.gres = vec![bogus()]),
            said("generic resource bogus is not configured"),
        ),
        (constraint("ib"), None),
        (constraint("a100"), said("feature a100 is on no node")),
        (
            constraint("ib").with(|w| w.partitions = vec![1]),
            never("the features ib are on no node"),
        ),
        (constraint("ib").with(|w| w.partitions = vec![1, 0]), None),
        (named("node2"), None),
        (named("node9"), said("node node9 does not exist")),
        (
            named("node2").with(|w| w.partitions = vec![1]),
            never("its partition does not have node2, which the job names"),
        ),
        (
            named("node2").asking(|r| r.exclude = vec!["node2".to_string()]),
            never("the nodes named cannot hold it"),
        ),
        (
            job(1).asking(|r| r.disk = Some(Bytes::from_gib(1))),
            never("1024 MiB of local disk, the largest node has 0 (its TmpDisk)"),
        ),
    ];
    for (job, expected) in table {
        assert_eq!(refusal(job.clone()), expected, "{:?}", job.spec.request());
    }
}

#[test]
fn refusal_names_the_kinds_that_there_are_instead_of_those_asked_for() {
    let there = |gpu: GresRequest| {
        let job = job(1).asking(|r| r.gres = vec![gpu]);
        let view = cluster(gpu_nodes(2));
        match crate::query::feasible::check(&view, &job.spec, &job.account, &job.partitions) {
            Err(Refusal::NodeConfiguration(unmet)) => match unmet.why {
                NeverFits::Gres { kinds_there, .. } => kinds_there,
                other => panic!("{other}"),
            },
            other => panic!("{other:?}"),
        }
    };
    let kinds: Vec<String> = gpu_nodes(1)[0].gres.iter().filter_map(|g| g.kind.clone()).collect();
    assert_eq!(there(gpu_request(Per::Node, &["v100"], 1)), kinds);
    assert_eq!(there(gpu_request(Per::Node, &[], 99)), Vec::<String>::new());
}

#[test]
fn refusal_says_whether_devices_with_more_memory_than_allowed_are_there() {
    let larger = |gpu: GresRequest| {
        let job = job(1).asking(|r| r.gres = vec![gpu]);
        let view = cluster(gpu_nodes(1));
        match crate::query::feasible::check(&view, &job.spec, &job.account, &job.partitions) {
            Err(Refusal::NodeConfiguration(unmet)) => match unmet.why {
                NeverFits::Gres { larger_memory, .. } => larger_memory,
                other => panic!("{other}"),
            },
            other => panic!("{other:?}"),
        }
    };
    assert!(larger(gpu_of(24)) && !larger(gpu_of(900)));
    // GPUs of another kind than is asked for do not serve, whatever memory they have.
    assert!(!larger(GresRequest { kinds: vec!["v100".into()], ..gpu_of(24) }));
}

#[test]
fn job_of_several_requests_is_refused() {
    let gang = job(1).with(|w| {
        let spec = std::sync::Arc::make_mut(&mut w.spec);
        let one = spec.components[0].clone();
        spec.components = [one.clone(), one].into();
    });
    assert!(refusal(gang.clone()).is_some());
    let plan = cluster(gpu_nodes(1)).with_jobs([gang]).plan();
    assert_eq!(text(&plan), "1 waits: BadConstraints\n");
}

#[test]
fn offers_list_each_node_once_and_say_what_is_free() {
    let run = job(1).gpus(Per::Node, 1).asking(|r| {
        r.grant = Grant::Offer;
        r.cpus_per_task = Range::at_least(2);
        r.memory = Memory::PerNode(Range::at_least(Bytes::from_gib(8)));
    });
    let mut nodes = gpu_nodes(3);
    nodes[2].gres.clear();
    let mut view = cluster(nodes).with_partition("one", &[0], |_| {});
    std::sync::Arc::make_mut(&mut view.nodes[0]).used.cpus = "0-29".parse().unwrap();
    let listed: Vec<String> = crate::query::offers::offers(&view, &run.spec, "", &[1, 0])
        .into_iter()
        .map(|o| {
            let gpus = o.share.gres_count("gpu");
            format!(
                "{} {} {}M {gpus} {}",
                o.share.node,
                o.share.cpus.len(),
                o.share.memory.mib(),
                o.available
            )
        })
        .collect();
    assert_eq!(listed, ["node1 4 16000M 1 false", "node2 4 16000M 1 true"]);
}

//! GPUs whole and in shares, what is never used up, and cores close to devices.

use super::select::threaded;
use crate::testing::*;
use crate::view::View;
use insta::assert_snapshot;
use model::gpu::{ComputeCapability, GpuVendor};
use model::node::NodeGres;
use model::range::Range;
use model::request::{DeviceMake, GresBinding, GresRequest, Per};

/// Two GPUs, each also as four shares.
fn shards() -> View {
    let mut node = threaded("n1");
    let shard =
        |gpu: u32| NodeGres { share_of: Some(gpu), ..NodeGres::plain("shard", Some("a100"), 4) };
    node.gres = vec![NodeGres::plain("gpu", Some("a100"), 2), shard(0), shard(1)];
    cluster(vec![node])
}

pub fn wanting(id: u32, name: &str, count: u64) -> crate::view::PendingJob {
    let name = name.to_string();
    job(id).asking(move |r| {
        r.gres = vec![GresRequest {
            per: Per::Node,
            name,
            kinds: Vec::new(),
            count: Range::exactly(count),
            by_model: false,
            make: DeviceMake::default(),
            device_memory: None,
            total_memory: None,
        }];
    })
}

#[test]
fn gpus_are_told_apart_by_vendor_and_compute_capability() {
    let of_kind = |name: &str, kind: Option<&str>| {
        let mut node = threaded(name);
        node.gres = vec![NodeGres::plain("gpu", kind, 1)];
        node
    };
    let nodes = || {
        vec![
            of_kind("amd", Some("mi300x")),
            of_kind("old", Some("tesla_v100")),
            of_kind("new", Some("nvidia_h100")),
            of_kind("counted", None),
        ]
    };
    let served_by = |make: DeviceMake| -> Vec<String> {
        let mut all = nodes();
        // The only node that could serve, one after the other.
        all.retain_mut(|node| {
            let asks = wanting(1, "gpu", 1).asking(|r| r.gres[0].make = make);
            !cluster(vec![node.clone()]).with_jobs([asks]).plan().starts.is_empty()
        });
        all.into_iter().map(|node| node.name).collect()
    };
    let vendor = |vendor| DeviceMake { vendor: Some(vendor), ..DeviceMake::default() };
    let least = |least| DeviceMake { compute_capability: Some(least), ..DeviceMake::default() };
    assert_eq!(served_by(DeviceMake::default()).len(), 4);
    assert_eq!(served_by(vendor(GpuVendor::Nvidia)), ["old", "new", "counted"]);
    assert_eq!(served_by(vendor(GpuVendor::Amd)), ["amd", "counted"]);
    assert_eq!(served_by(least(ComputeCapability(7, 5))), ["new"]);
    assert_eq!(served_by(least(ComputeCapability(7, 0))), ["old", "new"]);
    assert_eq!(served_by(least(ComputeCapability(10, 0))), [""; 0]);
}

#[test]
fn gpu_is_granted_whole_or_in_shares() {
    let mut view = shards().with_jobs([
        wanting(1, "shard", 2),
        wanting(2, "shard", 2),
        wanting(3, "gpu", 1),
        wanting(4, "shard", 1),
        wanting(5, "gpu", 1),
    ]);
    let plan = view.plan();
    // Shares are of the GPU that others have shares of; the other one stays whole.
    assert_snapshot!(text(&plan), @r"
    1 starts: n1 cpu 0-1 mem 1024M shard:a100[0] x1
    2 starts: n1 cpu 2-3 mem 1024M shard:a100[0] x1
    3 starts: n1 cpu 4-5 mem 1024M gpu:a100[1] x1
    4 waits: Resources
    5 waits: Priority
    4 expected in 60 min on n1
    5 expected in 60 min on n1
    ");
    view.carry_out(&plan);
    assert!(view.plan().starts.is_empty());
    // One share gone is no whole GPU.
    view.end(0);
    assert_snapshot!(text(&view.plan()), @r"
    4 starts: n1 cpu 0-1 mem 1024M shard:a100[0] x1
    5 waits: Resources
    5 expected in 60 min on n1
    ");
    // More than one GPU has is never granted.
    let five = shards().with_jobs([wanting(1, "shard", 5)]);
    assert!(five.plan().starts.is_empty());
}

#[test]
fn gres_without_consumption_is_there_for_all() {
    let mut node = threaded("n1");
    node.gres = vec![NodeGres { no_consume: true, ..NodeGres::plain("nic", None, 2) }];
    let mut view = cluster(vec![node]).with_jobs((1..=4).map(|id| wanting(id, "nic", 2)));
    let plan = view.plan();
    assert_eq!(plan.starts.len(), 4, "{}", text(&plan));
    view.carry_out(&plan);
    assert_eq!(view.with_jobs([wanting(9, "nic", 1)]).plan().starts.len(), 1);
}

#[test]
fn cores_beyond_those_close_to_the_device_are_taken_elsewhere() {
    let mut node = threaded("n1");
    let near = |kind: &str, cpus: &str, first: u32| NodeGres {
        cores: Some(cpus.parse().expect("it reads")),
        first_index: first,
        ..NodeGres::plain("gpu", Some(kind), 2)
    };
    node.gres = vec![near("a", "0-7", 0), near("b", "8-15", 2)];
    let ask = |cpus: u32| {
        let request = gpu_request(Per::Node, &["b"], 1);
        cluster(vec![node.clone()]).with_jobs([job(1).cpus(cpus).asking(|r| {
            r.gres.push(request);
            r.gres_binding = GresBinding::Enforce;
        })])
    };
    assert_snapshot!(text(&ask(4).plan()), @"1 starts: n1 cpu 8-11 mem 1024M gpu:b[2] x1");
    assert_snapshot!(text(&ask(12).plan()), @"1 starts: n1 cpu 0-3,8-15 mem 1024M gpu:b[2] x1");
}

#[test]
fn devices_that_are_connected_are_granted_together() {
    let mut node = threaded("n1");
    // Two pairs, crosswise, and a single one.
    let device = |index: u32, links: [i32; 5]| NodeGres {
        first_index: index,
        links: links.to_vec(),
        ..NodeGres::plain("gpu", Some("a100"), 1)
    };
    node.gres = vec![
        device(0, [-1, 0, 16, 0, 0]),
        device(1, [0, -1, 0, 16, 0]),
        device(2, [16, 0, -1, 0, 0]),
        device(3, [0, 16, 0, -1, 0]),
        device(4, [0, 0, 0, 0, -1]),
    ];
    let jobs = [wanting(1, "gpu", 2), wanting(2, "gpu", 2), wanting(3, "gpu", 1)];
    let plan = cluster(vec![node.clone()]).with_jobs(jobs).plan();
    assert_snapshot!(text(&plan), @r"
    1 starts: n1 cpu 0-1 mem 1024M gpu:a100[0, 2] x1
    2 starts: n1 cpu 2-3 mem 1024M gpu:a100[1, 3] x1
    3 starts: n1 cpu 4-5 mem 1024M gpu:a100[4] x1
    ");
    // What is connected to nothing free is no worse than the rest.
    let jobs = [wanting(1, "gpu", 1), wanting(2, "gpu", 3)];
    let plan = cluster(vec![node]).with_jobs(jobs).plan();
    assert_snapshot!(text(&plan), @r"
    1 starts: n1 cpu 0-1 mem 1024M gpu:a100[0] x1
    2 starts: n1 cpu 2-3 mem 1024M gpu:a100[1, 2, 3] x1
    ");
}

//! Limits of QOS hold jobs back, with their numbers.

use crate::Memo;
use crate::testing::*;
use crate::view::View;
use insta::assert_snapshot;
use model::account::Qos;
use model::reason::Reason;
use model::request::{Per, Sharing};
use model::time::TimeLimit;
use model::tres::Tres;
use std::sync::Arc;

fn with_qos(set: impl Fn(&mut Qos)) -> View {
    let mut qos = Qos::named("capped");
    set(&mut qos);
    let mut view = cluster(gpu_nodes(2));
    view.qos = vec![Arc::new(Qos::named("normal")), Arc::new(qos)];
    view
}

fn capped(id: u32) -> crate::view::PendingJob {
    job(id).with(|w| w.qos = "capped".to_string())
}

fn tres(text: &str) -> Tres {
    Tres::parse(text).unwrap()
}

#[test]
fn gpus_of_one_user_are_counted_over_running_and_starting_jobs() {
    let mut view = with_qos(|q| q.max_tres_per_user = tres("gres/gpu=4"))
        .with_jobs([capped(11).gpus(Per::Node, 3)]);
    let plan = view.plan();
    view.carry_out(&plan);
    let view = view.with_jobs([
        capped(12).gpus(Per::Node, 2),
        capped(13).gpus(Per::Node, 5),
        capped(14).gpus(Per::Node, 1).with(|w| w.tasks = 3),
        capped(15).gpus(Per::Node, 2).of_user(2000),
        capped(16),
        job(17).gpus(Per::Node, 2),
    ]);
    assert_snapshot!(text(&view.plan()), @r#"
    14 starts: node1 cpu 1 mem 1024M gpu:h100[3] x1
    15 starts: node1 cpu 2 mem 1024M gpu:h100[4, 5] x1
    16 starts: node1 cpu 3 mem 1024M x1
    17 starts: node1 cpu 4 mem 1024M gpu:h100[6, 7] x1
    12 waits: Limit(Limit { scope: QosPerUser, kind: Tres(Gres { name: "gpu", kind: None }), holder: "capped", limit: 4, in_use: 3, asked: 2 })
    13 waits: Limit(Limit { scope: QosPerUser, kind: Tres(Gres { name: "gpu", kind: None }), holder: "capped", limit: 4, in_use: 3, asked: 5 })
    14 waits: Limit(Limit { scope: QosPerUser, kind: Tres(Gres { name: "gpu", kind: None }), holder: "capped", limit: 4, in_use: 4, asked: 1 })
    "#);
}

#[test]
fn every_kind_of_limit_says_its_scope() {
    type Case = (fn(&mut Qos), &'static str);
    let cases: [Case; 6] = [
        (|q| q.max_jobs_per_user = Some(1), "QosPerUser Jobs 1+1>1"),
        (|q| q.max_tres_per_job = tres("cpu=3"), "QosPerJob Tres(Cpu) 0+4>3"),
        (|q| q.group_tres = tres("cpu=7"), "QosGroup Tres(Cpu) 4+4>7"),
        (|q| q.max_tres_per_account = tres("cpu=7"), "QosPerAccount Tres(Cpu) 4+4>7"),
        (|q| q.max_wall = Some(TimeLimit::Minutes(59)), "QosPerJob Wall 0+60>59"),
        // The second is alone on its node: a node counts once, whoever is on it.
        (|q| q.max_tres_per_user = tres("node=1"), "QosPerUser Tres(Node) 1+1>1"),
    ];
    for (set, said) in cases {
        let alone = said.contains("Node");
        let second = capped(2).cpus(4);
        let second = if alone { second.asking(|r| r.sharing = Sharing::Node) } else { second };
        let plan = with_qos(set).with_jobs([capped(1).cpus(4), second]).plan();
        let (_, reason) = plan.reasons.last().expect("the second waits");
        let model::reason::Reason::Limit(limit) = reason else { panic!("{reason:?}") };
        let text = format!(
            "{:?} {:?} {}+{}>{}",
            limit.scope, limit.kind, limit.in_use, limit.asked, limit.limit
        );
        assert_eq!(text, said);
        assert_eq!(limit.holder, "capped");
    }
}

#[test]
fn the_partitions_qos_limits_every_job_in_it_once() {
    let view = with_qos(|q| q.max_tres_per_user = tres("cpu=8"))
        .with_main(|p| p.qos = Some("capped".to_string()))
        .with_jobs([job(1).cpus(4), capped(2).cpus(4), job(3).cpus(4)]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 starts: node1 cpu 0-3 mem 1024M x1
    2 starts: node1 cpu 4-7 mem 1024M x1
    3 waits: Limit(Limit { scope: QosPerUser, kind: Tres(Cpu), holder: "capped", limit: 8, in_use: 8, asked: 4 })
    "#);
}

#[test]
fn resources_granted_beyond_the_request_count_against_limits() {
    // Memory without a word is the whole node's.
    let view = with_qos(|q| q.max_tres_per_user = tres("mem=100G"))
        .with_jobs([capped(1).asking(|r| r.memory = model::request::Memory::Default)]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 waits: Limit(Limit { scope: QosPerUser, kind: Tres(Mem), holder: "capped", limit: 102400, in_use: 0, asked: 128000 })
    "#);
}

/// With one backfill slot, the jobs behind the first wait as others do, without a search of their own. One that a limit concerns
/// among them is looked at by itself.
#[test]
fn jobs_without_a_limit_wait_as_others_beside_one_that_a_limit_holds_back() {
    let whole = |id: u32| job(id).cpus(32);
    let mut view =
        with_qos(|q| q.max_tres_per_user = tres("cpu=1")).with_jobs([whole(1), whole(2)]);
    view.policy.backfill_slots_max = 1;
    let plan = view.plan();
    view.carry_out(&plan);
    let waiting =
        [whole(11), whole(12), capped(13).cpus(4), job(14).cpus(4), capped(15).cpus(1), whole(16)];
    let view = view.with_jobs(waiting);
    let mut memo = Memo::default();
    for _ in 0..3 {
        let plan = crate::plan(&view, NOW, &mut memo);
        assert_eq!(plan, view.plan());
        let of_limits = plan.reasons.iter().filter(|(_, why)| matches!(why, Reason::Limit(_)));
        assert_eq!(of_limits.map(|(job, _)| job.0).collect::<Vec<_>>(), [13]);
        let others = plan.reasons.iter().filter(|(job, _)| job.0 != 13);
        let others: Vec<_> = others.map(|(job, why)| (job.0, why.clone())).collect();
        let behind = [12, 14, 15, 16].map(|id| (id, Reason::Priority));
        assert_eq!(others, [&[(11, Reason::Resources)][..], &behind[..]].concat());
    }
}

//! Advance reservations: which jobs they keep out, which they admit, and when.

use crate::reservation::{ReservationDemand, ReservedNode, choose_nodes};
use crate::testing::*;
use crate::view::View;
use insta::assert_snapshot;
use model::partition::Access;
use model::reservation::{Reservation, ReservationFlag as Flag};
use model::run::SignalBefore;
use std::collections::BTreeMap;
use std::collections::BTreeSet;
use std::sync::Arc;

/// From and to in minutes from now, over these nodes, for ada alone.
fn reservation(from: i64, to: i64, nodes: &[&str], flags: &[Flag]) -> Reservation {
    Reservation {
        name: "kept".to_string(),
        start: after_min(from),
        end: after_min(to),
        nodes: nodes.iter().map(|name| name.to_string()).collect(),
        users: Some(Access::Only(vec!["ada".to_string()])),
        flags: BTreeSet::from_iter(flags.iter().copied()),
        ..Reservation::default()
    }
}

fn with(reservation: Reservation) -> View {
    let mut view = cluster(gpu_nodes(2));
    view.reservations = vec![Arc::new(reservation)];
    view
}

fn of_ada(id: u32) -> crate::view::PendingJob {
    job(id).with(|w| Arc::make_mut(&mut Arc::make_mut(&mut w.spec).owner).name = "ada".to_string())
}

fn asking(id: u32) -> crate::view::PendingJob {
    of_ada(id).asking(|r| r.reservation = Some("kept".to_string()))
}

#[test]
fn other_jobs_run_before_or_after_a_reservation_or_elsewhere() {
    let view = with(reservation(30, 90, &["node1"], &[])).with_jobs([
        job(1).for_min(30),
        job(2).for_min(31),
        job(3).cpus(32).for_min(31),
        job(4).for_min(30).with(|w| w.tasks = 1),
    ]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 starts: node1 cpu 0 mem 1024M x1
    2 starts: node2 cpu 0 mem 1024M x1
    4 starts: node1 cpu 1 mem 1024M x1
    3 waits: Resources
    3 expected in 31 min on node2
    "#);
}

#[test]
fn overlapping_job_starts_before_a_reservation_with_a_start_delay() {
    let overlapping = |id: u32| {
        job(id).for_min(60).with(|w| {
            let signal =
                SignalBefore { signal: 10, before_s: 60, batch_only: false, overlaps: true };
            Arc::make_mut(&mut w.spec).signal = Some(signal);
        })
    };
    let both = &["node1", "node2"];
    let waits = |delay| Reservation { max_start_delay_s: delay, ..reservation(30, 90, both, &[]) };
    let plan = with(waits(Some(300))).with_jobs([overlapping(1), job(2).for_min(60)]).plan();
    assert_snapshot!(text(&plan), @r"
    1 starts: node1 cpu 0 mem 1024M x1
    2 waits: NodesReserved
    2 expected in 90 min on node1
    ");
    let plan = with(waits(None)).with_jobs([overlapping(1)]).plan();
    assert!(plan.starts.is_empty(), "a reservation that waits for nobody: {}", text(&plan));
    let begun = Reservation { max_start_delay_s: Some(300), ..reservation(-1, 90, both, &[]) };
    let plan = with(begun).with_jobs([overlapping(1)]).plan();
    assert!(plan.starts.is_empty(), "it has begun: {}", text(&plan));
}

#[test]
fn jobs_of_a_reservation_wait_for_its_window_and_end_with_it() {
    let jobs = || [asking(1).for_min(60), asking(2).for_min(61), of_ada(3).for_min(60)];
    let before = with(reservation(30, 90, &["node1"], &[])).with_jobs(jobs());
    assert_snapshot!(text(&before.plan()), @r#"
    3 starts: node2 cpu 0 mem 1024M x1
    1 waits: Reservation
    2 waits: Reservation
    "#);
    let during = with(reservation(0, 60, &["node1"], &[])).with_jobs(jobs());
    assert_snapshot!(text(&during.plan()), @r#"
    1 starts: node1 cpu 0 mem 1024M x1
    2 starts: node1 cpu 1 mem 1024M x1
    3 starts: node2 cpu 0 mem 1024M x1
    "#);
    let stranger = job(4).asking(|r| r.reservation = Some("kept".to_string()));
    let unknown = asking(5).asking(|r| r.reservation = Some("lost".to_string()));
    let closed = with(reservation(0, 60, &["node1"], &[])).with_jobs([stranger, unknown]);
    assert_snapshot!(text(&closed.plan()), @r#"
    4 waits: Reservation
    5 waits: Reservation
    "#);
}

#[test]
fn jobs_of_a_flex_reservation_may_begin_before_and_end_after_its_window() {
    let view = with(reservation(30, 90, &["node1"], &[Flag::Flex]))
        .with_jobs([asking(1).cpus(32).for_min(600), asking(2).cpus(32).for_min(600)]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 starts: node1 cpu 0-31 mem 1024M x1
    2 starts: node2 cpu 0-31 mem 1024M x1
    "#);
}

#[test]
fn magnetic_reservation_takes_jobs_that_it_admits() {
    let view = with(reservation(0, 60, &["node1", "node2"], &[Flag::Magnetic]))
        .with_jobs([of_ada(1), job(2)]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 starts: node1 cpu 0 mem 1024M x1
    2 waits: NodesReserved
    2 expected in 60 min on node1
    "#);
}

#[test]
fn daily_reservation_recurs() {
    let view = with(reservation(-60, -30, &["node1", "node2"], &[Flag::Daily]))
        .with_jobs([job(1).for_min(23 * 60), job(2).for_min(24 * 60)]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 starts: node1 cpu 0 mem 1024M x1
    2 waits: NodesReserved
    "#);
}

#[test]
fn any_of_several_reservations_asked_for_serves() {
    let named = |name: &str, from, node| Reservation {
        name: name.to_string(),
        ..reservation(from, from + 60, &[node], &[])
    };
    let mut view = cluster(gpu_nodes(2));
    view.reservations =
        vec![Arc::new(named("one", 0, "node1")), Arc::new(named("two", -30, "node2"))];
    let list =
        |id, text: &str| of_ada(id).cpus(32).asking(|r| r.reservation = Some(text.to_string()));
    let view = view.with_jobs([list(1, "one,two"), list(2, "one,two"), list(3, "two,lost")]);
    assert_snapshot!(text(&view.plan()), @r#"
    1 starts: node1 cpu 0-31 mem 1024M x1
    2 starts: node2 cpu 0-31 mem 1024M x1
    3 waits: Resources
    "#);
}

#[test]
fn job_ends_with_its_reservation_window_and_may_begin_before_another() {
    let after = Reservation {
        name: "after".to_string(),
        users: Some(Access::Only(vec!["bob".to_string()])),
        ..reservation(60, 120, &["node1"], &[])
    };
    let mut view = with(reservation(0, 60, &["node1"], &[]));
    view.reservations.push(Arc::new(after));
    let view = view.with_jobs([asking(1).for_min(600)]);
    assert_snapshot!(text(&view.plan()), @"1 starts: node1 cpu 0 mem 1024M x1");
}

#[test]
fn reserved_licenses_are_withheld_during_the_window() {
    let mut kept = reservation(30, 90, &[], &[Flag::AnyNodes]);
    kept.licenses = vec![("matlab".to_string(), 2)];
    let mut view = with(kept);
    view.licenses = vec![("matlab".to_string(), 3)];
    let needs = |waiting: crate::view::PendingJob, count| {
        waiting.asking(|r| r.licenses = vec![("matlab".to_string(), count)])
    };
    let view = view.with_jobs([
        needs(job(1), 2).for_min(31),
        needs(job(2), 2).for_min(30),
        needs(job(3), 1).for_min(31),
    ]);
    assert_snapshot!(text(&view.plan()), @r#"
    2 starts: node1 cpu 0 mem 1024M x1
    1 waits: Licenses
    3 waits: Licenses
    "#);
    let mut during = reservation(0, 90, &[], &[Flag::AnyNodes]);
    during.licenses = vec![("matlab".to_string(), 2)];
    let mut view = with(during);
    view.licenses = vec![("matlab".to_string(), 3)];
    let view = view.with_jobs([needs(job(1), 2), needs(asking(2), 3)]);
    assert_snapshot!(text(&view.plan()), @r#"
    2 starts: node1 cpu 0 mem 1024M x1
    1 waits: Licenses
    "#);
}

#[test]
fn reserved_cores_of_a_node_are_for_the_reservations_jobs() {
    let mut kept = reservation(0, 600, &["node1"], &[]);
    kept.cores = BTreeMap::from([("node1".to_string(), 24)]);
    let mut view = with(kept);
    view.nodes.truncate(1);
    view.partitions[0].nodes.truncate(1);
    let mut view = view.with_jobs([
        job(1).cpus(9),
        job(2).cpus(8),
        asking(3).cpus(20),
        asking(4).cpus(4),
        asking(5).cpus(1),
    ]);
    let plan = view.plan();
    assert_snapshot!(text(&plan), @r#"
    2 starts: node1 cpu 0-7 mem 1024M x1
    3 starts: node1 cpu 8-27 mem 1024M x1
    4 starts: node1 cpu 28-31 mem 1024M x1
    1 waits: Resources
    5 waits: Priority
    1 expected in 600 min on node1
    5 expected in 60 min on node1
    "#);
    view.carry_out(&plan);
    assert_eq!(view.plan().starts, vec![], "what its jobs use is not kept twice");
}

#[test]
fn nodes_for_a_new_reservation_are_idle_then_and_in_no_other() {
    let mut view = with(reservation(30, 90, &["node1"], &[])).with_jobs([job(1).for_min(20)]);
    let plan = view.plan();
    view.carry_out(&plan);
    let chosen = |from: i64, nodes, cores, overlap, ignore_jobs| {
        let (start, end) = (after_min(from), after_min(from + 30));
        let wanted = ReservationDemand {
            start,
            end,
            nodes,
            cores,
            overlap,
            ignore_jobs,
            ..ReservationDemand::default()
        };
        choose_nodes(&view, NOW, &wanted).map(|nodes| {
            let text = |part: &ReservedNode| format!("{}:{}", part.node, part.cores);
            nodes.iter().map(text).collect::<Vec<_>>().join(",")
        })
    };
    assert_eq!(chosen(30, 1, 0, false, false).as_deref(), Some("node2:32"));
    assert_eq!(chosen(30, 2, 0, false, false), None, "node1 is in another then");
    assert_eq!(chosen(30, 2, 40, true, false).as_deref(), Some("node1:20,node2:20"));
    assert_eq!(chosen(30, 0, 40, true, false).as_deref(), Some("node1:32,node2:8"));
    assert_eq!(chosen(90, 2, 0, false, false).as_deref(), Some("node1:32,node2:32"));
    assert_eq!(chosen(0, 2, 0, false, false), None, "node1 is busy, and in another soon");
    assert_eq!(chosen(0, 1, 0, true, true).as_deref(), Some("node1:32"));
}

#[test]
fn devices_for_a_new_reservation_are_found_and_kept_for_its_jobs() {
    let gpus = |count: u64| BTreeMap::from([("gpu".to_string(), count)]);
    let mut kept = reservation(0, 600, &["node1"], &[]);
    kept.cores = BTreeMap::from([("node1".to_string(), 0)]);
    kept.gres = BTreeMap::from([("node1".to_string(), gpus(6))]);
    let view = with(kept);
    let chosen = |count, nodes| {
        let end = after_min(60);
        let wanted = ReservationDemand {
            start: NOW,
            end,
            nodes,
            gres: gpus(count),
            ..ReservationDemand::default()
        };
        let parts = choose_nodes(&view, NOW, &wanted)?;
        let text = |part: &ReservedNode| format!("{}:{}", part.node, part.gres["gpu"]);
        Some(parts.iter().map(text).collect::<Vec<_>>().join(","))
    };
    assert_eq!(chosen(3, 0).as_deref(), Some("node1:2,node2:1"));
    assert_eq!(chosen(4, 2).as_deref(), Some("node1:2,node2:2"));
    assert_eq!(chosen(6, 2), None, "node1 has but two left");
    assert_eq!(chosen(11, 0), None);
    let view = view.with_jobs([
        job(1)
            .gpus(model::request::Per::Node, 3)
            .asking(|r| r.node_list = vec!["node1".to_string()]),
        asking(2).gpus(model::request::Per::Node, 6),
    ]);
    let plan = view.plan();
    assert_eq!(plan.starts.iter().map(|start| start.job.0).collect::<Vec<_>>(), [2]);
}

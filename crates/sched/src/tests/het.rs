//! Jobs that start together or not at all.

use super::closeness::{below_one, tree};
use super::properties;
use crate::testing::*;
use crate::view::{Estimate, PendingJob, Plan, View};
use crate::{Memo, plan};
use insta::assert_snapshot;
use model::id::JobId;
use model::partition::Access;
use model::request::Per;
use model::reservation::Reservation;
use model::run::HetComponent;
use proptest::prelude::*;
use std::sync::Arc;

/// These jobs, whose ids follow one another, as one group.
fn group<const N: usize>(jobs: [PendingJob; N]) -> [PendingJob; N] {
    let first = jobs[0].job;
    let mut offset = 0..;
    jobs.map(|job| {
        let offset = offset.next().expect("it has no end");
        job.with(|w| w.het = Some(HetComponent { first, offset, size: N as u32 }))
    })
}

/// Two nodes; job 1 holds 30 CPUs of node1 for 30 minutes, job 2 as many of node2 for 90.
fn busy() -> View {
    let mut view =
        cluster(gpu_nodes(2)).with_jobs([job(1).cpus(30).for_min(30), job(2).cpus(30).for_min(90)]);
    let plan = view.plan();
    view.carry_out(&plan);
    view
}

#[test]
fn het_components_start_beside_each_other() {
    let view = cluster(gpu_nodes(2)).with_jobs(group([
        job(5).cpus(20),
        job(6).cpus(20).gpus(Per::Node, 1),
        job(7).cpus(12),
    ]));
    assert_snapshot!(text(&view.plan()), @r#"
    5 starts: node1 cpu 0-19 mem 1024M x1
    6 starts: node2 cpu 0-19 mem 1024M gpu:h100[0] x1
    7 starts: node1 cpu 20-31 mem 1024M x1
    "#);
}

#[test]
fn het_components_wait_for_the_one_that_does_not_fit_with_slots_at_one_moment() {
    let view = busy().with_jobs(group([job(5).cpus(2), job(6).cpus(32)])).with_jobs([
        job(10).cpus(2).for_min(30),
        job(11).cpus(2).for_min(90),
        job(12).for_min(200),
    ]);
    assert_snapshot!(text(&view.plan()), @r#"
    10 starts: node1 cpu 30-31 mem 1024M x1
    5 waits: Resources
    6 waits: Resources
    11 waits: Priority
    12 waits: Priority
    5 expected in 30 min on node2
    6 expected in 30 min on node1
    11 expected in 90 min on node1
    12 expected in 90 min on node1
    "#);
}

/// Each fits by itself now or at 20 minutes, and both at once only when the last reservation is over: nothing else changes until then.
#[test]
fn het_components_wait_for_the_end_of_the_last_reservation() {
    let kept = |node: &str, from: i64, to: i64| {
        Arc::new(Reservation {
            name: format!("of {node}"),
            start: after_min(from),
            end: after_min(to),
            nodes: vec![node.to_string()],
            users: Some(Access::Only(vec!["ada".to_string()])),
            ..Reservation::default()
        })
    };
    let whole = |id: u32| job(id).cpus(32).for_min(15);
    let mut view = cluster(gpu_nodes(2)).with_jobs(group([whole(5), whole(6)]));
    view.reservations = vec![kept("node1", 5, 20), kept("node2", 20, 60)];
    let estimates = view.plan().estimates;
    let starts: Vec<_> = estimates.iter().map(|estimate| (estimate.job, estimate.start)).collect();
    assert_eq!(starts, [(JobId(5), after_min(60)), (JobId(6), after_min(60))]);
}

#[test]
fn het_components_wait_for_the_moment_at_which_all_fit() {
    let view = busy().with_jobs(group([job(5).cpus(32), job(6).cpus(32)]));
    assert_snapshot!(text(&view.plan()), @r#"
    5 waits: Resources
    6 waits: Resources
    5 expected in 90 min on node1
    6 expected in 90 min on node2
    "#);
}

#[test]
fn het_job_larger_than_the_cluster_reserves_no_slot_and_delays_nobody() {
    let view = cluster(gpu_nodes(1))
        .with_jobs(group([job(5).cpus(20), job(6).cpus(20)]))
        .with_jobs([job(10).cpus(32)]);
    assert_snapshot!(text(&view.plan()), @r#"
    10 starts: node1 cpu 0-31 mem 1024M x1
    5 waits: Resources
    6 waits: Resources
    "#);
}

#[test]
fn het_job_waits_while_a_component_is_missing_or_held() {
    let [first, second] = group([job(5), job(6)]);
    let alone = cluster(gpu_nodes(1)).with_jobs([first.clone()]);
    let rest = cluster(gpu_nodes(1)).with_jobs([second.clone()]);
    let held = second.with(|w| w.hold = Some(model::run::Hold::User));
    let held = cluster(gpu_nodes(1)).with_jobs([first, held]);
    let all = [alone, rest, held].map(|view| text(&view.plan())).concat();
    assert_snapshot!(all, @r#"
    5 waits: NotPlanned
    6 waits: NotPlanned
    5 waits: HeldByUser
    6 waits: HeldByUser
    "#);
}

/// Groups of one run: one node of a leaf is busy, so that it has two free ones, and the other leaf three.
#[test]
fn components_that_want_one_switch_are_below_one_together_or_wait() {
    let with_busy = |nodes: &[&str]| {
        let of = |(id, node): (u32, &&str)| {
            job(id).cpus(32).asking(|r| r.node_list = vec![node.to_string()]).for_min(10)
        };
        let mut view = tree().with_jobs((1..).zip(nodes).map(of));
        let plan = view.plan();
        view.carry_out(&plan);
        view
    };
    let run = || group([below_one(5, 2), below_one(6, 1)]);
    assert_snapshot!(text(&with_busy(&["node1"]).with_jobs(run()).plan()), @r#"
    5 starts: node4 cpu 0-31 mem 1024M x1; node5 cpu 0-31 mem 1024M x1
    6 starts: node6 cpu 0-31 mem 1024M x1
    "#);
    let plan = with_busy(&["node1", "node4"]).with_jobs(run()).plan();
    assert!(plan.starts.is_empty(), "a leaf could hold them: {}", text(&plan));
    // No leaf holds four nodes: they are below the root.
    let plan = tree().with_jobs(group([below_one(5, 3), below_one(6, 1)])).plan();
    assert_eq!(plan.starts.len(), 2, "{}", text(&plan));
}

#[test]
fn components_that_want_one_switch_are_in_one_partition() {
    let view = |ask: fn(PendingJob) -> PendingJob| {
        let mut view = cluster(gpu_nodes(4))
            .with_partition("left", &[0, 1], |_| {})
            .with_partition("right", &[2, 3], |_| {})
            .with_jobs([job(1).cpus(32).asking(|r| r.node_list = vec!["node2".to_string()])]);
        let plan = view.plan();
        view.carry_out(&plan);
        let both = |id| ask(job(id).cpus(32).with(|w| w.partitions = vec![1, 2]));
        view.with_jobs(group([both(5), both(6)]))
    };
    assert_snapshot!(text(&view(|job| job.asking(|r| r.one_switch = true)).plan()), @r#"
    5 starts: node3 cpu 0-31 mem 1024M x1
    6 starts: node4 cpu 0-31 mem 1024M x1
    "#);
    let apart = text(&view(|job| job).plan());
    assert!(apart.contains("starts: node1"), "others go wherever they fit: {apart}");
}

/// A queue of which some that follow one another are groups.
fn view() -> impl Strategy<Value = View> {
    (properties::view(), proptest::collection::vec(1usize..=3, 12)).prop_map(|(mut view, sizes)| {
        let mut at = 0;
        for size in sizes {
            let Some(first) = view.queue.get(at).map(|w| w.job) else { break };
            let size = size.min(view.queue.len() - at);
            for offset in 0..size.min(if size > 1 { size } else { 0 }) {
                let waiting = Arc::make_mut(&mut view.queue[at + offset]);
                waiting.tasks = 1;
                waiting.het =
                    Some(HetComponent { first, offset: offset as u32, size: size as u32 });
            }
            at += size;
        }
        view
    })
}

/// All components of each het job start, one after the other, or none does.
fn all_or_none(view: &View, plan: &Plan) -> Result<(), TestCaseError> {
    for waiting in &view.queue {
        let Some(het) = waiting.het.filter(|of| of.is_leader()) else { continue };
        let ids: Vec<JobId> = het.jobs().collect();
        let at = plan.starts.iter().position(|start| ids.contains(&start.job));
        let Some(at) = at else { continue };
        let started: Vec<JobId> =
            plan.starts[at..].iter().take(ids.len()).map(|start| start.job).collect();
        prop_assert_eq!(started, ids);
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn het_components_start_all_or_none_and_within_what_is_free(view in view()) {
        let plan = view.plan();
        all_or_none(&view, &plan)?;
        view.clone().carry_out(&plan);
        for waiting in &view.queue {
            let starts = plan.starts.iter().filter(|s| s.job == waiting.job).count() as u32;
            let reasons = plan.reasons.iter().filter(|(job, _)| *job == waiting.job).count();
            prop_assert_eq!(reasons, usize::from(starts < waiting.tasks));
        }
    }

    #[test]
    fn plan_of_het_jobs_after_other_plans_equals_plan_from_scratch(view in view(), ends in 0usize..4) {
        let mut memo = Memo::default();
        let mut view = view;
        for _ in 0..3 {
            let with_memo = plan(&view, NOW, &mut memo);
            prop_assert_eq!(&with_memo, &view.plan());
            let again = plan(&view, NOW, &mut memo);
            prop_assert_eq!(&again, &with_memo, "the same view again");
            view.carry_out(&with_memo);
            if ends < view.running.len() {
                view.end(ends);
            }
        }
    }

    #[test]
    fn starts_never_delay_a_backfill_slot_beside_het_jobs(view in view()) {
        let plan = view.plan();
        let mut after = view.clone();
        after.carry_out(&plan);
        let single = |job: JobId| view.queue.iter().any(|w| w.job == job && w.het.is_none());
        for estimate in plan.estimates.iter().filter(|estimate| single(estimate.job)) {
            let mut alone = after.clone();
            alone.queue.retain(|w| w.job == estimate.job);
            alone.policy.backfill_slots_max = 1;
            let alone = alone.plan();
            let starts = alone.starts.iter().any(|s| s.job == estimate.job);
            let in_time = |e: &Estimate| e.job == estimate.job && e.start <= estimate.start;
            prop_assert!(starts || alone.estimates.iter().any(in_time), "{:?} became {:?}", estimate, alone);
        }
        // Where a het job has slots, nothing that starts takes more than is left beside them.
        let groups = view.queue.iter().filter_map(|w| w.het.filter(|of| of.is_leader()));
        for het in groups {
            let of_group = |e: &&Estimate| het.jobs().any(|job| job == e.job);
            let kept: Vec<&Estimate> = plan.estimates.iter().filter(of_group).collect();
            prop_assert!(kept.is_empty() || kept.len() == het.size as usize);
            prop_assert!(kept.windows(2).all(|pair| pair[0].start == pair[1].start));
        }
    }
}

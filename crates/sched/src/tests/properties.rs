//! What must hold for any cluster and any queue.

use crate::testing::*;
use crate::view::{Estimate, PendingJob, Plan, PreemptBy, View};
use crate::{Memo, plan};
use model::amount::Bytes;
use model::id::JobId;
use model::node::NodeConfig;
use model::partition::Access;
use model::preempt::PreemptMode;
use model::range::Range;
use model::reason::Reason;
use model::request::{Memory, Per, Request, Sharing};
use model::reservation::{Reservation, ReservationFlag};
use model::time::{TimeLimit, Timestamp};
use proptest::prelude::*;
use std::sync::Arc;

fn node(at: usize) -> impl Strategy<Value = NodeConfig> {
    (1u32..=8, 1u32..=2, 1u64..=16, 0u64..=4, 1u32..=3).prop_map(
        move |(cores, threads, memory_gib, gpu_count, weight)| {
            let name = format!("n{at}");
            let mut node = NodeConfig::plain(&name, cores * threads, Bytes::from_gib(memory_gib));
            (node.cores_per_socket, node.threads_per_core) = (cores, threads);
            node.weight = weight;
            if gpu_count > 0 {
                node.gres = vec![gpus("h100", gpu_count, 0)];
            }
            node
        },
    )
}

fn request() -> impl Strategy<Value = Request> {
    let nodes = prop_oneof![3 => Just(None), 1 => (1u32..=3).prop_map(Some)];
    let tasks = prop_oneof![2 => Just(None), 1 => (1u32..=8).prop_map(Some)];
    let per = prop_oneof![Just(Per::Node), Just(Per::Job), Just(Per::Task)];
    let gpus = prop_oneof![1 => Just(None), 1 => (per, 1u64..=3).prop_map(Some)];
    let sharing =
        prop_oneof![6 => Just(Sharing::Share), 1 => Just(Sharing::Node), 1 => Just(Sharing::User)];
    let minutes = prop_oneof![5 => (1u32..=100).prop_map(TimeLimit::Minutes), 1 => Just(TimeLimit::Unlimited)];
    (nodes, tasks, 1u32..=4, 1u64..=4, gpus, sharing, minutes).prop_map(
        |(nodes, tasks, cpus, memory_gib, gpus, sharing, minutes)| Request {
            nodes: Range::exactly(nodes.unwrap_or(1)),
            nodes_given: nodes.is_some(),
            tasks,
            cpus_per_task: Range::exactly(cpus),
            memory: Memory::PerNode(Range::exactly(Bytes::from_gib(memory_gib))),
            gres: gpus.map(|(per, count)| gpu_request(per, &[], count)).into_iter().collect(),
            sharing,
            time_limit: Some(minutes),
            ..Request::default()
        },
    )
}

pub fn waiting() -> impl Strategy<Value = PendingJob> {
    (
        request(),
        1u32..=3,
        0u64..3,
        1u32..=2,
        prop_oneof![Just(vec![0]), Just(vec![1]), Just(vec![1, 0])],
    )
        .prop_map(|(request, tasks, priority, uid, partitions)| {
            job(0).of_user(uid).asking(|r| *r = request).with(|w| {
                (w.tasks, w.priority, w.partitions) = (tasks, priority, partitions);
            })
        })
}

/// Two partitions over a few nodes, some jobs running, others waiting.
pub fn view() -> impl Strategy<Value = View> {
    let nodes = (1usize..=4).prop_flat_map(|count| (0..count).map(node).collect::<Vec<_>>());
    let queue = || proptest::collection::vec(waiting(), 0..12);
    (nodes, queue(), queue(), 0u32..=3).prop_map(|(nodes, first, then, reservations)| {
        let half: Vec<u32> = (0..nodes.len().div_ceil(2) as u32).collect();
        let mut view = cluster(nodes).with_partition("half", &half, |p| p.priority_tier = 2);
        view.policy.backfill_slots_max = reservations;
        let numbered = |from: u32, jobs: Vec<PendingJob>| {
            jobs.into_iter()
                .zip(from..)
                .map(|(w, id)| w.with(|w| w.job = JobId(id)))
                .collect::<Vec<_>>()
        };
        let mut view = view.with_jobs(numbered(1, first));
        let plan = view.plan();
        view.carry_out(&plan);
        view.queue.clear();
        view.with_jobs(numbered(100, then))
    })
}

/// A reservation of the first node that admits no job of these tests.
fn maintenance(start_min: i64, length_min: i64) -> Reservation {
    Reservation {
        name: "maint".to_string(),
        start: after_min(start_min),
        end: after_min(start_min + length_min),
        nodes: vec!["n0".to_string()],
        users: Some(Access::Only(vec!["root".to_string()])),
        flags: [ReservationFlag::Maint].into(),
        ..Reservation::default()
    }
}

/// Whether a start gives what its request says.
fn satisfies(view: &View, plan: &Plan) -> Result<(), TestCaseError> {
    for start in &plan.starts {
        let waiting = view.queue.iter().find(|w| w.job == start.job).expect("it waited");
        let request = waiting.spec.request();
        let nodes = &start.allocation.nodes;
        let allowed = |w: &PendingJob| {
            w.partitions
                .iter()
                .any(|&p| view.partitions[p as usize].partition.name == start.allocation.partition)
        };
        prop_assert!(allowed(waiting));
        if request.nodes_given {
            prop_assert_eq!(nodes.len() as u32, request.nodes.min);
        }
        let tasks: u32 = nodes.iter().map(|n| n.tasks).sum();
        prop_assert_eq!(tasks, request.tasks.unwrap_or(1).max(nodes.len() as u32));
        for share in nodes {
            prop_assert!(share.tasks > 0);
            prop_assert!(share.cpus.len() >= share.tasks * request.cpus_per_task.min);
            prop_assert_eq!(&request.memory, &Memory::PerNode(Range::exactly(share.memory)));
        }
        for gres in &request.gres {
            let granted: u64 = nodes.iter().map(|n| n.gres_count("gpu")).sum();
            let asked = match gres.per {
                Per::Job => gres.count.min,
                Per::Task => gres.count.min * u64::from(tasks),
                _ => gres.count.min * nodes.len() as u64,
            };
            let whole = request.sharing == Sharing::Node;
            prop_assert!(
                (granted == asked) || (whole && granted > asked),
                "{} of {}",
                granted,
                asked
            );
        }
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nothing_is_granted_beyond_what_is_free_or_was_asked(view in view()) {
        let plan = view.plan();
        satisfies(&view, &plan)?;
        // `carry_out` asserts that every share is free when it is taken.
        view.clone().carry_out(&plan);
    }

    #[test]
    fn every_task_starts_or_has_its_reason(view in view()) {
        let plan = view.plan();
        for waiting in &view.queue {
            let starts = plan.starts.iter().filter(|s| s.job == waiting.job).count() as u32;
            let reasons = plan.reasons.iter().filter(|(job, _)| *job == waiting.job).count();
            prop_assert!(starts <= waiting.tasks);
            prop_assert_eq!(reasons, usize::from(starts < waiting.tasks));
        }
    }

    #[test]
    fn a_plan_depends_neither_on_the_order_of_the_view_nor_on_the_memo(view in view(), turn in 0usize..12) {
        let mut memo = Memo::default();
        let first = plan(&view, NOW, &mut memo);
        let mut other = view.clone();
        other.queue.reverse();
        let turn = turn.min(other.queue.len());
        other.queue.rotate_left(turn);
        other.running.reverse();
        let text_of = |plan: &Plan| text(plan);
        prop_assert_eq!(text_of(&plan(&other, NOW, &mut Memo::default())), text_of(&first), "the order of the view");
        prop_assert_eq!(text_of(&plan(&other, NOW, &mut memo)), text_of(&first), "the memo");
        prop_assert_eq!(&plan(&view, NOW, &mut Memo::default()), &first);
    }

    #[test]
    fn starts_never_delay_a_backfill_slot(view in view()) {
        let plan = view.plan();
        let mut after = view.clone();
        after.carry_out(&plan);
        for estimate in plan.estimates {
            // With all that started in place, and nobody else in the queue, it still starts by then.
            let mut alone = after.clone();
            alone.queue.retain(|w| w.job == estimate.job);
            alone.policy.backfill_slots_max = 1;
            let alone = alone.plan();
            let starts = alone.starts.iter().any(|s| s.job == estimate.job);
            let in_time = |e: &Estimate| e.job == estimate.job && e.start <= estimate.start;
            prop_assert!(starts || alone.estimates.iter().any(in_time), "{:?} became {:?}", estimate, alone);
        }
    }

    #[test]
    fn a_second_plan_starts_nothing_more(mut view in view()) {
        view.queue.iter_mut().for_each(|w| Arc::make_mut(w).partitions.truncate(1));
        let plan = view.plan();
        view.carry_out(&plan);
        prop_assert_eq!(view.plan().starts, vec![]);
    }

    #[test]
    fn plan_with_an_old_memo_equals_plan_with_an_empty_one(
        view in view(),
        later in proptest::collection::vec((0usize..8, waiting(), 0i64..40, any::<bool>()), 1..8),
        preempts in any::<bool>(),
        window in proptest::option::of((-20i64..40, 1i64..60)),
    ) {
        let mut view = view;
        if preempts {
            view.policy.preempt.by = PreemptBy::Partition;
            view.policy.preempt.mode = PreemptMode::Requeue;
        }
        view.reservations.extend(window.map(|(start, length)| Arc::new(maintenance(start, length))));
        view.queue.sort_by_key(|w| w.job);
        let mut memo = Memo::default();
        let mut now = NOW;
        for (step, (end, more, minutes, carried_out)) in later.into_iter().enumerate() {
            let plan = plan(&view, now, &mut memo);
            prop_assert_eq!(text(&plan), text(&crate::plan(&view, now, &mut Memo::default())));
            let expected = crate::estimates(&view, now, &mut memo);
            prop_assert_eq!(expected, crate::estimates(&view, now, &mut Memo::default()));
            if carried_out {
                view.carry_out(&plan);
            }
            if end < view.running.len() {
                view.end(end);
            }
            if step % 2 == 0 {
                view = view.with_jobs([more.with(|w| w.job = JobId(1_000 + step as u32))]);
            }
            if step % 3 == 1 {
                for waiting in &mut view.queue {
                    let waiting = Arc::make_mut(waiting);
                    waiting.priority = (7 * waiting.priority + u64::from(waiting.job.0)) % 11;
                }
            }
            view.running.sort_by_key(|running| running.job);
            now = Timestamp::from_secs(now.secs() + 60 * minutes);
        }
    }

    #[test]
    fn every_job_that_can_start_starts_under_a_finite_load(view in view()) {
        let mut view = view;
        view.policy.backfill_slots_max = 1_000;
        let forever = |running: &std::sync::Arc<crate::view::RunningJob>| running.end.is_none();
        view.running.iter().position(forever).into_iter().for_each(|at| view.end(at));
        while let Some(at) = view.running.iter().position(forever) {
            view.end(at);
        }
        view.queue.retain(|w| w.spec.request().time_limit != Some(TimeLimit::Unlimited));
        let mut memo = Memo::default();
        // Each turn starts something or ends something: there is a bound on both.
        for _ in 0..200 {
            let plan = plan(&view, NOW, &mut memo);
            let waits = |(_, reason): &&(JobId, Reason)| {
                matches!(reason, Reason::Resources | Reason::Priority)
            };
            let waiting = plan.reasons.iter().filter(waits).count();
            view.carry_out(&plan);
            if waiting == 0 {
                break;
            }
            prop_assert!(!view.running.is_empty(), "nothing runs and {} wait", waiting);
            view.end(0);
        }
        let plan = view.plan();
        let stuck = plan.reasons.iter().filter(|(_, reason)| {
            matches!(reason, Reason::Resources | Reason::Priority)
        });
        prop_assert_eq!(stuck.count(), 0);
    }

    #[test]
    fn every_job_that_can_ever_start_has_an_estimate(view in view()) {
        let plan = view.plan();
        let estimates = crate::estimates(&view, NOW, &mut Memo::default());
        let endless = view.running.iter().any(|r| r.end.is_none())
            || view.queue.iter().any(|w| w.spec.request().time_limit == Some(TimeLimit::Unlimited));
        for (job, reason) in &plan.reasons {
            let can = matches!(reason, Reason::Resources | Reason::Priority);
            let has = estimates.iter().any(|e| e.job == *job);
            prop_assert!(has || !can || endless, "{} {:?}", job, reason);
        }
    }

    #[test]
    fn explanation_expects_a_job_when_the_estimates_of_all_do(mut view in view()) {
        view.queue.sort_by_key(|w| w.job);
        let all = crate::estimates(&view, NOW, &mut Memo::default());
        let mut memo = Memo::default();
        for waiting in &view.queue {
            let of_all = all.iter().find(|e| e.job == waiting.job);
            let explanation = crate::explain(&view, NOW, &mut memo, waiting.job);
            let told = explanation.and_then(|explanation| explanation.expected);
            prop_assert_eq!(told.as_ref(), of_all);
        }
    }
}

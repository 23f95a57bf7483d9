//! Reasons are true: take away what is named, and the job starts.

use super::properties::{view, waiting};
use crate::testing::*;
use crate::view::{Availability, AwaitedEvent, DependencyState, PendingJob, Start, View};
use crate::{Memo, explain};
use model::account::Qos;
use model::amount::Bytes;
use model::id::JobId;
use model::node::NodeConfig;
use model::partition::PartitionState;
use model::reason::{Limit, LimitKind, LimitScope, Reason};
use model::request::Sharing;
use model::run::Hold;
use model::shortage::MissingResource;
use model::time::TimeLimit;
use model::tres::Tres;
use proptest::prelude::*;
use std::sync::Arc;

/// Something that may hold a job back besides resources.
#[derive(Debug, Clone, Copy)]
enum Bar {
    Nothing,
    Hold,
    Begin,
    Dependency,
    Licence,
    JobsOfUser,
    CpusOfUser,
    CpusOfJob,
    CpusOfAll,
    Wall,
    Throttle,
}

const BARS: [Bar; 11] = [
    Bar::Nothing,
    Bar::Hold,
    Bar::Begin,
    Bar::Dependency,
    Bar::Licence,
    Bar::JobsOfUser,
    Bar::CpusOfUser,
    Bar::CpusOfJob,
    Bar::CpusOfAll,
    Bar::Wall,
    Bar::Throttle,
];

fn barred(view: View, job: PendingJob, bar: Bar) -> View {
    let mut capped = Qos::named("capped");
    let cpus = |count: u64| Tres::parse(&format!("cpu={count}")).expect("it reads");
    let mut job = job.with(|w| (w.job, w.qos) = (JobId(900), "capped".to_string()));
    match bar {
        Bar::Nothing => {}
        Bar::Hold => job.hold = Some(Hold::User),
        Bar::Begin => job.begin = Some(after_min(5)),
        Bar::Dependency => job.dependency = DependencyState::Waiting,
        Bar::Licence => job = job.asking(|r| r.licenses = vec![("matlab".to_string(), 1)]),
        Bar::JobsOfUser => capped.max_jobs_per_user = Some(0),
        Bar::CpusOfUser => capped.max_tres_per_user = cpus(0),
        Bar::CpusOfJob => capped.max_tres_per_job = cpus(0),
        Bar::CpusOfAll => capped.group_tres = cpus(0),
        Bar::Wall => capped.max_wall = Some(TimeLimit::Minutes(0)),
        Bar::Throttle => job.tasks_allowed = Some(0),
    }
    let mut view = view.with_jobs([job]);
    view.licenses = vec![("matlab".to_string(), 0)];
    view.qos = vec![Arc::new(Qos::named("normal")), Arc::new(capped)];
    view
}

/// Takes away what the reason names; none for what cannot be.
fn lifted(view: &View, reason: &Reason) -> Option<View> {
    let mut view = view.clone();
    let at = view.queue.iter().position(|w| w.job == JobId(900))?;
    let job = Arc::make_mut(&mut view.queue[at]);
    match reason {
        Reason::HeldByUser | Reason::HeldByAdmin => job.hold = None,
        Reason::BeginTime => job.begin = None,
        Reason::Dependency => job.dependency = DependencyState::Met,
        Reason::ArrayTaskLimit => job.tasks_allowed = None,
        Reason::Licenses => view.licenses[0].1 = 1,
        Reason::Limit(limit) => lift(&mut view, limit),
        // Everybody else leaves.
        Reason::Resources | Reason::Priority => {
            while !view.running.is_empty() {
                view.end(0);
            }
            view.queue.retain(|w| w.job == JobId(900));
        }
        _ => return None,
    }
    Some(view)
}

/// As much more as the limit says that it lacks.
fn lift(view: &mut View, limit: &Limit) {
    let at = view.qos.iter().position(|qos| qos.name == limit.holder).expect("it is there");
    let qos = Arc::make_mut(&mut view.qos[at]);
    let most = limit.in_use + limit.asked;
    match (&limit.kind, limit.scope) {
        (LimitKind::Jobs, LimitScope::QosPerUser) => qos.max_jobs_per_user = Some(most as u32),
        (LimitKind::Wall, _) => {
            let minutes = u32::try_from(most).map_or(TimeLimit::Unlimited, TimeLimit::Minutes);
            qos.max_wall = Some(minutes);
        }
        (LimitKind::Tres(kind), LimitScope::QosPerUser) => {
            qos.max_tres_per_user.set(kind.clone(), most);
        }
        (LimitKind::Tres(kind), LimitScope::QosPerJob) => {
            qos.max_tres_per_job.set(kind.clone(), most);
        }
        (LimitKind::Tres(kind), LimitScope::QosGroup) => qos.group_tres.set(kind.clone(), most),
        other => panic!("no such limit was set: {other:?}"),
    }
}

fn emptied(mut view: View) -> View {
    view.nodes.iter_mut().for_each(|node| Arc::make_mut(node).used = Default::default());
    view
}

fn reason(view: &View) -> Option<Reason> {
    let plan = view.plan();
    let starts = plan.starts.iter().any(|start| start.job == JobId(900));
    let found = plan.reasons.into_iter().find(|(job, _)| *job == JobId(900));
    found.map(|(_, reason)| reason).filter(|_| !starts)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 192, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn job_starts_when_each_thing_named_is_taken_away_in_turn(
        view in view(),
        job in waiting(),
        bar in 0usize..BARS.len(),
    ) {
        let mut view = barred(view, job, BARS[bar]);
        let mut named: Vec<Reason> = Vec::new();
        // One for the bar, one more where whole cores come to more than was asked, one for the resources.
        for _ in 0..4 {
            let Some(reason) = reason(&view) else { return Ok(()) };
            prop_assert!(reason != Reason::None, "{named:?}");
            prop_assert!(
                !matches!(reason, Reason::Resources | Reason::Priority) || !named.contains(&reason),
                "{:?} was taken away and is named again", reason
            );
            let Some(next) = lifted(&view, &reason) else {
                // The job could not start on an empty cluster either.
                prop_assert!(
                    matches!(reason, Reason::BadConstraints | Reason::PartitionNodeLimit),
                    "{reason:?}"
                );
                return Ok(());
            };
            named.push(reason);
            view = next;
        }
        prop_assert!(false, "it still waits after {:?}", named);
    }

    #[test]
    fn job_that_waits_for_a_limit_or_another_job_has_an_estimate_if_it_can_start_alone(
        view in view(),
        jobs in proptest::collection::vec((waiting(), 0usize..4), 1..6),
    ) {
        let mut view = view;
        let mut capped = Qos::named("capped");
        capped.max_jobs_per_user = Some(1);
        view.qos = vec![Arc::new(Qos::named("normal")), Arc::new(capped)];
        let endless = |w: &PendingJob| w.spec.request().time_limit == Some(TimeLimit::Unlimited);
        view.queue.retain(|w| !endless(w));
        while let Some(at) = view.running.iter().position(|running| running.end.is_none()) {
            view.end(at);
        }
        let numbered = jobs.into_iter().zip(900u32..).map(|((job, bar), id)| {
            job.with(|w| {
                w.job = JobId(id);
                match bar {
                    0 => w.qos = "capped".to_string(),
                    1 if id > 900 => {
                        w.dependency = DependencyState::Waiting;
                        w.awaits = vec![AwaitedEvent::EndOf(JobId(id - 1))];
                    }
                    _ => {}
                }
            })
        });
        let numbered: Vec<PendingJob> = numbered.filter(|w| !endless(w)).collect();
        let view = view.with_jobs(numbered.clone());
        let estimates = crate::estimates(&view, NOW, &mut Memo::default());
        let has = |id: JobId| estimates.iter().any(|e| e.job == id);
        let mut broken_chain = false;
        for job in numbered {
            let alone = View { running: Vec::new(), queue: Vec::new(), ..view.clone() };
            let mut alone = emptied(alone).with_jobs([job.clone()]);
            Arc::make_mut(&mut alone.queue[0]).dependency = DependencyState::Met;
            let can = !alone.plan().starts.is_empty();
            let follows = !job.awaits.is_empty();
            // A job that waits for one without an estimate has none.
            broken_chain = !can || (follows && (broken_chain || !has(JobId(job.job.0 - 1))));
            prop_assert!(has(job.job) || broken_chain, "{} of {:?}", job.job, estimates);
        }
    }

    #[test]
    fn shortages_in_an_explanation_are_true(view in view(), job in waiting()) {
        let view = view.with_jobs([job.with(|w| (w.job, w.tasks) = (JobId(900), 1))]);
        let Some(explained) = explain(&view, NOW, &mut Memo::default(), JobId(900)) else {
            return Ok(());
        };
        if explained.reason.is_none() {
            return Ok(());
        }
        for class in &explained.classes {
            prop_assert_eq!(
                class.nodes.len(),
                class.free.len() + class.missing.iter().map(|m| m.nodes.len()).sum::<usize>()
            );
            prop_assert!(
                (class.free.len() as u32) < class.wanted || class.never.is_some()
                    // What is right only as a whole may lack more than any node does.
                    || view.queue.iter().any(|w| w.job == JobId(900) && w.spec.request().tasks.is_some()),
                "{class:?}"
            );
            for missing in &class.missing {
                if matches!(missing.what, MissingResource::Cpus | MissingResource::MemoryMib) {
                    prop_assert!(missing.most_free < missing.asked, "{missing:?}");
                    prop_assert!(missing.most_free <= missing.total, "{missing:?}");
                }
            }
        }
    }
}

#[test]
fn job_starts_when_the_node_or_partition_in_its_reason_is_back() {
    let mut view = cluster(gpu_nodes(1)).with_jobs([job(900)]);
    Arc::make_mut(&mut view.nodes[0]).availability = Availability::Drained;
    assert_eq!(reason(&view), Some(Reason::NodesDown));
    Arc::make_mut(&mut view.nodes[0]).availability = Availability::Available;
    assert_eq!(reason(&view), None);
    let view = view.with_main(|p| p.state = PartitionState::Down);
    assert_eq!(reason(&view), Some(Reason::PartitionDown));
    let view = view.with_main(|p| p.state = PartitionState::Up);
    assert_eq!(reason(&view), None);
    let view = view.with_main(|p| p.max_time = TimeLimit::Minutes(59));
    assert_eq!(reason(&view), Some(Reason::PartitionTimeLimit));
    let view = view.with_main(|p| p.max_time = TimeLimit::Minutes(60));
    assert_eq!(reason(&view), None);
}

/// Its slot in one partition keeps another job off that partition's node, which then has the node that it would take in the other.
#[test]
fn node_that_another_job_has_because_of_the_jobs_own_slot_is_not_called_free() {
    let node = |name, cpus: u32| NodeConfig::plain(name, cpus, Bytes::from_gib(4));
    let view = cluster(vec![node("n0", 2), node("n1", 1)]);
    let mut view = view.with_partition("half", &[0], |p| p.priority_tier = 2).with_jobs([
        job(100).for_min(71),
        job(101).for_min(1).with(|w| w.partitions = vec![1]),
        job(900).for_min(1).asking(|r| r.sharing = Sharing::Node).with(|w| {
            (w.priority, w.partitions) = (0, vec![1, 0]);
        }),
    ]);
    view.policy.backfill_slots_max = 1;
    assert_eq!(starts(&view), ["100 n1", "101 n0"]);
    let explained = explain(&view, NOW, &mut Memo::default(), JobId(900)).expect("it waits");
    let free: Vec<_> = explained.classes.iter().flat_map(|class| &class.free).collect();
    assert!(explained.reason.is_some() && free.is_empty(), "{explained:?}");
}

/// The jobs that the plan starts, and where.
fn starts(view: &View) -> Vec<String> {
    let started = view.plan().starts;
    let nodes = |start: &Start| start.allocation.node_names().collect::<Vec<_>>().join(",");
    let mut shown: Vec<String> =
        started.iter().map(|start| format!("{} {}", start.job, nodes(start))).collect();
    shown.sort();
    shown
}

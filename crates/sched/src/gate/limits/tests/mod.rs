//! Limits of associations, and what must hold for all limits together.

mod counting;

use super::usage::UsageTotals;
use super::*;
use crate::accounting::{Accounting, Member};
use crate::testing::*;
use model::account::{Association, AssociationLimits, Qos};
use model::id::JobId;
use model::qos::Factor;
use model::raw_usage::RawUsage;
use model::reason::Reason;
use model::request::Per;
use model::tres::TresKind;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;

fn tres(text: &str) -> Tres {
    Tres::parse(text).expect("a list")
}

fn member(parent: Option<u32>, account: &str, user: Option<&str>) -> Member {
    Member {
        association: Arc::new(Association::plain(account, user)),
        parent,
        raw_usage: RawUsage::default(),
        fair_share: user.map(|_| 0.5),
    }
}

/// root ─ physics ─ alice (1000), bob (1001); root ─ chem ─ alice.
fn members() -> Vec<Member> {
    vec![
        member(None, "root", None),
        member(Some(0), "physics", None),
        member(Some(1), "physics", Some("alice")),
        member(Some(1), "physics", Some("bob")),
        member(Some(0), "chem", None),
        member(Some(4), "chem", Some("alice")),
    ]
}

const ALICE: u32 = 2;
const BOB: u32 = 3;

fn lab(set: impl FnOnce(&mut Vec<Member>, &mut Qos)) -> View {
    let (mut members, mut qos) = (members(), Qos::named("capped"));
    set(&mut members, &mut qos);
    let mut view = cluster(gpu_nodes(2));
    view.qos = vec![Arc::new(Qos::named("normal")), Arc::new(qos)];
    view.accounting = Arc::new(Accounting { members, ..Accounting::default() });
    view
}

fn limits(member: &mut Member) -> &mut AssociationLimits {
    &mut Arc::make_mut(&mut member.association).limits
}

fn of(id: u32, association: u32) -> PendingJob {
    let uid = if association == BOB { 1001 } else { 1000 };
    let account = if association == 5 { "chem" } else { "physics" };
    job(id).of_user(uid).with(|w| (w.association, w.account) = (Some(association), account.into()))
}

/// `scope kind holder in_use+asked>limit` of the last job that waits.
fn said(view: View) -> String {
    let plan = view.plan();
    let Some((_, Reason::Limit(l))) = plan.reasons.last() else {
        return format!("{:?} {:?}", plan.starts.len(), plan.reasons);
    };
    format!("{:?} {:?} {} {}+{}>{}", l.scope, l.kind, l.holder, l.in_use, l.asked, l.limit)
}

type Case = (fn(&mut Vec<Member>, &mut Qos), &'static str);

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
#[test]
fn every_limit_of_an_association_holds_and_says_whose_it_is() {
    let cases: [Case; 13] = [
        (|m, _| limits(&mut m[2]).group_tres = tres("cpu=7"), "AssociationGroup Tres(Cpu) alice 4+4>7"),
        (|m, _| limits(&mut m[1]).group_tres = tres("cpu=7"), "AssociationGroup Tres(Cpu) physics 4+4>7"),
        (|m, _| limits(&mut m[0]).group_tres = tres("cpu=7"), "AssociationGroup Tres(Cpu) root 4+4>7"),
        (|m, _| limits(&mut m[1]).group_jobs = Some(1), "AssociationGroup Jobs physics 1+1>1"),
        (|m, _| limits(&mut m[1]).max_jobs = Some(1), "AssociationPerJob Jobs physics 1+1>1"),
        (|m, _| limits(&mut m[2]).max_jobs = Some(0), "AssociationPerJob Jobs alice 0+1>0"),
        (|m, _| limits(&mut m[1]).max_wall = Some(TimeLimit::Minutes(59)), "AssociationPerJob Wall physics 0+60>59"),
        (|m, _| limits(&mut m[1]).max_tres_per_job = tres("cpu=3"), "AssociationPerJob Tres(Cpu) physics 0+4>3"),
        (|m, _| limits(&mut m[1]).max_tres_per_node = tres("cpu=3"), "AssociationPerNode Tres(Cpu) physics 0+4>3"),
        // 4 CPUs for 60 minutes are 240 of their minutes.
        (|m, _| limits(&mut m[1]).max_tres_minutes_per_job = tres("cpu=239"), "AssociationPerJob TresMinutes(Cpu) physics 0+240>239"),
        (|m, _| limits(&mut m[1]).group_tres_run_minutes = tres("cpu=479"), "AssociationGroup TresRunMinutes(Cpu) physics 240+240>479"),
        (|m, _| { limits(&mut m[1]).group_tres_minutes = tres("cpu=10"); m[1].raw_usage.charge(&tres("cpu=1"), 600.0, 1.0) }, "AssociationGroup TresMinutes(Cpu) physics 10+240>10"),
        (|m, _| { limits(&mut m[1]).group_wall = Some(TimeLimit::Minutes(10)); m[1].raw_usage.charge(&tres("cpu=1"), 600.0, 1.0) }, "AssociationGroup Wall physics 10+60>10"),
    ];
    for (set, expected) in cases {
        let view = lab(set).with_jobs([of(1, ALICE).cpus(4), of(2, ALICE).cpus(4)]);
        assert_eq!(said(view), expected);
    }
}

#[test]
fn the_nearest_account_and_the_qos_come_before_those_above() {
    // A user's own maximum is not made less by the account's; a group limit of the account stays.
    let view = lab(|m, _| {
        limits(&mut m[1]).max_tres_per_job = tres("cpu=1");
        limits(&mut m[2]).max_tres_per_job = tres("cpu=4");
    });
    assert_eq!(said(view.with_jobs([of(1, ALICE).cpus(2)])), "1 []");
    let view = lab(|m, _| {
        limits(&mut m[1]).group_tres = tres("cpu=1");
        limits(&mut m[2]).group_tres = tres("cpu=4");
    });
    let expected = "AssociationGroup Tres(Cpu) physics 0+2>1";
    assert_eq!(said(view.with_jobs([of(1, ALICE).cpus(2)])), expected);
    // What the QOS says of a TRES replaces what the association says of the same, and of no other.
    let capped = |w: &mut PendingJob| w.qos = "capped".into();
    let view = lab(|m, q| {
        q.group_tres = tres("cpu=4");
        limits(&mut m[2]).group_tres = tres("cpu=1");
    });
    assert_eq!(said(view.with_jobs([of(1, ALICE).cpus(2).with(capped)])), "1 []");
    let view = lab(|m, q| {
        q.group_tres = tres("cpu=4");
        limits(&mut m[2]).group_tres = tres("mem=1000");
    });
    let expected = "AssociationGroup Tres(Mem) alice 0+1024>1000";
    assert_eq!(said(view.with_jobs([of(1, ALICE).cpus(2).with(capped)])), expected);
}

#[test]
fn partition_qos_comes_before_the_jobs_unless_over_part_qos() {
    let view = |over: bool| {
        let mut view = lab(|_, q| q.max_tres_per_user = tres("cpu=2"));
        if over {
            Arc::make_mut(&mut view.qos[1]).flags = vec![QosFlag::OverPartQos];
        }
        let mut wide = Qos::named("wide");
        wide.max_tres_per_user = tres("cpu=4");
        view.qos.push(Arc::new(wide));
        let three = of(1, ALICE).cpus(3).with(|w| w.qos = "capped".into());
        view.with_main(|p| p.qos = Some("wide".into())).with_jobs([three])
    };
    assert_eq!(said(view(false)), "1 []");
    assert_eq!(said(view(true)), "QosPerUser Tres(Cpu) capped 0+3>2");
}

#[test]
fn enforce_safe_counts_the_whole_time_limit_and_limit_factor_widens_limits() {
    let set = |m: &mut Vec<Member>, _: &mut Qos| {
        limits(&mut m[1]).group_tres_minutes = tres("cpu=300");
    };
    // 240 minutes of CPUs fit into 300; a second such job does not.
    let mut view = lab(set).with_jobs([of(1, ALICE).cpus(4), of(2, ALICE).cpus(4)]);
    assert_eq!(said(view.clone()), "2 []");
    Arc::make_mut(&mut view.accounting).enforce.safe = true;
    assert_eq!(said(view), "AssociationGroup TresMinutes(Cpu) physics 240+240>300");
    let view = lab(|m, q| {
        limits(&mut m[1]).group_tres = tres("cpu=4");
        q.limit_factor = Factor::parse("2");
    });
    let two = [of(1, ALICE).cpus(4), of(2, ALICE).cpus(4)];
    assert_eq!(
        said(view.clone().with_jobs(two.clone())),
        "AssociationGroup Tres(Cpu) physics 4+4>4"
    );
    let wide = two.map(|job| job.with(|w| w.qos = "capped".into()));
    assert_eq!(said(view.with_jobs(wide)), "2 []");
}

#[test]
fn limits_that_are_not_enforced_hold_nobody_back() {
    let mut view = lab(|m, q| {
        limits(&mut m[1]).max_jobs = Some(0);
        q.max_jobs_per_user = Some(0);
    });
    Arc::make_mut(&mut view.accounting).enforce.limits = false;
    assert_eq!(said(view.with_jobs([of(1, ALICE), of(2, BOB)])), "2 []");
}

#[test]
fn job_that_breaks_a_limit_alone_is_refused_only_with_deny_on_limit() {
    let view = |deny: bool| {
        lab(|m, q| {
            limits(&mut m[2]).max_tres_per_job = tres("cpu=3");
            if deny {
                q.flags = vec![QosFlag::DenyOnLimit];
            }
        })
    };
    let job = of(1, ALICE).cpus(4).with(|w| w.qos = "capped".into());
    assert_eq!(limit_denied(&view(false), &job, 0), None);
    let limit = limit_denied(&view(true), &job, 0).expect("refused");
    assert_eq!((limit.scope, limit.asked), (LimitScope::AssociationPerJob, 4));
    // What others hold does not count.
    let mut full = view(true);
    limits(&mut Arc::make_mut(&mut full.accounting).members[2]).max_tres_per_job = Tres::new();
    Arc::make_mut(&mut full.qos[1]).group_tres = tres("cpu=4");
    let mut full = full.with_jobs([job.clone()]);
    let plan = full.plan();
    full.carry_out(&plan);
    assert_eq!(full.running.len(), 1);
    assert_eq!(limit_denied(&full, &job, 0), None);
}

#[test]
fn limit_that_the_job_breaks_alone_is_never_met_and_one_that_others_hold_may_be() {
    let capped = |id: u32| of(id, ALICE).cpus(4).for_min(60).with(|w| w.qos = "capped".into());
    let scope = |set: fn(&mut Qos)| {
        let view = lab(|_, q| set(q));
        limit_never_met(&view, &capped(1)).map(|limit| (limit.scope, limit.limit))
    };
    let wall = scope(|q| q.max_wall = Some(TimeLimit::Minutes(10)));
    assert_eq!(wall, Some((LimitScope::QosPerJob, 10)));
    assert_eq!(scope(|q| q.max_wall = Some(TimeLimit::Minutes(60))), None);
    assert_eq!(scope(|q| q.group_tres = tres("cpu=3")), Some((LimitScope::QosGroup, 3)));
    assert_eq!(scope(|q| q.group_tres = tres("cpu=4")), None);
    assert_eq!(scope(|q| q.min_tres_per_job = tres("cpu=5")), Some((LimitScope::QosLeast, 5)));
    // What was used decays, and the job is let in when it is below the limit again.
    assert_eq!(scope(|q| q.group_tres_minutes = tres("cpu=100")), None);
    let view = lab(|_, q| q.max_wall = Some(TimeLimit::Minutes(10)));
    let view = view.with_jobs([capped(1)]);
    let explained = crate::explain(&view, NOW, &mut crate::Memo::default(), JobId(1));
    let explained = explained.expect("it waits");
    assert_eq!(explained.limit_never_met.map(|limit| limit.asked), Some(60));
    assert_eq!(explained.expected, None);
}

#[test]
fn a_fair_share_below_the_threshold_waits() {
    let view = |share: f64| {
        lab(|m, q| {
            q.flags = vec![QosFlag::EnforceUsageThreshold];
            q.usage_threshold = Factor::parse("0.5");
            m[2].fair_share = Some(share);
        })
        .with_jobs([of(1, ALICE).with(|w| w.qos = "capped".into())])
    };
    assert_eq!(view(0.4).plan().reasons, [(JobId(1), Reason::UsageThreshold)]);
    assert_eq!(view(0.5).plan().reasons, []);
}

#[test]
fn a_flag_of_the_qos_lifts_the_partitions_limits() {
    let view = |flags: Vec<QosFlag>| {
        let job = of(1, ALICE).nodes(2).with(|w| w.qos = "capped".into());
        lab(|_, q| q.flags = flags)
            .with_main(|p| (p.max_time, p.max_nodes) = (TimeLimit::Minutes(30), Some(1)))
            .with_jobs([job])
    };
    let reasons =
        |flags| view(flags).plan().reasons.into_iter().map(|(_, r)| r).collect::<Vec<_>>();
    assert_eq!(reasons(vec![]), [Reason::PartitionNodeLimit]);
    let short = view(vec![QosFlag::PartitionTimeLimit]).with_main(|p| p.max_nodes = None);
    assert_eq!(short.plan().starts.len(), 1);
    let wide =
        view(vec![QosFlag::PartitionMaxNodes]).with_main(|p| p.max_time = TimeLimit::Unlimited);
    assert_eq!(wide.plan().starts.len(), 1);
    let long = view(vec![]).with_main(|p| p.max_nodes = None);
    assert_eq!(long.plan().reasons[0].1, Reason::PartitionTimeLimit);
}

/// Every counter by name.
fn counters(usage: &Usage<'_>) -> BTreeMap<String, UsageTotals> {
    let mut all = BTreeMap::new();
    for (name, held) in &usage.qos {
        all.insert(format!("qos {name}"), held.all.clone());
        all.extend(held.users.iter().map(|(uid, h)| (format!("qos {name} {uid}"), h.clone())));
        all.extend(held.accounts.iter().map(|(a, h)| (format!("qos {name} {a}"), h.clone())));
    }
    let members = usage.members.iter().enumerate();
    all.extend(members.map(|(at, held)| (format!("member {at}"), held.clone())));
    all.retain(|_, held| held.jobs > 0);
    all
}

/// One limit somewhere, of a small amount.
fn some_limit() -> impl Strategy<Value = (u8, u8, u64)> {
    (0_u8..7, 0_u8..12, 0_u64..12)
}

fn set_limit(members: &mut [Member], qos: &mut Qos, (where_, what, amount): (u8, u8, u64)) {
    let kind = match what % 3 {
        0 => TresKind::Cpu,
        1 => TresKind::gpu(),
        _ => TresKind::Node,
    };
    let list: Tres = [(kind, amount)].into_iter().collect();
    let few = Some(amount as u32);
    if where_ == 6 {
        match what {
            0..=2 => qos.group_tres = list,
            3..=5 => qos.max_tres_per_user = list,
            6 => qos.max_tres_per_account = list,
            7 => qos.max_tres_per_job = list,
            8 => qos.max_jobs_per_user = few,
            9 => qos.group_jobs = few,
            10 => qos.max_wall = Some(TimeLimit::Minutes(amount as u32 * 20)),
            _ => qos.group_tres_run_minutes = list,
        }
        return;
    }
    let limits = limits(&mut members[where_ as usize]);
    match what {
        0..=3 => limits.group_tres = list,
        4..=6 => limits.max_tres_per_job = list,
        7 => limits.max_tres_per_node = list,
        8 => limits.max_jobs = few,
        9 => limits.group_jobs = few,
        10 => limits.max_wall = Some(TimeLimit::Minutes(amount as u32 * 20)),
        _ => limits.group_tres_run_minutes = list,
    }
}

fn some_job(id: u32) -> impl Strategy<Value = PendingJob> {
    (0_u8..3, 1_u32..6, 0_u64..3, 1_u32..3, any::<bool>()).prop_map(
        move |(who, cpus, gpus, nodes, capped)| {
            let association = [ALICE, BOB, 5][usize::from(who)];
            let job = of(id, association).cpus(cpus).nodes(nodes);
            let job = if gpus > 0 { job.gpus(Per::Node, gpus) } else { job };
            job.with(|w| w.qos = if capped { "capped".into() } else { "normal".into() })
        },
    )
}

fn some_jobs() -> impl Strategy<Value = Vec<PendingJob>> {
    (1_usize..8).prop_flat_map(|count| (1..=count as u32).map(some_job).collect::<Vec<_>>())
}

/// Takes one limit away from whoever has it.
fn lift(view: &mut View, limit: &Limit) {
    let clear = |list: &mut Tres, kind: &TresKind| {
        list.remove(kind);
    };
    for qos in view.qos.iter_mut().filter(|q| q.name == limit.holder) {
        let qos = Arc::make_mut(qos);
        match (&limit.kind, limit.scope) {
            (LimitKind::Tres(k), LimitScope::QosPerUser) => clear(&mut qos.max_tres_per_user, k),
            (LimitKind::Tres(k), LimitScope::QosPerAccount) => {
                clear(&mut qos.max_tres_per_account, k);
            }
            (LimitKind::Tres(k), LimitScope::QosPerJob) => clear(&mut qos.max_tres_per_job, k),
            (LimitKind::Tres(k), _) => clear(&mut qos.group_tres, k),
            (LimitKind::TresRunMinutes(k), _) => clear(&mut qos.group_tres_run_minutes, k),
            (LimitKind::Jobs, LimitScope::QosGroup) => qos.group_jobs = None,
            (LimitKind::Jobs, _) => qos.max_jobs_per_user = None,
            (LimitKind::Wall, _) => qos.max_wall = None,
            other => panic!("no such limit was set: {other:?}"),
        }
    }
    let named = |m: &&mut Member| {
        m.association.user.as_ref().unwrap_or(&m.association.account) == &limit.holder
    };
    for member in Arc::make_mut(&mut view.accounting).members.iter_mut().filter(named) {
        let limits = limits(member);
        match (&limit.kind, limit.scope) {
            (LimitKind::Tres(k), LimitScope::AssociationPerJob) => {
                clear(&mut limits.max_tres_per_job, k);
            }
            (LimitKind::Tres(k), LimitScope::AssociationPerNode) => {
                clear(&mut limits.max_tres_per_node, k);
            }
            (LimitKind::Tres(k), _) => clear(&mut limits.group_tres, k),
            (LimitKind::TresRunMinutes(k), _) => clear(&mut limits.group_tres_run_minutes, k),
            (LimitKind::Jobs, LimitScope::AssociationGroup) => limits.group_jobs = None,
            (LimitKind::Jobs, _) => limits.max_jobs = None,
            (LimitKind::Wall, _) => limits.max_wall = None,
            other => panic!("no such limit was set: {other:?}"),
        }
    }
}

fn world(set: &[(u8, u8, u64)], jobs: Vec<PendingJob>) -> View {
    let view = lab(|members, qos| set.iter().for_each(|one| set_limit(members, qos, *one)));
    view.with_jobs(jobs)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// What is counted while a plan is made is what would be counted from nothing afterwards.
    #[test]
    fn usage_totals_equal_a_recount(set in prop::collection::vec(some_limit(), 0..6), jobs in some_jobs()) {
        let mut view = world(&set, jobs);
        let before = view.clone();
        let plan = before.plan();
        let mut kept = Usage::of_running(&before, NOW);
        for start in &plan.starts {
            let waiting = before.queue.iter().find(|w| w.job == start.job).expect("it waited");
            kept.add(Claimant::pending(&before, waiting, 0), start.allocation.nodes.iter());
        }
        view.carry_out(&plan);
        let counted = Usage::of_running(&view, NOW);
        prop_assert_eq!(counters(&kept), counters(&counted));
    }

    /// A limit that is named is broken by its own numbers, and when it is lifted the job starts or waits for another.
    #[test]
    fn limit_reasons_are_true(set in prop::collection::vec(some_limit(), 1..6), jobs in some_jobs()) {
        let mut view = world(&set, jobs);
        let plan = view.plan();
        view.carry_out(&plan);
        let waiting = view.queue.clone();
        for (job, reason) in &plan.reasons {
            let mut alone = view.clone();
            alone.queue = waiting.iter().filter(|w| w.job == *job).cloned().collect();
            let mut reason = Some(reason.clone());
            // There are no more limits than were set.
            for _ in 0..=set.len() * 3 {
                let Some(Reason::Limit(limit)) = &reason else { break };
                prop_assert!(limit.in_use + limit.asked > limit.limit, "{limit:?}");
                lift(&mut alone, limit);
                let next = alone.plan();
                let again = next.reasons.first().map(|(_, reason)| reason.clone());
                prop_assert!(again.as_ref() != reason.as_ref(), "{limit:?} is lifted and named again");
                reason = again;
            }
            let free = matches!(reason, None | Some(Reason::Resources | Reason::Priority));
            prop_assert!(free, "job {job} still waits: {reason:?}");
        }
    }
}

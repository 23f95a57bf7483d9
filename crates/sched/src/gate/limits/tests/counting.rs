//! Plan, explanation and `sshare` count the same jobs for the same amounts.

use super::*;
use crate::accounting::Enforce;

type LimitCase = (&'static str, fn(&mut Vec<Member>, &mut Qos));

/// Every limit that running jobs count against, each so low that job 9 breaks it.
///
/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
const COUNTED: [LimitCase; 17] = [
    ("jobs of the QOS", |_, q| q.group_jobs = Some(2)),
    ("jobs of a user", |_, q| q.max_jobs_per_user = Some(2)),
    ("jobs of an account", |_, q| q.max_jobs_per_account = Some(2)),
    ("TRES of the QOS", |_, q| q.group_tres = tres("cpu=7")),
    ("TRES of a user", |_, q| q.max_tres_per_user = tres("cpu=7")),
    ("TRES of an account", |_, q| q.max_tres_per_account = tres("cpu=7")),
    ("GPUs by their kind", |_, q| q.group_tres = tres("gres/gpu:h100=2")),
    ("billing", |_, q| q.group_tres = tres("billing=7")),
    ("licenses", |_, q| q.group_tres = tres("license/matlab=3")),
    ("run minutes of the QOS", |_, q| q.group_tres_run_minutes = tres("cpu=500")),
    ("run minutes of billing", |_, q| q.group_tres_run_minutes = tres("billing=500")),
    ("minutes used, with `safe`", |_, q| q.group_tres_minutes = tres("cpu=500")),
    ("jobs of an association", |m, _| limits(&mut m[1]).max_jobs = Some(2)),
    ("jobs of a group", |m, _| limits(&mut m[1]).group_jobs = Some(2)),
    ("TRES of a group", |m, _| limits(&mut m[1]).group_tres = tres("cpu=7")),
    ("run minutes of a group", |m, _| limits(&mut m[1]).group_tres_run_minutes = tres("cpu=500")),
    ("run minutes of licenses", |m, _| limits(&mut m[0]).group_tres_run_minutes = tres("license/matlab=100")),
];

/// Alice's jobs 1 (without a time limit) and 2 run, and her job 9 waits; each hour counts for two.
fn counted_view(set: fn(&mut Vec<Member>, &mut Qos)) -> View {
    let mut view = lab(|m, q| {
        q.usage_factor = Factor::parse("2").expect("a factor");
        set(m, q);
    });
    Arc::make_mut(&mut view.accounting).enforce = Enforce { limits: true, safe: true };
    view.licenses = vec![("matlab".to_string(), 100)];
    let wanted = |id| {
        let job = of(id, ALICE).cpus(3).gpus(Per::Node, 1).with(|w| w.qos = "capped".into());
        job.asking(|r| r.licenses = vec![("matlab".to_string(), 2)])
    };
    let endless = wanted(1).asking(|r| r.time_limit = Some(TimeLimit::Unlimited));
    let stranger = of(3, 5).cpus(2).of_user(1000);
    let mut view = view.with_jobs([endless, wanted(2), stranger]);
    // What runs was started before the limit was set.
    let mut unlimited = view.clone();
    unlimited.qos = vec![Arc::new(Qos::named("normal")), Arc::new(Qos::named("capped"))];
    Arc::make_mut(&mut unlimited.accounting).members = members();
    let plan = unlimited.plan();
    assert_eq!(plan.starts.len(), 3);
    view.carry_out(&plan);
    view.with_jobs([wanted(9)])
}

#[test]
fn plan_and_explanation_count_the_same_for_every_kind_of_limit() {
    for (what, set) in COUNTED {
        let view = counted_view(set);
        let plan = view.plan();
        let Some((_, Reason::Limit(limit))) = plan.reasons.last() else {
            panic!("{what}: {:?}", plan.reasons);
        };
        let explained = crate::explain(&view, NOW, &mut crate::Memo::default(), JobId(9));
        let explained = explained.and_then(|e| e.limit).expect("it waits for a limit");
        assert_eq!(explained.limit, **limit, "{what}");
        let holders: Vec<u32> = explained.holders.iter().map(|(job, _)| job.0).collect();
        assert!(holders.iter().all(|job| [1, 2].contains(job)) && !holders.is_empty(), "{what}");
        let sum: u64 = explained.holders.iter().map(|(_, amount)| amount).sum();
        assert_eq!(sum, limit.in_use, "{what}: {:?}", explained.holders);
    }
}

#[test]
fn run_minutes_shown_for_an_association_are_those_that_its_limits_count() {
    let view = counted_view(|members, _| {
        members.iter_mut().for_each(|m| limits(m).group_tres_run_minutes = tres("cpu=1"));
    });
    let shown = run_minutes(&view, NOW);
    let usage = Usage::of_running(&view, NOW);
    let counted: Vec<&Tres> = usage.members.iter().map(|total| &total.run_minutes).collect();
    assert_eq!(shown.iter().collect::<Vec<_>>(), counted);
    // A year and an hour of three CPUs, twice because of the factor; the other account's two CPUs once.
    let (year, hour) = (365 * 24 * 60, 60);
    assert_eq!(shown[ALICE as usize].amount(&TresKind::Cpu), 2 * 3 * (year + hour));
    assert_eq!(shown[0].amount(&TresKind::Cpu), 2 * 3 * (year + hour) + 2 * hour);
    assert_eq!(
        shown[ALICE as usize].amount(&TresKind::License("matlab".into())),
        2 * 2 * (year + hour)
    );
}

#[test]
fn limits_of_one_job_by_itself_are_held_by_nobody() {
    let view = counted_view(|_, q| q.max_tres_per_job = tres("cpu=1"));
    let explained = crate::explain(&view, NOW, &mut crate::Memo::default(), JobId(9));
    let limit = explained.and_then(|e| e.limit).expect("it waits for a limit");
    assert_eq!((limit.limit.scope, limit.holders), (LimitScope::QosPerJob, Vec::new()));
}

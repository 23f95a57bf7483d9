//! Accounts, what they spend, what they are refused, and the order that comes of it.

use crate::job_builder::{Ask, ask, bob};
use crate::testbed::{World, world, world_with};
use cluster::Command;
use cluster::view::view;
use model::account::{Account, Association, AssociationKey, Qos, QosFlag, Shares};
use model::id::JobId;
use model::priority::{PriorityPolicy, UsageReset, Weights};
use model::qos::Factor;
use model::reason::{LimitKind, LimitScope, Refusal};
use model::tres::{Tres, TresKind};
use std::sync::Arc;
use std::time::Duration;

fn account(name: &str, parent: &str) -> Command {
    Command::SetAccount(Account {
        name: name.into(),
        description: name.into(),
        organization: name.into(),
        parent: Some(parent.into()),
        coordinators: Vec::new(),
    })
}

fn member(account: &str, user: Option<&str>, shares: u32) -> Association {
    Association { shares: Shares::Count(shares), ..Association::plain(account, user) }
}

fn set(world: &mut World, association: Association) {
    world.run(Command::SetAssociation(Box::new(association)));
}

/// physics (3) with alice and bob, chem (1) with bob; priorities by fair share alone, a half-life of an hour.
fn lab() -> World {
    let mut world = world_with(2, |config| {
        config.parameters.priority = PriorityPolicy {
            multifactor: true,
            weights: Weights { fair_share: 1000, ..Weights::default() },
            half_life_s: Some(3600),
            calc_period_s: 300,
            ..PriorityPolicy::default()
        };
    });
    for (name, shares) in [("physics", 3), ("chem", 1)] {
        world.run(account(name, "root"));
        set(&mut world, member(name, None, shares));
    }
    for (name, user) in [("physics", "alice"), ("physics", "bob"), ("chem", "bob")] {
        set(&mut world, member(name, Some(user), 1));
    }
    world
}

fn billed(world: &World, account: &str, user: &str) -> f64 {
    let key = AssociationKey { account: account.into(), user: Some(user.into()), partition: None };
    world.state.charged_usage.associations.get(&key).map_or(0.0, |spent| spent.billing_s())
}

fn of(account: &str) -> Ask {
    ask().with(|spec| spec.account = Some(account.into()))
}

fn qos(world: &mut World, set: impl FnOnce(&mut Qos)) {
    let mut qos = Qos::named("t");
    set(&mut qos);
    world.run(Command::SetQos(Box::new(qos)));
}

fn under_t(ask: Ask) -> Ask {
    ask.with(|spec| spec.qos = Some("t".into()))
}

fn tres(text: &str) -> Tres {
    Tres::parse(text).expect("a list")
}

/// 4 CPUs for 100 s are 400. An hour later half of it is left; what ran in the last period is added whole.
#[test]
fn usage_is_charged_at_the_jobs_end_and_decays_at_each_period() {
    let mut world = lab();
    let job = world.started(of("physics").cpus(4)).job;
    world.now = world.now + std::time::Duration::from_secs(100);
    world.end(job, 0);
    assert_eq!(billed(&world, "physics", "alice"), 400.0);
    let start = world.state.charged_usage.as_of.expect("charged");
    let mut passed = 100;
    while passed < 3600 {
        world.pass(300);
        passed += 300;
    }
    let since = world.state.charged_usage.as_of.expect("settled").since(start).as_secs_f64();
    let expected = 400.0 * 0.5_f64.powf(since / 3600.0);
    assert!((billed(&world, "physics", "alice") - expected).abs() < 1e-9);
    // A job that runs is charged at each period: 2 CPUs for 600 s, the first 300 s of it decayed once.
    let before = billed(&world, "physics", "alice");
    let start = world.started(of("physics").cpus(2)).job;
    world.pass(300);
    world.pass(300);
    let part = 0.5_f64.powf(300.0 / 3600.0);
    let expected = (before * part + 600.0) * part + 600.0;
    assert!((billed(&world, "physics", "alice") - expected).abs() < 1e-6);
    world.end(start, 0);
    assert!((billed(&world, "physics", "alice") - expected).abs() < 1e-6, "nothing twice");
    world.restart();
    assert!((billed(&world, "physics", "alice") - expected).abs() < 1e-6);
}

#[test]
fn suspended_time_is_not_charged_and_usage_factor_is_applied() {
    use model::change::JobChange;
    let mut world = lab();
    qos(&mut world, |q| q.usage_factor = Factor::parse("0.5").expect("a factor"));
    let job = world.started(under_t(of("physics").cpus(2))).job;
    world.now = world.now + std::time::Duration::from_secs(40);
    world.change(job, JobChange::Suspend).expect("suspended");
    world.now = world.now + std::time::Duration::from_secs(1000);
    world.change(job, JobChange::Resume).expect("resumed");
    world.now = world.now + std::time::Duration::from_secs(60);
    world.end(job, 0);
    // 2 CPUs for 100 s at half.
    assert_eq!(billed(&world, "physics", "alice"), 100.0);
    assert_eq!(world.state.charged_usage.qos["t"].wall_s, 50.0);
}

#[test]
fn usage_is_reset_at_the_period_boundary_except_for_a_no_decay_qos() {
    let mut world = world_with(1, |config| {
        config.parameters.priority.reset = UsageReset::Daily;
        config.parameters.priority.half_life_s = None;
    });
    world.run(account("physics", "root"));
    set(&mut world, member("physics", Some("alice"), 1));
    qos(&mut world, |q| q.flags = vec![QosFlag::NoDecay]);
    let job = world.started(under_t(of("physics"))).job;
    world.pass(300);
    world.end(job, 0);
    assert_eq!(billed(&world, "physics", "alice"), 300.0);
    world.pass(2 * 24 * 3600);
    assert_eq!(billed(&world, "physics", "alice"), 0.0);
    assert_eq!(world.state.charged_usage.qos["t"].seconds(&TresKind::Cpu), 300.0);
}

/// The user who has used less of a larger share comes first, in any order of submission.
#[test]
fn queue_is_ordered_by_fair_share() {
    let mut world = lab();
    let hog = world.started(of("physics").cpus(4)).job;
    world.pass(300);
    world.end(hog, 0);
    world.pass(300);
    let used = world.submit(of("physics"));
    let unused = world.submit(ask().of(bob()).with(|s| s.account = Some("chem".into())));
    let queue = view(&world.state, world.now).queue;
    let priority = |id: JobId| queue.iter().find(|w| w.job == id).expect("it waits").priority;
    // chem has used nothing: bob there is first of three, bob in physics second, alice last.
    assert_eq!((priority(unused), priority(used)), (1000, 333));
    assert_eq!(world.plan().first().map(|a| a.job), Some(unused));
}

#[test]
fn submit_beyond_a_limit_is_refused_and_names_the_limits_holder() {
    let mut world = lab();
    qos(&mut world, |q| q.max_submit_per_user = Some(2));
    world.submit(under_t(of("physics")).array("0-1"));
    let Err(Refusal::SubmitLimit(limit)) = world.try_submit(under_t(of("physics"))) else {
        panic!("the third is refused")
    };
    let kind = (limit.scope, limit.kind, limit.in_use, limit.asked);
    assert_eq!(kind, (LimitScope::QosPerUser, LimitKind::SubmitJobs, 2, 1));
    let mut root = member("root", None, 1);
    root.limits.group_submit = Some(3);
    set(&mut world, root);
    world.submit(of("physics"));
    let Err(Refusal::SubmitLimit(limit)) = world.try_submit(of("physics")) else {
        panic!("the fourth is refused")
    };
    assert_eq!((limit.scope, limit.holder.as_str()), (LimitScope::AssociationGroup, "root"));
}

#[test]
fn job_that_can_never_run_is_refused_under_a_deny_on_limit_qos() {
    let mut world = lab();
    qos(&mut world, |q| q.max_tres_per_job = tres("cpu=2"));
    world.submit(under_t(of("physics").cpus(3)));
    qos(&mut world, |q| {
        q.max_tres_per_job = tres("cpu=2");
        q.flags = vec![QosFlag::DenyOnLimit];
    });
    assert!(matches!(
        world.try_submit(under_t(of("physics").cpus(3))),
        Err(Refusal::SubmitLimit(_))
    ));
    qos(&mut world, |q| q.flags = vec![QosFlag::RequiresReservation]);
    assert_eq!(world.try_submit(under_t(of("physics"))), Err(Refusal::InvalidQos("t".into())));
}

#[test]
fn accounts_stay_a_tree_and_accounts_with_jobs_are_not_removed() {
    let mut world = lab();
    world.run(account("p1", "physics"));
    let round = world.try_as(crate::job_builder::root(), account("physics", "p1"));
    assert!(matches!(round, Err(Refusal::Other(_))), "{round:?}");
    world.submit(of("chem").of(bob()));
    let remove = |name: &str| Command::RemoveAccount { name: name.into() };
    let refused = world.try_as(crate::job_builder::root(), remove("chem"));
    assert!(matches!(refused, Err(Refusal::JobsActive(_))), "{refused:?}");
    assert!(world.try_as(crate::job_builder::root(), remove("physics")).is_err(), "p1 is below it");
    world.run(remove("p1"));
}

#[test]
fn removed_qos_leaves_no_name_behind() {
    let mut world = lab();
    qos(&mut world, |_| {});
    let mut high = Qos::named("high");
    high.preempt = vec!["t".into()];
    world.run(Command::SetQos(Box::new(high)));
    let names = || vec!["normal".to_owned(), "t".to_owned()];
    let alice = Association {
        qos: names(),
        default_qos: Some("t".into()),
        ..member("physics", Some("alice"), 1)
    };
    set(&mut world, alice);
    world.run(Command::RemoveQos { name: "t".into() });
    let left = world.state.associations.iter().find(|a| a.user.as_deref() == Some("alice"));
    let left = left.expect("she is a member").clone();
    assert_eq!((left.qos.as_slice(), &left.default_qos), (&["normal".to_owned()][..], &None));
    assert!(world.state.qos["high"].preempt.is_empty());
    // The other limits can be changed as before.
    set(&mut world, left);
    // It is among what was deleted until there is one of its name again.
    assert!(world.state.deleted.has_qos("t"));
    qos(&mut world, |_| {});
    assert!(!world.state.deleted.has_qos("t"));
}

#[test]
fn unnamed_qos_is_the_users_only_one_or_normal() {
    let mut world = world_with(1, |config| {
        config.parameters.enforce_associations = true;
        config.parameters.enforce_qos = true;
    });
    world.run(account("physics", "root"));
    for name in ["t", "u"] {
        world.run(Command::SetQos(Box::new(Qos::named(name))));
    }
    let table: [(&[&str], Option<&str>); 4] = [
        (&[], Some("normal")),
        (&["t"], Some("t")),
        (&["t", "u"], None),
        (&["normal", "t"], Some("normal")),
    ];
    for (listed, used) in table {
        let qos = listed.iter().map(|name| (*name).to_owned()).collect();
        set(&mut world, Association { qos, ..member("physics", Some("alice"), 1) });
        let job = world.try_submit(ask());
        match used {
            Some(name) => assert_eq!(&*world.job(job.expect("taken")).qos, name, "{listed:?}"),
            None => assert_eq!(job, Err(Refusal::InvalidQos("normal".into())), "{listed:?}"),
        }
    }
}

#[test]
fn job_ends_when_its_accounts_minutes_are_used_up() {
    use model::run::JobState;
    let mut world = lab();
    let mut physics = member("physics", None, 3);
    physics.limits.group_tres_minutes = tres("cpu=20");
    set(&mut world, physics);
    // 4 CPUs: 20 of their minutes are used up after five.
    let job = world.started(of("physics").cpus(4)).job;
    world.pass(300);
    world.pass(1);
    assert_eq!(world.is(job), JobState::Running, "20 minutes are within the limit");
    world.pass(300);
    world.pass(1);
    assert_eq!(world.is(job), JobState::Completing);
}

#[test]
fn jobs_and_steps_are_booked_as_configured() {
    for (jobs, steps) in [(true, true), (true, false), (false, false)] {
        let mut world = world_with(1, |config| {
            config.parameters.book_jobs = jobs;
            config.parameters.book_steps = steps;
        });
        let job = world.started(ask()).job;
        world.pass(10);
        world.end(job, 0);
        let kept = world.records.len();
        assert_eq!(kept, usize::from(jobs), "{jobs} {steps}");
        if let Some(record) = world.records.last() {
            assert_eq!(!record.steps.is_empty(), steps);
        }
    }
}

#[test]
fn users_cannot_set_a_priority_above_the_computed_one() {
    use crate::job_builder::{alice, root};
    use model::change::{JobChange, JobField, JobRef};
    let mut world = lab();
    let mut raised = of("physics");
    raised.0.priority = Some(5000);
    assert_eq!(world.try_submit(raised), Err(Refusal::AccessDenied));
    let job = world.submit(of("physics"));
    let change = |to| JobChange::Fields(vec![JobField::Priority(to)]);
    let refused = world.change_as(alice(), JobRef::whole(job), change(1_000_000));
    assert_eq!(refused.err(), Some(Refusal::OperatorsOnly));
    let back = world.change_as(alice(), JobRef::whole(job), change(1));
    assert_eq!(back.err(), Some(Refusal::PriorityNotKept), "nice is there for that");
    world.change_as(root(), JobRef::whole(job), change(70_000)).expect("an operator may");
    let queue = view(&world.state, world.now).queue;
    assert_eq!(queue.iter().map(|w| w.priority).collect::<Vec<_>>(), [70_000]);
}

/// The priorities of the waiting jobs, by id.
fn priorities(world: &World) -> Vec<(u32, u64)> {
    let mut all: Vec<(u32, u64)> =
        view(&world.state, world.now).queue.iter().map(|w| (w.job.0, w.priority)).collect();
    all.sort_unstable();
    all
}

/// A thousand for a thousand seconds of waiting, and nothing else.
fn ageing() -> World {
    let mut world = world_with(1, |config| {
        config.parameters.priority = PriorityPolicy {
            multifactor: true,
            weights: Weights { age: 1000, ..Weights::default() },
            max_age_s: 1000,
            calc_period_s: 100,
            ..PriorityPolicy::default()
        };
    });
    let hog = world.started(ask().cpus(8)).job;
    assert_eq!(hog.0, 1);
    world.pass(100);
    world
}

#[test]
fn jobs_age_by_periods_while_only_resources_are_missing() {
    let mut world = ageing();
    let plain = world.submit(ask());
    let depends = world.submit(ask().after("afterok:1"));
    let later = world.now + std::time::Duration::from_secs(300);
    let begins = world.submit(ask().asking(|r| r.begin = Some(later)));
    world.pass(99);
    // The period has not ended.
    assert_eq!(priorities(&world), [(plain.0, 1), (depends.0, 1), (begins.0, 1)]);
    world.pass(301);
    // 400 s of 1000, 0 for the one that depends, 100 s since the one began.
    assert_eq!(priorities(&world), [(plain.0, 400), (depends.0, 1), (begins.0, 100)]);
    world.pass(5000);
    assert_eq!(priorities(&world)[0], (plain.0, 1000));
}

#[test]
fn accrual_limit_bounds_how_many_jobs_of_a_user_age() {
    let mut world = ageing();
    qos(&mut world, |q| q.max_jobs_accrue_per_user = Some(2));
    let ids: Vec<u32> = (0..3).map(|_| world.submit(under_t(ask())).0).collect();
    let other = world.submit(ask()).0;
    let bobs = world.submit(under_t(ask().of(bob()))).0;
    world.pass(200);
    let expected = [(ids[0], 200), (ids[1], 200), (ids[2], 1), (other, 200), (bobs, 200)];
    assert_eq!(priorities(&world), expected);
}

/// A job that ends without such a limit leaves the tree as it is; the limit that comes later finds what was used before it.
#[test]
fn scheduler_is_shown_usage_of_each_job_where_a_limit_is_compared_with_it() {
    let mut w = world(1);
    let run = |w: &mut World| {
        let attempt = w.started(ask());
        w.now = w.now + Duration::from_secs(60);
        w.end(attempt.job, 0);
    };
    let wall_s = |w: &World| w.state.accounting().raw_usage_by_qos["normal"].wall_s;
    run(&mut w);
    let before = w.state.accounting();
    run(&mut w);
    assert!(Arc::ptr_eq(&before, &w.state.accounting()), "nobody looks at it");
    let mut qos = Qos::named("normal");
    qos.group_tres_minutes.set(TresKind::Cpu, 1_000);
    w.run(Command::SetQos(Box::new(qos)));
    assert_eq!(wall_s(&w), 120.0);
    run(&mut w);
    assert_eq!(wall_s(&w), 180.0);
}

//! Policy that cannot be gone around: what coordinators may give, and what a job may be moved to.

use crate::job_builder::{Ask, alice, ask, bob};
use crate::testbed::{World, world_with};
use cluster::Command;
use model::account::{Account, Association, AssociationLimits, Qos};
use model::change::{JobChange, JobField, JobRef};
use model::id::JobId;
use model::reason::Refusal;
use model::time::TimeLimit;
use model::tres::Tres;

fn set(w: &mut World, association: Association) {
    w.run(Command::SetAssociation(Box::new(association)));
}

fn member(account: &str, user: &str) -> Association {
    Association::plain(account, Some(user))
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

/// `open` with alice and all its rules enforced, `strict` with alice, one QOS and one submitted job; bob coordinates both.
fn accounts() -> World {
    let mut w = world_with(1, |config| {
        config.parameters.enforce_associations = true;
        config.parameters.enforce_limits = true;
        config.parameters.enforce_qos = true;
    });
    for name in ["fast", "slow"] {
        w.run(Command::SetQos(Box::new(Qos::named(name))));
    }
    for name in ["open", "strict"] {
        w.run(Command::SetAccount(Account {
            name: name.into(),
            description: String::new(),
            organization: String::new(),
            parent: Some("root".into()),
            coordinators: names(&["bob"]),
        }));
        set(&mut w, member(name, "bob"));
        set(&mut w, member(name, "alice"));
    }
    let limits = AssociationLimits {
        max_submit: Some(1),
        max_jobs: Some(2),
        max_wall: Some(TimeLimit::Minutes(60)),
        max_tres_per_job: Tres::parse("cpu=4").expect("a list"),
        ..AssociationLimits::default()
    };
    let open = Association::plain("open", None);
    set(&mut w, Association { qos: names(&["normal", "fast", "slow"]), ..open });
    let strict = Association::plain("strict", None);
    set(&mut w, Association { qos: names(&["slow"]), priority: Some(10), limits, ..strict });
    w
}

/// What bob hears when he sets the association of alice in `strict`.
fn given(w: &mut World, change: impl FnOnce(&mut Association)) -> Result<(), Refusal> {
    let mut association = member("strict", "alice");
    change(&mut association);
    w.try_as(bob(), Command::SetAssociation(Box::new(association))).map(|_| ())
}

type Grant = fn(&mut Association);

#[test]
fn coordinator_gives_nothing_beyond_what_the_account_has() {
    let mut w = accounts();
    let table: [(Grant, bool); 13] = [
        (|a| a.qos = names(&["slow"]), true),
        (|a| a.qos = names(&["slow", "fast"]), false),
        (|a| a.default_qos = Some("slow".into()), true),
        (|a| a.default_qos = Some("fast".into()), false),
        (|a| a.priority = Some(10), true),
        (|a| a.priority = Some(11), false),
        (|a| a.limits.max_submit = Some(1), true),
        (|a| a.limits.max_submit = Some(2), false),
        (|a| a.limits.max_jobs = Some(3), false),
        (|a| a.limits.max_wall = Some(TimeLimit::Unlimited), false),
        (|a| a.limits.max_tres_per_job = Tres::parse("cpu=5").expect("a list"), false),
        (|a| a.limits.max_tres_per_job = Tres::parse("cpu=4").expect("a list"), true),
        (|a| a.limits.group_jobs = Some(100), true),
    ];
    for (row, (change, allowed)) in table.into_iter().enumerate() {
        let expected = if allowed { Ok(()) } else { Err(Refusal::AccessDenied) };
        assert_eq!(given(&mut w, change), expected, "row {row}");
    }
    let own = Association { qos: names(&["fast"]), ..member("strict", "bob") };
    let own = w.try_as(bob(), Command::SetAssociation(Box::new(own)));
    assert_eq!(own.map(|_| ()), Err(Refusal::AccessDenied), "himself neither");
}

#[test]
fn coordinator_keeps_what_an_operator_has_given() {
    let mut w = accounts();
    set(&mut w, Association { qos: names(&["fast"]), ..member("strict", "alice") });
    let kept: Grant = |a| {
        a.qos = names(&["fast"]);
        a.default = true;
    };
    assert_eq!(given(&mut w, kept), Ok(()));
}

fn of(account: &str, qos: &str) -> Ask {
    let (account, qos) = (Some(account.to_owned()), Some(qos.to_owned()));
    ask().with(|spec| (spec.account, spec.qos) = (account, qos))
}

fn moved(w: &mut World, job: JobId, fields: Vec<JobField>) -> Result<(), Refusal> {
    w.change_as(alice(), JobRef::whole(job), JobChange::Fields(fields)).map(|_| ())
}

#[test]
fn job_moves_only_to_where_it_could_be_submitted() {
    let mut w = accounts();
    let account = |name: &str| JobField::Account(name.into());
    let qos = |name: &str| JobField::Qos(name.into());
    let fast = w.submit(of("open", "fast"));
    let refused = moved(&mut w, fast, vec![account("strict")]);
    assert_eq!(refused, Err(Refusal::InvalidQos("fast".into())), "strict has no such QOS");
    let refused = moved(&mut w, fast, vec![account("strict"), qos("fast")]);
    assert_eq!(refused, Err(Refusal::InvalidQos("fast".into())));
    assert_eq!(moved(&mut w, fast, vec![account("strict"), qos("")]), Ok(()));
    assert_eq!((&*w.job(fast).account, &*w.job(fast).qos), ("strict", "slow"), "its only one");
    let second = w.submit(of("open", "slow"));
    let refused = moved(&mut w, second, vec![account("strict")]);
    assert!(matches!(refused, Err(Refusal::SubmitLimit(_))), "one job may be there: {refused:?}");
    assert_eq!(moved(&mut w, fast, vec![qos("slow")]), Ok(()), "a job does not count twice");
    let third = w.submit(of("open", "normal").array("0-1"));
    assert_eq!(moved(&mut w, fast, vec![account("open")]), Ok(()));
    let refused = moved(&mut w, third, vec![account("strict"), qos("slow")]);
    assert!(matches!(refused, Err(Refusal::SubmitLimit(_))), "each task counts: {refused:?}");
    assert_eq!(moved(&mut w, second, vec![account("strict")]), Ok(()), "there is room again");
    assert_eq!(moved(&mut w, second, vec![qos("fast")]), Err(Refusal::InvalidQos("fast".into())));
}

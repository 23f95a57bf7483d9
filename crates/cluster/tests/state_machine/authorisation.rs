//! Who may do what: owners, operators, administrators, and everybody else.

use crate::job_builder::{alice, ask, bob, root, user};
use crate::testbed::{World, cancel, world, world_with};
use cluster::{Command, Reply};
use model::account::{Account, Association};
use model::change::{JobChange, JobField, JobRef, NodeChange};
use model::partition::{Access, Partition};
use model::principal::{Principal, Role};
use model::project::{MembersChange, ProjectRole};
use model::raw_usage::UsageOwner;
use model::reason::Refusal;
use model::run::{Hold, JobState};
use model::time::Timestamp;
use std::time::Duration;

const DENIED: Refusal = Refusal::AccessDenied;

#[test]
fn default_gateway_is_a_projects_own_by_its_administrators_and_else_the_sites() {
    let (mut w, olga, _) = staffed();
    w.try_as(olga.clone(), Command::CreateProject { name: "atlas".into() }).expect("made");
    let set = |project: &str, gateway: Option<&str>| Command::SetDefaultGateway {
        project: project.into(),
        gateway: gateway.map(str::to_owned),
    };
    let mut config = (*w.state.config).clone();
    config.proxy.default_gateway = Some("edge1".into());
    w.run(Command::Configure(Box::new(config)));
    assert_eq!(w.try_as(alice(), set("main", Some("edge2"))), Err(DENIED));
    assert!(w.try_as(olga.clone(), set("none", Some("edge2"))).is_err(), "no such project");
    assert!(w.try_as(olga.clone(), set("atlas", Some("a b"))).is_err(), "no such name");
    w.try_as(olga.clone(), set("atlas", Some("edge2"))).expect("set");
    assert_eq!(w.state.default_gateway("atlas"), Some("edge2"));
    assert_eq!(w.state.default_gateway("main"), Some("edge1"), "the site's");
    w.try_as(olga.clone(), set("atlas", None)).expect("unset");
    assert_eq!(w.state.default_gateway("atlas"), Some("edge1"));
    w.try_as(olga.clone(), set("atlas", Some("edge2"))).expect("set");
    w.try_as(olga, Command::RemoveProject { name: "atlas".into() }).expect("removed");
    assert!(w.state.default_gateways.is_empty());
}

/// A world with `olga` as an operator and `adam` as an administrator, by the journal.
fn staffed() -> (World, Principal, Principal) {
    let mut w = world(1);
    w.run(Command::SetRole { name: "olga".into(), role: Role::Operator });
    w.run(Command::SetRole { name: "adam".into(), role: Role::Admin });
    (w, user("olga", 2000), user("adam", 2001))
}

#[test]
fn only_owner_operators_and_administrators_may_change_a_job() {
    let (mut w, olga, adam) = staffed();
    for (by, allowed) in [(alice(), true), (bob(), false), (olga, true), (adam, true)] {
        let job = w.submit(ask().of(alice()));
        let hold = JobChange::Hold { by: Hold::User };
        let held = w.change_as(by.clone(), JobRef::whole(job), hold);
        assert_eq!(held.is_ok(), allowed, "{} holds", by.name);
        let results = w.cancel_as(by.clone(), &[JobRef::whole(job)]);
        let expected = if allowed { Ok(()) } else { Err(DENIED) };
        assert_eq!(results, [(job.to_string(), expected)], "{} cancels", by.name);
        assert_eq!(w.is(job) == JobState::Cancelled, allowed);
    }
}

#[test]
fn only_administrators_submit_for_other_users() {
    let (mut w, olga, adam) = staffed();
    for (by, allowed) in [(bob(), false), (olga, false), (adam, true), (root(), true)] {
        let submit = Command::Submit(Box::new(ask().of(alice()).0));
        assert_eq!(w.try_as(by.clone(), submit).is_ok(), allowed, "{}", by.name);
    }
}

#[test]
fn only_operators_release_an_administrators_hold() {
    let (mut w, olga, _) = staffed();
    let job = w.submit(ask());
    let by_alice = |w: &mut World, change| w.change_as(alice(), JobRef::whole(job), change);
    w.change_as(olga.clone(), JobRef::whole(job), JobChange::Hold { by: Hold::Admin })
        .expect("an operator may");
    assert_eq!(w.job(job).hold, Some(Hold::Admin));
    assert_eq!(by_alice(&mut w, JobChange::Release), Err(DENIED));
    for priority in [0, 5] {
        let change = JobChange::Fields(vec![JobField::Priority(priority)]);
        let heard = by_alice(&mut w, change);
        assert_eq!(heard, Err(Refusal::OperatorsOnly), "a priority would release it as well");
    }
    by_alice(&mut w, JobChange::Hold { by: Hold::User }).expect("it is held already");
    assert_eq!(w.job(job).hold, Some(Hold::Admin), "a user's hold does not take its place");
    w.change_as(olga, JobRef::whole(job), JobChange::Release).expect("an operator may");
    by_alice(&mut w, JobChange::Hold { by: Hold::Admin }).expect("an owner may hold");
    assert_eq!(w.job(job).hold, Some(Hold::User), "and holds as a user");
    by_alice(&mut w, JobChange::Release).expect("and releases");
    let zero = JobChange::Fields(vec![JobField::Priority(0)]);
    by_alice(&mut w, zero).expect("an owner may step back");
    by_alice(&mut w, JobChange::Release).expect("and forward again");
    assert_eq!(w.job(job).hold, None);
}

#[test]
fn only_operators_raise_a_priority() {
    let (mut w, olga, _) = staffed();
    let first = w.submit(ask());
    let own = w.job(first).priority;
    let table = [
        (JobField::Priority(own + 1), false),
        (JobField::Priority(own - 1), true),
        (JobField::Nice(-1), false),
        (JobField::Nice(10), true),
    ];
    for (field, allowed) in table {
        let change = JobChange::Fields(vec![field.clone()]);
        let by_owner = w.change_as(alice(), JobRef::whole(first), change.clone());
        assert_eq!(by_owner.is_ok(), allowed, "{field:?}");
        w.change_as(olga.clone(), JobRef::whole(first), change).expect("an operator may");
    }
    assert_eq!(w.try_submit(ask().with(|s| s.nice = -5)), Err(Refusal::Nice));
}

#[test]
fn only_administrators_change_nodes_tokens_and_roles() {
    let (mut w, olga, adam) = staffed();
    let expires = w.now + Duration::from_secs(60);
    let commands = [
        Command::ChangeNode { nodes: vec!["n1".into()], change: NodeChange::Undrain },
        Command::IssueToken { hash: "h".into(), nodes: vec!["n1".into()], expires },
        Command::SetRole { name: "bob".into(), role: Role::Admin },
    ];
    for command in commands {
        for by in [alice(), olga.clone()] {
            assert_eq!(w.try_as(by, command.clone()), Err(DENIED), "{command:?}");
        }
        w.try_as(adam.clone(), command).expect("an administrator may");
    }
}

fn account(name: &str, parent: &str, coordinators: &[&str]) -> Account {
    Account {
        name: name.into(),
        description: String::new(),
        organization: String::new(),
        parent: Some(parent.into()),
        coordinators: coordinators.iter().map(|name| (*name).to_owned()).collect(),
    }
}

#[test]
fn accounts_are_changed_by_operators_and_by_their_coordinators() {
    let (mut w, olga, _) = staffed();
    w.run(Command::SetAccount(account("physics", "root", &["alice"])));
    w.run(Command::SetAccount(account("optics", "physics", &[])));
    w.run(Command::SetAccount(account("chem", "root", &[])));
    let set = |name: &str, parent, by: &[&str]| Command::SetAccount(account(name, parent, by));
    let member = |of: &str, user: Option<&str>| {
        Command::SetAssociation(Box::new(Association::plain(of, user)))
    };
    let own = |name: &str| Command::ForgetUsage(UsageOwner::Account(name.into()));
    let table = [
        (member("physics", Some("bob")), true),
        (member("optics", Some("bob")), true),
        (member("chem", Some("bob")), false),
        (member("optics", None), true),
        (member("physics", None), false),
        (member("nowhere", Some("bob")), false),
        (set("lasers", "optics", &[]), true),
        (set("acids", "chem", &[]), false),
        (set("optics", "physics", &["bob"]), true),
        (set("physics", "root", &["alice", "carol"]), true),
        (set("physics", "chem", &["alice", "carol"]), false),
        (set("optics", "chem", &["bob"]), false),
        (set("chem", "physics", &[]), false),
        (set("chem", "root", &["alice"]), false),
        (set("chem", "optics", &["alice"]), false),
        (own("optics"), true),
        (own("physics"), false),
        (Command::RemoveAccount { name: "lasers".into() }, true),
        (Command::RemoveAccount { name: "chem".into() }, false),
        (Command::SetQos(Box::new(model::account::Qos::named("long"))), false),
    ];
    for (command, allowed) in table {
        if !allowed {
            assert_eq!(w.try_as(alice(), command.clone()), Err(DENIED), "{command:?}");
        } else {
            w.try_as(alice(), command.clone()).expect("a coordinator may");
        }
        assert_eq!(w.try_as(user("dave", 3000), command), Err(DENIED), "nobody's business");
    }
    w.try_as(olga, member("chem", Some("bob"))).expect("an operator may");
}

#[test]
fn manager_of_a_project_does_not_unseat_its_admins_by_its_account() {
    let (mut w, olga, _) = staffed();
    w.try_as(olga, Command::CreateProject { name: "atlas".into() }).expect("an operator may");
    let alice_is = |role| Command::SetMembers {
        project: "atlas".into(),
        members: [("alice".to_owned(), role)].into(),
        change: MembersChange::Add,
    };
    w.run(alice_is(ProjectRole::Manager));
    let known = w.state.accounts["atlas"].clone();
    let without = |name: &str| {
        let mut account = known.clone();
        account.coordinators.retain(|one| one != name);
        Command::SetAccount(account)
    };
    assert_eq!(w.try_as(alice(), without("olga")), Err(DENIED));
    w.try_as(alice(), without("alice")).expect("a manager may leave");
    w.run(alice_is(ProjectRole::Admin));
    w.try_as(alice(), without("olga")).expect("an admin may");
}

#[test]
fn who_is_in_no_project_is_not_taken_out_of_it() {
    let (mut w, olga, _) = staffed();
    w.try_as(olga.clone(), Command::CreateProject { name: "atlas".into() }).expect("an operator");
    let mut without = |names: &[&str]| {
        let members = names.iter().map(|name| (name.to_string(), ProjectRole::User)).collect();
        let (project, change) = ("atlas".to_owned(), MembersChange::Remove);
        let refused = w.try_as(olga.clone(), Command::SetMembers { project, members, change });
        refused.map_err(|why| why.to_string()).err()
    };
    let one = "project atlas: member nobody does not exist";
    assert_eq!(without(&["nobody", "olga"]).as_deref(), Some(one));
    let two = "project atlas: members nobody, somebody do not exist";
    assert_eq!(without(&["somebody", "nobody"]).as_deref(), Some(two));
    assert_eq!(without(&["olga"]), None, "she is there still");
}

#[test]
fn coordinator_may_change_jobs_of_its_accounts_until_it_leaves_them() {
    let (mut w, ..) = staffed();
    w.run(Command::SetAccount(account("physics", "root", &["bob"])));
    w.run(Command::SetAccount(account("optics", "physics", &[])));
    w.run(Command::SetAccount(account("chem", "root", &[])));
    let member = |of: &str, name: &str| Association::plain(of, Some(name));
    for (of, name) in
        [("physics", "bob"), ("physics", "alice"), ("optics", "alice"), ("chem", "alice")]
    {
        w.run(Command::SetAssociation(Box::new(member(of, name))));
    }
    let cancelled = |w: &mut World, of: &str| {
        let job = w.submit(ask().of(alice()).with(|s| s.account = Some(of.into())));
        w.cancel_as(bob(), &[JobRef::whole(job)]).remove(0).1
    };
    assert_eq!(cancelled(&mut w, "physics"), Ok(()));
    assert_eq!(cancelled(&mut w, "optics"), Ok(()));
    assert_eq!(cancelled(&mut w, "chem"), Err(DENIED));
    w.run(Command::RemoveAssociation(member("physics", "bob").key()));
    assert_eq!(cancelled(&mut w, "physics"), Err(DENIED), "who is in no account coordinates none");
}

/// The default partition, and one that only the group `staff` may use.
fn with_a_closed_partition() -> World {
    world_with(2, |config| {
        let mut closed = Partition::over("closed", vec!["n2".into()]);
        closed.allow_groups = Access::Only(vec!["staff".into()]);
        closed.allow_group_ids = vec![50];
        config.partitions[0].nodes = vec!["n1".into()];
        config.partitions.push(closed);
    })
}

#[test]
fn supplementary_group_opens_a_partition() {
    let mut w = with_a_closed_partition();
    let closed = || ask().asking(|r| r.partitions = vec!["closed".into()]);
    assert!(w.try_submit(closed()).is_err());
    w.submit(closed().of(Principal { groups: vec![1000, 50], ..alice() }));
}

#[test]
fn closed_partition_is_refused_beside_an_open_one_and_by_update() {
    let mut w = with_a_closed_partition();
    let named = |names: &[&str]| names.iter().map(|n| n.to_string()).collect::<Vec<String>>();
    let alone = w.try_submit(ask().asking(|r| r.partitions = named(&["closed"])));
    assert_eq!(alone, Err(Refusal::PartitionAccess("closed".into())));
    let both = w.submit(ask().cpus(8).asking(|r| r.partitions = named(&["closed", "main"])));
    let more = w.submit(ask().cpus(8).asking(|r| r.partitions = named(&["closed", "main"])));
    assert_eq!(w.plan().len(), 1);
    assert_eq!((w.nodes_of(both), w.is(more)), (vec!["n1".to_string()], JobState::Pending));
    let moved = JobChange::Fields(vec![JobField::Partition(named(&["closed"]))]);
    let refused = w.change_as(alice(), JobRef::whole(more), moved);
    assert_eq!(refused, Err(Refusal::PartitionAccess("closed".into())));
}

#[test]
fn join_token_works_once_and_until_it_expires() {
    let mut w = world(2);
    let issue = |w: &mut World, hash: &str, expires: Timestamp| {
        w.run(Command::IssueToken { hash: hash.into(), nodes: vec!["n2".into()], expires })
    };
    let use_by = |w: &mut World, hash: &str, fingerprint: &str| {
        let command = crate::tokens::spend(hash, fingerprint);
        w.try_as(user("nobody", 65_534), command)
    };
    let use_it = |w: &mut World, hash: &str| use_by(w, hash, "aa:bb");
    let minute = w.now + Duration::from_secs(60);
    issue(&mut w, "one", minute);
    issue(&mut w, "two", minute);
    assert!(use_it(&mut w, "none").is_err());
    assert_eq!(use_it(&mut w, "one"), Ok(Reply::TokenNodes(vec!["n2".into()])));
    assert_eq!(w.state.agents["n2"], "aa:bb");
    assert!(use_by(&mut w, "one", "cc:dd").is_err(), "it is spent");
    w.pass(60);
    assert!(use_it(&mut w, "two").is_err(), "it has expired");
}

#[test]
fn filter_without_ids_cancels_only_jobs_that_the_caller_may_cancel() {
    let mut w = world(1);
    let mine = w.submit(ask());
    let theirs = w.submit(ask().of(bob()));
    w.try_as(alice(), cancel(&[])).expect("a cancel answers for each job");
    assert_eq!((w.is(mine), w.is(theirs)), (JobState::Cancelled, JobState::Pending));
}

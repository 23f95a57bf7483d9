//! One user cannot fill the server's memory or disk, and a part of both is kept for root and operators.

use crate::job_builder::{Ask, ask, bob, root, user};
use crate::testbed::{World, world};
use cluster::{Command, Context, Event};
use model::array::IndexSet;
use model::bounds;
use model::change::JobField;
use model::constraint::Constraint;
use model::container::{Container, Variables};
use model::id::BlobRef;
use model::machine_choice::MachineChoice;
use model::principal::Principal;
use model::reason::Refusal;
use model::request::Request;
use model::run::{BlobBytes, Hold};
use std::sync::Arc;

/// A held job with a script of its own, of so many bytes.
fn with_script(number: u8, bytes: u32) -> Ask {
    ask().held(Hold::User).with(|spec| {
        let launch = Arc::make_mut(&mut spec.launch);
        launch.script = Some(BlobRef([number; 32]));
        launch.blob_bytes = BlobBytes { script: bytes, ..BlobBytes::default() };
    })
}

fn submit_as(w: &mut World, by: &Principal, ask: Ask) -> Result<(), Refusal> {
    let ask = ask.with(|spec| spec.owner = Arc::new(by.clone()));
    w.try_as(by.clone(), Command::Submit(Box::new(ask.0))).map(drop)
}

fn said(answer: Result<(), Refusal>) -> String {
    let said = answer.expect_err("refused").to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

#[test]
fn scripts_of_one_user_have_a_bound_and_shared_ones_count_once() {
    let mut w = world(1);
    let half = (bounds::USER_BLOB_BYTES.most / 2) as u32;
    for number in [1, 2, 1, 2, 2] {
        w.try_submit(with_script(number, half)).expect("two contents, whatever the number of jobs");
    }
    let before = w.state.clone();
    let refused = said(w.try_submit(with_script(3, 1)).map(drop));
    assert_eq!(
        refused,
        "user alice: scripts and environments of one user's jobs in memory: 2147483649 bytes: expected at most 2147483648"
    );
    assert!(w.state == before, "nothing has changed");
    submit_as(&mut w, &bob(), with_script(9, half)).expect("another user has his own bound");
    // A job that leaves makes room, when its record is purged and not before.
    let first = *w.state.jobs.keys().next().expect("a job");
    let third = model::id::JobId(first.0 + 2);
    for job in [first, third] {
        w.cancel(&[model::change::JobRef::whole(job)]);
        said(w.try_submit(with_script(3, 1)).map(drop));
    }
    w.pass(3600);
    w.tick();
    w.try_submit(with_script(4, half)).expect("there is room again");
}

#[test]
fn a_part_of_the_disk_is_kept_for_root_and_operators() {
    let mut w = world(1);
    let each = bounds::USER_BLOB_BYTES.most as u32;
    let users = (bounds::ALL_BLOB_BYTES.most / 8 * 7) / bounds::USER_BLOB_BYTES.most;
    for number in 0..users as u32 {
        let one = user(&format!("u{number}"), 2000 + number);
        submit_as(&mut w, &one, with_script(number as u8, each)).expect("his own bound");
    }
    let late = user("late", 3000);
    let refused = said(submit_as(&mut w, &late, with_script(200, 1)));
    assert!(refused.ends_with("the rest is kept for root and operators"), "{refused}");
    submit_as(&mut w, &late, with_script(0, each)).expect("what is there already takes no room");
    submit_as(&mut w, &root(), with_script(201, each)).expect("root's part");
}

#[test]
fn texts_of_one_user_have_a_bound_for_submits_and_updates() {
    let mut w = world(1);
    let job = w.submit(ask().held(Hold::User));
    let other = w.try_as(bob(), {
        let ask = ask().with(|spec| spec.owner = Arc::new(bob()));
        Command::Submit(Box::new(ask.0))
    });
    other.expect("a job of bob");
    let long = "x".repeat(bounds::USER_TEXT_BYTES.most);
    // Past the invariants of `World`, which would write it to JSON several times.
    w.state.apply(&Event::Changed { job, fields: vec![JobField::AdminComment(long)], at: w.now });
    let refused = said(w.try_submit(ask()).map(drop));
    assert!(refused.starts_with("user alice: texts of one user's jobs in memory: "), "{refused}");
    let fields = vec![JobField::Comment("one more".into())];
    let change = model::change::JobChange::Fields(fields);
    let by = crate::job_builder::alice();
    let job = model::change::JobRef::whole(job);
    let update = Command::ChangeJob { job, change };
    let refused = said(w.try_as(by, update.clone()).map(drop));
    assert!(refused.starts_with("user alice: texts of one user's jobs in memory: "), "{refused}");
    let by_root = Context { now: w.now, random: 1, by: root() };
    w.state.decide(&update, &by_root).expect("root may");
    submit_as(&mut w, &bob(), ask()).expect("another user has his own bound");
}

/// An empty text takes memory too.
#[test]
fn each_item_of_a_list_counts() {
    const ITEMS: u64 = 1000;
    let empty = || vec![String::new(); ITEMS as usize];
    let with = |container: Container| {
        ask().with(|spec| Arc::make_mut(&mut spec.launch).container = Some(Box::new(container)))
    };
    let asks = [
        ask().asking(|request| request.node_pool = (1..=ITEMS).map(|n| format!("n{n}")).collect()),
        with(Container { command: empty(), ..Container::default() }),
        with(Container { variables: Variables::Named(empty()), ..Container::default() }),
    ];
    for ask in asks {
        let mut w = world(ITEMS as u32);
        w.try_submit(ask.held(Hold::User)).expect("it has room");
        let text = w.state.held_bytes.of_user(crate::job_builder::alice().uid).text;
        assert!(text > ITEMS * 24, "{text}");
    }
}

/// Each plan and each list looks at every job that waiting jobs wait for.
#[test]
fn jobs_that_one_user_waits_for_have_a_bound_for_submits_and_updates() {
    let mut w = world(1);
    let first = w.submit(ask().held(Hold::User).array("0-999"));
    let corresponding = |terms: usize| format!("aftercorr{}", format!(":{first}").repeat(terms));
    let array = w.submit(ask().array("0-999").after(&corresponding(100)));
    let before = w.state.clone();
    let after = format!("afterok:{first}");
    let refused = said(w.try_submit(ask().after(&after)).map(drop));
    assert_eq!(
        refused,
        "user alice: jobs that one user's waiting jobs wait for, each task with `aftercorr` counted: 100001: expected at most 100000"
    );
    assert!(w.state == before, "nothing has changed");
    let plain = w.submit(ask());
    let dependency = model::dependency::Dependency::parse(&after).expect("a dependency");
    let fields = vec![JobField::Dependency(Some(dependency))];
    let change = model::change::JobChange::Fields(fields);
    let update = Command::ChangeJob { job: model::change::JobRef::whole(plain), change };
    said(w.try_as(crate::job_builder::alice(), update.clone()).map(drop));
    submit_as(&mut w, &bob(), ask().after(&after)).expect("another user has his own bound");
    submit_as(&mut w, &root(), ask().after(&after)).expect("root may");
    w.cancel(&[model::change::JobRef::whole(array)]);
    w.try_as(crate::job_builder::alice(), update).expect("there is room again");
}

/// Once one such job took more memory than there is, in each plan after its submit and after each restart.
#[test]
fn lists_of_a_request_that_a_plan_multiplies_are_bounded() {
    let mut w = world(1);
    let features = |count: usize| vec![Constraint::Feature("fast".into()); count];
    let most = bounds::CONSTRAINT_PARTS.most;
    let large = Constraint::And(
        std::iter::once(Constraint::Xor(features(most / 2))).chain(features(most / 2)).collect(),
    );
    for constraint in [large, Constraint::Or(features(most))] {
        for set in [set_constraint, set_preference] {
            let refused = said(w.try_submit(ask().asking(|r| set(r, &constraint))).map(drop));
            assert!(refused.contains("features of a constraint"), "{refused}");
        }
    }
    let many = bounds::REQUEST_KINDS.most + 1;
    let licenses = |r: &mut Request| r.licenses = vec![("matlab".into(), 1); many];
    let refused = said(w.try_submit(ask().asking(licenses)).map(drop));
    assert!(refused.contains("at most 256 items"), "{refused}");
    let reservations = |r: &mut Request| r.reservation = Some(vec!["course"; many].join(","));
    let refused = said(w.try_submit(ask().asking(reservations)).map(drop));
    assert!(refused.contains("at most 256 items"), "{refused}");
    let types = vec!["g5.xlarge".to_owned(); bounds::MACHINE_NAMES.most + 1];
    let machines = MachineChoice { types, ..MachineChoice::default() };
    let chosen = |r: &mut Request| r.machines = Some(Box::new(machines));
    let refused = said(w.try_submit(ask().asking(chosen)).map(drop));
    assert!(refused.contains("at most 1024 items"), "{refused}");
    let counts = |r: &mut Request| r.node_counts = vec![1; bounds::NODE_COUNTS.most + 1];
    let refused = said(w.try_submit(ask().asking(counts)).map(drop));
    assert!(refused.contains("at most 4096 items"), "{refused}");
}

/// Each task of an array that is changed alone has a copy of what is changed: once, a few texts for each of thousands.
#[test]
fn change_of_many_tasks_is_refused_before_it_is_copied_to_each() {
    let mut w = world(1);
    let array = w.submit(ask().array("0-999"));
    let tasks = |last| model::change::JobRef::tasks(array, IndexSet::from_range(0, last));
    let change = |w: &mut World, last: u32, fields: Vec<JobField>| {
        let change = model::change::JobChange::Fields(fields);
        w.try_as(crate::job_builder::alice(), Command::ChangeJob { job: tasks(last), change })
    };
    let text = || "x".repeat(bounds::TEXT_BYTES.most);
    let long = vec![JobField::Stdout(text()), JobField::Stderr(text())];
    let before = w.state.clone();
    let refused = said(change(&mut w, 998, long.clone()).map(drop));
    assert!(refused.contains("999 records"), "{refused}");
    assert!(w.state == before, "nothing has changed");
    // A field that is said again and again is one, the last: not each of them is copied.
    let again = (0..10_000).map(|nice| JobField::Name(format!("{nice:0>1000}"))).collect();
    change(&mut w, 99, again).expect("changed");
    let apart = w.state.jobs.values().find(|job| job.task.is_some()).expect("a task apart");
    assert!(apart.spec.name.ends_with("09999"), "{}", apart.spec.name);
    let array = w.submit(ask().array("0-999"));
    let tasks = |last| model::change::JobRef::tasks(array, IndexSet::from_range(0, last));
    let fields = model::change::JobChange::Fields(long);
    let command = Command::ChangeJob { job: tasks(9), change: fields };
    w.try_as(crate::job_builder::alice(), command).expect("a few tasks may have long texts");
}

fn set_constraint(request: &mut Request, constraint: &Constraint) {
    request.constraint = Some(constraint.clone());
}

fn set_preference(request: &mut Request, constraint: &Constraint) {
    request.prefer = Some(constraint.clone());
}

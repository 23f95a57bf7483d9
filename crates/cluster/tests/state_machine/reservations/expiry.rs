//! What becomes of reservations, and of the jobs in them, as time passes; and licences.

use super::*;
use crate::job_builder::bob;
use crate::testbed::{world, world_with};
use cluster::Event;
use model::change::NodeChange;
use model::reason::Reason;
use model::run::{Hold, JobState, SignalBefore};

#[test]
fn end_of_a_reservation_ends_its_jobs_and_holds_those_that_wait_for_it() {
    let mut world = world(1);
    create(&mut world, plain());
    let runs =
        world.submit(inside("r").cpus(8).asking(|r| r.time_limit = Some(TimeLimit::Minutes(600))));
    let waits = world.submit(inside("r").cpus(8));
    world.plan();
    assert_eq!((world.is(runs), world.is(waits)), (JobState::Running, JobState::Pending));
    world.pass(3_599);
    assert_eq!(world.is(runs), JobState::Running);
    world.pass(1);
    assert_eq!(world.is(runs), JobState::Completing);
    assert!(world.state.reservations.contains_key("r"), "it stays while its job ends");
    world.end(runs, 0);
    assert_eq!(world.is(runs), JobState::Timeout);
    world.pass(1);
    assert!(world.state.reservations.is_empty());
    let job = world.job(waits);
    assert_eq!((job.hold, job.state()), (Some(Hold::Admin), JobState::ReservationGone));
    assert_eq!(job.fixed_reason.as_deref(), Some(&Reason::ReservationGone("r".into())));
    assert_eq!(job.spec.request().reservation, None);
    assert_eq!(world.records.last().and_then(|r| r.reservation.as_deref()), Some("r"));
    world.change(waits, model::change::JobChange::Release).expect("root releases it");
    world.plan();
    assert_eq!(world.is(waits), JobState::Running);
}

#[test]
fn jobs_outlive_their_reservation_where_the_configuration_or_a_flag_allows() {
    let mut world = world(2);
    create(&mut world, ReservationRequest { flags: flags(&[Flag::NoHoldJobsAfter]), ..plain() });
    let later = ReservationRequest {
        name: Some("s".into()),
        start: Some(in_min(90)),
        nodes: named(&["n2"]),
        ..plain()
    };
    create(&mut world, later);
    let runs = world.submit(inside("r").cpus(8));
    let waits = world.submit(inside("r").cpus(8));
    let either = world.submit(inside("r,s").cpus(8));
    world.plan();
    world.pass(3_600);
    world.end(runs, 0);
    world.pass(1);
    // What is left of its list it still asks for.
    assert_eq!(world.job(either).spec.request().reservation.as_deref(), Some("s"));
    world.plan();
    assert_eq!(world.is(either), JobState::Pending);
    assert_eq!(world.is(waits), JobState::Running);
    assert_eq!(world.job(waits).attempt().and_then(|a| a.reservation.clone()), None);
}

#[test]
fn job_may_overrun_its_reservation_by_the_configured_time() {
    let mut world = world_with(1, |config| config.parameters.reservation_over_run_min = Some(5));
    create(&mut world, plain());
    let runs = world.submit(inside("r").asking(|r| r.time_limit = Some(TimeLimit::Minutes(600))));
    world.plan();
    world.pass(3_600 + 299);
    assert_eq!(world.is(runs), JobState::Running);
    world.pass(1);
    assert_eq!(world.is(runs), JobState::Completing);
}

#[test]
fn recurring_reservation_returns_and_keeps_its_jobs() {
    let mut world = world(1);
    create(&mut world, ReservationRequest { flags: flags(&[Flag::Daily]), ..plain() });
    let runs =
        world.submit(inside("r").cpus(8).asking(|r| r.time_limit = Some(TimeLimit::Minutes(600))));
    let waits = world.submit(inside("r").cpus(8));
    world.plan();
    world.pass(3_600);
    assert_eq!(of(&world, "r").start, in_min(24 * 60));
    world.end(runs, 0);
    assert_eq!(world.is(runs), JobState::Timeout);
    world.plan();
    assert_eq!(world.is(waits), JobState::Pending, "not before the next day");
    world.pass(23 * 3_600);
    world.plan();
    assert_eq!(world.is(waits), JobState::Running);
    let skipped = ReservationRequest { skip: true, ..Default::default() };
    try_update(&mut world, skipped.clone()).expect("it comes again");
    assert_eq!(of(&world, "r").start, in_min(2 * 24 * 60));
    let plain = FlagsEdit { edit: EditMode::Remove, flags: [Flag::Daily].into() };
    try_update(&mut world, ReservationRequest { flags: Some(plain), ..Default::default() })
        .expect("right");
    assert_eq!(try_update(&mut world, skipped), Err(refused(Why::NotRecurring)));
}

#[test]
fn failed_nodes_of_a_reservation_are_replaced_unless_named() {
    let mut world = world(3);
    create(&mut world, by_count(1));
    create(
        &mut world,
        ReservationRequest { name: Some("s".into()), nodes: named(&["n2"]), ..plain() },
    );
    assert_eq!(of(&world, "r").nodes, ["n1"]);
    let drain = || NodeChange::Drain { reason: "broken".into() };
    world.change_nodes(&["n1", "n2"], drain());
    world.pass(1);
    assert_eq!(
        (&*of(&world, "r").nodes, &*of(&world, "s").nodes),
        (&["n3".into()][..], &["n2".into()][..])
    );
    world.change_nodes(&["n3"], drain());
    world.pass(1);
    assert_eq!(of(&world, "r").nodes, ["n3"], "there is no other");
}

#[test]
fn unused_reservation_is_purged_where_its_flag_says_so() {
    let mut world = world(1);
    let ask = ReservationRequest {
        flags: flags(&[Flag::PurgeComp]),
        purge_after_s: Some(120),
        ..plain()
    };
    create(&mut world, ask);
    let job = world.submit(inside("r"));
    world.plan();
    world.pass(600);
    assert!(world.state.reservations.contains_key("r"), "a job uses it");
    world.end(job, 0);
    world.pass(1);
    world.pass(119);
    assert!(world.state.reservations.contains_key("r"));
    world.pass(1);
    assert!(world.state.reservations.is_empty());
}

#[test]
fn magnetic_reservation_attracts_its_users_jobs_and_partition_reservation_follows_its_partition() {
    let mut world = world(2);
    create(
        &mut world,
        ReservationRequest {
            flags: flags(&[Flag::Magnetic]),
            nodes: Some(NodesChoice::All),
            ..plain()
        },
    );
    let (drawn, other) = (world.submit(ask()), world.submit(ask().of(bob())));
    world.plan();
    assert_eq!(world.job(drawn).attempt().and_then(|a| a.reservation.as_deref()), Some("r"));
    assert_eq!(world.is(other), JobState::Pending);
    let whole = ReservationRequest {
        name: Some("s".into()),
        start: Some(in_min(120)),
        nodes: None,
        partition: Some("main".into()),
        ..plain()
    };
    create(&mut world, whole);
    assert_eq!(of(&world, "s").nodes, ["n1", "n2"]);
    let mut config = (*world.state.config).clone();
    config.partitions[0].nodes.truncate(1);
    world.run(Command::Configure(Box::new(config)));
    world.pass(1);
    assert_eq!(of(&world, "s").nodes, ["n1"]);
}

#[test]
fn licenses_are_counted_reserved_and_refused() {
    let mut world = world_with(2, |config| {
        config.parameters.licenses = [("matlab".to_string(), 3)].into();
    });
    let needs = |count| ask().asking(|r| r.licenses = vec![("matlab".to_string(), count)]);
    assert_eq!(world.try_submit(needs(4)), Err(Refusal::UnknownLicense("matlab".into())));
    let unknown = ask().asking(|r| r.licenses = vec![("lost".to_string(), 1)]);
    assert_eq!(world.try_submit(unknown), Err(Refusal::UnknownLicense("lost".into())));
    let (first, second) = (world.submit(needs(2)), world.submit(needs(2)));
    let both = world.planned();
    assert_eq!(both.len(), 1);
    world.plan();
    assert_eq!((world.is(first), world.is(second)), (JobState::Running, JobState::Pending));
    world.end(first, 0);
    let kept = ReservationRequest {
        nodes: None,
        licenses: Some(vec![("matlab".into(), 2)]),
        flags: flags(&[Flag::AnyNodes]),
        users: names(EditMode::Set, &["bob"]),
        ..plain()
    };
    create(&mut world, kept.clone());
    let more = ReservationRequest { name: Some("s".into()), ..kept };
    assert_eq!(try_create(&mut world, more), Err(Refusal::UnknownLicense("matlab".into())));
    let standing = &world.state.licenses(world.now)[0];
    assert_eq!((standing.total, standing.used, standing.reserved), (3, 0, 2));
    let of_bob =
        world.submit(inside("r").of(bob()).asking(|r| r.licenses = vec![("matlab".into(), 3)]));
    world.plan();
    assert_eq!((world.is(second), world.is(of_bob)), (JobState::Pending, JobState::Running));
}

#[test]
fn replayed_journal_has_the_same_reservations() {
    let mut world = world(2);
    create(&mut world, ReservationRequest { name: None, flags: flags(&[Flag::Daily]), ..plain() });
    create(&mut world, by_count(1));
    world.pass(4_000);
    let mut replayed = cluster::State::default();
    for event in &world.events {
        let text = serde_json::to_string(event).expect("an event");
        let event: Event = serde_json::from_str(&text).expect("the same event");
        replayed.apply(&event);
    }
    assert_eq!(replayed.reservations, world.state.reservations);
    assert_eq!(replayed.last_reservation, 2);
}

#[test]
fn job_that_runs_into_a_reservation_ends_after_the_maximum_start_delay() {
    let mut world = world(1);
    let later =
        |delay| ReservationRequest { start: Some(in_min(30)), max_start_delay_s: delay, ..plain() };
    create(&mut world, later(Some(300)));
    let overlapping = |minutes| {
        let signal = SignalBefore { signal: 10, before_s: 60, batch_only: false, overlaps: true };
        let time = Some(TimeLimit::Minutes(minutes));
        ask().with(|spec| spec.signal = Some(signal)).asking(|r| r.time_limit = time)
    };
    let (long, short) = (world.submit(overlapping(600)), world.submit(overlapping(10)));
    let others = world.submit(ask().asking(|r| r.time_limit = Some(TimeLimit::Minutes(600))));
    world.plan();
    let end = |id| world.job(id).attempt().and_then(|attempt| attempt.end_limit);
    assert_eq!(end(long), Some(in_min(35)), "half an hour, and the delay");
    assert_eq!(end(short), Some(in_min(10)), "its own limit comes first");
    assert_eq!(world.is(others), JobState::Pending);
}

//! Reservations that are made, changed, refused and used.

use super::*;
use crate::job_builder::{alice, bob};
use crate::testbed::world;
use model::principal::Role;
use model::reason::NeverFits;
use model::run::JobState;

#[test]
fn unnamed_reservation_is_named_for_its_first_user_and_its_number() {
    let mut world = world(3);
    let unnamed = |node: &str| ReservationRequest { name: None, nodes: named(&[node]), ..plain() };
    assert_eq!(create(&mut world, unnamed("n1")), "alice_1");
    assert_eq!(create(&mut world, unnamed("n2")), "alice_2");
    remove(&mut world, root(), "alice_2").expect("nobody uses it");
    assert_eq!(create(&mut world, unnamed("n2")), "alice_3", "a number is not used again");
    let twice = ReservationRequest { name: Some("alice_1".into()), ..unnamed("n3") };
    assert_eq!(try_create(&mut world, twice), Err(refused(Why::Duplicate("alice_1".into()))));
}

#[test]
fn impossible_reservation_is_refused_and_changes_nothing() {
    let mut world = world(2);
    world.submit(ask().asking(|r| r.node_list = vec!["n2".into()]));
    world.plan();
    let past = Timestamp(START.0 - 3_600_000);
    let table = [
        (ReservationRequest { start: Some(past), ..plain() }, refused(Why::Time)),
        (ReservationRequest { end: Some(START), ..plain() }, refused(Why::Time)),
        (ReservationRequest { duration: None, ..plain() }, refused(Why::Time)),
        (ReservationRequest { users: None, ..plain() }, refused(Why::Nobody)),
        (
            ReservationRequest { users: names(EditMode::Set, &["alice", "-bob"]), ..plain() },
            refused(Why::User("alice".into())),
        ),
        (
            ReservationRequest { accounts: names(EditMode::Set, &["lost"]), ..plain() },
            Refusal::InvalidAccount(Some("lost".into())),
        ),
        (
            ReservationRequest { groups: names(EditMode::Set, &["staff"]), ..plain() },
            refused(Why::Group("staff".into())),
        ),
        (
            ReservationRequest { partition: Some("lost".into()), ..plain() },
            Refusal::UnknownPartition("lost".into()),
        ),
        (
            ReservationRequest { nodes: named(&["n1", "n9"]), ..plain() },
            Refusal::UnknownNode("n9".into()),
        ),
        (ReservationRequest { nodes: None, ..plain() }, refused(Why::Nothing)),
        (ReservationRequest { nodes: Some(NodesChoice::All), ..plain() }, refused(Why::Busy)),
        (by_count(2), refused(Why::Busy)),
        (by_count(3), refused(Why::Busy)),
        (
            ReservationRequest { features: Some("lost".into()), ..by_count(1) },
            Refusal::UnknownFeature("lost".into()),
        ),
        (ReservationRequest { cores: Some(vec![1, 2]), ..plain() }, refused(Why::Cores)),
        (ReservationRequest { cores: Some(vec![9]), ..plain() }, refused(Why::Busy)),
        (
            ReservationRequest { licenses: Some(vec![("lost".into(), 1)]), ..plain() },
            Refusal::UnknownLicense("lost".into()),
        ),
        (
            ReservationRequest { flags: flags(&[Flag::Daily, Flag::TimeFloat]), ..plain() },
            refused(Why::Flags),
        ),
    ];
    for (ask, why) in table {
        assert_eq!(try_create(&mut world, ask.clone()), Err(why), "{ask:?}");
    }
    let by_alice = world.try_as(alice(), Command::CreateReservation(Box::new(plain())));
    assert_eq!(by_alice, Err(Refusal::AccessDenied));
    assert!(world.state.reservations.is_empty());
}

#[test]
fn operators_create_reservations_and_users_delete_theirs_where_the_flag_allows() {
    let mut world = world(2);
    let operator = Principal { role: Role::Operator, ..bob() };
    let own = ReservationRequest { flags: flags(&[Flag::UserDelete]), ..plain() };
    world.try_as(operator, Command::CreateReservation(Box::new(own))).expect("an operator");
    assert_eq!(remove(&mut world, bob(), "r"), Err(Refusal::AccessDenied));
    remove(&mut world, alice(), "r").expect("it is hers to remove");
    create(&mut world, plain());
    assert_eq!(remove(&mut world, alice(), "r"), Err(Refusal::AccessDenied));
    let gone = Err(Refusal::InvalidReservation("lost".into()));
    assert_eq!(remove(&mut world, root(), "lost"), gone);
}

#[test]
fn two_reservations_share_a_node_at_the_same_time_only_if_they_may_overlap() {
    let mut world = world(2);
    create(&mut world, plain());
    let second = || ReservationRequest { name: Some("s".into()), ..plain() };
    let overlap = Err(refused(Why::Overlap("r".into())));
    assert_eq!(try_create(&mut world, second()), overlap);
    let all = ReservationRequest { nodes: Some(NodesChoice::All), ..second() };
    assert_eq!(try_create(&mut world, all), overlap);
    // At its end, with cores of the other node, and with the flags for it.
    create(&mut world, ReservationRequest { start: Some(in_min(60)), ..second() });
    create(
        &mut world,
        ReservationRequest { name: None, nodes: named(&["n2"]), cores: Some(vec![5]), ..plain() },
    );
    let three =
        |cores| ReservationRequest { name: None, nodes: None, cores: Some(vec![cores]), ..plain() };
    assert_eq!(
        try_create(&mut world, three(4)),
        Err(refused(Why::Busy)),
        "three of eight are left"
    );
    let name = create(&mut world, three(3));
    assert_eq!(of(&world, &name).nodes, ["n2"]);
    let maint = |flag| ReservationRequest { name: None, flags: flags(&[flag]), ..plain() };
    create(&mut world, maint(Flag::Maint));
    create(&mut world, maint(Flag::Overlap));
    // Nor may one be moved onto another.
    assert_eq!(
        try_update(
            &mut world,
            ReservationRequest { duration: Some(DurationEdit::AddMin(1)), ..Default::default() }
        ),
        Err(refused(Why::Overlap("s".into())))
    );
}

#[test]
fn jobs_may_ask_only_for_reservations_that_admit_them() {
    let mut world = world(2);
    create(&mut world, plain());
    assert_eq!(world.try_submit(inside("lost")), Err(Refusal::InvalidReservation("lost".into())));
    assert_eq!(world.try_submit(inside("r,lost")), Err(Refusal::InvalidReservation("lost".into())));
    assert_eq!(world.try_submit(inside("r").of(bob())), Err(refused(Why::Access("r".into()))));
    let two = world.try_submit(inside("r").nodes(2));
    let never = NeverFits::Reservation { name: "r".into(), asked: 2, most: 1, named: false };
    assert_eq!(two, Err(Refusal::NodeConfiguration(never.into())));
    let elsewhere = inside("r").asking(|r| r.node_list = vec!["n2".into()]);
    let never = NeverFits::Reservation { name: "r".into(), asked: 1, most: 0, named: true };
    assert_eq!(world.try_submit(elsewhere), Err(Refusal::NodeConfiguration(never.into())));

    let inside = world.submit(inside("r"));
    let outside = world.submit(ask().of(bob()).asking(|r| r.node_list = vec!["n1".into()]));
    world.plan();
    assert_eq!((world.is(inside), world.is(outside)), (JobState::Running, JobState::Pending));
    let attempt = world.job(inside).attempt().expect("it runs");
    assert_eq!(attempt.reservation.as_deref(), Some("r"));
    assert_eq!(remove(&mut world, root(), "r"), Err(refused(Why::InUse)));
    world.end(inside, 0);
    remove(&mut world, root(), "r").expect("nobody uses it any more");
    world.plan();
    assert_eq!(world.is(outside), JobState::Running);
}

#[test]
fn start_on_a_newly_reserved_node_is_refused() {
    let mut world = world(1);
    world.submit(ask().of(bob()));
    let starts = world.planned();
    create(&mut world, plain());
    let start = starts.into_iter().next().expect("a start");
    let overtaken = world.try_as(root(), Command::Start(Box::new(start)));
    assert_eq!(overtaken, Err(Refusal::NoCapacityNow));
}

#[test]
fn reservation_update_changes_only_what_it_names() {
    let mut world = world(3);
    create(&mut world, ReservationRequest { start: Some(in_min(30)), ..plain() });
    let update = |world: &mut World, ask| try_update(world, ask).expect("right");
    let blank = ReservationRequest::default;
    update(&mut world, ReservationRequest { users: names(EditMode::Add, &["bob"]), ..blank() });
    update(&mut world, ReservationRequest { start: Some(in_min(10)), ..blank() });
    assert_eq!((of(&world, "r").start, of(&world, "r").end), (in_min(10), in_min(70)));
    update(
        &mut world,
        ReservationRequest { duration: Some(DurationEdit::SubtractMin(20)), ..blank() },
    );
    assert_eq!(of(&world, "r").end, in_min(50));
    update(&mut world, ReservationRequest { node_count: Some(3), ..blank() });
    assert_eq!(of(&world, "r").nodes, ["n1", "n2", "n3"]);
    update(&mut world, ReservationRequest { node_count: Some(1), ..blank() });
    assert_eq!(of(&world, "r").nodes, ["n1"]);
    update(&mut world, ReservationRequest { nodes: named(&["n3"]), ..blank() });
    assert!(of(&world, "r").has(Flag::SpecNodes) && of(&world, "r").nodes == ["n3"]);
    update(&mut world, ReservationRequest { nodes: named(&[]), ..blank() });
    assert!(!of(&world, "r").has(Flag::SpecNodes) && of(&world, "r").nodes.len() == 1);
    assert!(of(&world, "r").admits(&bob(), ""));
    let events = world.events.len();
    update(&mut world, blank());
    assert_eq!(world.events.len(), events, "nothing was changed, and nothing journalled");
    let nobody = ReservationRequest { users: names(EditMode::Set, &[]), ..blank() };
    assert_eq!(try_update(&mut world, nobody), Err(refused(Why::Nobody)));
    world.pass(11 * 60);
    let moved = ReservationRequest { start: Some(in_min(20)), ..blank() };
    assert_eq!(try_update(&mut world, moved), Err(refused(Why::Started)));
}

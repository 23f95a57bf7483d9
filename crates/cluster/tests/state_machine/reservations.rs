//! Reservations and licences: made, used, over.

mod creation;
mod expiry;

use crate::job_builder::{Ask, ask, root};
use crate::testbed::{START, World};
use cluster::{Command, Reply};
use model::principal::Principal;
use model::reason::Refusal;
use model::reservation::{Reservation, ReservationFlag as Flag};
use model::reservation_request::{
    DurationEdit, EditMode, FlagsEdit, NamesEdit, NodesChoice, ReservationRefusal as Why,
    ReservationRequest,
};
use model::time::{TimeLimit, Timestamp};
use std::time::Duration;

fn names(edit: EditMode, list: &[&str]) -> Option<NamesEdit> {
    Some(NamesEdit { edit, names: list.iter().map(|name| name.to_string()).collect() })
}

fn flags(list: &[Flag]) -> Option<FlagsEdit> {
    Some(FlagsEdit { edit: EditMode::Set, flags: list.iter().copied().collect() })
}

fn named(list: &[&str]) -> Option<NodesChoice> {
    Some(NodesChoice::Named(list.iter().map(|name| name.to_string()).collect()))
}

fn in_min(minutes: u64) -> Timestamp {
    START + Duration::from_secs(60 * minutes)
}

/// For alice, on `n1`, from now for an hour.
fn plain() -> ReservationRequest {
    ReservationRequest {
        name: Some("r".into()),
        start: Some(START),
        duration: Some(DurationEdit::Set(TimeLimit::Minutes(60))),
        nodes: named(&["n1"]),
        users: names(EditMode::Set, &["alice"]),
        ..ReservationRequest::default()
    }
}

fn by_count(count: u32) -> ReservationRequest {
    ReservationRequest { nodes: None, node_count: Some(count), ..plain() }
}

fn try_create(world: &mut World, ask: ReservationRequest) -> Result<String, Refusal> {
    match world.try_as(root(), Command::CreateReservation(Box::new(ask)))? {
        Reply::ReservationCreated { name } => Ok(name),
        other => panic!("it is answered with {other:?}"),
    }
}

fn create(world: &mut World, ask: ReservationRequest) -> String {
    try_create(world, ask).unwrap_or_else(|why| panic!("refused: {why}"))
}

fn try_update(world: &mut World, ask: ReservationRequest) -> Result<Reply, Refusal> {
    world.try_as(root(), Command::UpdateReservation { name: "r".into(), ask: Box::new(ask) })
}

fn remove(world: &mut World, by: Principal, name: &str) -> Result<Reply, Refusal> {
    world.try_as(by, Command::RemoveReservation { name: name.into() })
}

fn of<'w>(world: &'w World, name: &str) -> &'w Reservation {
    world.state.reservations.get(name).unwrap_or_else(|| panic!("{name} is gone"))
}

fn inside(names: &str) -> Ask {
    ask().asking(|r| r.reservation = Some(names.to_string()))
}

fn refused(why: Why) -> Refusal {
    Refusal::Reservation(why)
}

//! Reservations and licenses: names are checked against the machine's users and groups, and what is shown of them.

use crate::clock;
use crate::shared::Shared;
use cluster::authorise::{Act, authorise};
use cluster::visibility::Viewer;
use cluster::{Command, Reply, State};
use model::principal::Principal;
use model::reason::Refusal;
use model::reservation::{Reservation, ReservationFlag};
use model::reservation_request::{ReservationRefusal, ReservationRequest};
use model::time::Timestamp;
use nix::unistd::{Group, Uid, User};
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call};
use wire::reservation::{LicenseView, ReservationPurpose, ReservationView, ReservationsView};

/// The calls of `scontrol create, update, delete, show reservation` and `show licenses`.
pub async fn answer(shared: &Arc<Shared>, by: Principal, call: Call) -> Result<Answer, Refusal> {
    let command = match call {
        Call::Reservations => return Ok(Answer::Reservations(all(shared, &by))),
        Call::Licenses => return Ok(Answer::Licenses(licenses(shared))),
        Call::CreateReservation(mut ask) => {
            resolve(shared, &by, &mut ask)?;
            Command::CreateReservation(ask)
        }
        Call::UpdateReservation { name, mut ask } => {
            resolve(shared, &by, &mut ask)?;
            Command::UpdateReservation { name, ask }
        }
        Call::RemoveReservation { name } => Command::RemoveReservation { name },
        other => return Err(Refusal::Other(format!("{other:?} is not about reservations"))),
    };
    Ok(match shared.writer.run(command, by).await? {
        Reply::ReservationCreated { name } => Answer::ReservationCreated { name },
        _ => Answer::Done,
    })
}

/// Users and groups must exist; groups get their numbers, by which their members are known. Nobody is looked up for a caller who
/// may not have reservations: a list of names is long, and the site's directory may be slow.
fn resolve(shared: &Shared, by: &Principal, ask: &mut ReservationRequest) -> Result<(), Refusal> {
    authorise(&shared.read(), by, Act::Operate)?;
    block_in_place(|| look_up(shared, ask))
}

fn look_up(shared: &Shared, ask: &mut ReservationRequest) -> Result<(), Refusal> {
    let refused = |why| Err(Refusal::Reservation(why));
    let known =
        |name: &str| shared.read().associations.iter().any(|a| a.user.as_deref() == Some(name));
    for name in ask.users.iter_mut().flat_map(|users| &mut users.names) {
        let plain = name.strip_prefix('-').unwrap_or(name);
        if User::from_name(plain).ok().flatten().is_some() || known(plain) {
            continue;
        }
        let by_number =
            plain.parse().ok().and_then(|uid| User::from_uid(Uid::from_raw(uid)).ok()?);
        let Some(user) = by_number else {
            return refused(ReservationRefusal::User(plain.to_owned()));
        };
        let sign = if name.starts_with('-') { "-" } else { "" };
        *name = format!("{sign}{}", user.name);
    }
    ask.group_ids.clear();
    for name in ask.groups.iter().flat_map(|groups| groups.plain()) {
        let Some(group) = Group::from_name(name).ok().flatten() else {
            return refused(ReservationRefusal::Group(name.to_owned()));
        };
        ask.group_ids.push((name.to_owned(), group.gid.as_raw()));
    }
    Ok(())
}

fn all(shared: &Shared, by: &Principal) -> ReservationsView {
    let (state, now) = (shared.read(), clock::now());
    let viewer = Viewer::new(&state, by);
    let shown = state.reservations.values().filter(|reservation| viewer.reservation(reservation));
    let mut reservations: Vec<ReservationView> =
        shown.map(|reservation| view(&state, reservation, now)).collect();
    reservations.sort_by_key(|view| view.reservation.id);
    ReservationsView { now, reservations }
}

fn view(state: &State, reservation: &Reservation, now: Timestamp) -> ReservationView {
    let mut shown = reservation.clone();
    if let Some(&(start, end)) = reservation.windows(now, 1).first() {
        (shown.start, shown.end) = (start, end);
    }
    let whole = |node: &String| state.cores_of(node);
    let cores = |node: &String| reservation.cores.get(node).copied().unwrap_or_else(|| whole(node));
    let threads =
        |node: &String| state.nodes.get(node).map_or(1, |n| n.config.threads_per_core.max(1));
    ReservationView {
        cores: reservation.nodes.iter().map(cores).sum(),
        cpus: reservation.nodes.iter().map(|node| cores(node) * threads(node)).sum(),
        active: reservation.is_active(now),
        reservation: shown,
    }
}

fn licenses(shared: &Shared) -> Vec<LicenseView> {
    let standings = shared.read().licenses(clock::now()).into_iter();
    let view = |s: cluster::licenses::LicenseUsage| LicenseView {
        name: s.name,
        total: s.total,
        used: s.used,
        reserved: s.reserved,
    };
    standings.map(view).collect()
}

/// The nodes that active reservations hold now, and for what.
pub fn reserved_nodes(state: &State, now: Timestamp) -> BTreeMap<&str, ReservationPurpose> {
    let mut kept = BTreeMap::new();
    let active = state.reservations.values().filter(|r| r.has_nodes() && r.is_active(now));
    for reservation in active {
        let what = if reservation.has(ReservationFlag::Maint) {
            ReservationPurpose::Maintenance
        } else {
            ReservationPurpose::Users
        };
        for node in &reservation.nodes {
            let known = kept.entry(node.as_str()).or_insert(what);
            *known = what.max(*known);
        }
    }
    kept
}

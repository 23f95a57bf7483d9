//! `scontrol create, update, delete, show reservation` and `show licenses`.

use super::reservation_key::{self, KeyError};
use super::{TimeContext, update_text};
use crate::command::slurm::query::{self, CommandError, Server};
use ::slurm::output::scontrol::{Options, license, reservation as output};
use ::slurm::words::reservation_refusal::refused_field;
use model::reason::Refusal;
use model::reservation::ReservationFlag;
use model::reservation_request::{NodesChoice, ReservationRefusal, ReservationRequest};
use std::process::ExitCode;
use wire::client::{Answer, Call};
use wire::reservation::ReservationsView;

/// Slurm prints this before it reports that the nodes are busy.
const SINGLE_PARTITION: &str = "\
Note, unless nodes are directly requested a reservation must exist in a single partition.
If no partition is requested the default partition is assumed.
";

const UPDATE_ERROR: &str = "slurm_update error";

/// `scontrol create ENTITY …`.
pub fn create(words: &[String]) -> Result<ExitCode, CommandError> {
    let Some((first, rest)) = words.split_first() else {
        return Err(CommandError::message("too few arguments for create keyword"));
    };
    if !reservation_key::names_one(first) {
        return Err(error(format!("Invalid creation entity: {first}")));
    }
    // Without a value, the server makes up a name.
    let named = first.contains('=').then_some(first);
    let ask = read_request(named.into_iter().chain(rest), "created")?;
    check_new(&ask).map_err(|text| error(format!("{text}  No reservation created.")))?;
    let mut server = Server::find("Error creating the reservation")?;
    match server.try_ask(Call::CreateReservation(Box::new(ask)))? {
        Ok(Answer::ReservationCreated { name }) => {
            query::print(&format!("Reservation created: {name}\n"))?;
            Ok(ExitCode::SUCCESS)
        }
        Ok(other) => Err(CommandError::unexpected(&other)),
        Err(why) => {
            if why == Refusal::Reservation(ReservationRefusal::Busy) {
                query::print(SINGLE_PARTITION)?;
            }
            let text = format!("Error creating the reservation: {}", update_text(&why));
            Err(CommandError::message(with_field(text, &why)))
        }
    }
}

/// `scontrol update ReservationName=… …`.
pub fn update(words: &[String]) -> Result<ExitCode, CommandError> {
    let mut ask = read_request(words.iter(), "update")
        .map_err(|wrong| CommandError::message(format!("{wrong}\n{UPDATE_ERROR}: No error")))?;
    let name = ask.name.take().unwrap_or_default();
    let mut server = Server::find(UPDATE_ERROR)?;
    match server.try_ask(Call::UpdateReservation { name, ask: Box::new(ask) })? {
        Ok(_) => {
            query::print("Reservation updated.\n")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(why) => {
            let text = update_text(&why);
            let lines = format!("Error updating the reservation: {text}\n{UPDATE_ERROR}: {text}");
            Err(CommandError::message(with_field(lines, &why)))
        }
    }
}

/// Slurm's lines, and one more that names what was refused.
fn with_field(lines: String, why: &Refusal) -> String {
    match refused_field(why) {
        Some(field) => format!("{lines}\nscontrol: note: {field}"),
        None => lines,
    }
}

/// `scontrol delete ReservationName=…`, or `scontrol delete reservation …`.
pub fn delete(words: &[String]) -> Result<ExitCode, CommandError> {
    let Some(first) = words.first() else {
        return Err(CommandError::message("too few arguments for delete keyword"));
    };
    if !reservation_key::names_one(first) {
        return Err(CommandError::message(format!("Invalid deletion entity: {first}")));
    }
    let said = first.split_once('=').map(|(_, name)| name);
    let name = said.or(words.get(1).map(String::as_str)).unwrap_or_default().to_owned();
    let mut server = Server::find("delete_reservation")?;
    match server.try_ask(Call::RemoveReservation { name })? {
        Ok(_) => Ok(ExitCode::SUCCESS),
        Err(why) => {
            Err(CommandError::message(format!("delete_reservation {first}: {}", update_text(&why))))
        }
    }
}

pub fn load() -> Result<ReservationsView, CommandError> {
    match Server::find("slurm_load_reservations error")?.ask(Call::Reservations)? {
        Answer::Reservations(view) => Ok(view),
        other => Err(CommandError::unexpected(&other)),
    }
}

pub fn show(name: Option<&str>, options: Options) -> Result<ExitCode, CommandError> {
    let all = load()?;
    let tz = timezone::local();
    let moment = query::moment(all.now, &tz);
    let mut text = String::new();
    let chosen = all.reservations.iter();
    for view in chosen.filter(|view| name.is_none_or(|name| view.reservation.name == name)) {
        output::push(&mut text, view, moment, options);
    }
    let code = match (text.is_empty(), name) {
        (true, Some(name)) => {
            text = output::no_reservation(name);
            ExitCode::FAILURE
        }
        (true, None) => {
            text = output::NO_RESERVATIONS.to_owned();
            ExitCode::SUCCESS
        }
        (false, _) => ExitCode::SUCCESS,
    };
    query::print(&text)?;
    Ok(code)
}

pub fn show_licenses(name: Option<&str>, options: Options) -> Result<ExitCode, CommandError> {
    let all = match Server::find("slurm_load_licenses error")?.ask(Call::Licenses)? {
        Answer::Licenses(all) => all,
        other => return Err(CommandError::unexpected(&other)),
    };
    let mut text = String::new();
    if all.is_empty() {
        text.push_str(license::NO_LICENSES);
    }
    for one in all.iter().filter(|one| name.is_none_or(|name| one.name == name)) {
        license::push(&mut text, one, options);
    }
    query::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

fn error(text: String) -> CommandError {
    CommandError::message(format!("scontrol: error: {text}"))
}

/// Reads all words. Nothing is sent if one of them is invalid.
fn read_request<'a>(
    words: impl Iterator<Item = &'a String>,
    done: &str,
) -> Result<ReservationRequest, CommandError> {
    let tz = timezone::local();
    let now = ::server::clock::now();
    let context = TimeContext { now, tz: &tz };
    let mut ask = ReservationRequest::default();
    for word in words {
        reservation_key::read(&mut ask, word, context).map_err(|wrong| match wrong {
            KeyError::Whole(text) => error(text),
            KeyError::Sentence(text) => error(format!("{text}.  No reservation {done}.")),
            KeyError::After(line, text) => CommandError::message(format!(
                "{line}\nscontrol: error: {text}.  No reservation {done}."
            )),
        })?;
    }
    Ok(ask)
}

/// Checks that a new reservation is complete; the error is the first thing that is missing.
fn check_new(ask: &ReservationRequest) -> Result<(), &'static str> {
    let counts = |counts: &Vec<u32>| counts.iter().any(|count| *count > 0);
    let resources = ask.nodes.is_some()
        || ask.node_count.is_some_and(|count| count > 0)
        || ask.cores.as_ref().is_some_and(counts)
        || ask.gres.is_some()
        || ask.licenses.as_ref().is_some_and(|list| !list.is_empty())
        || ask.partition.is_some();
    let has = |flag| ask.flags.as_ref().is_some_and(|flags| flags.flags.contains(&flag));
    let whole = ask.partition.is_some() && ask.nodes == Some(NodesChoice::All);
    if ask.start.is_none() {
        return Err("A start time must be given.");
    }
    if ask.end.is_none() && ask.duration.is_none() {
        return Err("An end time or duration must be given.");
    }
    if ask.end < ask.start && ask.end.is_some() {
        return Err("Start time cannot be after end time.");
    }
    if has(ReservationFlag::PartNodes) && !whole {
        return Err("PART_NODES flag requires specifying a Partition and ALL nodes.");
    }
    if !resources {
        return Err("CoreCnt, Nodes, NodeCnt, BurstBuffer, Licenses or Watts must be specified.");
    }
    if ask.users.is_some() && ask.groups.is_some() {
        return Err(
            "Users and Groups are mutually exclusive.  You can have one or the other, but not both.",
        );
    }
    if ask.users.is_none() && ask.groups.is_none() && ask.accounts.is_none() {
        return Err("Either Users/Groups and/or Accounts must be specified.");
    }
    Ok(())
}

//! Reservations, as slurmrestd answers with them.

use super::field::Form::{Absent, Plain, Set};
use super::field::{Cell, Context, Field, Number, field, number, optional_text, text, time};
use crate::words::reservation as words;
use model::hostlist;
use model::tres::{Tres, TresKind};
use serde_json::{Value, json};
use std::borrow::Cow;
use wire::reservation::ReservationView;

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static RESERVATION: &[Field<ReservationView>] = &[
    field("accounts",             Plain,  Plain,  |_, r| text(words::names(r.reservation.accounts.as_ref()).unwrap_or_default())),
    field("burst_buffer",         Plain,  Plain,  |_, _| text("")),
    field("core_count",           Plain,  Plain,  |_, r| number(r.cores)),
    field("core_spec_cnt",        Plain,  Absent, |_, _| Cell::Int(0)),
    field("core_specializations", Absent, Plain,  |_, r| Cell::Value(cores(r))),
    field("end_time",             Plain,  Set,    |_, r| time(Some(r.reservation.end))),
    field("features",             Plain,  Plain,  |_, r| optional_text(r.reservation.features.as_deref())),
    field("flags",                Plain,  Plain,  |_, r| Cell::Words(flags(r))),
    field("groups",               Plain,  Plain,  |_, r| text(groups(r))),
    field("licenses",             Plain,  Plain,  |_, r| text(licenses(r))),
    field("max_start_delay",      Plain,  Plain,  |_, r| number(r.reservation.max_start_delay_s.unwrap_or(0))),
    field("name",                 Plain,  Plain,  |_, r| text(&*r.reservation.name)),
    field("node_count",           Plain,  Plain,  |_, r| number(r.reservation.nodes.len() as u64)),
    field("node_list",            Plain,  Plain,  |_, r| text(hostlist::compress(&r.reservation.nodes))),
    field("partition",            Plain,  Plain,  |_, r| optional_text(r.reservation.partition.as_deref())),
    field("purge_completed",      Plain,  Plain,  |c, r| Cell::Value(purge(c, r))),
    field("start_time",           Plain,  Set,    |_, r| time(Some(r.reservation.start))),
    field("tres",                 Plain,  Plain,  |_, r| text(tres(r))),
    field("users",                Plain,  Plain,  |_, r| text(words::names(r.reservation.users.as_ref()).unwrap_or_default())),
    field("watts",                Plain,  Set,    |_, _| Cell::Number(Number::Unset)),
];

fn cores(view: &ReservationView) -> Value {
    let of_node = |(node, count): (&String, &u32)| json!({"node": node, "core": count.to_string()});
    view.reservation.cores.iter().map(of_node).collect()
}

fn flags<'a>(view: &ReservationView) -> Vec<Cow<'a, str>> {
    let words = words::flags(&view.reservation);
    // `PURGE_COMP=00:05:00` has its time in a field of its own.
    let word = |word: &str| Cow::Owned(word.split('=').next().unwrap_or(word).to_owned());
    words.split(',').filter(|flag| !flag.is_empty()).map(word).collect()
}

fn groups(view: &ReservationView) -> String {
    let names: Vec<&str> = view.reservation.groups.iter().map(|(name, _)| name.as_str()).collect();
    names.join(",")
}

fn licenses(view: &ReservationView) -> String {
    let licenses = &view.reservation.licenses;
    let counts: Vec<String> =
        licenses.iter().map(|(name, count)| format!("{name}:{count}")).collect();
    counts.join(",")
}

fn purge(context: &Context, view: &ReservationView) -> Value {
    json!({"time": context.number(view.reservation.purge_after_s)})
}

fn tres(view: &ReservationView) -> String {
    let mut tres = Tres::new();
    if view.cpus > 0 {
        tres.set(TresKind::Cpu, view.cpus.into());
    }
    for (name, count) in view.reservation.gres.values().flatten() {
        tres.add(TresKind::gres(name, None), *count);
    }
    tres.to_string()
}

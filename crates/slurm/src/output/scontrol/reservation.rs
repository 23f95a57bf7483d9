//! `scontrol show reservation`.

use super::Options;
use super::record::RecordWriter;
use crate::output::Moment;
use crate::words::{NULL, reservation as words};
use model::hostlist;
use model::time::format_elapsed_full;
use model::tres::{Tres, TresKind};
use wire::reservation::ReservationView;

/// Standard output without reservations.
pub const NO_RESERVATIONS: &str = "No reservations in the system\n";

/// Standard output for an unknown name; the exit code is 1.
pub fn no_reservation(name: &str) -> String {
    format!("Reservation {name} not found\n")
}

pub fn push(out: &mut String, view: &ReservationView, moment: Moment<'_>, options: Options) {
    let r = &view.reservation;
    let or_null = |text: Option<String>| text.unwrap_or_else(|| NULL.to_owned());
    let mut record = RecordWriter::new(out, options.oneliner);
    record.line(format!(
        "ReservationName={} StartTime={} EndTime={} Duration={}",
        r.name,
        moment.iso(r.start),
        moment.iso(r.end),
        duration(view)
    ));
    record.line(format!(
        "Nodes={} NodeCnt={} CoreCnt={} Features={} PartitionName={} Flags={}",
        nodes(view),
        r.nodes.len(),
        view.cores,
        or_null(r.features.clone()),
        or_null(r.partition.clone()),
        words::flags(r)
    ));
    record.line(format!("TRES={}", or_null(tres(view))));
    let groups: Vec<&str> = r.groups.iter().map(|(name, _)| name.as_str()).collect();
    let licenses: Vec<String> =
        r.licenses.iter().map(|(name, count)| format!("{name}:{count}")).collect();
    record.line(format!(
        "Users={} Groups={} Accounts={} Licenses={} State={} BurstBuffer=(null) Watts=n/a",
        or_null(words::names(r.users.as_ref())),
        or_null((!groups.is_empty()).then(|| groups.join(","))),
        or_null(words::names(r.accounts.as_ref())),
        or_null((!licenses.is_empty()).then(|| licenses.join(","))),
        state(view)
    ));
    let delay = r.max_start_delay_s.map(|s| format_elapsed_full(u64::from(s)));
    record.line(format!("MaxStartDelay={}", or_null(delay)));
    record.end();
}

/// `cpu=4,gres/gpu=2`
fn tres(view: &ReservationView) -> Option<String> {
    let mut tres = Tres::new();
    if view.cpus > 0 {
        tres.set(TresKind::Cpu, u64::from(view.cpus));
    }
    for (name, count) in view.reservation.gres.values().flatten() {
        tres.add(TresKind::gres(name, None), *count);
    }
    Some(tres.to_string()).filter(|text| !text.is_empty())
}

pub(crate) fn nodes(view: &ReservationView) -> String {
    match view.reservation.nodes.as_slice() {
        [] => NULL.to_owned(),
        nodes => hostlist::compress(nodes),
    }
}

pub(crate) fn duration(view: &ReservationView) -> String {
    let r = &view.reservation;
    format_elapsed_full((r.end.secs() - r.start.secs()).max(0) as u64)
}

pub(crate) fn state(view: &ReservationView) -> &'static str {
    if view.active { "ACTIVE" } else { "INACTIVE" }
}

#[cfg(test)]
#[path = "reservation_tests.rs"]
mod tests;

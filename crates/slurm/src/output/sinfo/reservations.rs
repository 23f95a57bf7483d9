//! `sinfo -T`: the reservations, a line each.

use crate::output::Moment;
use crate::output::scontrol::reservation::{duration, nodes, state};
use std::fmt::Write;
use wire::reservation::ReservationView;

/// The least width of the column of names.
const NAME_MIN: usize = "RESV_NAME".len();

pub fn push(out: &mut String, views: &[ReservationView], moment: Moment<'_>, header: bool) {
    let names = views.iter().map(|view| view.reservation.name.chars().count());
    let width = names.max().unwrap_or(0).max(NAME_MIN);
    let mut line = |cells: [&str; 6]| {
        let [name, state, start, end, duration, nodes] = cells;
        // Writing to a string does not fail.
        let _ = writeln!(
            out,
            "{name:<width$}  {state:>8}  {start:>19}  {end:>19}  {duration:>11}  {nodes}"
        );
    };
    if header {
        line(["RESV_NAME", "STATE", "START_TIME", "END_TIME", "DURATION", "NODELIST"]);
    }
    for view in views {
        let r = &view.reservation;
        let (start, end) = (moment.iso(r.start), moment.iso(r.end));
        line([&r.name, state(view), &start, &end, &duration(view), &nodes(view)]);
    }
}

//! Licenses, as slurmrestd answers with them: the one object whose keys are written as `scontrol show licenses` prints them.

use super::field::Form::{Absent, Plain};
use super::field::{Cell, Field, field, number, text};
use wire::reservation::LicenseView;

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static LICENSE: &[Field<LicenseView>] = &[
    field("LicenseName",  Plain,  Plain, |_, l| text(&*l.name)),
    field("Total",        Plain,  Plain, |_, l| number(l.total)),
    field("Used",         Plain,  Plain, |_, l| number(l.used)),
    field("Free",         Plain,  Plain, |_, l| number(l.total.saturating_sub(l.used))),
    field("Remote",       Plain,  Plain, |_, _| Cell::Bool(false)),
    field("Reserved",     Plain,  Plain, |_, l| number(l.reserved)),
    field("LastConsumed", Absent, Plain, |_, _| Cell::Int(0)),
    field("LastDeficit",  Absent, Plain, |_, _| Cell::Int(0)),
    field("LastUpdate",   Absent, Plain, |_, _| Cell::Int(0)),
];

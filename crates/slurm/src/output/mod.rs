//! What Slurm's commands print, byte for byte, from the views that the server answers with.
//!
//! A column is a row of a table: a letter or name, a header, and a function that writes the cell. [`format`] reads the
//! formats of `squeue` and `sinfo` (`-o`, `-O`), [`field_table`] those of `sacct` and `sacctmgr`; both print through [`cell`].

pub mod cell;
pub mod field_table;
pub mod format;
pub mod job_text;
pub mod json;
pub mod node_text;
pub mod sacct;
mod sacct_fields;
pub mod sacctmgr;
mod sacctmgr_fields;
#[cfg(test)]
pub(crate) mod samples;
pub mod scontrol;
pub mod sdiag;
pub mod sinfo;
mod sinfo_fields;
pub mod sinfo_reservations;
pub mod sprio;
pub mod squeue;
mod squeue_fields;
mod squeue_page;
mod squeue_sort;
mod squeue_steps;
pub mod sshare;
pub mod sstat;
mod usage_fields;

use jiff::tz::TimeZone;
use model::time::{Timestamp, format_iso};

/// When and where something is printed.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    pub now: Timestamp,
    pub tz: &'a TimeZone,
}

impl Moment<'_> {
    /// `2026-11-15T00:46:19`
    pub fn iso(&self, time: Timestamp) -> String {
        format_iso(time, self.tz)
    }

    /// `Sun Nov 15 00:46:21 2026`: the line above the long listings.
    pub fn date_line(&self) -> String {
        match jiff::Timestamp::from_second(self.now.secs()) {
            Ok(now) => self.tz.to_datetime(now).strftime("%a %b %e %H:%M:%S %Y").to_string(),
            Err(_) => "Unknown".to_owned(),
        }
    }
}

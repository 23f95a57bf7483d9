//! What Slurm's commands print, byte for byte, from the views that the server answers with.
//!
//! A folder for each command; its columns are the rows of a table in its `fields.rs`: a letter or name, a header, and a
//! function that writes the cell. [`table`] lays cells out, [`text`] has what several commands say of a job, node or step.

pub mod sacct;
pub mod sacctmgr;
#[cfg(test)]
pub(crate) mod samples;
pub mod scontrol;
pub mod sdiag;
pub mod seff;
pub mod sinfo;
pub mod sprio;
pub mod squeue;
pub mod sreport;
pub mod sshare;
pub mod sstat;
pub mod strigger;
pub mod table;
pub mod text;
pub mod time_format;

use jiff::tz::TimeZone;
use model::time::{Timestamp, format_iso};
use time_format::TimeFormat;

/// The time and time zone of a listing, and how it writes times.
#[derive(Debug, Clone, Copy)]
pub struct Moment<'a> {
    pub now: Timestamp,
    pub tz: &'a TimeZone,
    format: TimeFormat<'a>,
}

impl<'a> Moment<'a> {
    pub fn at(now: Timestamp, tz: &'a TimeZone) -> Self {
        Self { now, tz, format: TimeFormat::Standard }
    }

    pub fn in_format(self, format: TimeFormat<'a>) -> Self {
        Self { format, ..self }
    }

    /// `2026-11-15T00:46:19`, or the time in the format that was asked for.
    pub fn iso(&self, time: Timestamp) -> String {
        let asked = self.format.write(time, self.now, self.tz);
        asked.unwrap_or_else(|| format_iso(time, self.tz))
    }

    /// `Sun Nov 15 00:46:21 2026`: the first line of long listings.
    pub fn date_line(&self) -> String {
        match jiff::Timestamp::from_second(self.now.secs()) {
            Ok(now) => self.tz.to_datetime(now).strftime("%a %b %e %H:%M:%S %Y").to_string(),
            Err(_) => "Unknown".to_owned(),
        }
    }
}

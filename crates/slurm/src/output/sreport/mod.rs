//! `sreport`: what was used in a period, by cluster, account, user and size of job.
//!
//! - `report`: the reports there are, and how they are named
//! - `time_format`: the units of `-t`
//! - `sizes`: the reports of jobs by their sizes, whose columns are asked for
//! - `usage`: the other reports

pub mod report;
mod sizes;
pub mod time_format;
mod usage;

use crate::output::table::field_table::{Layout, UnknownField};
use jiff::tz::TimeZone;
use model::time::{Timestamp, format_iso};
use model::tres::TresKind;
use model::usage_report::UsageReport;
use report::Report;
use std::collections::BTreeMap;
use std::fmt::Write;
use time_format::TimeFormat;
use wire::view::AccountsView;

/// The options that shape a report.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub format: Option<String>,
    pub no_header: bool,
    pub layout: Layout,
    pub time_format: TimeFormat,
    /// What is reported on; empty for CPUs alone.
    pub tres: Vec<TresKind>,
    /// `Tree`: accounts are indented by their place.
    pub tree: bool,
    /// `Group`: the accounts of a user are one row.
    pub group: bool,
    /// `TopCount`: the users of `TopUsage`; 10 without it.
    pub top: Option<usize>,
    /// `FlatView`: each account for itself.
    pub flat: bool,
    /// `AcctAsParent`: the accounts below those that were named.
    pub as_parents: bool,
    /// The accounts that were named.
    pub accounts: Vec<String>,
    /// `Grouping`: where each group of sizes but the first begins; empty for the usual ones.
    pub grouping: Vec<u32>,
    /// `Grouping=individual`: each size for itself.
    pub individual: bool,
    /// `PrintJobCount`: jobs instead of time.
    pub count_jobs: bool,
}

/// What the server answered, and what this machine knows of users.
pub struct Answer<'a> {
    pub from: Timestamp,
    pub usage: &'a UsageReport,
    pub accounts: &'a AccountsView,
    /// The full names of users.
    pub proper_names: &'a BTreeMap<String, String>,
}

const RULE: &str =
    "--------------------------------------------------------------------------------\n";

pub fn render(
    report: Report,
    answer: &Answer<'_>,
    options: &Options,
    tz: &TimeZone,
) -> Result<String, UnknownField> {
    let mut out = String::new();
    if !options.no_header {
        push_title(&mut out, report, answer, options, tz);
    }
    match report {
        Report::SizesByAccount | Report::SizesByAccountAndWckey | Report::SizesByWckey => {
            sizes::push(&mut out, report, answer, options);
        }
        _ => usage::push(&mut out, report, answer, options)?,
    }
    Ok(out)
}

/// The period is shown up to its last second, as Slurm shows it.
fn push_title(
    out: &mut String,
    report: Report,
    answer: &Answer<'_>,
    options: &Options,
    tz: &TimeZone,
) {
    let (from, until) = (answer.from, answer.usage.until);
    let last = Timestamp(until.millis() - 1000);
    let seconds = (until.millis() - from.millis()) / 1000;
    let title = report.title(options.top.unwrap_or(usage::TOP));
    let (start, end) = (format_iso(from, tz), format_iso(last, tz));
    out.push_str(RULE);
    // Writing into a `String` cannot fail.
    let _ = writeln!(out, "{title} {start} - {end} ({seconds} secs)");
    out.push_str(&options.time_format.note(report, &options.tres, options.count_jobs));
    out.push('\n');
    out.push_str(RULE);
}

#[cfg(test)]
mod tests;

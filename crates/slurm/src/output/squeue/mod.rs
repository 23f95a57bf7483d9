//! `squeue`: the jobs, or the steps of the jobs, one a line.

mod fields;
mod page;
mod sort;
mod steps;

use crate::output::Moment;
use crate::output::table::format::{Column, Format};
use fields::{JOB_FIELDS, JobField};
use sort::SortBy;
use std::io;
use steps::{STEP_FIELDS, StepField};
use wire::client::Detail;
use wire::view::JobView;

pub use crate::output::table::sort_keys::BadSort;
pub use page::Page;

const DEFAULT_FORMAT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const LONG_FORMAT: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const START_FORMAT: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";

/// The options that shape the listing. The server has chosen the jobs.
pub use wire::listing::ListingOptions as Options;

/// A listing that is ready to be printed any number of times (`-i`).
pub struct Listing {
    pub(super) columns: Columns,
    pub(super) sort: Vec<SortBy>,
    pub(super) options: Options,
}

pub(super) enum Columns {
    Jobs(Format<JobField>),
    Steps(Format<StepField>),
}

impl Listing {
    pub fn new(options: Options) -> Result<Self, BadSort> {
        let default = if options.start { sort::BY_START } else { sort::DEFAULT };
        let mut sort = sort::parse(options.sort.as_deref().unwrap_or(default))?;
        if options.by_priority {
            sort = sort::parse(sort::BY_PRIORITY)?;
        }
        let columns = if options.steps {
            Columns::Steps(match (&options.format, &options.long_format) {
                (_, Some(names)) => Format::by_name(STEP_FIELDS, names),
                (Some(text), None) => Format::by_letter(STEP_FIELDS, text, "job step"),
                (None, None) => Format::by_letter(STEP_FIELDS, steps::DEFAULT_FORMAT, "job step"),
            })
        } else {
            Columns::Jobs(match (&options.format, &options.long_format) {
                (_, Some(names)) => Format::by_name(JOB_FIELDS, names),
                (Some(text), None) => Format::by_letter(JOB_FIELDS, text, "job"),
                (None, None) => Format::by_letter(JOB_FIELDS, default_format(&options), "job"),
            })
        };
        Ok(Self { columns, sort, options })
    }

    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Lines for standard error about columns that do not exist.
    pub fn warnings(&self) -> &[String] {
        match &self.columns {
            Columns::Jobs(format) => &format.warnings,
            Columns::Steps(format) => &format.warnings,
        }
    }

    /// How much of each job the columns and the sort keys need.
    pub fn detail(&self) -> Detail {
        match &self.columns {
            _ if self.sort.iter().any(|by| by.field.needs_full_job) => Detail::Full,
            Columns::Jobs(format)
                if format
                    .cells
                    .iter()
                    .any(|p| p.column.is_some_and(|field| field.needs_full_job)) =>
            {
                Detail::Full
            }
            _ => Detail::Listing,
        }
    }

    /// Whether a column or sort key needs the expected start of pending jobs.
    pub fn wants_estimates(&self) -> bool {
        let is_estimate =
            |field: &JobField| ["StartTime", "EndTime", "SchedNodes"].contains(&field.name());
        let shown = match &self.columns {
            Columns::Jobs(format) => {
                format.cells.iter().any(|cell_format| cell_format.column.is_some_and(is_estimate))
            }
            Columns::Steps(_) => false,
        };
        shown || self.sort.iter().any(|by| is_estimate(by.field))
    }

    /// Whether the listing begins with the time.
    pub(super) fn is_dated(&self) -> bool {
        let Options { long, no_header, repeated, .. } = self.options;
        if long { !no_header } else { repeated }
    }

    /// The lines of a listing without jobs: the time, and the names of the columns.
    pub fn header_lines(&self) -> usize {
        usize::from(self.is_dated()) + usize::from(!self.options.no_header)
    }

    /// An empty page of at most `bytes_max` bytes, for jobs that come one by one.
    pub fn page<'a>(&'a self, moment: Moment<'a>, bytes_max: usize) -> Page<'a> {
        Page::new(self, moment, bytes_max)
    }

    pub fn render(
        &self,
        out: &mut impl io::Write,
        jobs: &[JobView],
        moment: Moment<'_>,
    ) -> io::Result<()> {
        let mut page = self.page(moment, usize::MAX);
        page.expect(jobs.len());
        jobs.iter().for_each(|job| page.push(job));
        out.write_all(page.finish().unwrap_or_default().as_bytes())
    }
}

fn default_format(options: &Options) -> &'static str {
    if options.start {
        START_FORMAT
    } else if options.long {
        LONG_FORMAT
    } else {
        DEFAULT_FORMAT
    }
}

#[cfg(test)]
mod tests;

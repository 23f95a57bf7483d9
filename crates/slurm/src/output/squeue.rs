//! `squeue`: the jobs, or the steps of the jobs, one a line.

use super::Moment;
use super::format::{Column, Format};
use super::squeue_fields::{JOB_FIELDS, JobField, JobRow};
use super::squeue_sort::{self, SortBy};
use super::squeue_steps::{self, STEP_FIELDS, StepField};
use std::io;
use wire::client::Detail;
use wire::view::JobView;

pub use super::squeue_sort::BadSort;

const DEFAULT_FORMAT: &str = "%.18i %.9P %.8j %.8u %.2t %.10M %.6D %R";
const LONG_FORMAT: &str = "%.18i %.9P %.8j %.8u %.8T %.10M %.9l %.6D %R";
const START_FORMAT: &str = "%.18i %.9P %.8j %.8u %.2t %.19S %.6D %20Y %R";

/// What the command line says about the listing. Which jobs are in it, the server has decided.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `-o`
    pub format: Option<String>,
    /// `-O`
    pub long_format: Option<String>,
    /// `-S`
    pub sort: Option<String>,
    pub no_header: bool,
    /// `-l`
    pub long: bool,
    /// `-s`
    pub steps: bool,
    /// `--start`
    pub start: bool,
    /// `-r`: every pending task of an array on its own line.
    pub expand_arrays: bool,
    /// `-P`: by priority alone.
    pub by_priority: bool,
}

/// A listing that is ready to be printed any number of times (`-i`).
pub struct Listing {
    columns: Columns,
    sort: Vec<SortBy>,
    options: Options,
}

enum Columns {
    Jobs(Format<JobField>),
    Steps(Format<StepField>),
}

impl Listing {
    pub fn new(options: Options) -> Result<Self, BadSort> {
        let default = if options.start { squeue_sort::BY_START } else { squeue_sort::DEFAULT };
        let sort = squeue_sort::parse(options.sort.as_deref().unwrap_or(default))?;
        let columns = if options.steps {
            Columns::Steps(match (&options.format, &options.long_format) {
                (_, Some(names)) => Format::by_name(STEP_FIELDS, names),
                (Some(text), None) => Format::by_letter(STEP_FIELDS, text, "job step"),
                (None, None) => {
                    Format::by_letter(STEP_FIELDS, squeue_steps::DEFAULT_FORMAT, "job step")
                }
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

    /// Lines for standard error: columns that do not exist.
    pub fn warnings(&self) -> &[String] {
        match &self.columns {
            Columns::Jobs(format) => &format.warnings,
            Columns::Steps(format) => &format.warnings,
        }
    }

    /// How much of each job the columns need.
    pub fn detail(&self) -> Detail {
        match &self.columns {
            _ if self.sort.iter().any(|by| by.field.in_full) => Detail::Full,
            Columns::Jobs(format)
                if format.pieces.iter().any(|p| p.column.is_some_and(|field| field.in_full)) =>
            {
                Detail::Full
            }
            _ => Detail::Listing,
        }
    }

    /// Whether it shows or sorts by when jobs are expected to start.
    pub fn wants_estimates(&self) -> bool {
        let about =
            |field: &JobField| ["StartTime", "EndTime", "SchedNodes"].contains(&field.name());
        let shown = match &self.columns {
            Columns::Jobs(format) => {
                format.pieces.iter().any(|piece| piece.column.is_some_and(about))
            }
            Columns::Steps(_) => false,
        };
        shown || self.sort.iter().any(|by| about(by.field))
    }

    pub fn render(
        &self,
        out: &mut impl io::Write,
        jobs: &[JobView],
        moment: Moment<'_>,
    ) -> io::Result<()> {
        let mut text = String::with_capacity(128 * (jobs.len() + 2));
        if self.options.long && !self.options.no_header {
            text.push_str(&moment.date_line());
            text.push('\n');
        }
        match &self.columns {
            Columns::Steps(format) => {
                squeue_steps::push(&mut text, format, !self.options.no_header, jobs, moment);
            }
            Columns::Jobs(format) => self.push_jobs(&mut text, format, jobs, moment),
        }
        out.write_all(text.as_bytes())
    }

    fn push_jobs(
        &self,
        text: &mut String,
        format: &Format<JobField>,
        jobs: &[JobView],
        moment: Moment<'_>,
    ) {
        if !self.options.no_header {
            format.push_header(text);
        }
        let mut rows = self.rows(jobs, moment);
        if self.options.by_priority {
            squeue_sort::by_priority(&mut rows);
        } else {
            squeue_sort::sort(&mut rows, &self.sort);
        }
        let mut cell = String::new();
        for row in &rows {
            format.push_line(text, &mut cell, |field, cell| (field.render)(row, cell));
        }
    }

    fn rows<'a>(&self, jobs: &'a [JobView], moment: Moment<'a>) -> Vec<JobRow<'a>> {
        let mut rows = Vec::with_capacity(jobs.len());
        for job in jobs {
            if self.options.start && !job.state.is_waiting() {
                continue;
            }
            let pending = job.array.as_ref().and_then(|array| array.pending.as_ref());
            match pending.filter(|_| self.options.expand_arrays) {
                Some(indices) => {
                    rows.extend(indices.iter().map(|i| JobRow { job, task: Some(i), moment }));
                }
                None => rows.push(JobRow { job, task: None, moment }),
            }
        }
        rows
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
#[path = "squeue_tests.rs"]
mod tests;

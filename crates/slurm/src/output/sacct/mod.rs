//! `sacct`: jobs and steps from the books.

pub(crate) mod fields;

use crate::output::Moment;
use crate::output::table::field_table::{
    self, ChosenColumn, Layout, NamedColumn, Table, UnknownField,
};
use fields::{ACCT_FIELDS, AcctField, LATER_FIELDS, Row};
use model::id::JobId;
use model::record::JobRecord;
use std::io;

pub use crate::output::text::usage_text::Units;

const DEFAULT: &[&str] =
    &["JobID", "JobName", "Partition", "Account", "AllocCPUS", "State", "ExitCode"];
const BRIEF: &[&str] = &["JobID", "State", "ExitCode"];
#[rustfmt::skip]
const LONG: &[&str] = &[
    "JobID", "JobIDRaw", "JobName", "Partition", "MaxVMSize", "MaxVMSizeNode", "MaxVMSizeTask", "AveVMSize",
    "MaxRSS", "MaxRSSNode", "MaxRSSTask", "AveRSS", "MaxPages", "MaxPagesNode", "MaxPagesTask", "AvePages",
    "MinCPU", "MinCPUNode", "MinCPUTask", "AveCPU", "NTasks", "AllocCPUS", "Elapsed", "State", "ExitCode",
    "AveCPUFreq", "ReqCPUFreqMin", "ReqCPUFreqMax", "ReqCPUFreqGov", "ReqMem", "ConsumedEnergy",
    "MaxDiskRead", "MaxDiskReadNode", "MaxDiskReadTask", "AveDiskRead",
    "MaxDiskWrite", "MaxDiskWriteNode", "MaxDiskWriteTask", "AveDiskWrite", "ReqTRES", "AllocTRES",
    "TRESUsageInAve", "TRESUsageInMax", "TRESUsageInMaxNode", "TRESUsageInMaxTask", "TRESUsageInMin",
    "TRESUsageInMinNode", "TRESUsageInMinTask", "TRESUsageInTot", "TRESUsageOutMax", "TRESUsageOutMaxNode",
    "TRESUsageOutMaxTask", "TRESUsageOutAve", "TRESUsageOutTot",
];

/// The options that shape the listing. The server has chosen the attempts.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// `-o`
    pub format: Option<String>,
    /// `-b`
    pub brief: bool,
    /// `-l`
    pub long: bool,
    /// `-X`: no steps.
    pub allocations_only: bool,
    /// Jobs of which only steps were named: they have no line of their own.
    pub jobs_without_line: Vec<JobId>,
    pub no_header: bool,
    pub layout: Layout,
    pub units: Units,
}

/// Whether a format has the word `ALL`, which means all columns.
pub fn names_all(format: &str) -> bool {
    format.split(',').any(|name| name.trim().eq_ignore_ascii_case("all"))
}

fn named(format: &str) -> Result<Vec<ChosenColumn<AcctField>>, UnknownField> {
    let one = |part: &str| {
        let known = field_table::parse(ACCT_FIELDS, part);
        known.or_else(|unknown| field_table::parse(LATER_FIELDS, part).map_err(|_| unknown))
    };
    let columns: Result<Vec<_>, UnknownField> = format.split(',').map(one).collect();
    columns.map(|columns| columns.into_iter().flatten().collect())
}

fn columns(options: &Options) -> Result<Vec<ChosenColumn<AcctField>>, UnknownField> {
    match &options.format {
        Some(text) if names_all(text) => {
            let names: Vec<&str> = ACCT_FIELDS.iter().map(NamedColumn::name).collect();
            Ok(field_table::default_columns(ACCT_FIELDS, &names))
        }
        Some(text) => named(text),
        None if options.brief => Ok(field_table::default_columns(ACCT_FIELDS, BRIEF)),
        None if options.long => Ok(field_table::default_columns(ACCT_FIELDS, LONG)),
        None => Ok(field_table::default_columns(ACCT_FIELDS, DEFAULT)),
    }
}

/// Why a listing could not be printed.
#[derive(Debug, thiserror::Error)]
pub enum SacctError {
    #[error(transparent)]
    UnknownField(#[from] UnknownField),
    #[error(transparent)]
    Write(#[from] io::Error),
}

pub fn render(
    out: &mut impl io::Write,
    options: &Options,
    cluster: &str,
    records: &[JobRecord],
    moment: Moment<'_>,
) -> Result<(), SacctError> {
    let columns = columns(options)?;
    let table = Table { columns: &columns, layout: &options.layout };
    let mut text = String::new();
    if !options.no_header {
        table.push_header(&mut text);
    }
    for job in records {
        let row = |step| Row { job, step, moment, units: options.units, cluster };
        if options.allocations_only || !options.jobs_without_line.contains(&job.job) {
            let job_row = row(None);
            table.push_line(&mut text, |field, cell| (field.render)(&job_row, cell));
        }
        let steps = job.steps.iter().filter(|_| !options.allocations_only);
        for step in steps.filter(|step| fields::is_listed(job, step)) {
            let step_row = row(Some(step));
            table.push_line(&mut text, |field, cell| (field.render)(&step_row, cell));
        }
    }
    Ok(out.write_all(text.as_bytes())?)
}

/// `sacct --helpformat`
pub fn help_format() -> String {
    field_table::help(ACCT_FIELDS)
}

#[cfg(test)]
pub(crate) mod tests;

//! `sstat`: what running steps use now.

use crate::output::table::field_table::{
    self, ChosenColumn, Layout, Table, UnknownField, named_column,
};
use crate::output::text::frequency_text::{self, FrequencyPart};
use crate::output::text::push;
use crate::output::text::usage_text::{
    Metric as M, Statistic as S, Units, UsageRow, push_statistic, push_tres_in, push_tres_out,
};
use model::amount;
use model::hostlist;
use std::fmt::Write;
use std::io;
use wire::client::StepUsage;

/// One line: a step of a job.
pub struct Row<'a> {
    /// `12`, `14_3`.
    pub job: &'a str,
    pub step: &'a StepUsage,
    pub units: Units,
}

pub struct StatField {
    name: &'static str,
    width: i16,
    render: fn(&Row<'_>, &mut String),
}

named_column!(StatField);

const fn field(width: i16, name: &'static str, render: fn(&Row<'_>, &mut String)) -> StatField {
    StatField { name, width, render }
}

/// In the order of `--helpformat`. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
static FIELDS: &[StatField] = &[
    field(10, "AveCPU", |r, c| statistic(r, M::Cpu, S::Mean, c)),
    field(10, "AveCPUFreq", |r, c| statistic(r, M::CpuFrequency, S::Mean, c)),
    field(12, "AveDiskRead", |r, c| bytes(r, M::Read, S::Mean, c)),
    field(12, "AveDiskWrite", |r, c| bytes(r, M::Written, S::Mean, c)),
    field(10, "AvePages", |r, c| statistic(r, M::Pages, S::Mean, c)),
    field(10, "AveRSS", |r, c| statistic(r, M::Memory, S::Mean, c)),
    field(10, "AveVMSize", |r, c| statistic(r, M::VirtualMemory, S::Mean, c)),
    field(14, "ConsumedEnergy", |r, c| c.push_str(&amount::format_decimal(joules(r)))),
    field(17, "ConsumedEnergyRaw", |r, c| push!(c, "{}", joules(r))),
    field(-12, "JobID", |r, c| push!(c, "{}.{}", r.job, r.step.step)),
    field(12, "MaxDiskRead", |r, c| bytes(r, M::Read, S::Max, c)),
    field(15, "MaxDiskReadNode", |r, c| statistic(r, M::Read, S::MaxNode, c)),
    field(15, "MaxDiskReadTask", |r, c| statistic(r, M::Read, S::MaxTask, c)),
    field(12, "MaxDiskWrite", |r, c| bytes(r, M::Written, S::Max, c)),
    field(16, "MaxDiskWriteNode", |r, c| statistic(r, M::Written, S::MaxNode, c)),
    field(16, "MaxDiskWriteTask", |r, c| statistic(r, M::Written, S::MaxTask, c)),
    field(8, "MaxPages", |r, c| statistic(r, M::Pages, S::Max, c)),
    field(12, "MaxPagesNode", |r, c| statistic(r, M::Pages, S::MaxNode, c)),
    field(14, "MaxPagesTask", |r, c| statistic(r, M::Pages, S::MaxTask, c)),
    field(10, "MaxRSS", |r, c| statistic(r, M::Memory, S::Max, c)),
    field(10, "MaxRSSNode", |r, c| statistic(r, M::Memory, S::MaxNode, c)),
    field(10, "MaxRSSTask", |r, c| statistic(r, M::Memory, S::MaxTask, c)),
    field(10, "MaxVMSize", |r, c| statistic(r, M::VirtualMemory, S::Max, c)),
    field(14, "MaxVMSizeNode", |r, c| statistic(r, M::VirtualMemory, S::MaxNode, c)),
    field(14, "MaxVMSizeTask", |r, c| statistic(r, M::VirtualMemory, S::MaxTask, c)),
    field(10, "MinCPU", |r, c| statistic(r, M::Cpu, S::Min, c)),
    field(10, "MinCPUNode", |r, c| statistic(r, M::Cpu, S::MinNode, c)),
    field(10, "MinCPUTask", |r, c| statistic(r, M::Cpu, S::MinTask, c)),
    field(20, "Nodelist", |r, c| c.push_str(&hostlist::compress(r.step.pids.iter().map(|(node, _)| node)))),
    field(8, "NTasks", |r, c| push!(c, "{}", r.step.tasks)),
    field(20, "Pids", pids),
    field(10, "ReqCPUFreq", requested_frequency),
    field(13, "ReqCPUFreqMin", |r, c| frequency(r, c, FrequencyPart::Min)),
    field(13, "ReqCPUFreqMax", |r, c| frequency(r, c, FrequencyPart::Max)),
    field(13, "ReqCPUFreqGov", |r, c| frequency(r, c, FrequencyPart::Governor)),
    field(14, "TRESUsageInAve", |r, c| push_tres_in(usage(r), S::Mean, c)),
    field(14, "TRESUsageInMax", |r, c| push_tres_in(usage(r), S::Max, c)),
    field(18, "TRESUsageInMaxNode", |r, c| push_tres_in(usage(r), S::MaxNode, c)),
    field(18, "TRESUsageInMaxTask", |r, c| push_tres_in(usage(r), S::MaxTask, c)),
    field(14, "TRESUsageInMin", |r, c| push_tres_in(usage(r), S::Min, c)),
    field(18, "TRESUsageInMinNode", |r, c| push_tres_in(usage(r), S::MinNode, c)),
    field(18, "TRESUsageInMinTask", |r, c| push_tres_in(usage(r), S::MinTask, c)),
    field(14, "TRESUsageInTot", |r, c| push_tres_in(usage(r), S::Total, c)),
    field(15, "TRESUsageOutAve", |r, c| push_tres_out(usage(r), S::Mean, c)),
    field(15, "TRESUsageOutMax", |r, c| push_tres_out(usage(r), S::Max, c)),
    field(19, "TRESUsageOutMaxNode", |r, c| push_tres_out(usage(r), S::MaxNode, c)),
    field(19, "TRESUsageOutMaxTask", |r, c| push_tres_out(usage(r), S::MaxTask, c)),
    field(15, "TRESUsageOutMin", |r, c| push_tres_out(usage(r), S::Min, c)),
    field(19, "TRESUsageOutMinNode", |r, c| push_tres_out(usage(r), S::MinNode, c)),
    field(19, "TRESUsageOutMinTask", |r, c| push_tres_out(usage(r), S::MinTask, c)),
    field(15, "TRESUsageOutTot", |r, c| push_tres_out(usage(r), S::Total, c)),
];

#[rustfmt::skip]
const DEFAULT: &[&str] = &[
    "JobID", "MaxVMSize", "MaxVMSizeNode", "MaxVMSizeTask", "AveVMSize", "MaxRSS", "MaxRSSNode", "MaxRSSTask",
    "AveRSS", "MaxPages", "MaxPagesNode", "MaxPagesTask", "AvePages", "MinCPU", "MinCPUNode", "MinCPUTask", "AveCPU",
    "NTasks", "AveCPUFreq", "ReqCPUFreqMin", "ReqCPUFreqMax", "ReqCPUFreqGov", "ConsumedEnergy",
    "MaxDiskRead", "MaxDiskReadNode", "MaxDiskReadTask", "AveDiskRead",
    "MaxDiskWrite", "MaxDiskWriteNode", "MaxDiskWriteTask", "AveDiskWrite",
    "TRESUsageInAve", "TRESUsageInMax", "TRESUsageInMaxNode", "TRESUsageInMaxTask", "TRESUsageInMin",
    "TRESUsageInMinNode", "TRESUsageInMinTask", "TRESUsageInTot", "TRESUsageOutAve", "TRESUsageOutMax",
    "TRESUsageOutMaxNode", "TRESUsageOutMaxTask", "TRESUsageOutMin", "TRESUsageOutMinNode", "TRESUsageOutMinTask",
    "TRESUsageOutTot",
];
const PIDS: &[&str] = &["JobID", "Nodelist", "Pids"];

/// The options that shape the table.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub format: Option<String>,
    /// `-i`: the processes of each step.
    pub pids: bool,
    pub no_header: bool,
    pub layout: Layout,
    pub units: Units,
}

fn usage<'a>(row: &Row<'a>) -> UsageRow<'a> {
    UsageRow { tasks: &row.step.used, nodes: &row.step.nodes, units: row.units }
}

fn joules(row: &Row<'_>) -> u64 {
    row.step.used.energy_mj.total / 1000
}

fn statistic(row: &Row<'_>, metric: M, statistic: S, cell: &mut String) {
    push_statistic(usage(row), metric, statistic, cell);
}

/// Unlike `sacct`, `sstat` prints disk traffic in bytes.
fn bytes(row: &Row<'_>, metric: M, statistic: S, cell: &mut String) {
    push_statistic(UsageRow { units: Units::Own, ..usage(row) }, metric, statistic, cell);
}

fn frequency(row: &Row<'_>, cell: &mut String, part: FrequencyPart) {
    frequency_text::push(row.step.cpu_frequency, Some(row.step.step), part, cell);
}

/// A column that Slurm keeps for its first form of the option: a zero where nothing was asked for.
fn requested_frequency(row: &Row<'_>, cell: &mut String) {
    match row.step.cpu_frequency {
        Some(_) => frequency(row, cell, FrequencyPart::Max),
        None => cell.push('0'),
    }
}

fn pids(row: &Row<'_>, cell: &mut String) {
    let all = row.step.pids.iter().flat_map(|(_, pids)| pids);
    let texts: Vec<String> = all.map(i32::to_string).collect();
    cell.push_str(&texts.join(","));
}

/// The columns that the options choose.
pub fn columns(options: &Options) -> Result<Vec<ChosenColumn<StatField>>, UnknownField> {
    match &options.format {
        Some(format) => field_table::parse(FIELDS, format),
        None if options.pids => Ok(field_table::default_columns(FIELDS, PIDS)),
        None => Ok(field_table::default_columns(FIELDS, DEFAULT)),
    }
}

pub fn render(
    out: &mut impl io::Write,
    options: &Options,
    columns: &[ChosenColumn<StatField>],
    rows: &[Row<'_>],
) -> io::Result<()> {
    let table = Table { columns, layout: &options.layout };
    let mut text = String::new();
    if !options.no_header {
        table.push_header(&mut text);
    }
    for row in rows {
        table.push_line(&mut text, |column, cell| (column.render)(row, cell));
    }
    out.write_all(text.as_bytes())
}

pub fn help_format() -> String {
    field_table::help(FIELDS)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::id::StepId;
    use model::usage::{TaskSample, TaskUsage};

    fn shown(options: &Options) -> String {
        let measure =
            TaskSample { memory_peak: 3352 << 10, memory_now: 3108 << 10, ..TaskSample::default() };
        let step = StepUsage {
            step: StepId::Batch,
            nodes: vec!["node1".into()],
            tasks: 1,
            used: TaskUsage::of(0, 0, &measure, true),
            pids: vec![("node1".into(), vec![11, 12])],
            cpu_frequency: None,
        };
        let rows = [Row { job: "3", step: &step, units: Units::Exact }];
        let columns = columns(options).expect("columns");
        let mut out = Vec::new();
        render(&mut out, options, &columns, &rows).expect("a table");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_default_columns_are_those_of_slurm() {
        let header = include_str!("header.txt");
        assert_eq!(shown(&Options::default()).lines().next(), header.lines().next());
    }

    #[test]
    fn format_chooses_columns_and_pids_lists_processes() {
        let layout = Layout::Separated("|".into());
        let format = Some("jobid,maxrss,averss,maxrssnode".to_owned());
        let options =
            Options { format, layout: layout.clone(), no_header: true, ..Options::default() };
        assert_eq!(shown(&options), "3.batch|3352K|3108K|node1\n");
        let options = Options { pids: true, layout, ..Options::default() };
        assert_eq!(shown(&options), "JobID|Nodelist|Pids\n3.batch|node1|11,12\n");
    }
}

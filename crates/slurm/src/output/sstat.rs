//! `sstat`: what running steps use now.

use super::field_table::{self, Chosen, Layout, NamedColumn, Table, UnknownField};
use super::job_text::push;
use super::sacct_fields::Units;
use super::usage_fields::{Metric as M, Of, Used, cell, tres_in, tres_out};
use model::hostlist;
use model::id::StepId;
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

impl NamedColumn for StatField {
    fn name(&self) -> &'static str {
        self.name
    }
    fn header(&self) -> &'static str {
        self.name
    }
    fn width(&self) -> i16 {
        self.width
    }
}

const fn field(width: i16, name: &'static str, render: fn(&Row<'_>, &mut String)) -> StatField {
    StatField { name, width, render }
}

/// In the order of `--helpformat`. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
static FIELDS: &[StatField] = &[
    field(10, "AveCPU", |r, c| cell(used(r), M::Cpu, Of::Mean, c)),
    field(10, "AveCPUFreq", |_, c| c.push('0')),
    field(12, "AveDiskRead", |r, c| bytes(r, M::Read, Of::Mean, c)),
    field(12, "AveDiskWrite", |r, c| bytes(r, M::Written, Of::Mean, c)),
    field(10, "AvePages", |r, c| cell(used(r), M::Pages, Of::Mean, c)),
    field(10, "AveRSS", |r, c| cell(used(r), M::Memory, Of::Mean, c)),
    field(10, "AveVMSize", |r, c| cell(used(r), M::VirtualMemory, Of::Mean, c)),
    field(14, "ConsumedEnergy", |_, c| c.push('0')),
    field(17, "ConsumedEnergyRaw", |_, c| c.push('0')),
    field(-12, "JobID", |r, c| push!(c, "{}.{}", r.job, r.step.step)),
    field(12, "MaxDiskRead", |r, c| bytes(r, M::Read, Of::Max, c)),
    field(15, "MaxDiskReadNode", |r, c| cell(used(r), M::Read, Of::MaxNode, c)),
    field(15, "MaxDiskReadTask", |r, c| cell(used(r), M::Read, Of::MaxTask, c)),
    field(12, "MaxDiskWrite", |r, c| bytes(r, M::Written, Of::Max, c)),
    field(16, "MaxDiskWriteNode", |r, c| cell(used(r), M::Written, Of::MaxNode, c)),
    field(16, "MaxDiskWriteTask", |r, c| cell(used(r), M::Written, Of::MaxTask, c)),
    field(8, "MaxPages", |r, c| cell(used(r), M::Pages, Of::Max, c)),
    field(12, "MaxPagesNode", |r, c| cell(used(r), M::Pages, Of::MaxNode, c)),
    field(14, "MaxPagesTask", |r, c| cell(used(r), M::Pages, Of::MaxTask, c)),
    field(10, "MaxRSS", |r, c| cell(used(r), M::Memory, Of::Max, c)),
    field(10, "MaxRSSNode", |r, c| cell(used(r), M::Memory, Of::MaxNode, c)),
    field(10, "MaxRSSTask", |r, c| cell(used(r), M::Memory, Of::MaxTask, c)),
    field(10, "MaxVMSize", |r, c| cell(used(r), M::VirtualMemory, Of::Max, c)),
    field(14, "MaxVMSizeNode", |r, c| cell(used(r), M::VirtualMemory, Of::MaxNode, c)),
    field(14, "MaxVMSizeTask", |r, c| cell(used(r), M::VirtualMemory, Of::MaxTask, c)),
    field(10, "MinCPU", |r, c| cell(used(r), M::Cpu, Of::Min, c)),
    field(10, "MinCPUNode", |r, c| cell(used(r), M::Cpu, Of::MinNode, c)),
    field(10, "MinCPUTask", |r, c| cell(used(r), M::Cpu, Of::MinTask, c)),
    field(20, "Nodelist", |r, c| c.push_str(&hostlist::compress(r.step.pids.iter().map(|(node, _)| node)))),
    field(8, "NTasks", |r, c| push!(c, "{}", r.step.tasks)),
    field(20, "Pids", pids),
    field(10, "ReqCPUFreq", |_, c| c.push('0')),
    field(13, "ReqCPUFreqMin", asked_frequency),
    field(13, "ReqCPUFreqMax", asked_frequency),
    field(13, "ReqCPUFreqGov", asked_frequency),
    field(14, "TRESUsageInAve", |r, c| tres_in(used(r), Of::Mean, c)),
    field(14, "TRESUsageInMax", |r, c| tres_in(used(r), Of::Max, c)),
    field(18, "TRESUsageInMaxNode", |r, c| tres_in(used(r), Of::MaxNode, c)),
    field(18, "TRESUsageInMaxTask", |r, c| tres_in(used(r), Of::MaxTask, c)),
    field(14, "TRESUsageInMin", |r, c| tres_in(used(r), Of::Min, c)),
    field(18, "TRESUsageInMinNode", |r, c| tres_in(used(r), Of::MinNode, c)),
    field(18, "TRESUsageInMinTask", |r, c| tres_in(used(r), Of::MinTask, c)),
    field(14, "TRESUsageInTot", |r, c| tres_in(used(r), Of::Total, c)),
    field(15, "TRESUsageOutAve", |r, c| tres_out(used(r), Of::Mean, c)),
    field(15, "TRESUsageOutMax", |r, c| tres_out(used(r), Of::Max, c)),
    field(19, "TRESUsageOutMaxNode", |r, c| tres_out(used(r), Of::MaxNode, c)),
    field(19, "TRESUsageOutMaxTask", |r, c| tres_out(used(r), Of::MaxTask, c)),
    field(15, "TRESUsageOutMin", |r, c| tres_out(used(r), Of::Min, c)),
    field(19, "TRESUsageOutMinNode", |r, c| tres_out(used(r), Of::MinNode, c)),
    field(19, "TRESUsageOutMinTask", |r, c| tres_out(used(r), Of::MinTask, c)),
    field(15, "TRESUsageOutTot", |r, c| tres_out(used(r), Of::Total, c)),
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

/// What the command line says of the table.
#[derive(Debug, Clone, Default)]
pub struct Options {
    pub format: Option<String>,
    /// `-i`: the processes of each step.
    pub pids: bool,
    pub no_header: bool,
    pub layout: Layout,
    pub units: Units,
}

fn used<'a>(row: &Row<'a>) -> Used<'a> {
    Used { used: &row.step.used, nodes: &row.step.nodes, units: row.units }
}

/// Here, unlike in `sacct`, bytes are shown as they are.
fn bytes(row: &Row<'_>, metric: M, of: Of, text: &mut String) {
    cell(Used { units: Units::Own, ..used(row) }, metric, of, text);
}

/// Nobody here sets frequencies; Slurm's word for that differs between a script and a step.
fn asked_frequency(row: &Row<'_>, cell: &mut String) {
    cell.push_str(if row.step.step == StepId::Batch { "0" } else { "Unknown" });
}

fn pids(row: &Row<'_>, cell: &mut String) {
    let all = row.step.pids.iter().flat_map(|(_, pids)| pids);
    let texts: Vec<String> = all.map(i32::to_string).collect();
    cell.push_str(&texts.join(","));
}

/// The columns that are wanted.
pub fn columns(options: &Options) -> Result<Vec<Chosen<StatField>>, UnknownField> {
    match &options.format {
        Some(format) => field_table::parse(FIELDS, format),
        None if options.pids => Ok(field_table::usual(FIELDS, PIDS)),
        None => Ok(field_table::usual(FIELDS, DEFAULT)),
    }
}

pub fn render(
    out: &mut impl io::Write,
    options: &Options,
    columns: &[Chosen<StatField>],
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
        };
        let rows = [Row { job: "3", step: &step, units: Units::Exact }];
        let columns = columns(options).expect("columns");
        let mut out = Vec::new();
        render(&mut out, options, &columns, &rows).expect("a table");
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn the_usual_columns_are_slurms() {
        let header = include_str!("sstat_header.txt");
        assert_eq!(shown(&Options::default()).lines().next(), header.lines().next());
    }

    #[test]
    fn chosen_columns_and_processes() {
        let layout = Layout::Separated("|".into());
        let format = Some("jobid,maxrss,averss,maxrssnode".to_owned());
        let options =
            Options { format, layout: layout.clone(), no_header: true, ..Options::default() };
        assert_eq!(shown(&options), "3.batch|3352K|3108K|node1\n");
        let options = Options { pids: true, layout, ..Options::default() };
        assert_eq!(shown(&options), "JobID|Nodelist|Pids\n3.batch|node1|11,12\n");
    }
}

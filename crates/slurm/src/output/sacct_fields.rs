//! The columns of `sacct`.

use super::Moment;
use super::field_table::NamedColumn;
use super::job_text::push;
use super::usage_fields::{self, Metric as M, Of, Used, memory_text, tres_in, tres_out};
use crate::words::{self, job as state_words};
use model::amount::{self, Bytes, Unit};
use model::hostlist;
use model::id::StepId;
use model::record::{JobRecord, RecordState, StepRecord};
use model::run::{LaunchKind, Usage};
use model::time::{TimeLimit, Timestamp, format_elapsed_full, format_limit_full};
use model::tres::{Tres, TresKind};
use std::fmt::Write;

/// In which unit amounts of memory are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Units {
    /// The largest that loses nothing.
    #[default]
    Exact,
    /// `--noconvert`: the unit they are counted in.
    Own,
    /// `--units=M`
    In(Unit),
}

/// One line: a job, or one of its steps.
pub struct Row<'a> {
    pub job: &'a JobRecord,
    pub step: Option<&'a StepRecord>,
    pub moment: Moment<'a>,
    pub units: Units,
    pub cluster: &'a str,
}

pub struct AcctField {
    name: &'static str,
    width: i16,
    pub render: fn(&Row<'_>, &mut String),
}

impl NamedColumn for AcctField {
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

const fn field(width: i16, name: &'static str, render: fn(&Row<'_>, &mut String)) -> AcctField {
    AcctField { name, width, render }
}

/// A column that Slurm has and Sluice does not measure.
const fn unmeasured(width: i16, name: &'static str) -> AcctField {
    AcctField { name, width, render: |_, _| {} }
}

/// In the order of `--helpformat`. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static ACCT_FIELDS: &[AcctField] = &[
    field(10, "Account", |r, c| c.push_str(&r.job.account)),
    unmeasured(19, "AdminComment"),
    field(10, "AllocCPUS", |r, c| push!(c, "{}", cpus(r))),
    field(10, "AllocNodes", |r, c| push!(c, "{}", node_count(r))),
    field(10, "AllocTRES", |r, c| c.push_str(&alloc_tres(r).display_by_name())),
    unmeasured(7, "AssocID"),
    field(10, "AveCPU", |r, c| tasks(r, c, M::Cpu, Of::Mean)),
    unmeasured(10, "AveCPUFreq"),
    field(14, "AveDiskRead", |r, c| tasks(r, c, M::Read, Of::Mean)),
    field(14, "AveDiskWrite", |r, c| tasks(r, c, M::Written, Of::Mean)),
    field(10, "AvePages", |r, c| tasks(r, c, M::Pages, Of::Mean)),
    field(10, "AveRSS", |r, c| tasks(r, c, M::Memory, Of::Mean)),
    field(10, "AveVMSize", |r, c| tasks(r, c, M::VirtualMemory, Of::Mean)),
    unmeasured(16, "BlockID"),
    field(10, "Cluster", |r, c| c.push_str(r.cluster)),
    field(14, "Comment", |r, c| of_job(r, c, |j, c| c.push_str(j.comment.as_deref().unwrap_or("")))),
    field(19, "Constraints", |r, c| of_job(r, c, |j, c| c.push_str(j.constraint.as_deref().unwrap_or("")))),
    field(14, "ConsumedEnergy", |_, c| c.push('0')),
    field(17, "ConsumedEnergyRaw", |_, c| c.push('0')),
    unmeasured(19, "Container"),
    field(10, "CPUTime", |r, c| c.push_str(&format_elapsed_full(elapsed_s(r) * u64::from(cpus(r))))),
    field(10, "CPUTimeRAW", |r, c| push!(c, "{}", elapsed_s(r) * u64::from(cpus(r)))),
    unmeasured(11, "DBIndex"),
    field(15, "DerivedExitCode", |r, c| of_job(r, c, |j, c| push!(c, "{}", j.derived_exit))),
    field(10, "Elapsed", |r, c| c.push_str(&format_elapsed_full(elapsed_s(r)))),
    field(10, "ElapsedRaw", |r, c| push!(c, "{}", elapsed_s(r))),
    field(19, "Eligible", |r, c| of_job(r, c, |j, c| c.push_str(&time_or(r, j.eligible, "Unknown")))),
    field(19, "End", |r, c| c.push_str(&time_or(r, r.step.map_or(r.job.end, |s| s.end), "Unknown"))),
    field(8, "ExitCode", |r, c| push!(c, "{}", r.step.map_or(r.job.exit, |s| s.exit))),
    unmeasured(20, "Flags"),
    field(6, "GID", |r, c| of_job(r, c, |j, c| push!(c, "{}", j.gid))),
    field(9, "Group", |r, c| of_job(r, c, |j, c| c.push_str(&j.group))),
    field(-12, "JobID", job_id),
    field(-12, "JobIDRaw", |r, c| { push!(c, "{}", r.job.job); step_suffix(r, c) }),
    field(10, "JobName", |r, c| c.push_str(r.step.map_or(&r.job.name, |s| &s.name))),
    unmeasured(9, "Layout"),
    field(12, "MaxDiskRead", |r, c| tasks(r, c, M::Read, Of::Max)),
    field(15, "MaxDiskReadNode", |r, c| tasks(r, c, M::Read, Of::MaxNode)),
    field(15, "MaxDiskReadTask", |r, c| tasks(r, c, M::Read, Of::MaxTask)),
    field(12, "MaxDiskWrite", |r, c| tasks(r, c, M::Written, Of::Max)),
    field(16, "MaxDiskWriteNode", |r, c| tasks(r, c, M::Written, Of::MaxNode)),
    field(16, "MaxDiskWriteTask", |r, c| tasks(r, c, M::Written, Of::MaxTask)),
    field(8, "MaxPages", |r, c| tasks(r, c, M::Pages, Of::Max)),
    field(12, "MaxPagesNode", |r, c| tasks(r, c, M::Pages, Of::MaxNode)),
    field(14, "MaxPagesTask", |r, c| tasks(r, c, M::Pages, Of::MaxTask)),
    field(10, "MaxRSS", |r, c| tasks(r, c, M::Memory, Of::Max)),
    field(10, "MaxRSSNode", |r, c| tasks(r, c, M::Memory, Of::MaxNode)),
    field(10, "MaxRSSTask", |r, c| tasks(r, c, M::Memory, Of::MaxTask)),
    field(10, "MaxVMSize", |r, c| tasks(r, c, M::VirtualMemory, Of::Max)),
    field(14, "MaxVMSizeNode", |r, c| tasks(r, c, M::VirtualMemory, Of::MaxNode)),
    field(14, "MaxVMSizeTask", |r, c| tasks(r, c, M::VirtualMemory, Of::MaxTask)),
    unmeasured(10, "McsLabel"),
    field(10, "MinCPU", |r, c| tasks(r, c, M::Cpu, Of::Min)),
    field(10, "MinCPUNode", |r, c| tasks(r, c, M::Cpu, Of::MinNode)),
    field(10, "MinCPUTask", |r, c| tasks(r, c, M::Cpu, Of::MinTask)),
    field(10, "NCPUS", |r, c| push!(c, "{}", cpus(r))),
    field(8, "NNodes", |r, c| push!(c, "{}", node_count(r))),
    field(15, "NodeList", node_list),
    field(8, "NTasks", |r, c| if let Some(s) = r.step { push!(c, "{}", s.tasks) }),
    field(10, "Partition", |r, c| of_job(r, c, |j, c| c.push_str(&j.partition))),
    field(10, "Priority", |r, c| of_job(r, c, |j, c| push!(c, "{}", j.priority))),
    field(10, "QOS", |r, c| of_job(r, c, |j, c| c.push_str(&j.qos))),
    unmeasured(6, "QOSRAW"),
    field(22, "Reason", |r, c| of_job(r, c, |j, c| c.push_str(&words::reason::text(&j.reason)))),
    field(10, "ReqCPUFreq", |_, c| c.push_str("Unknown")),
    field(13, "ReqCPUFreqGov", |_, c| c.push_str("Unknown")),
    field(13, "ReqCPUFreqMax", |_, c| c.push_str("Unknown")),
    field(13, "ReqCPUFreqMin", |_, c| c.push_str("Unknown")),
    field(8, "ReqCPUS", |r, c| push!(c, "{}", r.step.map_or(r.job.req_cpus, |s| s.cpus))),
    field(10, "ReqMem", |r, c| of_job(r, c, |j, c| c.push_str(&req_mem(r, j)))),
    field(8, "ReqNodes", |r, c| push!(c, "{}", r.step.map_or(r.job.req_nodes, |s| s.nodes.len() as u32))),
    field(10, "ReqTRES", |r, c| of_job(r, c, |j, c| c.push_str(&j.req_tres.display_by_name()))),
    field(20, "Reservation", |r, c| of_job(r, c, |j, c| c.push_str(j.reservation.as_deref().unwrap_or("")))),
    field(8, "ReservationId", |r, c| of_job(r, c, |j, c| c.push_str(&j.reservation_id.map_or_else(String::new, |id| id.to_string())))),
    field(10, "Reserved", |r, c| of_job(r, c, |j, c| c.push_str(&format_elapsed_full(waited_s(r, j))))),
    field(10, "ResvCPU", |r, c| of_job(r, c, |j, c| c.push_str(&format_elapsed_full(waited_s(r, j) * u64::from(j.req_cpus))))),
    field(10, "ResvCPURAW", |r, c| of_job(r, c, |j, c| push!(c, "{}", waited_s(r, j) * u64::from(j.req_cpus)))),
    field(19, "Start", start),
    field(10, "State", state),
    field(19, "Submit", |r, c| c.push_str(&r.moment.iso(r.step.map_or(r.job.submit, |s| s.start)))),
    field(20, "SubmitLine", |r, c| c.push_str(r.step.map_or(&r.job.submit_line, |s| &s.submit_line))),
    field(10, "Suspended", |r, c| c.push_str(&format_elapsed_full(if r.step.is_none() { r.job.suspended_s } else { 0 }))),
    unmeasured(14, "SystemComment"),
    field(10, "SystemCPU", |r, c| cpu_time(c, usage(r).cpu_system_us)),
    field(10, "Timelimit", |r, c| of_job(r, c, |j, c| c.push_str(&format_limit_full(j.time_limit)))),
    field(12, "TimelimitRaw", |r, c| of_job(r, c, |j, c| match j.time_limit { TimeLimit::Minutes(m) => push!(c, "{m}"), TimeLimit::Unlimited => c.push_str("UNLIMITED") })),
    field(10, "TotalCPU", |r, c| cpu_time(c, cpu_us(usage(r)))),
    field(14, "TRESUsageInAve", |r, c| if let Some(used) = used(r) { tres_in(used, Of::Mean, c) }),
    field(14, "TRESUsageInMax", |r, c| if let Some(used) = used(r) { tres_in(used, Of::Max, c) }),
    field(18, "TRESUsageInMaxNode", |r, c| if let Some(used) = used(r) { tres_in(used, Of::MaxNode, c) }),
    field(18, "TRESUsageInMaxTask", |r, c| if let Some(used) = used(r) { tres_in(used, Of::MaxTask, c) }),
    field(14, "TRESUsageInMin", |r, c| if let Some(used) = used(r) { tres_in(used, Of::Min, c) }),
    field(18, "TRESUsageInMinNode", |r, c| if let Some(used) = used(r) { tres_in(used, Of::MinNode, c) }),
    field(18, "TRESUsageInMinTask", |r, c| if let Some(used) = used(r) { tres_in(used, Of::MinTask, c) }),
    field(14, "TRESUsageInTot", |r, c| if let Some(used) = used(r) { tres_in(used, Of::Total, c) }),
    field(15, "TRESUsageOutAve", |r, c| if let Some(used) = used(r) { tres_out(used, Of::Mean, c) }),
    field(15, "TRESUsageOutMax", |r, c| if let Some(used) = used(r) { tres_out(used, Of::Max, c) }),
    field(19, "TRESUsageOutMaxNode", |r, c| if let Some(used) = used(r) { tres_out(used, Of::MaxNode, c) }),
    field(19, "TRESUsageOutMaxTask", |r, c| if let Some(used) = used(r) { tres_out(used, Of::MaxTask, c) }),
    field(15, "TRESUsageOutMin", |r, c| if let Some(used) = used(r) { tres_out(used, Of::Min, c) }),
    field(19, "TRESUsageOutMinNode", |r, c| if let Some(used) = used(r) { tres_out(used, Of::MinNode, c) }),
    field(19, "TRESUsageOutMinTask", |r, c| if let Some(used) = used(r) { tres_out(used, Of::MinTask, c) }),
    field(15, "TRESUsageOutTot", |r, c| if let Some(used) = used(r) { tres_out(used, Of::Total, c) }),
    field(6, "UID", |r, c| of_job(r, c, |j, c| push!(c, "{}", j.uid))),
    field(9, "User", |r, c| of_job(r, c, |j, c| c.push_str(&j.user))),
    field(10, "UserCPU", |r, c| cpu_time(c, usage(r).cpu_user_us)),
    field(10, "WCKey", |r, c| of_job(r, c, |j, c| c.push_str(j.wckey.as_deref().unwrap_or("")))),
    unmeasured(8, "WCKeyID"),
    field(20, "WorkDir", |r, c| of_job(r, c, |j, c| c.push_str(&j.work_dir))),
];

/// What is the job's alone: the lines of its steps are empty there.
fn of_job(row: &Row<'_>, cell: &mut String, write: impl Fn(&JobRecord, &mut String)) {
    if row.step.is_none() {
        write(row.job, cell);
    }
}

/// `14_3`, `14_[16-23]`, `12`, each with its step.
fn job_id(row: &Row<'_>, cell: &mut String) {
    let job = row.job;
    match (job.array_job, job.array_task, &job.array_pending) {
        (Some(array), Some(task), _) => push!(cell, "{array}_{task}"),
        (Some(array), None, Some(pending)) => push!(cell, "{array}_[{pending}]"),
        _ => match job.het {
            Some(of) => push!(cell, "{}+{}", of.first, of.offset),
            None => push!(cell, "{}", job.job),
        },
    }
    step_suffix(row, cell);
}

fn step_suffix(row: &Row<'_>, cell: &mut String) {
    if let Some(step) = row.step {
        push!(cell, ".{}", step.id);
    }
}

fn state(row: &Row<'_>, cell: &mut String) {
    match row.step {
        // Who cancelled it is said of the job only.
        Some(step) => cell.push_str(state_words::long(state_words::of_record(step.state))),
        None => cell.push_str(&state_words::in_books(row.job.state)),
    }
}

fn time_or(row: &Row<'_>, time: Option<Timestamp>, none: &str) -> String {
    time.map_or_else(|| none.to_owned(), |time| row.moment.iso(time))
}

/// A job that ended without starting has no start; one that may still start has an unknown one.
fn start(row: &Row<'_>, cell: &mut String) {
    let time = match row.step {
        Some(step) => Some(step.start),
        None => row.job.start,
    };
    let none = if matches!(row.job.state, RecordState::Ended(_)) { "None" } else { "Unknown" };
    cell.push_str(&time_or(row, time, none));
}

fn span_s(row: &Row<'_>, start: Option<Timestamp>, end: Option<Timestamp>) -> u64 {
    let Some(start) = start else { return 0 };
    let length = end.unwrap_or(row.moment.now).secs() - start.secs();
    u64::try_from(length).unwrap_or(0)
}

pub fn elapsed_s(row: &Row<'_>) -> u64 {
    match row.step {
        Some(step) => span_s(row, Some(step.start), step.end),
        None => {
            let all = span_s(row, row.job.start, row.job.end);
            all.saturating_sub(row.job.suspended_s)
        }
    }
}

fn waited_s(row: &Row<'_>, job: &JobRecord) -> u64 {
    span_s(row, job.eligible, job.start.or(job.end))
}

/// What was granted; before that, what was asked.
fn cpus(row: &Row<'_>) -> u32 {
    match row.step {
        Some(step) => step.cpus,
        None if row.job.cpus > 0 => row.job.cpus,
        None => row.job.req_cpus,
    }
}

fn node_count(row: &Row<'_>) -> u32 {
    row.step.map_or(row.job.node_count, |step| step.nodes.len() as u32)
}

fn node_list(row: &Row<'_>, cell: &mut String) {
    let nodes = row.step.map_or(&row.job.nodes, |step| &step.nodes);
    if nodes.is_empty() {
        cell.push_str("None assigned");
    } else {
        cell.push_str(&hostlist::compress(nodes));
    }
}

/// A step has its CPUs and nodes, and of memory and GRES what its nodes hold, where nodes hold the same.
fn alloc_tres(row: &Row<'_>) -> Tres {
    let Some(step) = row.step else { return row.job.alloc_tres.clone() };
    let (nodes, all) = (step.nodes.len() as u64, row.job.nodes.len() as u64);
    let mut tres = Tres::new();
    tres.set(TresKind::Cpu, u64::from(step.cpus));
    tres.set(TresKind::Node, nodes);
    for (kind, amount) in row.job.alloc_tres.iter() {
        let shared = matches!(kind, TresKind::Mem | TresKind::Gres { .. });
        if shared && all > 0 && amount % all == 0 {
            tres.set(kind.clone(), amount / all * nodes);
        }
    }
    tres
}

fn req_mem(row: &Row<'_>, job: &JobRecord) -> String {
    match (row.units, Bytes::parse_slurm(&job.req_mem)) {
        (Units::In(unit), Ok(bytes)) => amount::format_in(bytes.mib(), Unit::Mebi, unit),
        (Units::Own, Ok(bytes)) => format!("{}M", bytes.mib()),
        _ => job.req_mem.clone(),
    }
}

/// What a step's tasks used, where they were told apart.
fn used<'a>(row: &Row<'a>) -> Option<Used<'a>> {
    let step = row.step?;
    let used = step.usage.tasks.as_deref()?;
    Some(Used { used, nodes: &step.nodes, units: row.units })
}

/// A number of a step's tasks. Of a step that was not looked at task by task its peak and its time are known.
fn tasks(row: &Row<'_>, cell: &mut String, metric: M, of: Of) {
    let Some(step) = row.step else { return };
    if let Some(used) = used(row) {
        return usage_fields::cell(used, metric, of, cell);
    }
    let alone = step.tasks <= 1;
    match (metric, of) {
        (M::Memory, Of::Max) => {
            cell.push_str(&memory_text(row.units, step.usage.memory_peak_bytes));
        }
        (M::Memory, Of::Mean) if alone => {
            cell.push_str(&memory_text(row.units, step.usage.memory_peak_bytes));
        }
        (M::Memory, Of::MaxNode) => {
            if let [node] = step.nodes.as_slice() {
                cell.push_str(node);
            }
        }
        (M::Memory, Of::MaxTask) if alone => cell.push('0'),
        (M::Cpu, Of::Mean) => {
            let each = cpu_us(&step.usage) / 1_000_000 / u64::from(step.tasks.max(1));
            cell.push_str(&format_elapsed_full(each));
        }
        _ => {}
    }
}

/// A step's own use; a job's is that of its steps together, or what was measured for it.
fn usage<'a>(row: &Row<'a>) -> &'a Usage {
    match row.step {
        Some(step) => &step.usage,
        None => &row.job.usage,
    }
}

fn cpu_us(usage: &Usage) -> u64 {
    usage.cpu_user_us.saturating_add(usage.cpu_system_us)
}

/// `00:00.084` below an hour, `01:02:03` above.
fn cpu_time(cell: &mut String, us: u64) {
    let secs = us / 1_000_000;
    if secs >= 3_600 {
        cell.push_str(&format_elapsed_full(secs));
    } else {
        push!(cell, "{:02}:{:02}.{:03}", secs / 60, secs % 60, us / 1_000 % 1_000);
    }
}

/// Whether a step has a line: the allocation's own shell has none in Slurm's books.
pub fn is_listed(job: &JobRecord, step: &StepRecord) -> bool {
    !(job.kind == LaunchKind::Interactive && step.id == StepId::Batch)
}

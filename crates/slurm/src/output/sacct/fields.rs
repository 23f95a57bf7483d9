//! The columns of `sacct`.

use crate::output::Moment;
use crate::output::table::field_table::named_column;
use crate::output::text::frequency_text::{self, FrequencyPart};
use crate::output::text::push;
use crate::output::text::usage_text::{
    self, Metric as M, Statistic as S, Units, UsageRow, memory_text, push_tres_in, push_tres_out,
};
use crate::words::{self, job as state_words};
use model::amount::{self, Unit};
use model::hostlist;
use model::id::StepId;
use model::price::Price;
use model::record::{JobRecord, RecordState, StepRecord};
use model::run::{LaunchKind, Usage};
use model::time::{TimeLimit, Timestamp, format_elapsed_full, format_limit_full};
use model::tres::{Tres, TresKind};
use std::fmt::Write;
use std::time::Duration;

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

named_column!(AcctField);

const fn field(width: i16, name: &'static str, render: fn(&Row<'_>, &mut String)) -> AcctField {
    AcctField { name, width, render }
}

/// A column whose value Sluice does not measure; always empty.
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
    field(10, "AveCPU", |r, c| tasks(r, c, M::Cpu, S::Mean)),
    field(10, "AveCPUFreq", |r, c| tasks(r, c, M::CpuFrequency, S::Mean)),
    field(14, "AveDiskRead", |r, c| tasks(r, c, M::Read, S::Mean)),
    field(14, "AveDiskWrite", |r, c| tasks(r, c, M::Written, S::Mean)),
    field(10, "AvePages", |r, c| tasks(r, c, M::Pages, S::Mean)),
    field(10, "AveRSS", |r, c| tasks(r, c, M::Memory, S::Mean)),
    field(10, "AveVMSize", |r, c| tasks(r, c, M::VirtualMemory, S::Mean)),
    unmeasured(16, "BlockID"),
    field(10, "Cluster", |r, c| c.push_str(r.cluster)),
    field(14, "Comment", |r, c| of_job(r, c, |j, c| c.push_str(j.comment.as_deref().unwrap_or("")))),
    field(19, "Constraints", |r, c| of_job(r, c, |j, c| c.push_str(j.constraint.as_deref().unwrap_or("")))),
    field(14, "ConsumedEnergy", |r, c| c.push_str(&amount::format_decimal(joules(r)))),
    field(17, "ConsumedEnergyRaw", |r, c| push!(c, "{}", joules(r))),
    field(19, "Container", |r, c| c.push_str(r.step.map_or(&r.job.container, |s| &s.container).as_deref().unwrap_or(""))),
    // Ours: dollars, of a job on nodes with a price.
    field(10, "Cost", |r, c| of_job(r, c, |j, c| c.push_str(&cost(r, j)))),
    field(10, "CPUTime", |r, c| c.push_str(&format_elapsed_full(elapsed_s(r) * u64::from(cpus(r))))),
    field(10, "CPUTimeRAW", |r, c| push!(c, "{}", elapsed_s(r) * u64::from(cpus(r)))),
    unmeasured(11, "DBIndex"),
    field(15, "DerivedExitCode", |r, c| of_job(r, c, |j, c| push!(c, "{}", j.derived_exit))),
    field(10, "Elapsed", |r, c| c.push_str(&format_elapsed_full(elapsed_s(r)))),
    field(10, "ElapsedRaw", |r, c| push!(c, "{}", elapsed_s(r))),
    field(19, "Eligible", |r, c| of_job(r, c, |j, c| c.push_str(&time_or(r, j.eligible, "Unknown")))),
    field(19, "End", |r, c| c.push_str(&time_or(r, r.step.map_or(r.job.end, |s| s.end), "Unknown"))),
    field(8, "ExitCode", |r, c| push!(c, "{}", r.step.map_or(r.job.exit, |s| s.exit))),
    // Ours: why a node could not start the job. `Reason` has Slurm's word for it.
    field(20, "FailureCause", |r, c| of_job(r, c, |j, c| c.push_str(&words::reason::failure_cause(&j.reason).unwrap_or_default()))),
    unmeasured(20, "Flags"),
    field(6, "GID", |r, c| of_job(r, c, |j, c| push!(c, "{}", j.gid))),
    field(9, "Group", |r, c| of_job(r, c, |j, c| c.push_str(&j.group))),
    field(-12, "JobID", job_id),
    field(-12, "JobIDRaw", |r, c| { push!(c, "{}", r.job.job); step_suffix(r, c) }),
    field(10, "JobName", |r, c| c.push_str(r.step.map_or(&r.job.name, |s| &s.name))),
    unmeasured(9, "Layout"),
    field(12, "MaxDiskRead", |r, c| tasks(r, c, M::Read, S::Max)),
    field(15, "MaxDiskReadNode", |r, c| tasks(r, c, M::Read, S::MaxNode)),
    field(15, "MaxDiskReadTask", |r, c| tasks(r, c, M::Read, S::MaxTask)),
    field(12, "MaxDiskWrite", |r, c| tasks(r, c, M::Written, S::Max)),
    field(16, "MaxDiskWriteNode", |r, c| tasks(r, c, M::Written, S::MaxNode)),
    field(16, "MaxDiskWriteTask", |r, c| tasks(r, c, M::Written, S::MaxTask)),
    field(8, "MaxPages", |r, c| tasks(r, c, M::Pages, S::Max)),
    field(12, "MaxPagesNode", |r, c| tasks(r, c, M::Pages, S::MaxNode)),
    field(14, "MaxPagesTask", |r, c| tasks(r, c, M::Pages, S::MaxTask)),
    field(10, "MaxRSS", |r, c| tasks(r, c, M::Memory, S::Max)),
    field(10, "MaxRSSNode", |r, c| tasks(r, c, M::Memory, S::MaxNode)),
    field(10, "MaxRSSTask", |r, c| tasks(r, c, M::Memory, S::MaxTask)),
    field(10, "MaxVMSize", |r, c| tasks(r, c, M::VirtualMemory, S::Max)),
    field(14, "MaxVMSizeNode", |r, c| tasks(r, c, M::VirtualMemory, S::MaxNode)),
    field(14, "MaxVMSizeTask", |r, c| tasks(r, c, M::VirtualMemory, S::MaxTask)),
    unmeasured(10, "McsLabel"),
    field(10, "MinCPU", |r, c| tasks(r, c, M::Cpu, S::Min)),
    field(10, "MinCPUNode", |r, c| tasks(r, c, M::Cpu, S::MinNode)),
    field(10, "MinCPUTask", |r, c| tasks(r, c, M::Cpu, S::MinTask)),
    field(10, "NCPUS", |r, c| push!(c, "{}", cpus(r))),
    field(8, "NNodes", |r, c| push!(c, "{}", node_count(r))),
    field(15, "NodeList", node_list),
    field(8, "NTasks", |r, c| if let Some(s) = r.step { push!(c, "{}", s.tasks) }),
    field(10, "Partition", |r, c| of_job(r, c, |j, c| c.push_str(&j.partition))),
    field(10, "Priority", |r, c| of_job(r, c, |j, c| push!(c, "{}", j.priority))),
    field(10, "QOS", |r, c| of_job(r, c, |j, c| c.push_str(&j.qos))),
    unmeasured(6, "QOSRAW"),
    field(22, "Reason", |r, c| of_job(r, c, |j, c| c.push_str(&words::reason::text(&j.reason)))),
    field(10, "ReqCPUFreq", |r, c| frequency(r, c, FrequencyPart::Max)),
    field(13, "ReqCPUFreqGov", |r, c| frequency(r, c, FrequencyPart::Governor)),
    field(13, "ReqCPUFreqMax", |r, c| frequency(r, c, FrequencyPart::Max)),
    field(13, "ReqCPUFreqMin", |r, c| frequency(r, c, FrequencyPart::Min)),
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
    field(20, "StdErr", |r, c| of_job(r, c, |j, c| if let Some(s) = &j.streams { c.push_str(&s.stderr) })),
    field(20, "StdIn", |r, c| of_job(r, c, |j, c| if let Some(s) = &j.streams { c.push_str(&s.stdin) })),
    field(20, "StdOut", |r, c| of_job(r, c, |j, c| if let Some(s) = &j.streams { c.push_str(&s.stdout) })),
    field(19, "Submit", |r, c| c.push_str(&r.moment.iso(r.step.map_or(r.job.submit, |s| s.start)))),
    field(20, "SubmitLine", |r, c| c.push_str(r.step.map_or(&r.job.submit_line, |s| &s.submit_line))),
    field(10, "Suspended", |r, c| c.push_str(&format_elapsed_full(if r.step.is_none() { r.job.suspended_s } else { 0 }))),
    unmeasured(14, "SystemComment"),
    field(10, "SystemCPU", |r, c| cpu_time(c, usage(r).cpu_system_us)),
    field(10, "Timelimit", |r, c| of_job(r, c, |j, c| c.push_str(&format_limit_full(j.time_limit)))),
    field(12, "TimelimitRaw", |r, c| of_job(r, c, |j, c| match j.time_limit { TimeLimit::Minutes(m) => push!(c, "{m}"), TimeLimit::Unlimited => c.push_str("UNLIMITED") })),
    field(10, "TotalCPU", |r, c| cpu_time(c, cpu_us(usage(r)))),
    field(14, "TRESUsageInAve", |r, c| tres_in(r, c, S::Mean)),
    field(14, "TRESUsageInMax", |r, c| tres_in(r, c, S::Max)),
    field(18, "TRESUsageInMaxNode", |r, c| tres_in(r, c, S::MaxNode)),
    field(18, "TRESUsageInMaxTask", |r, c| tres_in(r, c, S::MaxTask)),
    field(14, "TRESUsageInMin", |r, c| tres_in(r, c, S::Min)),
    field(18, "TRESUsageInMinNode", |r, c| tres_in(r, c, S::MinNode)),
    field(18, "TRESUsageInMinTask", |r, c| tres_in(r, c, S::MinTask)),
    field(14, "TRESUsageInTot", |r, c| tres_in(r, c, S::Total)),
    field(15, "TRESUsageOutAve", |r, c| tres_out(r, c, S::Mean)),
    field(15, "TRESUsageOutMax", |r, c| tres_out(r, c, S::Max)),
    field(19, "TRESUsageOutMaxNode", |r, c| tres_out(r, c, S::MaxNode)),
    field(19, "TRESUsageOutMaxTask", |r, c| tres_out(r, c, S::MaxTask)),
    field(15, "TRESUsageOutMin", |r, c| tres_out(r, c, S::Min)),
    field(19, "TRESUsageOutMinNode", |r, c| tres_out(r, c, S::MinNode)),
    field(19, "TRESUsageOutMinTask", |r, c| tres_out(r, c, S::MinTask)),
    field(15, "TRESUsageOutTot", |r, c| tres_out(r, c, S::Total)),
    field(6, "UID", |r, c| of_job(r, c, |j, c| push!(c, "{}", j.uid))),
    field(9, "User", |r, c| of_job(r, c, |j, c| c.push_str(&j.user))),
    field(10, "UserCPU", |r, c| cpu_time(c, usage(r).cpu_user_us)),
    field(10, "WCKey", |r, c| of_job(r, c, |j, c| c.push_str(j.wckey.as_deref().unwrap_or("")))),
    unmeasured(8, "WCKeyID"),
    field(20, "WorkDir", |r, c| of_job(r, c, |j, c| c.push_str(&j.work_dir))),
];

/// Names of Slurm since 23.02, which `--helpformat` does not list: it is that of 22.05. Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static LATER_FIELDS: &[AcctField] = &[
    field(10, "Planned", |r, c| of_job(r, c, |j, c| c.push_str(&format_elapsed_full(waited_s(r, j))))),
    field(10, "PlannedCPU", |r, c| of_job(r, c, |j, c| c.push_str(&format_elapsed_full(waited_s(r, j) * u64::from(j.req_cpus))))),
    field(13, "PlannedCPURAW", |r, c| of_job(r, c, |j, c| push!(c, "{}", waited_s(r, j) * u64::from(j.req_cpus)))),
    field(8, "Restarts", |r, c| of_job(r, c, |j, c| push!(c, "{}", j.restarts))),
];

/// Writes a value that only jobs have; it is empty in the lines of steps.
fn frequency(row: &Row<'_>, cell: &mut String, part: FrequencyPart) {
    let asked = row.step.and_then(|step| step.cpu_frequency);
    frequency_text::push(asked, row.step.map(|step| step.id), part, cell);
}

fn of_job(row: &Row<'_>, cell: &mut String, write: impl Fn(&JobRecord, &mut String)) {
    if row.step.is_none() {
        write(row.job, cell);
    }
}

/// `14_3`, `14_[16-23]`, `12`, with the step behind it.
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
        // Only the job's line says who cancelled it.
        Some(step) => cell.push_str(state_words::long(state_words::of_record(step.state))),
        None => cell.push_str(&state_words::in_books(row.job.state)),
    }
}

fn time_or(row: &Row<'_>, time: Option<Timestamp>, none: &str) -> String {
    time.map_or_else(|| none.to_owned(), |time| row.moment.iso(time))
}

/// The start. `None` for a job that ended without starting, `Unknown` for one that may still start.
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

/// The CPUs that were granted; those asked for before that.
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

/// The resources of a job or step. For a step, memory and GRES are its nodes' part of the job's, if all nodes have the same.
pub fn alloc_tres(row: &Row<'_>) -> Tres {
    let mut tres = allocated(row);
    // Energy is no part of an allocation; Slurm lists here what was used of it.
    match joules(row) {
        0 => {}
        used => tres.set(TresKind::Energy, used),
    }
    tres
}

fn allocated(row: &Row<'_>) -> Tres {
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

/// What the job's time on its share of its nodes has cost; empty where none of them has a price.
fn cost(row: &Row<'_>, job: &JobRecord) -> String {
    let price = job.alloc_tres.get(&TresKind::Cost).map(Price::from_units);
    let ran = Duration::from_secs(elapsed_s(row));
    price.map_or_else(String::new, |price| format!("{:.4}", price.for_time(ran).dollars()))
}

/// The memory of the whole job; of a job that asked for whole nodes there is none on record.
fn req_mem(row: &Row<'_>, job: &JobRecord) -> String {
    let mib = job.req_tres.get(&TresKind::Mem).unwrap_or_else(|| job.req_mem.mib());
    match row.units {
        Units::In(unit) => amount::format_in(mib, Unit::Mebi, unit),
        Units::Own => format!("{mib}M"),
        Units::Exact => amount::format_slurm_mb(mib),
    }
}

/// The usage of a step's tasks; `None` for a job, and for a step that was measured only as a whole.
fn usage_row<'a>(row: &Row<'a>) -> Option<UsageRow<'a>> {
    let step = row.step?;
    let tasks = step.usage.tasks.as_deref()?;
    Some(UsageRow { tasks, nodes: &step.nodes, units: row.units })
}

fn tres_in(row: &Row<'_>, cell: &mut String, statistic: S) {
    if let Some(usage) = usage_row(row) {
        push_tres_in(usage, statistic, cell);
    }
}

fn tres_out(row: &Row<'_>, cell: &mut String, statistic: S) {
    if let Some(usage) = usage_row(row) {
        push_tres_out(usage, statistic, cell);
    }
}

/// The energy of a job or a step. The batch step has none: nobody can say what part of the job's its script used.
fn joules(row: &Row<'_>) -> u64 {
    let usage = row.step.map_or(&row.job.usage, |step| &step.usage);
    usage.energy_mj / 1000
}

/// A statistic over a step's tasks. A step that was measured only as a whole has its peak memory and its CPU time.
fn tasks(row: &Row<'_>, cell: &mut String, metric: M, statistic: S) {
    let Some(step) = row.step else { return };
    if let Some(usage) = usage_row(row) {
        return usage_text::push_statistic(usage, metric, statistic, cell);
    }
    let alone = step.tasks <= 1;
    match (metric, statistic) {
        (M::Memory, S::Max) => {
            cell.push_str(&memory_text(row.units, step.usage.memory_peak_bytes));
        }
        (M::Memory, S::Mean) if alone => {
            cell.push_str(&memory_text(row.units, step.usage.memory_peak_bytes));
        }
        (M::Memory, S::MaxNode) => {
            if let [node] = step.nodes.as_slice() {
                cell.push_str(node);
            }
        }
        (M::Memory, S::MaxTask) if alone => cell.push('0'),
        (M::Cpu, S::Mean) => {
            let each = cpu_us(&step.usage) / 1_000_000 / u64::from(step.tasks.max(1));
            cell.push_str(&format_elapsed_full(each));
        }
        _ => {}
    }
}

/// The usage of the step, or of the job.
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

/// Whether a step has a line. As in Slurm, the shell of an allocation has none.
pub fn is_listed(job: &JobRecord, step: &StepRecord) -> bool {
    !(job.kind == LaunchKind::Interactive && step.id == StepId::Batch)
}

//! The columns of `squeue` for jobs: letters of `-o`, names of `-O`.

use crate::output::Moment;
use crate::output::table::format::column;
use crate::output::text::job_text::push_number;
use crate::output::text::{job_text, push};
use crate::words::{self, NULL};
use model::request::Per;
use model::run::{HetComponent, LaunchKind};
use model::streams::Stream;
use model::time::{TimeLimit, Timestamp, format_limit, push_elapsed};
use std::fmt::Write;
use wire::view::JobView;

/// One line of `squeue`: a job, or one pending task of an array.
#[derive(Debug, Clone, Copy)]
pub struct JobRow<'a> {
    pub job: &'a JobView,
    pub task: Option<u32>,
    pub moment: Moment<'a>,
}

pub struct JobField {
    letter: Option<char>,
    name: &'static str,
    header: &'static str,
    /// The column needs a job in full, and not the part that a listing has.
    pub needs_full_job: bool,
    pub render: fn(&JobRow<'_>, &mut String),
}

column!(JobField);

type Render = fn(&JobRow<'_>, &mut String);

const fn both(letter: char, name: &'static str, header: &'static str, render: Render) -> JobField {
    JobField { letter: Some(letter), name, header, needs_full_job: false, render }
}

const fn long(name: &'static str, header: &'static str, render: Render) -> JobField {
    JobField { letter: None, name, header, needs_full_job: false, render }
}

impl JobField {
    const fn needs_full_job(self) -> Self {
        Self { needs_full_job: true, ..self }
    }
}

/// Not formatted by rustfmt: a row is one line.
#[rustfmt::skip]
pub static JOB_FIELDS: &[JobField] = &[
    both('a', "Account", "ACCOUNT", |r, c| c.push_str(&r.job.account)),
    both('A', "JobID", "JOBID", |r, c| push_number(c, r.job.id.0)),
    both('b', "tres-per-node", "TRES_PER_NODE", |r, c| gres(r, c, Per::Node)),
    both('B', "BatchHost", "EXEC_HOST", |r, c| c.push_str(batch_host(r.job))),
    both('c', "MinCPUs", "MIN_CPUS", |r, c| push!(c, "{}", job_text::min_cpus_per_node(r.job.spec.request()))),
    both('C', "NumCPUs", "CPUS", |r, c| push_number(c, r.job.cpus)),
    both('d', "MinTmpDisk", "MIN_TMP_DISK", |r, c| push!(c, "{}", r.job.spec.request().disk.map_or(0, |d| d.mib()))),
    both('D', "NumNodes", "NODES", |r, c| push_number(c, job_text::node_count(r.job))),
    both('e', "EndTime", "END_TIME", end_time),
    both('E', "Dependency", "DEPENDENCY", |r, c| or_null(c, r.job.dependency.as_deref())),
    both('f', "Feature", "FEATURES", |r, c| or_null(c, r.job.spec.request().constraint.as_ref().map(ToString::to_string).as_deref())),
    both('F', "ArrayJobID", "ARRAY_JOB_ID", |r, c| push!(c, "{}", r.job.array.as_ref().map_or(r.job.id, |a| a.array))),
    both('g', "GroupName", "GROUP", |r, c| c.push_str(&r.job.spec.owner.group)),
    both('G', "GroupID", "GROUP", |r, c| push!(c, "{}", r.job.spec.owner.gid)),
    both('h', "OverSubscribe", "OVER_SUBSCRIBE", |r, c| c.push_str(job_text::over_subscribe(r.job.spec.request().sharing))),
    both('H', "Sockets", "SOCKETS_PER_NODE", |r, c| c.push_str(&job_text::star(r.job.spec.request().sockets_per_node))),
    both('i', "JobArrayID", "JOBID", |r, c| job_text::push_id(c, r.job, r.task)),
    both('I', "Cores", "CORES_PER_SOCKET", |r, c| c.push_str(&job_text::star(r.job.spec.request().cores_per_socket))),
    both('j', "Name", "NAME", |r, c| c.push_str(&r.job.name)),
    both('J', "Threads", "THREADS_PER_CORE", |r, c| c.push_str(&job_text::star(r.job.spec.request().threads_per_core))),
    both('k', "Comment", "COMMENT", |r, c| or_null(c, r.job.spec.comment.as_deref())),
    both('K', "ArrayTaskID", "ARRAY_TASK_ID", |r, c| c.push_str(&job_text::array_task(r.job, r.task))),
    both('l', "TimeLimit", "TIME_LIMIT", |r, c| c.push_str(&format_limit(r.job.time_limit))),
    both('L', "TimeLeft", "TIME_LEFT", time_left),
    both('m', "MinMemory", "MIN_MEMORY", |r, c| c.push_str(&job_text::memory_text(job_text::memory(r.job)))),
    both('M', "TimeUsed", "TIME", |r, c| push_elapsed(c, r.job.elapsed_s(r.moment.now))),
    both('n', "ReqNodes", "REQ_NODES", |r, c| c.push_str(&model::hostlist::compress(&r.job.spec.request().node_list))),
    both('N', "NodeList", "NODELIST", |r, c| c.push_str(&job_text::node_list(r.job))),
    both('o', "Command", "COMMAND", |r, c| c.push_str(&job_text::command(r.job))).needs_full_job(),
    both('O', "Contiguous", "CONTIGUOUS", |r, c| flag(c, r.job.spec.request().contiguous)),
    both('p', "Priority", "PRIORITY", |r, c| push!(c, "{:.14}", (r.job.priority as f64 / f64::from(u32::MAX)).min(1.0))),
    both('P', "Partition", "PARTITION", |r, c| c.push_str(&r.job.partition)),
    both('q', "QOS", "QOS", |r, c| c.push_str(&r.job.qos)),
    both('Q', "PriorityLong", "PRIORITY", |r, c| push!(c, "{}", r.job.priority)),
    both('r', "Reason", "REASON", |r, c| c.push_str(&words::reason::text(&r.job.reason))),
    both('R', "ReasonList", "NODELIST(REASON)", reason_list),
    both('s', "SelectJobInfo", "", |_, _| {}),
    both('S', "StartTime", "START_TIME", |r, c| time_or(r, c, r.job.start, "N/A")),
    both('t', "StateCompact", "ST", |r, c| c.push_str(words::job::compact(r.job.state))),
    both('T', "State", "STATE", |r, c| c.push_str(words::job::long(r.job.state))),
    both('u', "UserName", "USER", |r, c| c.push_str(&r.job.spec.owner.name)),
    both('U', "UserID", "UID", |r, c| push!(c, "{}", r.job.spec.owner.uid)),
    both('v', "Reservation", "RESERVATION", |r, c| or_null(c, r.job.reservation())),
    both('V', "SubmitTime", "SUBMIT_TIME", |r, c| c.push_str(&r.moment.iso(r.job.submit))),
    both('w', "WCKey", "WCKEY", |r, c| or_null(c, r.job.spec.wckey.as_deref())),
    both('W', "Licenses", "LICENSES", |r, c| c.push_str(&job_text::licenses(r.job.spec.request()))),
    both('x', "ExcNodes", "EXC_NODES", |r, c| c.push_str(&model::hostlist::compress(&r.job.spec.request().exclude))),
    both('X', "CoreSpec", "CORE_SPEC", |_, c| c.push_str("N/A")),
    both('y', "Nice", "NICE", |r, c| push!(c, "{}", r.job.spec.nice)),
    both('Y', "SchedNodes", "SCHEDNODES", |r, c| c.push_str(r.job.sched_nodes.as_deref().unwrap_or(NULL))),
    both('z', "SCT", "S:C:T", |r, c| c.push_str(&job_text::sockets_cores_threads(r.job.spec.request()))),
    both('Z', "WorkDir", "WORK_DIR", |r, c| c.push_str(&r.job.spec.launch.work_dir)).needs_full_job(),
    long("admin_comment", "ADMIN_COMMENT", |r, c| or_null(c, r.job.extras.as_ref().and_then(|e| e.admin_comment.as_deref()))).needs_full_job(),
    long("AccrueTime", "ACCRUE_TIME", |r, c| time_or(r, c, r.job.eligible.filter(|t| *t <= r.moment.now), "N/A")),
    long("AllocNodes", "ALLOC_NODES", |r, c| c.push_str(&r.job.spec.submit_host)).needs_full_job(),
    long("AllocSID", "ALLOC_SID", |r, c| push!(c, "{}", r.job.spec.submit_sid)).needs_full_job(),
    // What no job has here is what Slurm shows of a job that has none.
    long("AssocID", "ASSOC_ID", |_, c| c.push('0')),
    long("BatchFlag", "BATCH_FLAG", |r, c| flag(c, r.job.spec.launch.kind == LaunchKind::Batch)),
    long("BoardsPerNode", "BOARDS_PER_NODE", |_, c| c.push('*')),
    long("BurstBuffer", "BURST_BUFFER", |_, c| c.push_str(NULL)),
    long("BurstBufferState", "BURST_BUFFER_STATE", |_, c| c.push_str(NULL)),
    long("Cluster", "CLUSTER", |_, c| c.push_str("N/A")),
    long("ClusterFeature", "CLUSTER_FEATURES", |_, c| c.push_str(NULL)),
    long("Container", "CONTAINER", |r, c| or_null(c, r.job.spec.launch.shown_image(&r.job.steps))).needs_full_job(),
    long("CPUFreq", "CPU_FREQ", |_, c| c.push_str("N/A")),
    long("cpus-per-task", "CPUS_PER_TASK", |r, c| push!(c, "{}", r.job.spec.request().cpus_per_task.min)),
    long("cpus-per-tres", "CPUS_PER_TRES", |r, c| per_gpu(c, r.job.spec.request().cpus_per_gpu)),
    long("Deadline", "DEADLINE", |r, c| time_or(r, c, r.job.spec.request().deadline, "N/A")),
    long("DelayBoot", "DELAY_BOOT", |_, c| c.push_str("0:00")),
    long("DerivedEC", "DERIVED_EC", |r, c| push!(c, "{}", r.job.derived_exit)),
    long("EligibleTime", "ELIGIBLE_TIME", |r, c| time_or(r, c, r.job.eligible, "N/A")),
    long("exit_code", "EXIT_CODE", |r, c| push!(c, "{}", r.job.exit)),
    long("HetJobID", "HET_JOB_ID", |r, c| het_component(r, c, |of| of.first.to_string())),
    long("HetJobIDSet", "HET_JOB_ID_SET", |r, c| het_component(r, c, job_text::component_ids)),
    long("HetJobOffset", "HET_JOB_OFFSET", |r, c| het_component(r, c, |of| of.offset.to_string())),
    long("LastSchedEval", "LAST_SCHED_EVAL", |r, c| time_or(r, c, r.job.last_planned, "N/A")),
    long("MaxCPUs", "MAX_CPUS", |_, c| c.push('0')),
    long("MaxNodes", "MAX_NODES", |r, c| push!(c, "{}", r.job.nodes.max.unwrap_or(0))),
    long("MCSLabel", "MCSLABEL", |_, c| c.push_str("N/A")),
    long("mem-per-tres", "MEM_PER_TRES", mem_per_gpu),
    long("MinTime", "TIME_MIN", time_min),
    long("Network", "NETWORK", |_, c| c.push_str(NULL)),
    long("Nodes", "NODES", |r, c| c.push_str(&job_text::node_list(r.job))),
    long("NTPerBoard", "NTASKS_PER_BOARD", |_, c| c.push('0')),
    long("NTPerCore", "NTASKS_PER_CORE", |r, c| push!(c, "{}", r.job.spec.request().tasks_per_core.unwrap_or(0))),
    long("NTPerNode", "NTASKS_PER_NODE", |r, c| push!(c, "{}", r.job.spec.request().tasks_per_node.unwrap_or(0))),
    long("NTPerSocket", "NTASKS_PER_SOCKET", |r, c| push!(c, "{}", r.job.spec.request().tasks_per_socket.unwrap_or(0))),
    long("NumTasks", "TASKS", |r, c| push!(c, "{}", r.job.tasks)),
    long("PendingTime", "PENDING_TIME", |r, c| push!(c, "{}", pending_secs(r))),
    long("PreemptTime", "PREEMPT_TIME", |_, c| c.push_str("N/A")),
    long("Prefer", "PREFER", |r, c| or_null(c, r.job.spec.request().prefer.as_ref().map(ToString::to_string).as_deref())),
    long("Profile", "PROFILE", |_, c| c.push_str("NotSet")),
    long("Reboot", "REBOOT", |_, c| flag(c, false)),
    long("ReqSwitch", "REQ_SWITCH", |r, c| push!(c, "{}", r.job.spec.request().switches.map_or(0, |s| s.count))),
    long("Requeue", "REQUEUE", |r, c| flag(c, r.job.spec.requeue)),
    long("ResizeTime", "RESIZE_TIME", |_, c| c.push_str("N/A")),
    long("RestartCnt", "RESTART_COUNT", |r, c| push!(c, "{}", r.job.restarts)),
    long("ResvPort", "RESV_PORTS", |_, c| c.push_str(NULL)),
    long("SPerBoard", "SOCKETS_PER_BOARD", |_, c| c.push('*')),
    long("StdErr", "STDERR", |r, c| if let Some(path) = job_text::stream(r.job, Stream::Error) { c.push_str(&path) }).needs_full_job(),
    long("StdIn", "STDIN", |r, c| if let Some(path) = job_text::stream(r.job, Stream::Input) { c.push_str(&path) }).needs_full_job(),
    long("StdOut", "STDOUT", |r, c| if let Some(path) = job_text::stream(r.job, Stream::Output) { c.push_str(&path) }).needs_full_job(),
    long("system_comment", "SYSTEM_COMMENT", |_, c| c.push_str(NULL)),
    long("tres-alloc", "TRES_ALLOC", |r, c| push!(c, "{}", r.job.tres)),
    long("tres-bind", "TRES_BIND", |_, c| c.push_str("N/A")),
    long("tres-freq", "TRES_FREQ", |_, c| c.push_str("N/A")),
    long("tres-per-job", "TRES_PER_JOB", |r, c| gres(r, c, Per::Job)),
    long("tres-per-socket", "TRES_PER_SOCKET", |r, c| gres(r, c, Per::Socket)),
    long("tres-per-task", "TRES_PER_TASK", |r, c| gres(r, c, Per::Task)),
    long("Wait4Switch", "WAIT4SWITCH", |r, c| push!(c, "{}", r.job.spec.request().switches.and_then(|s| s.wait_s).unwrap_or(0))),
];

/// A value that only components of a heterogeneous job have.
fn het_component(row: &JobRow<'_>, cell: &mut String, text: impl Fn(HetComponent) -> String) {
    match row.job.het {
        Some(het) => cell.push_str(&text(het)),
        None => cell.push_str("N/A"),
    }
}

fn or_null(cell: &mut String, text: Option<&str>) {
    cell.push_str(text.unwrap_or(NULL));
}

fn flag(cell: &mut String, set: bool) {
    cell.push(if set { '1' } else { '0' });
}

fn time_or(row: &JobRow<'_>, cell: &mut String, time: Option<Timestamp>, none: &str) {
    match time {
        Some(time) => cell.push_str(&row.moment.iso(time)),
        None => cell.push_str(none),
    }
}

fn gres(row: &JobRow<'_>, cell: &mut String, per: Per) {
    match job_text::gres_request(row.job.spec.request(), per) {
        Some(text) => cell.push_str(&text),
        None => cell.push_str("N/A"),
    }
}

fn per_gpu(cell: &mut String, count: Option<u32>) {
    match count {
        Some(count) => push!(cell, "gres:gpu:{count}"),
        None => cell.push_str("N/A"),
    }
}

fn mem_per_gpu(row: &JobRow<'_>, cell: &mut String) {
    match job_text::memory(row.job) {
        model::partition::DefaultMemory::PerGpu(each) => push!(cell, "gres:gpu:{}", each.mib()),
        _ => cell.push_str("N/A"),
    }
}

fn batch_host(job: &JobView) -> &str {
    let first = job.allocation.as_ref().and_then(|allocation| allocation.nodes.first());
    first.map_or("n/a", |share| &share.node)
}

fn reason_list(row: &JobRow<'_>, cell: &mut String) {
    if job_text::shows_reason(row.job.state) {
        cell.push('(');
        cell.push_str(&words::reason::text(&row.job.reason));
        cell.push(')');
    } else {
        cell.push_str(&job_text::node_list(row.job));
    }
}

fn end_time(row: &JobRow<'_>, cell: &mut String) {
    let endless = !row.job.state.is_waiting() && row.job.time_limit == TimeLimit::Unlimited;
    time_or(row, cell, row.job.end, if endless { "NONE" } else { "N/A" });
}

fn time_left(row: &JobRow<'_>, cell: &mut String) {
    match row.job.time_limit.secs() {
        None => cell.push_str("UNLIMITED"),
        Some(limit) => {
            let used = row.job.elapsed_s(row.moment.now);
            push_elapsed(cell, limit.saturating_sub(used));
        }
    }
}

fn time_min(row: &JobRow<'_>, cell: &mut String) {
    match row.job.spec.request().time_min {
        Some(limit) => cell.push_str(&format_limit(limit)),
        None => cell.push_str("N/A"),
    }
}

fn pending_secs(row: &JobRow<'_>) -> i64 {
    let until = match row.job.state {
        state if state.is_waiting() => row.moment.now,
        _ => row.job.start.unwrap_or(row.moment.now),
    };
    (until.secs() - row.job.submit.secs()).max(0)
}

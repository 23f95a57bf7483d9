//! Jobs, as `squeue --json` prints them and slurmrestd answers with them.

use super::Version;
use super::field::Form::{Absent, List, Plain, Set, Zero};
use super::field::{
    Cell, Context, Field, Number, field, in_32_bits, number, optional_text, text, time,
};
use crate::option::signal;
use crate::output::text::job_text;
use crate::words;
use model::array::format_pending;
use model::hostlist;
use model::partition::DefaultMemory;
use model::request::{Per, Request, Sharing};
use model::run::{ExitStatus, LaunchKind};
use model::streams::Stream;
use model::tres::TresKind;
use serde_json::{Value, json};
use std::borrow::Cow;
use wire::view::{JobExtras, JobView};

/// Not formatted by rustfmt: a row is one line. Fields that have no meaning here have the value that Slurm gives them where nothing
/// was asked for.
#[rustfmt::skip]
pub static JOB: &[Field<JobView>] = &[
    field("account",                    Plain,  Plain,  |_, j| text(&*j.account)),
    field("accrue_time",                Plain,  Set,    |c, j| time(j.eligible.filter(|t| *t <= c.now))),
    field("admin_comment",              Plain,  Plain,  |_, j| optional_text(extras(j).and_then(|e| e.admin_comment.as_deref()))),
    field("allocating_node",            Absent, Plain,  |_, j| text(&*j.spec.submit_host)),
    field("array_job_id",               Plain,  Set,    |_, j| number(j.array.as_ref().map_or(0, |a| a.array.0))),
    field("array_task_id",              Plain,  Set,    |_, j| number(j.array.as_ref().and_then(|a| a.index))),
    field("array_max_tasks",            Plain,  Set,    |_, j| number(j.array.as_ref().and_then(|a| a.throttle).unwrap_or(0))),
    field("array_task_string",          Plain,  Plain,  |_, j| text(pending_tasks(j))),
    field("association_id",             Plain,  Plain,  |_, _| Cell::Int(0)),
    field("batch_features",             Plain,  Plain,  |_, _| text("")),
    field("batch_flag",                 Plain,  Plain,  |_, j| Cell::Bool(j.spec.launch.kind != LaunchKind::Interactive)),
    field("batch_host",                 Plain,  Plain,  |_, j| text(first_node(j))),
    field("billable_tres",              Plain,  Set,    |_, j| Cell::Float(j.tres.amount(&TresKind::Billing) as f64)),
    field("burst_buffer",               Plain,  Plain,  |_, _| text("")),
    field("burst_buffer_state",         Plain,  Plain,  |_, _| text("")),
    field("cluster",                    Plain,  Plain,  |c, _| text(&*c.cluster)),
    field("cluster_features",           Plain,  Plain,  |_, _| text("")),
    field("command",                    Plain,  Plain,  |_, j| optional_text(j.spec.launch.command.as_deref())),
    field("comment",                    Plain,  Plain,  |_, j| optional_text(j.spec.comment.as_deref())),
    field("container",                  Plain,  Plain,  |_, j| optional_text(j.spec.launch.shown_image(&j.steps))),
    field("container_id",               Absent, Plain,  |_, _| text("")),
    field("contiguous",                 Plain,  Plain,  |_, j| Cell::Bool(asked(j).contiguous)),
    field("core_spec",                  Plain,  Zero,   |_, _| Cell::Number(Number::Unset)),
    field("cores_per_socket",           Plain,  Set,    |_, j| number(asked(j).cores_per_socket)),
    field("cpu_frequency_governor",     Plain,  Set,    |_, _| Cell::Number(Number::Unset)),
    field("cpu_frequency_maximum",      Plain,  Set,    |_, _| Cell::Number(Number::Unset)),
    field("cpu_frequency_minimum",      Plain,  Set,    |_, _| Cell::Number(Number::Unset)),
    field("cpus",                       Plain,  Set,    |_, j| number(j.cpus)),
    field("cpus_per_task",              Plain,  Set,    |_, j| number(asked(j).cpus_per_task_given.then_some(asked(j).cpus_per_task.min))),
    field("cpus_per_tres",              Plain,  Plain,  |_, _| text("")),
    field("cron",                       Absent, Plain,  |_, _| text("")),
    field("current_working_directory",  Plain,  Plain,  |_, j| text(&*j.spec.launch.work_dir)),
    field("deadline",                   Plain,  Set,    |_, j| time(asked(j).deadline)),
    field("delay_boot",                 Plain,  Set,    |_, _| number(0_u32)),
    field("dependency",                 Plain,  Plain,  |_, j| optional_text(j.dependency.as_deref())),
    field("derived_exit_code",          Plain,  Plain,  |c, j| exit(c, j, j.derived_exit)),
    field("eligible_time",              Plain,  Set,    |_, j| time(j.eligible)),
    field("end_time",                   Plain,  Set,    |_, j| time(j.end)),
    field("excluded_nodes",             Plain,  Plain,  |_, j| text(hostlist::compress(&asked(j).exclude))),
    field("exit_code",                  Plain,  Plain,  |c, j| exit(c, j, j.exit)),
    field("exclusive",                  Absent, Plain,  |_, j| exclusive(j)).until(Version::V41),
    field("extra",                      Absent, Plain,  |_, _| text("")),
    field("failed_node",                Absent, Plain,  |_, _| text("")),
    field("features",                   Plain,  Plain,  |_, j| text(asked(j).constraint.as_ref().map(ToString::to_string).unwrap_or_default())),
    field("federation_origin",          Plain,  Plain,  |_, _| text("")),
    field("federation_siblings_active", Plain,  Plain,  |_, _| text("")),
    field("federation_siblings_viable", Plain,  Plain,  |_, _| text("")),
    field("flags",                      Plain,  Plain,  |_, _| Cell::Words(Vec::new())),
    field("gres_detail",                Plain,  Plain,  |_, j| gres_detail(j)),
    field("group_id",                   Plain,  Plain,  |_, j| number(j.spec.owner.gid)),
    field("group_name",                 Plain,  Plain,  |_, j| text(&*j.spec.owner.group)),
    field("het_job_id",                 Plain,  Set,    |_, j| number(j.het.map_or(0, |h| h.first.0))),
    field("het_job_id_set",             Plain,  Plain,  |_, j| text(j.het.map(job_text::component_ids).unwrap_or_default())),
    field("het_job_offset",             Plain,  Set,    |_, j| number(j.het.map_or(0, |h| h.offset))),
    field("hold",                       Absent, Plain,  |_, j| Cell::Bool(j.hold.is_some())),
    field("job_id",                     Plain,  Plain,  |_, j| number(j.id.0)),
    field("job_resources",              Plain,  Plain,  |c, j| Cell::Value(resources(c, j))),
    field("job_size_str",               Absent, Plain,  |_, _| Cell::Words(Vec::new())),
    field("job_state",                  Plain,  List,   |_, j| text(words::job::long(j.state))),
    field("last_sched_evaluation",      Plain,  Set,    |_, j| time(j.last_planned)),
    field("licenses",                   Plain,  Plain,  |_, j| text(licenses(asked(j)))),
    field("mail_type",                  Absent, Plain,  |_, _| Cell::Words(Vec::new())),
    field("mail_user",                  Absent, Plain,  |_, j| optional_text(j.spec.mail.as_ref().and_then(|m| m.user.as_deref()))),
    field("max_cpus",                   Plain,  Set,    |_, _| number(0_u32)),
    field("max_nodes",                  Plain,  Set,    |_, j| number(j.nodes.max.unwrap_or(0))),
    field("maximum_switch_wait_time",   Absent, Plain,  |_, j| number(asked(j).switches.and_then(|s| s.wait_s).unwrap_or(0))),
    field("mcs_label",                  Plain,  Plain,  |_, _| text("")),
    field("memory_per_cpu",             Plain,  Set,    |_, j| number(memory(j).1)),
    field("memory_per_node",            Plain,  Set,    |_, j| number(memory(j).0)),
    field("memory_per_tres",            Plain,  Plain,  |_, _| text("")),
    field("minimum_cpus_per_node",      Plain,  Set,    |_, j| number(job_text::min_cpus_per_node(asked(j)))),
    field("minimum_switches",           Absent, Plain,  |_, j| number(asked(j).switches.map_or(0, |s| s.count))).until(Version::V41),
    field("minimum_tmp_disk_per_node",  Plain,  Set,    |_, j| number(asked(j).disk.map_or(0, |disk| disk.mib()))),
    field("name",                       Plain,  Plain,  |_, j| text(&*j.spec.name)),
    field("network",                    Absent, Plain,  |_, _| text("")),
    field("nice",                       Plain,  Plain,  nice),
    field("node_count",                 Plain,  Set,    |_, j| number(job_text::node_count(j))),
    field("nodes",                      Plain,  Plain,  |_, j| text(job_text::node_list(j))).whole(),
    field("oversubscribe",              Absent, Plain,  |_, j| Cell::Bool(asked(j).sharing == Sharing::Oversubscribe)).until(Version::V41),
    field("partition",                  Plain,  Plain,  |_, j| text(&*j.partition)),
    field("power",                      Absent, Plain,  |_, _| Cell::Value(json!({"flags": []}))),
    field("pre_sus_time",               Plain,  Set,    |_, j| number(extras(j).map_or(0, |e| e.pre_suspend_s))),
    field("preempt_time",               Plain,  Set,    |_, j| time(extras(j).and_then(|e| e.preempt_time))),
    field("preemptable_time",           Absent, Set,    |_, j| time(j.start.filter(|_| !j.state.is_waiting()))),
    field("prefer",                     Plain,  Plain,  |_, j| text(asked(j).prefer.as_ref().map(ToString::to_string).unwrap_or_default())),
    field("priority",                   Plain,  Set,    |_, j| number(in_32_bits(j.priority))),
    field("priority_by_partition",      Absent, Plain,  |_, _| Cell::Words(Vec::new())).since(Version::V42),
    field("profile",                    Plain,  Plain,  |c, _| if c.version.is_typed() { Cell::Words(Vec::new()) } else { Cell::Null }),
    field("qos",                        Plain,  Plain,  |_, j| text(&*j.qos)),
    field("reboot",                     Plain,  Plain,  |_, _| Cell::Bool(false)),
    field("required_switches",          Absent, Plain,  |_, j| number(asked(j).switches.map_or(0, |s| s.count))).since(Version::V42),
    field("requeue",                    Plain,  Plain,  |_, j| Cell::Bool(j.spec.requeue)),
    field("required_nodes",             Plain,  Plain,  |_, j| text(hostlist::compress(&asked(j).node_list))),
    field("resize_time",                Plain,  Set,    |_, _| number(0_u32)),
    field("restart_cnt",                Plain,  Plain,  |_, j| number(j.restarts)),
    field("resv_name",                  Plain,  Plain,  |_, j| optional_text(j.reservation())),
    field("scheduled_nodes",            Absent, Plain,  |_, j| optional_text(j.sched_nodes.as_deref())),
    field("selinux_context",            Absent, Plain,  |_, _| text("")),
    field("shared",                     Plain,  Plain,  shared),
    field("show_flags",                 Plain,  Plain,  |_, _| Cell::Words(vec!["SHOW_ALL".into(), "SHOW_DETAIL".into(), "SHOW_LOCAL".into()])).until(Version::V41),
    field("sockets_per_board",          Plain,  Plain,  |_, _| Cell::Int(0)),
    field("sockets_per_node",           Plain,  Set,    |_, j| number(asked(j).sockets_per_node)),
    field("standard_error",             Plain,  Plain,  |_, j| text(stream(j, Stream::Error))),
    field("standard_input",             Plain,  Plain,  |_, j| text(stream(j, Stream::Input))),
    field("standard_output",            Plain,  Plain,  |_, j| text(stream(j, Stream::Output))),
    field("start_time",                 Plain,  Set,    |_, j| time(j.start)),
    field("state_description",          Plain,  Plain,  |_, _| text("")),
    field("state_reason",               Plain,  Plain,  |_, j| text(words::reason::one_word(&j.reason))),
    field("submit_time",                Plain,  Set,    |_, j| time(Some(j.submit))),
    field("suspend_time",               Plain,  Set,    |_, j| time(extras(j).and_then(|e| e.suspend_time))),
    field("system_comment",             Plain,  Plain,  |_, _| text("")),
    field("tasks",                      Plain,  Set,    |_, j| number(j.tasks)),
    field("tasks_per_board",            Plain,  Set,    |_, _| number(0_u32)),
    field("tasks_per_core",             Plain,  Set,    |_, j| number(asked(j).tasks_per_core)),
    field("tasks_per_node",             Plain,  Set,    |_, j| number(asked(j).tasks_per_node.unwrap_or(0))),
    field("tasks_per_socket",           Plain,  Set,    |_, j| number(asked(j).tasks_per_socket)),
    field("tasks_per_tres",             Absent, Set,    |_, j| number(asked(j).tasks_per_gpu)),
    field("thread_spec",                Plain,  Zero,   |_, _| Cell::Number(Number::Unset)),
    field("threads_per_core",           Plain,  Set,    |_, j| number(asked(j).threads_per_core)),
    field("time_limit",                 Plain,  Set,    |_, j| number(j.time_limit)),
    field("time_minimum",               Zero,   Set,    |_, j| asked(j).time_min.map_or(number(0_u32), number)),
    field("tres_alloc_str",             Plain,  Plain,  |_, j| text(j.allocation.as_ref().map(|_| j.tres.to_string()).unwrap_or_default())),
    field("tres_bind",                  Plain,  Plain,  |_, _| text("")),
    field("tres_freq",                  Plain,  Plain,  |_, _| text("")),
    field("tres_per_job",               Plain,  Plain,  |_, j| text(gres(j, Per::Job))),
    field("tres_per_node",              Plain,  Plain,  |_, j| text(gres(j, Per::Node))),
    field("tres_per_socket",            Plain,  Plain,  |_, j| text(gres(j, Per::Socket))),
    field("tres_per_task",              Plain,  Plain,  |_, j| text(gres(j, Per::Task))),
    field("tres_req_str",               Plain,  Plain,  |_, j| text(j.tres.to_string())),
    field("user_id",                    Plain,  Plain,  |_, j| number(j.spec.owner.uid)),
    field("user_name",                  Plain,  Plain,  |_, j| text(&*j.spec.owner.name)),
    field("wckey",                      Plain,  Plain,  |_, j| optional_text(j.spec.wckey.as_deref())),
];

fn asked(job: &JobView) -> &Request {
    job.spec.request()
}

fn extras(job: &JobView) -> Option<&JobExtras> {
    job.extras.as_deref()
}

fn first_node(job: &JobView) -> &str {
    let first = job.allocation.as_ref().and_then(|allocation| allocation.nodes.first());
    first.map_or("", |share| &share.node)
}

fn pending_tasks(job: &JobView) -> String {
    let array = job.array.as_ref();
    let pending = array.and_then(|a| a.pending.as_ref().map(|p| format_pending(p, a.throttle)));
    pending.unwrap_or_default()
}

fn gres(job: &JobView, per: Per) -> String {
    job_text::gres_request(asked(job), per).unwrap_or_default()
}

/// Empty for none, where `scontrol` prints a word.
fn licenses(request: &Request) -> String {
    if request.licenses.is_empty() { String::new() } else { job_text::licenses(request) }
}

/// Per node, and per CPU, in mebibytes.
fn memory(job: &JobView) -> (Option<u64>, Option<u64>) {
    match job_text::memory(job) {
        DefaultMemory::PerNode(each) => (Some(each.mib()), None),
        DefaultMemory::PerCpu(each) => (None, Some(each.mib())),
        DefaultMemory::PerGpu(_) => (None, None),
    }
}

/// The file of a stream; empty for a job without files.
fn stream(job: &JobView, stream: Stream) -> String {
    job_text::stream(job, stream).unwrap_or_default()
}

fn nice<'a>(context: &Context, job: &JobView) -> Cell<'a> {
    let is_written = context.version.is_typed() || job.spec.nice != 0;
    if is_written { Cell::Int(job.spec.nice.into()) } else { Cell::Null }
}

/// How much of its nodes the job leaves to others.
fn shared<'a>(context: &Context, job: &JobView) -> Cell<'a> {
    let word = match asked(job).sharing {
        Sharing::Share => None,
        Sharing::Node => Some("none"),
        Sharing::User => Some("user"),
        Sharing::Oversubscribe => Some("oversubscribe"),
    };
    if context.version.is_typed() {
        return Cell::Words(word.map(Cow::Borrowed).into_iter().collect());
    }
    word.map_or(Cell::Null, text)
}

fn exclusive<'a>(job: &JobView) -> Cell<'a> {
    let word = match asked(job).sharing {
        Sharing::Node => Some("true"),
        Sharing::User => Some("user"),
        Sharing::Share | Sharing::Oversubscribe => None,
    };
    Cell::Words(word.map(Cow::Borrowed).into_iter().collect())
}

/// One number in v0.0.38, as `wait` has it; later the parts of it.
fn exit<'a>(context: &Context, job: &JobView, exit: ExitStatus) -> Cell<'a> {
    if context.version.is_typed() {
        return Cell::Value(verbose_exit(context, job.state.is_ended(), exit));
    }
    Cell::Int(i64::from(exit.code) << 8 | i64::from(exit.signal))
}

/// `{"status": ["SIGNALED"], "return_code": …, "signal": …}`
pub fn verbose_exit(context: &Context, is_ended: bool, exit: ExitStatus) -> Value {
    let status = match exit {
        _ if !is_ended => "PENDING",
        ExitStatus { signal: 0, code: 0 } => "SUCCESS",
        ExitStatus { signal: 0, .. } => "ERROR",
        _ => "SIGNALED",
    };
    let (code, signal) = (exit.code.unsigned_abs(), exit.signal.unsigned_abs());
    let name = if exit.signal == 0 { String::new() } else { signal::name(exit.signal) };
    json!({
        "status": [status],
        "return_code": context.number(is_ended.then_some(code)),
        "signal": { "id": context.number((signal != 0).then_some(signal)), "name": name },
    })
}

fn gres_detail<'a>(job: &JobView) -> Cell<'a> {
    let nodes = job.allocation.iter().flat_map(|allocation| &allocation.nodes);
    let of_node = nodes.filter(|share| !share.gres.is_empty()).map(|share| {
        let texts = share.gres.iter().map(|gres| job_text::gres_share(gres, true));
        Cow::Owned(texts.collect::<Vec<_>>().join(","))
    });
    Cell::Words(of_node.collect())
}

fn resources(context: &Context, job: &JobView) -> Value {
    let Some(allocation) = &job.allocation else {
        // Slurm 24.11 leaves the nodes of a job without nodes out.
        return if context.version.is_typed() { Value::Null } else { json!({}) };
    };
    let nodes = job_text::allocated_nodes(allocation);
    let cpus = allocation.cpu_count();
    if context.version >= Version::V41 {
        let of_node = allocation.nodes.iter().zip(0_u32..).map(|(share, index)| {
            json!({
                "index": index,
                "name": share.node,
                "cpus": { "count": share.cpus.len(), "used": 0 },
                "memory": { "used": 0, "allocated": share.memory.mib() },
                "sockets": [],
            })
        });
        let of_node: Vec<Value> = of_node.collect();
        return json!({
            "select_type": [],
            "nodes": {
                "count": allocation.nodes.len(), "select_type": [], "list": nodes, "whole": false,
                "allocation": of_node,
            },
            "cpus": cpus,
            "threads_per_core": context.number(asked(job).threads_per_core),
        });
    }
    let of_node = allocation.nodes.iter().map(|share| {
        json!({
            "sockets": {},
            "nodename": share.node,
            "cpus_used": 0,
            "memory_used": 0,
            "memory_allocated": share.memory.mib(),
        })
    });
    let of_node: Vec<Value> = of_node.collect();
    let mut value = json!({
        "nodes": nodes,
        "allocated_cores": cpus,
        "allocated_hosts": allocation.nodes.len(),
        "allocated_nodes": of_node,
    });
    if context.version.is_typed() {
        value["allocated_cpus"] = cpus.into();
    }
    value
}

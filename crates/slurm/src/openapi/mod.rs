//! The objects of Slurm's OpenAPI v0.0.38, which `squeue --json`, `sinfo --json` and `sacct --json` print.
//!
//! The paths of slurmrestd belong beside them: they answer with the same objects.

pub mod accounting;
pub mod rest;

use crate::output::text::{job_text, node_text};
use crate::words::{self, node::NodeState};
use model::array::format_pending;
use model::hostlist;
use model::partition::DefaultMemory;
use model::request::Per;
use model::run::LaunchKind;
use model::time::Timestamp;
use serde_json::{Map, Value, json};
use std::io;
use wire::view::{ClusterView, JobView, NodeView};

/// The version of Slurm that has these objects.
const RELEASE: &str = "22.05.8";

/// The part of Slurm whose objects a document has.
#[derive(Clone, Copy)]
struct Plugin {
    kind: &'static str,
    name: &'static str,
}

const CONTROLLER: Plugin = Plugin { kind: "openapi/v0.0.38", name: "Slurm OpenAPI v0.0.38" };

fn meta(plugin: Plugin) -> Value {
    json!({
        "plugin": { "type": plugin.kind, "name": plugin.name },
        "Slurm": { "version": { "major": 22, "micro": 8, "minor": 5 }, "release": RELEASE },
    })
}

fn document(
    out: &mut impl io::Write,
    plugin: Plugin,
    key: &str,
    items: Vec<Value>,
) -> io::Result<()> {
    let mut root = Map::new();
    root.insert("meta".to_owned(), meta(plugin));
    root.insert("errors".to_owned(), json!([]));
    root.insert(key.to_owned(), Value::Array(items));
    serde_json::to_writer_pretty(&mut *out, &Value::Object(root))?;
    out.write_all(b"\n")
}

/// `squeue --json`
pub fn jobs(out: &mut impl io::Write, cluster: &str, jobs: &[JobView]) -> io::Result<()> {
    document(out, CONTROLLER, "jobs", jobs.iter().map(|view| job(cluster, view)).collect())
}

/// `sinfo --json`
pub fn nodes(out: &mut impl io::Write, cluster: &ClusterView) -> io::Result<()> {
    document(out, CONTROLLER, "nodes", cluster.nodes.iter().map(node).collect())
}

/// Seconds since the epoch; zero for a time that is not known.
fn time(time: Option<Timestamp>) -> i64 {
    time.map_or(0, Timestamp::secs)
}

/// Joins objects into one.
fn merged<const N: usize>(parts: [Value; N]) -> Value {
    let mut whole = Map::new();
    for part in parts {
        if let Value::Object(part) = part {
            whole.extend(part);
        }
    }
    Value::Object(whole)
}

fn job(cluster: &str, job: &JobView) -> Value {
    merged([identity(cluster, job), demand(job), course(job), launch(job)])
}

fn identity(cluster: &str, job: &JobView) -> Value {
    let owner = &job.spec.owner;
    let array = job.array.as_ref();
    let pending = array.and_then(|a| a.pending.as_ref().map(|p| format_pending(p, a.throttle)));
    json!({
        "job_id": job.id.0,
        "array_job_id": array.map_or(0, |a| a.array.0),
        "array_task_id": array.and_then(|a| a.index),
        "array_max_tasks": array.and_then(|a| a.throttle).unwrap_or(0),
        "array_task_string": pending.unwrap_or_default(),
        "name": job.spec.name,
        "account": job.account,
        "cluster": cluster,
        "partition": job.partition,
        "qos": job.qos,
        "priority": job.priority,
        "nice": (job.spec.nice != 0).then_some(job.spec.nice),
        "user_id": owner.uid,
        "user_name": owner.name,
        "group_id": owner.gid,
        "group_name": owner.group,
        "comment": job.spec.comment.as_deref().unwrap_or(""),
        "wckey": job.spec.wckey.as_deref().unwrap_or(""),
        "resv_name": job.reservation().unwrap_or(""),
    })
}

fn demand(job: &JobView) -> Value {
    let request = job.spec.request();
    let gres = |per| job_text::gres_request(request, per).unwrap_or_default();
    let (per_node, per_cpu) = match job_text::memory(job) {
        DefaultMemory::PerNode(each) => (Some(each.mib()), None),
        DefaultMemory::PerCpu(each) => (None, Some(each.mib())),
        DefaultMemory::PerGpu(_) => (None, None),
    };
    let granted = job.allocation.as_ref().map(|_| job.tres.to_string());
    json!({
        "cpus": job.cpus,
        "node_count": job_text::node_count(job),
        "max_nodes": job.nodes.max.unwrap_or(0),
        "tasks": job.tasks,
        "tasks_per_node": request.tasks_per_node.unwrap_or(0),
        "tasks_per_socket": request.tasks_per_socket,
        "tasks_per_core": request.tasks_per_core,
        "cpus_per_task": request.cpus_per_task_given.then_some(request.cpus_per_task.min),
        "minimum_cpus_per_node": job_text::min_cpus_per_node(request),
        "minimum_tmp_disk_per_node": request.disk.map_or(0, |disk| disk.mib()),
        "memory_per_node": per_node,
        "memory_per_cpu": per_cpu,
        "contiguous": request.contiguous,
        "sockets_per_node": request.sockets_per_node,
        "cores_per_socket": request.cores_per_socket,
        "threads_per_core": request.threads_per_core,
        "features": request.constraint.as_ref().map(ToString::to_string).unwrap_or_default(),
        "required_nodes": hostlist::compress(&request.node_list),
        "excluded_nodes": hostlist::compress(&request.exclude),
        "time_limit": job.time_limit.minutes(),
        "tres_per_job": gres(Per::Job),
        "tres_per_node": gres(Per::Node),
        "tres_per_socket": gres(Per::Socket),
        "tres_per_task": gres(Per::Task),
        "tres_req_str": job.tres.to_string(),
        "tres_alloc_str": granted.unwrap_or_default(),
    })
}

fn course(job: &JobView) -> Value {
    let first = job.allocation.as_ref().and_then(|allocation| allocation.nodes.first());
    json!({
        "job_state": words::job::long(job.state),
        "state_reason": words::reason::one_word(&job.reason),
        "dependency": job.dependency.as_deref().unwrap_or(""),
        "submit_time": job.submit.secs(),
        "eligible_time": time(job.eligible),
        "start_time": time(job.start),
        "end_time": time(job.end),
        "deadline": time(job.spec.request().deadline),
        "last_sched_evaluation": time(job.last_planned),
        "restart_cnt": job.restarts,
        "requeue": job.spec.requeue,
        "exit_code": i64::from(job.exit.code) << 8 | i64::from(job.exit.signal),
        "derived_exit_code": i64::from(job.derived_exit.code) << 8 | i64::from(job.derived_exit.signal),
        "nodes": job_text::node_list(job),
        "batch_host": first.map_or("", |share| &share.node),
        "job_resources": resources(job),
    })
}

fn resources(job: &JobView) -> Value {
    let Some(allocation) = &job.allocation else { return json!({}) };
    let nodes: Vec<Value> = allocation
        .nodes
        .iter()
        .map(|share| {
            json!({
                "nodename": share.node,
                "cpus": share.cpus.to_string(),
                "memory_allocated": share.memory.mib(),
            })
        })
        .collect();
    json!({
        "nodes": job_text::allocated_nodes(allocation),
        "allocated_cores": allocation.cpu_count(),
        "allocated_hosts": allocation.nodes.len(),
        "allocated_nodes": nodes,
    })
}

fn launch(job: &JobView) -> Value {
    let streams = job_text::streams(job);
    let streams = streams.as_ref();
    json!({
        "batch_flag": job.spec.launch.kind != LaunchKind::Interactive,
        "command": job.spec.launch.command.as_deref().unwrap_or(""),
        "current_working_directory": job.spec.launch.work_dir,
        "standard_error": streams.map_or("", |s| &s.stderr),
        "standard_input": streams.map_or("", |s| &s.stdin),
        "standard_output": streams.map_or("", |s| &s.stdout),
    })
}

fn node(node: &NodeView) -> Value {
    let (config, facts) = (&node.config, &node.facts);
    let state = NodeState::of(node);
    let [_, idle, ..] = node_text::cpu_counts(node);
    let used = node_text::allocated_tres(node);
    let reason = node.reason.as_ref();
    json!({
        "name": config.name,
        "architecture": facts.arch,
        "address": node_text::address(node),
        "hostname": node_text::hostname(node),
        "operating_system": facts.os,
        "slurmd_version": facts.version,
        "boards": config.boards,
        "sockets": config.sockets,
        "cores": config.cores_per_socket,
        "threads": config.threads_per_core,
        "cpus": config.cpus,
        "cpu_load": facts.cpu_load,
        "free_memory": facts.free_memory.mib_floor(),
        "real_memory": config.memory.mib_floor(),
        "temporary_disk": config.tmp_disk.mib_floor(),
        "weight": config.weight,
        "features": config.features.join(","),
        "active_features": config.features.join(","),
        "gres": if config.gres.is_empty() { String::new() } else { node_text::gres(config) },
        "gres_used": if config.gres.is_empty() { String::new() } else { node_text::gres_used(node) },
        "state": state.base_lower(),
        "state_flags": state.flags(),
        "partitions": node.partitions,
        "boot_time": facts.boot_time.secs(),
        "slurmd_start_time": facts.agent_start.secs(),
        "last_busy": time(node.last_busy),
        "reason": reason.map_or("", words::node::reason_text),
        "reason_changed_at": time(reason.map(|r| r.at)),
        "reason_set_by_user": reason.map(|r| words::node::reason_user(r).0),
        "tres": node_text::configured_tres(config).to_string(),
        "tres_used": (!used.is_empty()).then(|| used.to_string()),
        "alloc_memory": node.memory_allocated.mib(),
        "alloc_cpus": node.cpus_allocated,
        "idle_cpus": idle,
    })
}

#[cfg(test)]
mod tests;

//! Jobs, offers and nodes in the form that dstack's client reads.

use super::{optional_time, time, uuid};
use crate::shared::Shared;
use dstack::run_summary::RunSummary;
use dstack::status::{JobEnd, RunEnd, RunStatus};
use model::amount::{Bytes, MIB};
use model::fleet::MAIN_PROJECT;
use model::node::NodeConfig;
use model::run::LaunchKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use wire::client::Offer;
use wire::view::JobView;

const GPU: &str = "gpu";

/// dstack's word for machines that are there already; its list of backends is closed.
const BACKEND: &str = "remote";

/// Makes bodies; what they need beside a job is taken once.
pub struct Bodies<'a> {
    shared: &'a Shared,
    nodes: BTreeMap<String, NodeConfig>,
}

/// A part of a node.
struct Part<'a> {
    node: &'a str,
    cpus: u32,
    memory: Bytes,
    /// Kind, which may be empty, and count.
    gpus: Vec<(String, u64)>,
}

impl<'a> Bodies<'a> {
    pub fn new(shared: &'a Shared) -> Self {
        let state = shared.read();
        let nodes = state.nodes.values().map(|node| (node.config.name.clone(), node.config.clone()));
        let nodes = nodes.collect();
        drop(state);
        Self { shared, nodes }
    }

    /// The nodes of the cluster.
    pub fn nodes(&self) -> impl Iterator<Item = &NodeConfig> {
        self.nodes.values()
    }

    pub fn run(&self, job: &JobView) -> Value {
        let summary = RunSummary::of_job(job);
        let run_spec = self.run_spec(job);
        let name = run_name(job);
        let id = job.run.map(|id| id.to_string()).unwrap_or_default();
        let count = job.allocation.as_ref().map_or(job.nodes.min.max(1), |all| all.nodes.len() as u32);
        let jobs: Vec<Value> = (0..count)
            .map(|rank| {
                json!({
                    "job_spec": job_spec(&run_spec, &name, rank, count),
                    "job_submissions": [self.submission(job, &summary, &id, rank)],
                    "job_connection_info": null,
                })
            })
            .collect();
        json!({
            "id": id,
            "project_name": MAIN_PROJECT,
            "user": job.spec.owner.name,
            "fleet": job.allocation.as_ref().map(|all| {
                json!({"id": uuid("fleet", &all.partition), "name": all.partition})
            }),
            "submitted_at": time(job.submit),
            "last_processed_at": time(job.end.filter(|_| job.state.is_ended()).unwrap_or(job.submit)),
            "status": summary.status.word(),
            "status_message": summary.message,
            "termination_reason": run_end(&summary).map(RunEnd::word),
            "run_spec": run_spec,
            "latest_job_submission": jobs.first().map(|first| first["job_submissions"][0].clone()),
            "jobs": jobs,
            "cost": 0.0,
            "service": null,
            "deployment_num": 0,
            "error": summary.error,
            "deleted": false,
            "next_triggered_at": null,
        })
    }

    /// The run as it was applied; one made from the job where it came from `sbatch`.
    fn run_spec(&self, job: &JobView) -> Value {
        let kept = job.spec.launch.configuration.as_ref();
        let kept = kept.and_then(|blob| self.shared.blob_text(blob).ok());
        let kept = kept.and_then(|text| serde_json::from_str(&text).ok());
        kept.unwrap_or_else(|| translated_spec(job))
    }

    fn submission(&self, job: &JobView, summary: &RunSummary, run: &str, rank: u32) -> Value {
        let share = job.allocation.as_ref().and_then(|all| all.nodes.get(rank as usize));
        let part = share.map(|share| Part {
            node: &share.node,
            cpus: share.cpus.len(),
            memory: share.memory,
            gpus: share
                .gres
                .iter()
                .filter(|gres| gres.name == GPU)
                .map(|gres| (gres.kind.clone().unwrap_or_default(), gres.count))
                .collect(),
        });
        let node = part.as_ref().and_then(|part| self.nodes.get(part.node));
        let ended = job.end.filter(|_| job.state.is_ended());
        json!({
            "id": submission_id(run, job.restarts, rank),
            "submission_num": job.restarts,
            "deployment_num": 0,
            "submitted_at": time(job.submit),
            "last_processed_at": time(ended.or(job.start).unwrap_or(job.submit)),
            "finished_at": optional_time(ended),
            "inactivity_secs": null,
            "status": job_status(summary),
            "status_message": summary.message,
            "termination_reason": summary.end.map(JobEnd::word),
            "termination_reason_message": (!summary.error.is_empty()).then_some(&summary.error),
            "exit_status": summary.exit,
            "job_provisioning_data": node.zip(part.as_ref()).map(|(node, part)| json!({
                "backend": BACKEND,
                "base_backend": null,
                "instance_type": {"name": node.name, "resources": whole_node(node)},
                "instance_id": node.name,
                "hostname": node.address,
                "internal_ip": node.address,
                "public_ip_enabled": false,
                "instance_network": null,
                "region": BACKEND,
                "availability_zone": null,
                "reservation": null,
                "price": 0.0,
                "username": job.spec.owner.name,
                "ssh_port": null,
                "dockerized": false,
                "ssh_proxy": null,
                "backend_data": null,
                "gpu_driver": null,
                "blocks": part.cpus,
            })),
            "job_runtime_data": part.as_ref().map(|part| json!({
                "network_mode": "host",
                "gpu": part.gpus.iter().map(|(_, count)| count).sum::<u64>(),
                "cpu": part.cpus,
                "memory": part.memory.0 as f64 / (1u64 << 30) as f64,
                "ports": null,
                "volume_names": [],
                "offer": self.offer_of(part, "busy"),
                "working_dir": job.spec.launch.work_dir,
                "username": job.spec.owner.name,
            })),
            "error": (!summary.error.is_empty()).then_some(&summary.error),
            "probes": [],
            "image_pull_progress": null,
        })
    }

    pub fn offer(&self, offer: &Offer) -> Value {
        let (cpus, memory, gpus) = (offer.cpus, offer.memory, offer.gpus.clone());
        let part = Part { node: &offer.node, cpus, memory, gpus };
        self.offer_of(&part, if offer.available { "idle" } else { "busy" })
    }

    fn offer_of(&self, part: &Part<'_>, availability: &str) -> Value {
        let node = self.nodes.get(part.node);
        let (blocks, total) = node.map_or((1, 1), |node| blocks(part, node));
        json!({
            "backend": BACKEND,
            "instance": {
                "name": part.node,
                "resources": resources(part.cpus, part.memory, &part.gpus, node),
            },
            "region": BACKEND,
            "price": 0.0,
            "backend_data": {},
            "availability": availability,
            "availability_zones": null,
            "instance_runtime": "shim",
            "blocks": blocks,
            "total_blocks": total,
        })
    }

    /// One row for each kind of GPU among the offers.
    pub fn gpu_groups(&self, offers: &[Offer]) -> Vec<Value> {
        let mut kinds: BTreeMap<&str, (u64, u64, bool, u64)> = BTreeMap::new();
        for offer in offers {
            for (kind, count) in offer.gpus.iter().filter(|(_, count)| *count > 0) {
                let memory = self.nodes.get(&offer.node).map_or(0, |node| gpu_memory(node, kind));
                let row = kinds.entry(kind).or_insert((*count, *count, false, memory));
                *row = (row.0.min(*count), row.1.max(*count), row.2 || offer.available, memory);
            }
        }
        let row = |(kind, (min, max, idle, memory)): (&str, (u64, u64, bool, u64))| {
            json!({
                "name": if kind.is_empty() { GPU } else { kind },
                "memory_mib": memory,
                "vendor": "nvidia",
                "availability": [if idle { "idle" } else { "busy" }],
                "spot": ["on-demand"],
                "count": {"min": min, "max": max},
                "price": {"min": 0.0, "max": 0.0},
                "offer_price": {"min": 0.0, "max": 0.0},
                "backends": [BACKEND],
            })
        };
        kinds.into_iter().map(row).collect()
    }
}

/// Of a task its own; a job of `sbatch` may share its name with others, so its number is added.
pub fn run_name(job: &JobView) -> String {
    match job.spec.launch.kind {
        LaunchKind::Task => job.spec.name.to_string(),
        _ => format!("{}-{}", job.spec.name, job.id),
    }
}

/// One node's part of one attempt.
pub fn submission_id(run: &str, restarts: u32, rank: u32) -> String {
    uuid("submission", &format!("{run} {restarts} {rank}"))
}

pub fn job_spec(run_spec: &Value, name: &str, rank: u32, count: u32) -> Value {
    let configuration = &run_spec["configuration"];
    json!({
        "replica_num": 0,
        "job_num": rank,
        "job_name": format!("{name}-{rank}-0"),
        "jobs_per_replica": count,
        "replica_group": "0",
        "app_specs": [],
        "user": null,
        "commands": configuration["commands"],
        "env": configuration["env"],
        "home_dir": null,
        "image_name": configuration["image"].as_str().unwrap_or_default(),
        "privileged": false,
        "single_branch": null,
        "max_duration": configuration["max_duration"],
        "stop_duration": configuration["stop_duration"],
        "utilization_policy": configuration["utilization_policy"],
        "registry_auth": null,
        "requirements": {
            "resources": configuration["resources"],
            "max_price": configuration["max_price"],
            "spot": false,
            "reservation": configuration["reservation"],
            "multinode": count > 1,
            "backend_options": null,
        },
        "retry": null,
        "volumes": [],
        "ssh_key": null,
        "working_dir": configuration["working_dir"],
        "repo_data": run_spec["repo_data"],
        "repo_code_hash": null,
        "repo_dir": null,
        "file_archives": [],
        "service_port": null,
        "probes": [],
        "node_group_index": 0,
        "node_group_name": "0",
        "node_group_job_index": rank,
    })
}

/// A task that asks for what the job asked for.
fn translated_spec(job: &JobView) -> Value {
    let request = job.spec.request();
    let tres = &job.tres;
    let per_node = |amount: u64| amount / u64::from(job.nodes.min.max(1));
    let cpus = per_node(u64::from(job.cpus)).max(1);
    let memory = per_node(tres.amount(&model::tres::TresKind::Mem)) as f64 / 1024.0;
    let gpus = per_node(tres.amount(&model::tres::TresKind::gpu()));
    json!({
        "run_name": run_name(job),
        "repo_id": "none",
        "repo_data": {"repo_type": "virtual"},
        "file_archives": [],
        "configuration_path": job.spec.launch.command,
        "configuration": {
            "type": "task",
            "name": run_name(job),
            "nodes": request.nodes.min.max(1),
            "commands": [job.spec.submit_line],
            "env": {},
            "resources": {
                "cpu": {"arch": null, "count": {"min": cpus, "max": cpus}},
                "memory": {"min": memory, "max": memory},
                "gpu": {"count": {"min": gpus, "max": gpus}},
                "disk": null,
            },
        },
        "profile": null,
        "ssh_key_pub": "",
    })
}

fn job_status(summary: &RunSummary) -> &'static str {
    match (summary.end, summary.status) {
        (Some(end), _) => end.status().word(),
        (None, RunStatus::Pending) => "submitted",
        (None, status) => status.word(),
    }
}

fn run_end(summary: &RunSummary) -> Option<RunEnd> {
    summary.end.map(|end| match end {
        JobEnd::DoneByRunner => RunEnd::AllJobsDone,
        JobEnd::TerminatedByUser => RunEnd::StoppedByUser,
        JobEnd::AbortedByUser => RunEnd::AbortedByUser,
        _ => RunEnd::JobFailed,
    })
}

pub fn whole_node(node: &NodeConfig) -> Value {
    let gpus = node.gres.iter().filter(|line| line.name == GPU);
    let gpus: Vec<(String, u64)> =
        gpus.map(|line| (line.kind.clone().unwrap_or_default(), line.count)).collect();
    resources(node.cpus, node.memory, &gpus, Some(node))
}

fn resources(
    cpus: u32,
    memory: Bytes,
    gpus: &[(String, u64)],
    node: Option<&NodeConfig>,
) -> Value {
    let disk = node.map(|node| node.tmp_disk.0 / MIB).filter(|disk| *disk > 0);
    let each = gpus.iter().flat_map(|(kind, count)| {
        let memory = node.map_or(0, |node| gpu_memory(node, kind));
        let name = if kind.is_empty() { GPU } else { kind };
        let gpu = json!({"name": name, "memory_mib": memory, "vendor": "nvidia"});
        std::iter::repeat_n(gpu, usize::try_from(*count).unwrap_or(0))
    });
    json!({
        "cpus": cpus,
        "memory_mib": memory.0 / MIB,
        "gpus": each.collect::<Vec<_>>(),
        "spot": false,
        "disk": disk.map(|size| json!({"size_mib": size})),
        "cpu_arch": null,
        "description": "",
    })
}

/// The memory of each GPU of a kind, MiB; 0 where nobody has said it.
fn gpu_memory(node: &NodeConfig, kind: &str) -> u64 {
    let of_kind = |line: &&model::node::NodeGres| {
        line.name == GPU && line.kind.as_deref().unwrap_or_default() == kind
    };
    let memory = node.gres.iter().find(of_kind).and_then(|line| line.device_memory);
    memory.map_or(0, |memory| memory.0 / MIB)
}

/// The blocks that a part takes of its node, and those that the node has: a block is a GPU, or a CPU where there is none.
fn blocks(part: &Part<'_>, node: &NodeConfig) -> (u64, u64) {
    match node.gres_total(GPU) {
        0 => (u64::from(part.cpus), u64::from(node.cpus)),
        total => (part.gpus.iter().map(|(_, count)| count).sum(), total),
    }
}

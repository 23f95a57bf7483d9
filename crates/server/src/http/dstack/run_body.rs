//! Jobs, offers and nodes in the form that dstack's client reads.

use super::uuid;
use crate::shared::Shared;
use cluster::authorise::{Act, authorise};
use dstack::api::gpu::{Bounds, GpuGroup};
use dstack::api::instance::{BACKEND, Disk, Gpu, InstanceType, Offer, REGION, Resources};
use dstack::api::job::{
    Job, JobProvisioningData, JobRuntimeData, JobSpec, JobSubmission, Requirements,
};
use dstack::api::run::{Run, RunFleet, RunSpec};
use dstack::configuration::task::STOP_DURATION;
use dstack::run_summary::RunSummary;
use dstack::status::{JobEnd, JobStatus, OfferStatus, RunEnd, RunStatus};
use model::amount::{Bytes, GIB, MIB};
use model::fleet::MAIN_PROJECT;
use model::node::{NodeConfig, NodeGres};
use model::principal::Principal;
use model::run::LaunchKind;
use model::tres::TresKind;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use wire::view::JobView;

pub const GPU: &str = "gpu";

/// Makes bodies for one who asks; what they need beside a job is taken once.
pub struct Bodies<'a> {
    shared: &'a Shared,
    by: &'a Principal,
    nodes: BTreeMap<String, Arc<NodeConfig>>,
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
    pub fn new(shared: &'a Shared, by: &'a Principal) -> Self {
        let nodes = {
            let state = shared.read();
            let configs = state.nodes.values().map(|node| &node.config);
            configs.map(|config| (config.name.clone(), config.clone())).collect()
        };
        Self { shared, by, nodes }
    }

    /// How many nodes of a run are shown: a job that waits may ask for more than there will ever be.
    pub fn shown_nodes(&self, wanted: u32) -> u32 {
        let most = u32::try_from(self.nodes.len()).unwrap_or(u32::MAX);
        wanted.min(most).max(1)
    }

    pub fn run(&self, job: &JobView) -> Run {
        let summary = RunSummary::of_job(job);
        let run_spec = self.run_spec(job);
        let name = run_name(job);
        let id = job.run.map(|id| id.to_string()).unwrap_or_default();
        let granted = job.allocation.as_ref().map(|allocation| allocation.nodes.len() as u32);
        let count = self.shown_nodes(granted.unwrap_or(job.nodes.min));
        let of_rank = |rank| Job {
            job_spec: job_spec(&run_spec, &name, rank, count),
            job_submissions: vec![self.submission(job, &summary, &id, rank)],
            job_connection_info: None,
        };
        let jobs: Vec<Job> = (0..count).map(of_rank).collect();
        let ended = job.end.filter(|_| job.state.is_ended());
        Run {
            id,
            project_name: MAIN_PROJECT.to_owned(),
            user: job.spec.owner.name.clone(),
            fleet: job.allocation.as_ref().map(|allocation| RunFleet {
                id: uuid("fleet", &allocation.partition),
                name: allocation.partition.clone(),
            }),
            submitted_at: job.submit.into(),
            last_processed_at: ended.or(job.start).unwrap_or(job.submit).into(),
            status: summary.status,
            status_message: summary.message.clone(),
            termination_reason: run_end(&summary).map(|end| end.word().to_owned()),
            latest_job_submission: jobs.first().map(|first| first.job_submissions[0].clone()),
            run_spec,
            jobs,
            cost: 0.0,
            service: None,
            deployment_num: 0,
            error: Some(summary.error),
            deleted: false,
            next_triggered_at: None,
        }
    }

    /// The run as it was applied, with its commands and environment, for those who may act as its owner. Others, and who
    /// asks for a job of `sbatch`, get one that is made from what everybody is shown of the job.
    fn run_spec(&self, job: &JobView) -> RunSpec {
        let may_read = {
            let state = self.shared.read();
            let known = state.jobs.get(&job.id);
            known.is_some_and(|known| authorise(&state, self.by, Act::ActAsOwner(known)).is_ok())
        };
        let kept = job.spec.launch.configuration.as_ref().filter(|_| may_read);
        let kept = kept.and_then(|blob| self.shared.blob_text(blob).ok());
        let kept = kept.and_then(|text| serde_json::from_str(&text).ok());
        kept.unwrap_or_else(|| translated_spec(job))
    }

    fn submission(
        &self,
        job: &JobView,
        summary: &RunSummary,
        run: &str,
        rank: u32,
    ) -> JobSubmission {
        let share = job.allocation.as_ref().and_then(|all| all.nodes.get(rank as usize));
        let part = share.map(|share| {
            let gpus = share.gres.iter().filter(|gres| gres.name == GPU);
            let gpus = gpus.map(|gres| (gres.kind.clone().unwrap_or_default(), gres.count));
            let (cpus, memory, gpus) = (share.cpus.len(), share.memory, gpus.collect());
            Part { node: &share.node, cpus, memory, gpus }
        });
        let node = part.as_ref().and_then(|part| self.nodes.get(part.node));
        let ended = job.end.filter(|_| job.state.is_ended());
        let error = (!summary.error.is_empty()).then(|| summary.error.clone());
        JobSubmission {
            id: submission_id(run, job.restarts, rank),
            submission_num: job.restarts,
            deployment_num: 0,
            submitted_at: job.submit.into(),
            last_processed_at: ended.or(job.start).unwrap_or(job.submit).into(),
            finished_at: ended.map(Into::into),
            inactivity_secs: None,
            status: job_status(summary),
            status_message: summary.message.clone(),
            termination_reason: summary.end.map(|end| end.word().to_owned()),
            termination_reason_message: error.clone(),
            exit_status: summary.exit,
            job_provisioning_data: node.map(|node| provisioning(node, &job.spec.owner.name)),
            job_runtime_data: part.as_ref().map(|part| JobRuntimeData {
                network_mode: "host".to_owned(),
                gpu: u32::try_from(part.gpu_count()).ok(),
                cpu: Some(f64::from(part.cpus)),
                memory: Some(part.memory.0 as f64 / GIB as f64),
                ports: None,
                volume_names: Some(Vec::new()),
                offer: Some(self.offer_of(part, OfferStatus::Busy)),
                working_dir: Some(job.spec.launch.work_dir.to_string()),
                username: Some(job.spec.owner.name.clone()),
            }),
            error,
            probes: Vec::new(),
            image_pull_progress: None,
        }
    }

    pub fn offer(&self, offer: &wire::client::Offer) -> Offer {
        let (cpus, memory, gpus) = (offer.cpus, offer.memory, offer.gpus.clone());
        let part = Part { node: &offer.node, cpus, memory, gpus };
        self.offer_of(&part, if offer.available { OfferStatus::Idle } else { OfferStatus::Busy })
    }

    fn offer_of(&self, part: &Part<'_>, status: OfferStatus) -> Offer {
        let node = self.nodes.get(part.node).map(Arc::as_ref);
        let resources = resources(part.cpus, part.memory, &part.gpus, node);
        let instance = InstanceType { name: part.node.to_owned(), resources };
        Offer::own(instance, 0.0, status, node.map_or((1, 1), |node| blocks(part, node)))
    }

    /// One row for each kind of GPU among the offers.
    pub fn gpu_groups(&self, offers: &[wire::client::Offer]) -> Vec<GpuGroup> {
        let mut groups: BTreeMap<&str, GpuGroup> = BTreeMap::new();
        for offer in offers {
            let status = if offer.available { OfferStatus::Idle } else { OfferStatus::Busy };
            for (kind, count) in offer.gpus.iter().filter(|(_, count)| *count > 0) {
                let count = u32::try_from(*count).unwrap_or(u32::MAX);
                let free = Bounds { min: 0.0, max: 0.0 };
                let group = groups.entry(kind).or_insert_with(|| GpuGroup {
                    name: shown_kind(kind).to_owned(),
                    memory_mib: self.nodes.get(&offer.node).map_or(0, |node| gpu_mib(node, kind)),
                    vendor: "nvidia".to_owned(),
                    availability: Vec::new(),
                    spot: vec!["on-demand".to_owned()],
                    count: Bounds { min: count, max: count },
                    price: free,
                    offer_price: Some(free),
                    backends: Some(vec![BACKEND.to_owned()]),
                    backend: None,
                    regions: None,
                    region: None,
                });
                group.count =
                    Bounds { min: group.count.min.min(count), max: group.count.max.max(count) };
                if !group.availability.contains(&status) {
                    group.availability.push(status);
                }
            }
        }
        groups.into_values().collect()
    }
}

impl Part<'_> {
    fn gpu_count(&self) -> u64 {
        self.gpus.iter().map(|(_, count)| count).sum()
    }
}

fn provisioning(node: &NodeConfig, user: &str) -> JobProvisioningData {
    JobProvisioningData {
        backend: BACKEND.to_owned(),
        base_backend: None,
        instance_type: InstanceType { name: node.name.clone(), resources: whole_node(node) },
        instance_id: node.name.clone(),
        hostname: Some(node.address.clone()),
        internal_ip: Some(node.address.clone()),
        public_ip_enabled: false,
        instance_network: None,
        region: REGION.to_owned(),
        availability_zone: None,
        reservation: None,
        price: 0.0,
        username: user.to_owned(),
        ssh_port: None,
        dockerized: false,
        ssh_proxy: None,
        backend_data: None,
        gpu_driver: None,
    }
}

/// The run's name: a task has one of its own. Jobs of `sbatch` may share a name, so their number is added.
fn run_name(job: &JobView) -> String {
    match job.spec.launch.kind {
        LaunchKind::Task => job.spec.name.to_string(),
        _ => format!("{}-{}", job.spec.name, job.id),
    }
}

/// One node's part of one attempt.
pub fn submission_id(run: &str, restarts: u32, rank: u32) -> String {
    uuid("submission", &format!("{run} {restarts} {rank}"))
}

pub fn job_spec(run_spec: &RunSpec, name: &str, rank: u32, count: u32) -> JobSpec {
    let configuration = &run_spec.configuration;
    let text = |key: &str| configuration[key].as_str().map(str::to_owned);
    let commands = configuration["commands"].as_array().into_iter().flatten();
    let env = configuration["env"].as_object().into_iter().flatten();
    JobSpec {
        replica_num: 0,
        job_num: rank,
        job_name: format!("{name}-{rank}-0"),
        jobs_per_replica: count,
        replica_group: "0".to_owned(),
        app_specs: Vec::new(),
        user: None,
        commands: commands.filter_map(|line| line.as_str().map(str::to_owned)).collect(),
        env: env
            .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
            .collect(),
        home_dir: None,
        image_name: text("image").unwrap_or_default(),
        privileged: false,
        single_branch: None,
        max_duration: configuration["max_duration"].as_u64(),
        stop_duration: match &configuration["stop_duration"] {
            Value::Null => Some(STOP_DURATION.as_secs()),
            said => said.as_u64(),
        },
        utilization_policy: None,
        registry_auth: None,
        requirements: Requirements {
            resources: configuration["resources"].clone(),
            max_price: configuration["max_price"].as_f64(),
            spot: Some(false),
            reservation: text("reservation"),
            multinode: Some(count > 1),
            backend_options: None,
        },
        retry: None,
        volumes: Vec::new(),
        ssh_key: None,
        working_dir: text("working_dir"),
        repo_data: run_spec.repo_data.clone(),
        repo_code_hash: None,
        // The client wants one, also where there is no repository.
        repo_dir: Some(String::new()),
        repo_exists_action: None,
        file_archives: Vec::new(),
        service_port: None,
        probes: Vec::new(),
        node_group_index: 0,
        node_group_name: "0".to_owned(),
        node_group_job_index: rank,
    }
}

/// A task that asks for what the job asked for.
fn translated_spec(job: &JobView) -> RunSpec {
    let nodes = job.nodes.min.max(1);
    let per_node = |amount: u64| amount / u64::from(nodes);
    let cpus = per_node(u64::from(job.cpus)).max(1);
    let memory = per_node(job.tres.amount(&TresKind::Mem)) as f64 / 1024.0;
    let gpus = per_node(job.tres.amount(&TresKind::gpu()));
    RunSpec {
        run_name: Some(run_name(job)),
        repo_id: Some("none".to_owned()),
        repo_data: Some(json!({"repo_type": "virtual"})),
        configuration_path: job.spec.launch.command.as_deref().map(str::to_owned),
        configuration: json!({
            "type": "task",
            "name": run_name(job),
            "nodes": nodes,
            "commands": [job.spec.submit_line],
            "env": {},
            "resources": {
                "cpu": {"count": {"min": cpus, "max": cpus}},
                "memory": {"min": memory, "max": memory},
                "gpu": {"count": {"min": gpus, "max": gpus}},
            },
        }),
        ..RunSpec::default()
    }
}

fn job_status(summary: &RunSummary) -> JobStatus {
    match (summary.end, summary.status) {
        (Some(end), _) => end.status(),
        (None, RunStatus::Provisioning) => JobStatus::Provisioning,
        (None, RunStatus::Running) => JobStatus::Running,
        (None, RunStatus::Terminating) => JobStatus::Terminating,
        (None, _) => JobStatus::Submitted,
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

pub fn whole_node(node: &NodeConfig) -> Resources {
    let gpus = node.gres.iter().filter(|line| line.name == GPU);
    let gpus = gpus.map(|line| (line.kind.clone().unwrap_or_default(), line.count));
    resources(node.cpus, node.memory, &gpus.collect::<Vec<_>>(), Some(node))
}

fn resources(
    cpus: u32,
    memory: Bytes,
    gpus: &[(String, u64)],
    node: Option<&NodeConfig>,
) -> Resources {
    let disk = node.map_or(0, |node| node.tmp_disk.0 / MIB);
    let each = gpus.iter().flat_map(|(kind, count)| {
        let gpu = Gpu {
            name: shown_kind(kind).to_owned(),
            memory_mib: node.map_or(0, |node| gpu_mib(node, kind)),
            vendor: Some("nvidia".to_owned()),
        };
        std::iter::repeat_n(gpu, usize::try_from(*count).unwrap_or(0))
    });
    Resources {
        cpus,
        memory_mib: memory.0 / MIB,
        gpus: each.collect(),
        spot: false,
        // Zero where nobody has said it: the client would show a default of its own for none.
        disk: Some(Disk { size_mib: disk }),
        cpu_arch: None,
        description: String::new(),
    }
}

/// A node that only counts its GPUs does not say which they are; the client wants a name.
fn shown_kind(kind: &str) -> &str {
    if kind.is_empty() { GPU } else { kind }
}

/// The memory of each GPU of a kind, MiB; 0 where nobody has said it.
fn gpu_mib(node: &NodeConfig, kind: &str) -> u64 {
    let of_kind =
        |line: &&NodeGres| line.name == GPU && line.kind.as_deref().unwrap_or_default() == kind;
    let memory = node.gres.iter().find(of_kind).and_then(|line| line.device_memory);
    memory.map_or(0, |memory| memory.0 / MIB)
}

/// The blocks that a part takes of its node, and those that the node has: a block is a GPU, or a CPU where there is none.
fn blocks(part: &Part<'_>, node: &NodeConfig) -> (u32, u32) {
    match u32::try_from(node.gres_total(GPU)).unwrap_or(u32::MAX) {
        0 => (part.cpus, node.cpus),
        total => (u32::try_from(part.gpu_count()).unwrap_or(total), total),
    }
}

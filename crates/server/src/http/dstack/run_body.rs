//! Jobs, offers and nodes in the form that dstack's client reads.

use super::answer::Refused;
use super::job_room::JobRoom;
use super::kept_spec::{Ide, KeptSpec, raw, with_updates};
use super::run_bodies::{RunBodies, RunBody};
use super::run_facts::{GPU, Part, RunFacts};
use crate::shared::Shared;
use crate::show::dstack_id::{submission_id, uuid};
use crate::ssh::access::upstream_id;
use cluster::authorise::{Act, authorise};
use dstack::api::error::ApiError;
use dstack::api::gpu::{Bounds, GpuGroup};
use dstack::api::instance::{BACKEND, Disk, Gpu, InstanceType, Offer, REGION, Resources};
use dstack::api::job::{
    Job, JobConnectionInfo, JobProvisioningData, JobRuntimeData, JobSubmission,
};
use dstack::api::run::{Run, RunFleet, RunSpec};
use dstack::api::time::Time;
use dstack::status::OfferStatus;
use model::amount::{Bytes, GIB, MIB};
use model::container::PortMapping;
use model::fleet::MAIN_PROJECT;
use model::gpu::GpuVendor;
use model::gpu_model;
use model::node::{NodeConfig, NodeGres};
use model::price::Price;
use model::principal::Principal;
use model::tres::TresKind;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

/// Makes bodies for one who asks.
pub struct Bodies<'a> {
    shared: &'a Shared,
    by: &'a Principal,
    /// The project that was asked for.
    project: &'a str,
    /// For the jobs of all runs that are shown together.
    pub room: JobRoom,
}

impl<'a> Bodies<'a> {
    pub fn new(shared: &'a Shared, by: &'a Principal, project: &'a str) -> Self {
        Self { shared, by, project, room: JobRoom::default() }
    }

    fn node(&self, name: &str) -> Option<Arc<NodeConfig>> {
        self.shared.read().nodes.get(name).map(|node| node.config.clone())
    }

    /// How many nodes of a run are shown: a job that waits may ask for more than there will ever be.
    pub fn shown_nodes(&self, wanted: u32) -> u32 {
        // One is shown also while there is no node at all.
        if wanted <= 1 {
            return 1;
        }
        let most = self.shared.read().nodes.len();
        wanted.min(u32::try_from(most).unwrap_or(u32::MAX)).max(1)
    }

    pub fn run(&self, run: &RunFacts) -> Run {
        self.run_with(run, self.kept_text(run))
    }

    /// The same for who asks what runs there are. A standby refuses a run of which it does not know all: the leader shows it.
    pub fn shown_run(&self, run: &RunFacts) -> Result<Run, Refused> {
        let is_standby = self.shared.is_standby();
        if is_standby && run.is_known_to_leader_alone(self.shared.setup.ssh.is_some()) {
            return Err(ApiError::of_another_server().into());
        }
        let kept = self.kept_text(run);
        if is_standby && kept.is_none() && self.shows_text(run) {
            return Err(ApiError::of_another_server().into());
        }
        Ok(self.run_with(run, kept))
    }

    /// The same for a list, of which `held` has what was listed before.
    pub fn listed_run(&self, run: &RunFacts, held: &RunBodies) -> Result<RunBody, Refused> {
        let write = || self.shown_run(run).map(|shown| RunBody::from(raw(&shown)));
        // One of which few jobs are shown for want of room is not held for answers that have it.
        if !run.is_all_of_body() || self.room.is_low() {
            return write();
        }
        held.get(run, self.project, self.shows_text(run), write)
    }

    /// The same, of a run whose kept text is at hand; `None` for one that has none, or whose text is not shown.
    pub fn run_with(&self, run: &RunFacts, kept: Option<Box<RawValue>>) -> Run {
        let summary = &run.summary;
        let id = run.run.map(|id| id.to_string()).unwrap_or_default();
        let of_kept = kept.and_then(|text| self.jobs_of_kept(run, &id, text));
        let (jobs, run_spec) = of_kept.unwrap_or_else(|| {
            let text = raw(&translated_spec(run));
            let bytes = text.get().len();
            let jobs = self.jobs(run, &id, &KeptSpec::of(&text).unwrap_or_default(), bytes);
            (jobs, text)
        });
        Run {
            id,
            project_name: self.project.to_owned(),
            user: run.owner.clone(),
            fleet: run
                .partition
                .as_ref()
                .map(|name| RunFleet { id: uuid("fleet", name), name: name.clone() }),
            submitted_at: run.submit.into(),
            last_processed_at: last_processed(run),
            status: summary.status,
            status_message: summary.message.clone(),
            termination_reason: summary.run_end.map(|end| end.word().to_owned()),
            latest_job_submission: jobs.first().map(|first| first.job_submissions[0].clone()),
            run_spec,
            jobs,
            cost: self.cost(run),
            service: self.service(run),
            deployment_num: run.deployment,
            error: Some(summary.run_error()),
            deleted: false,
            next_triggered_at: run.next_start.map(Into::into),
        }
    }

    /// The jobs of a run by its kept text, and the text as it is shown: with what was updated in place. `None` where it is none
    /// of a run.
    fn jobs_of_kept(
        &self,
        run: &RunFacts,
        id: &str,
        text: Box<RawValue>,
    ) -> Option<(Vec<Job>, Box<RawValue>)> {
        let spec = KeptSpec::of(&text)?;
        if !run.updatable.is_some_and(|now| spec.is_updated(now)) {
            let jobs = self.jobs(run, id, &spec, text.get().len());
            drop(spec);
            return Some((jobs, text));
        }
        drop(spec);
        let text = with_updates(text, run.updatable);
        let jobs = self.jobs(run, id, &KeptSpec::of(&text)?, text.get().len());
        Some((jobs, text))
    }

    /// Where a service is reached. A client puts the server's own address before what is a path.
    fn service(&self, run: &RunFacts) -> Option<Value> {
        let url = run.service_url.as_ref()?;
        let model = run
            .served_model
            .as_ref()
            .map(|(name, base_url)| json!({"name": name, "base_url": base_url, "type": "chat"}));
        Some(json!({"url": url, "model": model, "options": {}}))
    }

    /// One for each node that the run has, or is to have; or for each replica; as far as the answer has room for them. `text_bytes`:
    /// those of the text that the specification is read from.
    fn jobs(&self, run: &RunFacts, id: &str, spec: &KeptSpec<'_>, text_bytes: usize) -> Vec<Job> {
        // A run whose first time is to come has none yet.
        if run.next_start.is_some() && !run.has_started {
            return Vec::new();
        }
        if !run.replicas.is_empty() {
            let of_replica = |replica: &RunFacts| Job {
                job_spec: spec.replica_spec(
                    &run.name,
                    replica.replica,
                    replica.replica_group.as_ref(),
                ),
                job_submissions: vec![self.submission(replica, id, 0)],
                job_connection_info: self.connection_info(replica, 0, None),
            };
            let shown = self.room.shown(run.replicas.len(), text_bytes);
            return run.replicas.iter().take(shown).map(of_replica).collect();
        }
        let granted = u32::try_from(run.parts.len()).ok().filter(|granted| *granted > 0);
        let count = self.shown_nodes(granted.unwrap_or(run.nodes_min));
        let of_rank = |rank| Job {
            job_spec: spec.job_spec(&run.name, rank, count),
            job_submissions: vec![self.submission(run, id, rank)],
            job_connection_info: self.connection_info(run, rank, spec.ide()),
        };
        let shown = self.room.shown(count as usize, text_bytes);
        (0..count).take(shown).map(of_rank).collect()
    }

    /// What the hours on its shares of nodes have cost, in the attempt that is shown.
    fn cost(&self, run: &RunFacts) -> f64 {
        if !run.replicas.is_empty() {
            return run.replicas.iter().map(|replica| self.cost(replica)).sum();
        }
        let Some(start) = run.start else { return 0.0 };
        let end = run.ended.unwrap_or_else(crate::clock::now);
        let hours = end.since(start).as_secs_f64() / 3600.0;
        run.parts.iter().map(|part| part.price.dollars() * hours).sum()
    }

    /// How people and editors come in by SSH, once the run has a node. dstack's own client is told by the provisioning data:
    /// by the fields of its SSH proxy it would ask whether the endpoint's key is right, which nobody answers in a script.
    fn connection_info(
        &self,
        run: &RunFacts,
        rank: u32,
        ide: Option<Ide>,
    ) -> Option<JobConnectionInfo> {
        let endpoint = self.shared.setup.ssh.as_ref()?;
        run.parts.get(rank as usize)?;
        let id = upstream_id(run.job, rank);
        let address = format!("{id}@{}", endpoint.host);
        let words = ["ssh", &address, "-p", &endpoint.port.to_string()];
        let folder = run.work_dir.trim_end_matches('/');
        let url = |host: &str| ide.map(|ide| ide.url(host, folder));
        Some(JobConnectionInfo {
            ide_name: ide.map(|ide| ide.shown().to_owned()),
            attached_ide_url: url(&run.name),
            proxied_ide_url: url(&format!("{address}:{}", endpoint.port)),
            attached_ssh_command: Some(vec!["ssh".to_owned(), run.name.clone()]),
            proxied_ssh_command: Some(words.map(str::to_owned).into()),
            sshproxy_hostname: None,
            sshproxy_port: None,
            sshproxy_upstream_id: None,
        })
    }

    /// Where the run is. With an SSH endpoint the client is sent there, as to a host that leads on to the run.
    fn provisioning(&self, node: &NodeConfig, run: &RunFacts, rank: u32) -> JobProvisioningData {
        let plain = provisioning(node, &run.owner);
        match &self.shared.setup.ssh {
            Some(endpoint) => JobProvisioningData {
                hostname: Some(endpoint.host.clone()),
                ssh_port: Some(endpoint.port),
                username: upstream_id(run.job, rank),
                dockerized: true,
                ..plain
            },
            None => plain,
        }
    }

    /// The run as it was applied, with its commands and environment, for its owner and administrators. Others, and who
    /// asks for a job of `sbatch`, get one that is made from what everybody is shown of the job.
    fn kept_text(&self, run: &RunFacts) -> Option<Box<RawValue>> {
        let blob = run.configuration.as_ref().filter(|_| self.may_read_texts(run))?;
        self.shared.volatile.run_texts.get(blob, || {
            let text = self.shared.blob_text(blob).ok()?;
            RawValue::from_string(text).ok()
        })
    }

    /// Whether the run has a kept text, and it is shown to who asks.
    fn shows_text(&self, run: &RunFacts) -> bool {
        run.configuration.is_some() && self.may_read_texts(run)
    }

    fn may_read_texts(&self, run: &RunFacts) -> bool {
        let state = self.shared.read();
        authorise(&state, self.by, Act::ReadTextsOf(run.owner_uid)).is_ok()
    }

    fn submission(&self, run: &RunFacts, id: &str, rank: u32) -> JobSubmission {
        let summary = &run.summary;
        let part = run.parts.get(rank as usize);
        let node = part.and_then(|part| self.node(&part.node));
        let error = (!summary.error.is_empty()).then(|| summary.error.clone());
        JobSubmission {
            id: submission_id(id, run.restarts, run.replica + rank),
            submission_num: run.restarts,
            deployment_num: run.deployment,
            submitted_at: run.submit.into(),
            last_processed_at: last_processed(run),
            finished_at: run.ended.map(Into::into),
            inactivity_secs: self
                .shared
                .volatile
                .inactivity_times
                .seconds(run.job, Instant::now())
                .filter(|_| run.ended.is_none()),
            status: summary.job,
            status_message: summary.message.clone(),
            termination_reason: summary.end.map(|end| end.word().to_owned()),
            termination_reason_message: error.clone(),
            exit_status: summary.exit,
            job_provisioning_data: node.map(|node| self.provisioning(&node, run, rank)),
            job_runtime_data: part.map(|part| JobRuntimeData {
                network_mode: if run.network.is_some() { "bridge" } else { "host" }.to_owned(),
                gpu: u32::try_from(part.gpu_count()).ok(),
                cpu: Some(f64::from(part.cpus)),
                memory: Some(part.memory.0 as f64 / GIB as f64),
                ports: run.network.as_ref().map(|network| {
                    let port = |port: &PortMapping| (port.container.to_string(), port.node);
                    network.ports.iter().map(port).collect()
                }),
                volume_names: Some(Vec::new()),
                offer: Some(self.offer_of(part, OfferStatus::Busy)),
                working_dir: Some(run.work_dir.clone()),
                username: Some(run.owner.clone()),
            }),
            error,
            probes: self
                .shared
                .volatile
                .probe_streaks
                .of(run.job)
                .into_iter()
                .map(|streak| json!({"success_streak": streak}))
                .collect(),
            image_pull_progress: None,
        }
    }

    pub fn offer(&self, offer: &wire::client::Offer) -> Offer {
        let (cpus, memory, gpus) = (offer.cpus, offer.memory, offer.gpus.clone());
        let price = Price::default();
        let part = Part { node: offer.node.clone(), cpus, memory, gpus, price };
        let status = offer_status(offer);
        match offer.machine.as_deref() {
            Some(made) => offer_on(&part, Some(made), status),
            None => self.offer_of(&part, status),
        }
    }

    fn offer_of(&self, part: &Part, status: OfferStatus) -> Offer {
        offer_on(part, self.node(&part.node).as_deref(), status)
    }

    /// The highest price among the offers.
    pub fn max_price(&self, offers: &[wire::client::Offer]) -> Option<f64> {
        let each = |offer: &wire::client::Offer| match offer.machine.as_deref() {
            Some(made) => Some(price(made)),
            None => self.node(&offer.node).map(|node| price(&node)),
        };
        offers.iter().filter_map(each).reduce(f64::max)
    }

    /// One row for each kind of GPU among the offers.
    pub fn gpu_groups(&self, offers: &[wire::client::Offer]) -> Vec<GpuGroup> {
        let mut groups: BTreeMap<&str, GpuGroup> = BTreeMap::new();
        for offer in offers {
            let status = offer_status(offer);
            let known = self.node(&offer.node);
            let node = offer.machine.as_deref().or(known.as_deref());
            for (kind, count) in offer.gpus.iter().filter(|(_, count)| *count > 0) {
                let count = u32::try_from(*count).unwrap_or(u32::MAX);
                let each = node.map_or(0.0, price);
                let price = Bounds { min: each, max: each };
                let group = groups.entry(kind).or_insert_with(|| GpuGroup {
                    name: shown_kind(kind).to_owned(),
                    memory_mib: node.map_or(0, |node| gpu_mib(node, kind)),
                    vendor: vendor(node.and_then(|node| gpu_line(node, kind)), kind),
                    availability: Vec::new(),
                    spot: vec!["on-demand".to_owned()],
                    count: Bounds { min: count, max: count },
                    price,
                    offer_price: Some(price),
                    backends: Some(vec![backend(node).to_owned()]),
                    backend: None,
                    regions: None,
                    region: None,
                });
                group.count =
                    Bounds { min: group.count.min.min(count), max: group.count.max.max(count) };
                group.price =
                    Bounds { min: group.price.min.min(each), max: group.price.max.max(each) };
                group.offer_price = Some(group.price);
                if !group.availability.contains(&status) {
                    group.availability.push(status);
                }
            }
        }
        groups.into_values().collect()
    }
}

/// dstack has one word for all that keeps a node from taking jobs.
fn offer_status(offer: &wire::client::Offer) -> OfferStatus {
    match (offer.available, &offer.machine, offer.outage) {
        (true, ..) => OfferStatus::Idle,
        (false, Some(_), _) => OfferStatus::Available,
        (false, None, None) => OfferStatus::Busy,
        (false, None, Some(_)) => OfferStatus::NotAvailable,
    }
}

fn offer_on(part: &Part, node: Option<&NodeConfig>, status: OfferStatus) -> Offer {
    let resources = resources(part.cpus, part.memory, &part.gpus, node);
    let name = node.map_or(part.node.as_str(), instance_name).to_owned();
    let own = Offer::own(
        InstanceType { name, resources },
        node.map_or(0.0, price),
        status,
        node.map_or((1, 1), |node| node.blocks_of(part.cpus, part.gpu_count())),
    );
    Offer { backend: backend(node).to_owned(), region: region(node).to_owned(), ..own }
}

/// dstack's word for where a node is from: the cloud that its source is named by, or `remote`.
pub fn backend(node: Option<&NodeConfig>) -> &str {
    let machine = node.and_then(|node| node.machine.as_deref());
    machine.map_or(BACKEND, |machine| &machine.backend)
}

/// The project that an instance is of: that of the backend which made it, and which alone has jobs there; else the main one.
pub fn instance_project(node: &NodeConfig) -> &str {
    let machine = node.machine.as_deref();
    machine.and_then(|machine| machine.project.as_deref()).unwrap_or(MAIN_PROJECT)
}

pub fn region(node: Option<&NodeConfig>) -> &str {
    let machine = node.and_then(|node| node.machine.as_deref());
    let region = machine.map(|machine| machine.region.as_str());
    region.filter(|region| !region.is_empty()).unwrap_or(REGION)
}

/// The type of a machine; the name of a node that is there already.
pub fn instance_name(node: &NodeConfig) -> &str {
    node.machine.as_ref().map_or(&node.name, |machine| &machine.offer)
}

fn last_processed(run: &RunFacts) -> Time {
    run.ended.or(run.start).unwrap_or(run.submit).into()
}

fn provisioning(node: &NodeConfig, user: &str) -> JobProvisioningData {
    JobProvisioningData {
        backend: backend(Some(node)).to_owned(),
        base_backend: None,
        instance_type: InstanceType {
            name: instance_name(node).to_owned(),
            resources: whole_node(node),
        },
        instance_id: node.name.clone(),
        hostname: Some(node.address.clone()),
        internal_ip: Some(node.address.clone()),
        public_ip_enabled: false,
        instance_network: None,
        region: region(Some(node)).to_owned(),
        availability_zone: None,
        reservation: None,
        price: price(node),
        username: user.to_owned(),
        ssh_port: None,
        dockerized: false,
        ssh_proxy: None,
        backend_data: None,
        gpu_driver: None,
    }
}

/// A task that asks for what the job asked for; a dev environment for an allocation of `salloc`.
fn translated_spec(run: &RunFacts) -> RunSpec {
    let nodes = run.nodes_min.max(1);
    let per_node = |amount: u64| amount / u64::from(nodes);
    let cpus = per_node(u64::from(run.cpus)).max(1);
    let memory = per_node(run.tres.amount(&TresKind::Mem)) as f64 / 1024.0;
    let gpus = per_node(run.tres.amount(&TresKind::gpu()));
    let mut configuration = json!({
        "type": "dev-environment",
        "name": run.name,
        "env": {},
        "resources": {
            "cpu": {"count": {"min": cpus, "max": cpus}},
            "memory": {"min": memory, "max": memory},
            "gpu": {"count": {"min": gpus, "max": gpus}},
        },
    });
    if run.is_held_by_shell {
        configuration["init"] = json!([]);
    } else {
        configuration["type"] = "task".into();
        configuration["nodes"] = nodes.into();
        configuration["commands"] = json!([run.submit_line]);
    }
    RunSpec {
        run_name: Some(run.name.clone()),
        repo_id: Some("none".to_owned()),
        repo_data: Some(json!({"repo_type": "virtual"})),
        configuration_path: run.command.clone(),
        configuration,
        ..RunSpec::default()
    }
}

/// Dollars an hour of a node; a share of it costs as much, as in dstack.
pub fn price(node: &NodeConfig) -> f64 {
    node.price.unwrap_or_default().dollars()
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
            vendor: Some(vendor(node.and_then(|node| gpu_line(node, kind)), kind)),
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

/// The vendor that the client is told where nothing tells it: it wants one.
const UNKNOWN_VENDOR: &str = "nvidia";

fn vendor(line: Option<&NodeGres>, kind: &str) -> String {
    let files = line.map_or(&[][..], |line| &line.files);
    gpu_model::vendor(kind, files).map_or(UNKNOWN_VENDOR, GpuVendor::as_str).to_owned()
}

/// The memory of each GPU of a kind, MiB; 0 where nobody has said it.
fn gpu_mib(node: &NodeConfig, kind: &str) -> u64 {
    let memory = gpu_line(node, kind).and_then(|line| line.device_memory);
    memory.map_or(0, |memory| memory.0 / MIB)
}

fn gpu_line<'n>(node: &'n NodeConfig, kind: &str) -> Option<&'n NodeGres> {
    let of_kind =
        |line: &&NodeGres| line.name == GPU && line.kind.as_deref().unwrap_or_default() == kind;
    node.gres.iter().find(of_kind)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instance_is_of_the_project_whose_backend_made_it() {
        let mut node = NodeConfig::plain("aws-vision-1", 2, Bytes::from_gib(4));
        assert_eq!(instance_project(&node), MAIN_PROJECT);
        let kind = json!({"source": "aws-vision", "offer": "m5.large", "project": "vision"});
        node.machine = Some(Box::new(serde_json::from_value(kind).expect("a kind")));
        assert_eq!(instance_project(&node), "vision");
    }

    #[test]
    fn gpus_have_the_vendor_that_their_kind_or_files_tell() {
        let line = |kind: &str, file: &str| -> NodeGres {
            let line = json!({"name": GPU, "kind": kind, "count": 1, "files": [file]});
            serde_json::from_value(line).expect("a line")
        };
        let table = [
            ("mi300x", "", "amd"),
            ("h100", "", "nvidia"),
            ("card", "/dev/tenstorrent/0", "tenstorrent"),
            ("card", "/dev/nvidia0", "nvidia"),
            ("", "", UNKNOWN_VENDOR),
        ];
        for (kind, file, expected) in table {
            assert_eq!(vendor(Some(&line(kind, file)), kind), expected, "{kind} {file}");
        }
        assert_eq!(vendor(None, "mi300x"), "amd");
    }
}

//! A run as dstack's answers need it: from a job in memory, or from its record once only the books have it.

use super::kept_spec::Updatable;
use dstack::occurrence::run_name;
use dstack::run_summary::{RunSummary, is_waiting_for_schedule};
use model::amount::Bytes;
use model::array::IndexSet;
use model::container::ContainerNetwork;
use model::hostlist;
use model::id::{BlobRef, JobId, RunId};
use model::price::Price;
use model::record::JobRecord;
use model::replica_group::ReplicaGroup;
use model::run::LaunchKind;
use model::service::{REPLICAS_MAX, Service};
use model::time::Timestamp;
use model::tres::{Tres, TresKind};
use std::collections::BTreeMap;
use wire::view::JobView;

pub const GPU: &str = "gpu";

#[derive(Clone, PartialEq)]
pub struct RunFacts {
    pub job: JobId,
    pub run: Option<RunId>,
    /// The run's name: a task has one of its own. Jobs of `sbatch` may share a name, so their number is added.
    pub name: String,
    pub owner: String,
    pub owner_uid: u32,
    pub summary: RunSummary,
    pub restarts: u32,
    pub submit: Timestamp,
    pub start: Option<Timestamp>,
    /// `None` while it has not ended.
    pub ended: Option<Timestamp>,
    /// The next time of its schedule, while it waits for it.
    pub next_start: Option<Timestamp>,
    /// Where it runs or ran.
    pub partition: Option<String>,
    pub parts: Vec<Part>,
    /// The network of its container, while it runs and where that is not the node's.
    pub network: Option<ContainerNetwork>,
    pub nodes_min: u32,
    /// Whether it has ever had a node.
    pub has_started: bool,
    pub cpus: u32,
    pub tres: Tres,
    pub work_dir: String,
    pub command: Option<String>,
    pub submit_line: String,
    /// An allocation of `salloc`: somebody works in it, as in a dev environment. `srun` makes one for its own command.
    pub is_held_by_shell: bool,
    pub configuration: Option<BlobRef>,
    /// What is updated in place, as it is now; `None` for what has none of it, and for records.
    pub updatable: Option<Updatable>,
    /// Where a service is reached; `None` for what is none, and for records.
    pub service_url: Option<String>,
    /// The name of the model that it serves, and where it is asked for.
    pub served_model: Option<(String, String)>,
    /// Grows with each update of a service.
    pub deployment: u32,
    /// The number of the replica, where this is one of several, and its group, where there are groups.
    pub replica: u32,
    pub replica_group: Option<ReplicaGroup>,
    /// The replicas of a service that has several; each is a job.
    pub replicas: Vec<RunFacts>,
}

/// Which of the two commands made an interactive allocation, only its line says.
fn is_salloc(kind: LaunchKind, submit_line: &str) -> bool {
    let program = submit_line.split_whitespace().next().unwrap_or_default();
    let name = program.rsplit('/').next();
    kind == LaunchKind::Interactive && name == Some("salloc")
}

/// A part of a node.
#[derive(Clone, PartialEq)]
pub struct Part {
    pub node: String,
    pub cpus: u32,
    pub memory: Bytes,
    /// Kind, which may be empty, and count.
    pub gpus: Vec<(String, u64)>,
    /// What an hour of it costs.
    pub price: Price,
}

impl Part {
    pub fn gpu_count(&self) -> u64 {
        self.gpus.iter().map(|(_, count)| count).sum()
    }
}

impl RunFacts {
    /// Whether what is shown of it depends on nothing but these facts: neither on nodes nor on the time that it has had them.
    pub fn is_all_of_body(&self) -> bool {
        self.parts.is_empty()
            && self.replicas.is_empty()
            && self.nodes_min <= 1
            && self.start.is_none()
            && self.service_url.is_none()
    }

    /// Whether the leader alone knows all that is shown of it: where a service is found and how its probes go, for how long
    /// nobody has been connected to a dev environment, and where SSH leads to what runs.
    pub fn is_known_to_leader_alone(&self, has_ssh: bool) -> bool {
        let runs = self.start.is_some() && self.ended.is_none();
        let is_watched = self.updatable.is_some_and(|now| now.inactivity_s.is_some());
        self.service_url.is_some() || (runs && (is_watched || has_ssh))
    }

    pub fn of_job(job: &JobView) -> Self {
        let (spec, launch) = (&job.spec, &job.spec.launch);
        let scheduled = is_waiting_for_schedule(job);
        let shares = job.allocation.iter().flat_map(|allocation| &allocation.nodes);
        let part = |share: &model::allocation::NodeShare| {
            let gpus = share.gres.iter().filter(|gres| gres.name == GPU);
            let gpus = gpus.map(|gres| (gres.kind.clone().unwrap_or_default(), gres.count));
            let (node, gpus) = (share.node.clone(), gpus.collect());
            let price = share.price.unwrap_or_default();
            Part { node, cpus: share.cpus.len(), memory: share.memory, gpus, price }
        };
        Self {
            job: job.id,
            run: job.run,
            name: run_name(launch.kind, &spec.name, job.id),
            owner: spec.owner.name.clone(),
            owner_uid: spec.owner.uid,
            summary: RunSummary::of_job(job),
            // The attempt that is shown while the next one is not due is the last.
            restarts: if scheduled { job.restarts.saturating_sub(1) } else { job.restarts },
            next_start: job.eligible.filter(|_| scheduled),
            submit: job.submit,
            // A job that waits has the start that is planned.
            start: job.start.filter(|_| job.allocation.is_some() || job.state.is_ended()),
            ended: job.end.filter(|_| job.state.is_ended()),
            partition: job.allocation.as_ref().map(|allocation| allocation.partition.clone()),
            parts: shares.map(part).collect(),
            network: job.extras.as_ref().and_then(|extras| extras.network.clone()),
            nodes_min: job.nodes.min,
            has_started: job.restarts > 0 || job.allocation.is_some(),
            cpus: job.cpus,
            tres: (*job.tres).clone(),
            work_dir: launch.work_dir.to_string(),
            command: launch.command.as_deref().map(str::to_owned),
            submit_line: spec.submit_line.to_string(),
            is_held_by_shell: is_salloc(launch.kind, &spec.submit_line),
            configuration: launch.configuration.as_deref().copied(),
            updatable: spec
                .dstack_priority
                .map(|priority| Updatable { priority, inactivity_s: spec.inactivity_s }),
            service_url: job.service_url(),
            deployment: launch.service.as_ref().map_or(0, |service| service.deployment),
            served_model: launch.service.as_ref().and_then(|service| {
                let model = service.model.as_ref()?;
                Some((model.name.clone(), Service::models_path(spec.project())))
            }),
            replica: 0,
            replica_group: launch.service.as_ref().and_then(|service| service.group.clone()),
            replicas: Vec::new(),
        }
    }

    /// The replicas of one service as its run, which goes by the number of their array, the first one where its groups have one each, and is
    /// shown as the one of them that is furthest alive.
    pub fn of_replicas(jobs: &[JobView]) -> Option<Self> {
        let liveliest = |job: &&JobView| (job.state.is_ended(), job.state.is_waiting(), job.id);
        let shown = jobs.iter().min_by_key(liveliest)?;
        let first = jobs.iter().filter(|job| job.array.is_some());
        let first = first.min_by_key(|job| job.array.as_ref().map(|of| of.array))?;
        let own_array = first.array.as_ref()?.array;
        let service = first.spec.launch.service.as_ref();
        let group = service.and_then(|service| service.group.as_ref());
        let array = group.map_or(own_array, |group| group.first_array(own_array));
        let mut replicas = Vec::new();
        for job in jobs {
            let Some(of) = &job.array else { continue };
            let pending = of.pending.iter().flat_map(IndexSet::iter);
            let indices = of.index.into_iter().chain(pending).take(REPLICAS_MAX as usize);
            let own = Self::of_job(job);
            let before = own.replica_group.as_ref().map_or(0, |group| group.first_replica);
            let replica = |index: u32| Self { replica: before + index, ..own.clone() };
            replicas.extend(indices.map(replica));
        }
        replicas.sort_by_key(|replica| replica.replica);
        let ended = replicas.iter().map(|replica| replica.ended).collect::<Option<Vec<_>>>();
        let ended = ended.and_then(|ends| ends.into_iter().max());
        // Each group is a run of its own in the books: the first one names all.
        Some(Self { job: array, run: first.run, ended, replicas, ..Self::of_job(shown) })
    }

    /// A record has the sums over its nodes, but for the kinds of GPUs: each is taken to have had an equal part.
    pub fn of_record(record: &JobRecord) -> Self {
        let count = record.nodes.len().max(1) as u64;
        let amount = |kind: &TresKind| record.alloc_tres.amount(kind) / count;
        let gpus = Some((String::new(), amount(&TresKind::gpu()))).filter(|(_, count)| *count > 0);
        let mut kinds: BTreeMap<String, &Vec<(String, u64)>> = BTreeMap::new();
        for of_nodes in &record.gpus {
            let nodes = hostlist::expand(&of_nodes.nodes).unwrap_or_default();
            kinds.extend(nodes.into_iter().map(|node| (node, &of_nodes.kinds)));
        }
        let part = |node: &String| Part {
            node: node.clone(),
            cpus: amount(&TresKind::Cpu) as u32,
            memory: Bytes::from_mib(amount(&TresKind::Mem)),
            gpus: match kinds.get(node) {
                Some(kinds) => kinds.to_vec(),
                None => gpus.iter().cloned().collect(),
            },
            price: Price::from_units(amount(&TresKind::Cost)),
        };
        Self {
            job: record.job,
            run: Some(record.run),
            name: run_name(record.kind, &record.name, record.job),
            owner: record.user.clone(),
            owner_uid: record.uid,
            summary: RunSummary::of_record(record),
            restarts: record.restarts,
            next_start: None,
            submit: record.submit,
            start: record.start,
            ended: record.end,
            partition: record.start.map(|_| record.partition.clone()),
            parts: record.nodes.iter().map(part).collect(),
            network: None,
            nodes_min: record.req_nodes,
            has_started: record.start.is_some(),
            cpus: record.req_cpus,
            tres: record.req_tres.clone(),
            work_dir: record.work_dir.clone(),
            command: None,
            submit_line: record.submit_line.clone(),
            is_held_by_shell: is_salloc(record.kind, &record.submit_line),
            configuration: record.configuration,
            updatable: None,
            service_url: None,
            served_model: None,
            deployment: 0,
            replica: 0,
            replica_group: None,
            replicas: Vec::new(),
        }
    }
}

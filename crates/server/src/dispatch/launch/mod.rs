//! The launch of a job on a node: the environment in the job's dialect (`variables`), the script's text, the output files; and how it
//! is ended from outside (`ending`). `earlier_agent`: what an agent of an earlier version cannot read.

mod earlier_agent;
mod ending;
pub mod internode_ssh;
mod process_policy;
mod step;
mod variables;
mod volumes;

use crate::agents::devices;
use crate::error::ServerError;
use crate::secret::{git_credentials, references, registry_auth};
use crate::shared::Shared;
use crate::task_groups::has_preparing_nodes;
use cluster::{Job, State, view};
pub use earlier_agent::for_agent_of;
pub use ending::{end_notices, interruption_s, step_notice, stop_s};
use model::allocation::{Allocation, NodeShare};
use model::array::IndexSet;
use model::attempt::Attempt;
use model::binding::BindPolicy;
use model::container::{Container, ContainerUser};
use model::filename::{DEFAULT_ARRAY_OUTPUT, DEFAULT_OUTPUT};
use model::id::{AttemptId, BlobRef, JobId};
use model::interpolation::{self, Place, Reference};
use model::partition::DefaultMemory;
use model::reason::Refusal;
use model::replica_group::GroupRole;
use model::run::{Launch, LaunchKind, NicePolicy, RlimitPolicy};
use model::site::TaskUser;
use model::time::TimeLimit;
use model::topology::Topology;
use slurm::environment::gpu::{self, DeviceNames, GpuView};
use slurm::environment::notice;
use slurm::environment::{self, Environment};
use std::collections::HashSet;
use std::sync::Arc;
pub use step::step_orders;
use variables::{
    REPOSITORY_VARIABLE, folder_variables, job_facts, process_variables, slurm_environment,
    task_environment,
};
use wire::order::{
    FileNames, IdRange, JobLaunch, LaunchFile, Output, PrologEpilogEnvironment, UserIds,
};
use wire::step::SrunPrologEpilog;
use wire::workspace::Workspace;

/// What the site has for every `srun`: the programs that it runs before and after its step, and its kind of MPI.
pub fn srun_prolog_epilog(state: &State) -> SrunPrologEpilog {
    let site = &state.config.site;
    let mpi = state.config.shown.get("MpiDefault").filter(|kind| slurm::mpi::connects_ranks(kind));
    SrunPrologEpilog {
        prolog: site.srun_prolog.clone(),
        epilog: site.srun_epilog.clone(),
        mpi: mpi.cloned(),
    }
}

/// The part of the state that a launch needs, copied out so that the state is not locked while blobs are read.
struct Facts {
    /// It runs: [`Facts::attempt`] is there.
    job: Arc<Job>,
    share: NodeShare,
    node_index: u32,
    cluster: String,
    qos: String,
    kill_wait_s: u32,
    append: bool,
    task: TaskFacts,
    /// Where the router is that a replica of a service works for.
    router_address: Option<String>,
    /// The attempt whose SSH key the nodes of the run have; `None` for a run on one node.
    run_attempt: Option<AttemptId>,
    tasks: Option<IndexSet>,
    default_memory: Option<DefaultMemory>,
    gpus: GpuView,
    gpu_names: DeviceNames,
    bind: BindPolicy,
    rlimits: RlimitPolicy,
    nice: NicePolicy,
    over_time_s: u32,
    unkillable_s: u32,
    /// The site has programs to run around jobs.
    has_prolog_epilog: bool,
    /// The image of tasks that name none.
    default_image: Option<String>,
    task_user: TaskUser,
    /// The image of tasks with a Docker daemon of their own.
    docker_image: String,
    /// The job has its node for itself.
    has_whole_node: bool,
    /// The node is a pod, which has the job's image: its processes run there as they are.
    in_pod: bool,
    topology: Option<Arc<Topology>>,
    /// The facts of all components of a het job, itself among them, in their order.
    het_components: Vec<Facts>,
}

impl Facts {
    /// Not copied: that of a job on thousands of nodes is long, and each of them has a launch of its own.
    fn attempt(&self) -> &Attempt {
        self.job.attempt().expect("facts are made of a job with an attempt")
    }
}

/// A task with all its groups, as its variables tell it; nothing of the nodes of a job of Slurm's, which has others.
struct TaskFacts {
    /// The rank of this group's first node.
    first_rank: u32,
    /// By the ranks of the nodes.
    addresses: Vec<String>,
    nodes: Vec<TaskNode>,
    gpus: Vec<u32>,
}

/// One node of a task: of which of its jobs, and which of that job's nodes.
struct TaskNode {
    job: JobId,
    index: u32,
    name: String,
}

fn gpu_view(shared: &Shared, state: &State, node: &str) -> GpuView {
    let Some(known) = state.nodes.get(node) else { return GpuView::default() };
    devices::view(&state.config, known, &devices::of_node(&shared.volatile, known))
}

fn gpu_names(shared: &Shared, state: &State, node: &str) -> DeviceNames {
    let known = state.nodes.get(node);
    known
        .map(|known| gpu::device_names(&devices::of_node(&shared.volatile, known)))
        .unwrap_or_default()
}

fn facts(shared: &Shared, state: &State, id: AttemptId, node: &str) -> Option<Facts> {
    let facts = facts_of_one(shared, state, id, node)?;
    let of_each = facts.job.het.map(|het| {
        let each = het.jobs().filter_map(|id| {
            let job = state.jobs.get(&id)?;
            let first = job.attempt()?.allocation.node_names().next()?;
            facts_of_one(shared, state, job.attempt_id()?, first)
        });
        each.collect()
    });
    Some(Facts { het_components: of_each.unwrap_or_default(), ..facts })
}

fn facts_of_one(shared: &Shared, state: &State, id: AttemptId, node: &str) -> Option<Facts> {
    let job = state.jobs.get(&id.job)?;
    let attempt = job.attempt().filter(|a| a.number == id.number && a.ending.is_none())?;
    let node_index = attempt.allocation.nodes.iter().position(|s| s.node == node)?;
    Some(Facts {
        share: attempt.allocation.nodes[node_index].clone(),
        node_index: node_index as u32,
        cluster: state.config.name.clone(),
        topology: state.topology(),
        qos: job.qos.to_string(),
        kill_wait_s: stop_s(state, job),
        append: state.config.parameters.job_file_append,
        task: task_facts(state, job),
        router_address: router_address(state, job),
        run_attempt: internode_ssh::run_attempt(state, job),
        tasks: state.runs.get(&job.run).map(|r| r.tasks.clone()),
        default_memory: cluster::requested::default_memory(state, job),
        gpus: gpu_view(shared, state, node),
        gpu_names: gpu_names(shared, state, node),
        bind: state.config.parameters.bind.clone(),
        rlimits: state.config.parameters.rlimits.clone(),
        nice: state.config.parameters.nice,
        over_time_s: over_time_s(state, &attempt.allocation.partition),
        unkillable_s: state.config.parameters.unkillable_step_timeout_s,
        has_prolog_epilog: state.config.site.has_prolog_epilog(),
        default_image: state.config.site.containers.default_image.clone(),
        task_user: state.config.site.containers.task_user,
        docker_image: state.config.site.containers.docker_image.clone(),
        has_whole_node: has_whole_node(state, job, &attempt.allocation, node_index),
        in_pod: state.is_pod(node),
        job: job.clone(),
        het_components: Vec::new(),
    })
}

/// Groups of different resources are jobs of their own, the components of a het job.
fn task_facts(state: &State, job: &Job) -> TaskFacts {
    let groups: Vec<JobId> = job.het.map_or(vec![job.id], |het| het.jobs().collect());
    let (addresses, nodes, gpus) = (Vec::new(), Vec::new(), Vec::new());
    let mut task = TaskFacts { first_rank: 0, addresses, nodes, gpus };
    if job.spec.launch.kind != LaunchKind::Task && job.het.is_none() {
        return task;
    }
    for group in groups.iter().filter_map(|id| state.jobs.get(id)) {
        if group.id == job.id {
            task.first_rank = task.addresses.len() as u32;
        }
        let shares = group.allocation().map(|granted| &granted.nodes[..]).unwrap_or_default();
        for (index, share) in shares.iter().enumerate() {
            let known = state.nodes.get(&share.node);
            let said = known.map(|n| n.facts.address.clone()).filter(|a| !a.is_empty());
            let internal = state.fleet_host(&share.node).and_then(|(.., h)| h.internal_address());
            let address = internal.or(said).or(known.map(|n| n.config.address.clone()));
            task.addresses.push(address.unwrap_or_default());
            let (job, index, name) = (group.id, index as u32, share.node.clone());
            task.nodes.push(TaskNode { job, index, name });
            task.gpus.push(share.gres_count("gpu") as u32);
        }
    }
    task
}

/// The address of the router of a worker's own deployment, where it runs.
fn router_address(state: &State, job: &Job) -> Option<String> {
    let service = job.spec.launch.service.as_ref()?;
    if service.role() != GroupRole::Worker {
        return None;
    }
    let is_router = |other: &&Arc<Job>| {
        let of_other = other.spec.launch.service.as_ref();
        of_other.is_some_and(|of_other| {
            matches!(of_other.role(), GroupRole::Router(_))
                && of_other.deployment == service.deployment
        }) && other.spec.name == job.spec.name
            && other.spec.project() == job.spec.project()
            && other.spec.owner.uid == job.spec.owner.uid
            && other.attempt().is_some()
    };
    let router = state.replicas.iter().filter_map(|id| state.jobs.get(id)).find(is_router)?;
    task_facts(state, router).addresses.into_iter().find(|address| !address.is_empty())
}

/// Whether nobody else can be on the node meanwhile.
fn has_whole_node(state: &State, job: &Job, granted: &Allocation, node_index: usize) -> bool {
    let partition = state.partition(&granted.partition).map(|p| &**p);
    let exclusive = view::is_exclusive(job, partition, state.config.parameters.select);
    let share = &granted.nodes[node_index];
    let cpus = state.nodes.get(&share.node).map(|node| node.config.cpus);
    exclusive || cpus.is_some_and(|cpus| share.sharers <= 1 && share.cpus.len() >= cpus)
}

/// How long the job may overrun its limit: as its partition says, else as the cluster does.
fn over_time_s(state: &State, partition: &str) -> u32 {
    let of_partition = state.partition(partition);
    let minutes = match of_partition.and_then(|p| p.over_time_limit) {
        Some(TimeLimit::Minutes(minutes)) => minutes,
        Some(TimeLimit::Unlimited) => u32::MAX,
        _ => state.config.parameters.over_time_limit_min,
    };
    minutes.saturating_mul(60)
}

fn refused(why: Refusal) -> ServerError {
    ServerError::Other(why.to_string())
}

/// The ids that the containers of this account's jobs have on nodes.
fn id_range(state: &State, uid: u32) -> IdRange {
    match state.id_ranges.of(uid) {
        Some(number) => IdRange::Number(number),
        None if state.id_ranges.is_full() => IdRange::Exhausted,
        // The job started before servers gave ranges.
        None => IdRange::OfUid,
    }
}

/// The launch of one node's part of an attempt; `None` if the attempt is over.
pub fn job_launch(
    shared: &Shared,
    id: AttemptId,
    node: &str,
) -> Result<Option<JobLaunch>, ServerError> {
    let Some(facts) = facts(shared, &shared.read(), id, node) else { return Ok(None) };
    let spec = facts.job.spec.clone();
    let launch = &spec.launch;
    let runs_here = match launch.kind {
        LaunchKind::Batch => facts.node_index == 0,
        LaunchKind::Task => true,
        LaunchKind::Interactive => false,
    };
    let script = match (&launch.script, runs_here) {
        (Some(blob), true) if launch.kind == LaunchKind::Task => {
            Some(with_addresses(&shared.blob_text(blob)?, &facts.task.addresses)?.into())
        }
        (Some(blob), true) => Some(shared.blob_bytes(blob)?.into()),
        _ => None,
    };
    let base = match &launch.environment {
        Some(blob) => shared.blob_text(blob)?,
        None => String::new(),
    };
    let base = if runs_here {
        references::fill_in(shared, &spec, &base, &launch.secret_variables).map_err(refused)?
    } else {
        references::leave_out(&base, &launch.secret_variables)
    };
    let workspace = match (&launch.workspace, runs_here) {
        (Some(blob), true) => {
            let mut brought = read_workspace(shared, blob)?;
            if let Some(repository) = &mut brought.repository {
                repository.folder_variable = Some(REPOSITORY_VARIABLE.to_owned());
            }
            Some(brought)
        }
        _ => None,
    };
    let environment = match launch.kind {
        LaunchKind::Task => {
            let repository = workspace.as_ref().and_then(|brought| brought.repository.as_ref());
            let repo_id = repository.and_then(|repository| repository.id.as_deref());
            task_environment(
                shared,
                &facts,
                &base,
                repo_id.unwrap_or(dstack::environment::NO_REPOSITORY),
            )
        }
        _ => slurm_environment(shared, &facts, &base),
    };
    let (stdout, stderr) = outputs(&facts);
    let volumes = volumes::of_node(&shared.read(), &facts, node)?;
    let id_range = id_range(&shared.read(), spec.owner.uid);
    let own_folder = workspace.as_ref().is_some_and(|brought| brought.own_folder);
    let in_pod = facts.in_pod;
    Ok(Some(JobLaunch {
        kind: launch.kind,
        user: UserIds {
            name: spec.owner.name.clone(),
            uid: spec.owner.uid,
            gid: spec.owner.gid,
            groups: spec.owner.groups.clone(),
        },
        share: facts.share.clone(),
        node_index: facts.node_index,
        nodes: facts.attempt().allocation.nodes.len() as u32,
        script,
        deferred: runs_here && is_deferred(&facts),
        arguments: launch.arguments.clone(),
        environment,
        files: if launch.kind == LaunchKind::Task {
            vec![mpi_hostfile(&facts.task)]
        } else {
            Vec::new()
        },
        internode_ssh: facts
            .run_attempt
            .map(|attempt| Box::new(internode_ssh::of_attempt(shared, attempt, &facts.task))),
        process_variables: process_variables(launch.kind, own_folder),
        folder_variables: folder_variables(launch.kind),
        work_dir: work_dir(&facts),
        stdin: launch.stdin.as_deref().unwrap_or("/dev/null").to_owned(),
        stdout,
        stderr,
        umask: launch.umask,
        rlimits: process_policy::of_job(&facts.rlimits, launch),
        nice: process_policy::niceness(facts.nice, &Environment::from_block(&base)),
        bound: facts.bind.on,
        name: spec.name.to_string(),
        end_limit: facts.attempt().end_limit,
        kill_wait_s: facts.kill_wait_s,
        login_environment: spec.launch.login_environment,
        over_time_s: facts.over_time_s,
        unkillable_s: facts.unkillable_s,
        signal: spec.signal,
        names: file_names(&facts.job),
        first_step: None,
        notices: notice::launch_notices(facts.job.id),
        sample_s: launch.sample_s,
        container: container(&facts).filter(|_| !in_pod),
        volumes,
        shared_memory: launch.shared_memory.filter(|_| !in_pod),
        own_network: launch.kind == LaunchKind::Task
            && !in_pod
            && facts.attempt().allocation.nodes.len() == 1
            && (!facts.has_whole_node || is_privileged(launch)),
        id_range,
        registry_auth: match launch.container {
            Some(_) if !in_pod => registry_auth::open(shared, &spec).map_err(refused)?,
            _ => None,
        },
        call: spec.call.clone(),
        git_credentials: if runs_here {
            git_credentials::open(shared, &spec).map_err(refused)?
        } else {
            None
        },
        workspace: workspace.map(Box::new),
        prolog_epilog: if facts.has_prolog_epilog {
            let node = facts.node_index as usize;
            environment::prolog_epilog::node_programs(&job_facts(&facts), node)
        } else {
            PrologEpilogEnvironment::default()
        },
    }))
}

/// The variables of a session inside the job, as one text with a NUL after each: the job's own, without the values of
/// secrets. Its step adds those of a step.
pub fn session_environment(
    shared: &Shared,
    id: AttemptId,
    node: &str,
) -> Result<String, ServerError> {
    let over = || ServerError::Other(format!("job {} is over", id.job));
    let facts = facts(shared, &shared.read(), id, node).ok_or_else(over)?;
    let launch = &facts.job.spec.launch;
    let base = match &launch.environment {
        Some(blob) => shared.blob_text(blob)?,
        None => String::new(),
    };
    if launch.kind != LaunchKind::Task {
        return Ok(base);
    }
    let workspace =
        launch.workspace.as_ref().map(|blob| read_workspace(shared, blob)).transpose()?;
    let repository = workspace.and_then(|brought| brought.repository).and_then(|one| one.id);
    let repo_id = repository.as_deref().unwrap_or(dstack::environment::NO_REPOSITORY);
    let entries = task_environment(shared, &facts, &base, repo_id);
    Ok(entries.into_iter().map(|entry| entry + "\0").collect())
}

/// The commands of a task with the addresses of the nodes that they refer to by rank.
fn with_addresses(script: &str, addresses: &[String]) -> Result<String, ServerError> {
    if !script.contains("${{") {
        return Ok(script.to_owned());
    }
    let unknown = |why: String| ServerError::Other(format!("the run's commands: {why}"));
    let pieces =
        interpolation::parse(script, Place::Command).map_err(|e| unknown(e.to_string()))?;
    let address = |reference: &Reference| match reference {
        Reference::NodeAddress { node, .. } => addresses.get(*node as usize).cloned(),
        _ => None,
    };
    interpolation::fill(&pieces, address).map_err(|reference| unknown(reference.text()))
}

fn read_workspace(shared: &Shared, blob: &BlobRef) -> Result<Workspace, ServerError> {
    let text = shared.blob_text(blob)?;
    serde_json::from_str(&text).map_err(|e| ServerError::Other(format!("the job's files: {e}")))
}

/// Root of a privileged container makes links and rules, for which it needs a network of its own.
fn is_privileged(launch: &Launch) -> bool {
    launch.container.as_ref().is_some_and(|container| container.privileged)
}

/// The job's container, with the site's image where it asks for Docker, and with the user that the site has tasks be in
/// theirs. A privileged one has its own root whatever the site says: its rights are over a user namespace.
fn container(facts: &Facts) -> Option<Box<Container>> {
    let own = facts.job.spec.launch.container.clone();
    let mut container = own.or_else(|| default_container(facts))?;
    if container.docker {
        container.image = Some(facts.docker_image.clone());
    }
    if facts.task_user == TaskUser::Job
        && container.user == ContainerUser::OfImage
        && !container.privileged
    {
        container.user = ContainerUser::JobUser;
    }
    Some(container)
}

/// The container of a task that names none and does not refuse one, where the site has an image for these: with the user's
/// own files.
fn default_container(facts: &Facts) -> Option<Box<Container>> {
    let launch = &facts.job.spec.launch;
    let image = facts.default_image.clone();
    let takes_one = launch.kind == LaunchKind::Task && !launch.without_container;
    image.filter(|_| takes_one).map(|image| {
        let shared_memory = launch.shared_memory;
        Box::new(Container { image: Some(image), shared_memory, ..Container::default() })
    })
}

/// Where the job's processes begin. A run with an image begins in its `working_dir`; the folder that it was submitted from is none
/// of the image's, and in a pod it begins in `/`.
fn work_dir(facts: &Facts) -> String {
    let launch = &facts.job.spec.launch;
    let container = launch.container.as_ref().filter(|of| of.isolated && facts.in_pod);
    match container {
        Some(container) => container.work_dir.clone().unwrap_or_else(|| "/".to_owned()),
        None => launch.work_dir.to_string(),
    }
}

fn outputs(facts: &Facts) -> (Output, Output) {
    let launch = &facts.job.spec.launch;
    if launch.kind == LaunchKind::Task {
        return (Output::Log, Output::SameAsStdout);
    }
    let usual = if facts.job.task.is_some() { DEFAULT_ARRAY_OUTPUT } else { DEFAULT_OUTPUT };
    // A requeued job goes on in the same file, as in Slurm, if it says so; else it starts anew.
    let append = launch.append_output || facts.append;
    let file = |pattern: &str| Output::File { pattern: pattern.to_string(), append };
    let stdout = file(launch.stdout.as_deref().unwrap_or(usual));
    let stderr = match &launch.stderr {
        Some(pattern) => file(pattern),
        None => Output::SameAsStdout,
    };
    (stdout, stderr)
}

fn file_names(job: &Job) -> FileNames {
    FileNames {
        job_id: job.id.0,
        array_job_id: job.task.map(|t| t.array.0),
        array_task_id: job.task.map(|t| t.index),
        user: job.spec.owner.name.clone(),
        job_name: job.spec.name.to_string(),
    }
}

/// Whether the script waits for other nodes of its job: for their prologs, or because they start first.
fn is_deferred(facts: &Facts) -> bool {
    let is_preparing = |facts: &Facts| has_preparing_nodes(facts.attempt());
    match facts.job.spec.launch.kind {
        LaunchKind::Batch => is_preparing(facts),
        LaunchKind::Task => {
            let nodes: Vec<&str> = facts.attempt().allocation.node_names().collect();
            let (_, then) = facts.job.spec.launch.startup_order.parts(&nodes, facts.job.het);
            let some_prepare = is_preparing(facts) || facts.het_components.iter().any(is_preparing);
            some_prepare && then.contains(&facts.share.node.as_str())
        }
        LaunchKind::Interactive => false,
    }
}

fn mpi_hostfile(task: &TaskFacts) -> LaunchFile {
    let (variable, name) = dstack::environment::MPI_HOSTFILE;
    let names: Vec<String> = task.nodes.iter().map(|node| node.name.clone()).collect();
    let distinct: HashSet<&String> = task.addresses.iter().filter(|a| !a.is_empty()).collect();
    // Nodes of one machine have one address; `ssh` knows them by their names.
    let hosts = if distinct.len() == names.len() { &task.addresses } else { &names };
    let text = dstack::environment::mpi_hostfile(hosts, &task.gpus);
    LaunchFile { name: name.into(), variable: variable.into(), text }
}

//! The variables of a job: of its batch script, of the shell of `salloc`, and those that its steps build on.

use super::gpu::{self, GpuView};
use super::{Environment, PRIO_PROCESS, compress_counts};
use model::allocation::{Allocation, NodeShare};
use model::amount::Bytes;
use model::array::IndexSet;
use model::container::Container;
use model::hostlist;
use model::id::JobId;
use model::partition::DefaultMemory;
use model::request::{GresRequest, Memory, Per, Request};
use model::run::JobSpec;
use model::time::Timestamp;
use model::topology::Topology;
use wire::order::ProcessVariable;

/// The facts of a job at its start.
#[derive(Debug, Clone, Copy)]
pub struct JobFacts<'a> {
    pub cluster: &'a str,
    pub job: JobId,
    pub array: Option<ArrayFacts>,
    pub spec: &'a JobSpec,
    pub allocation: &'a Allocation,
    /// The reservation that it runs in.
    pub reservation: Option<&'a str>,
    pub account: &'a str,
    pub qos: &'a str,
    pub restarts: u32,
    pub start: Option<Timestamp>,
    /// When its time limit ends it.
    pub end: Option<Timestamp>,
    /// The memory of a job that did not ask for any.
    pub default_memory: Option<DefaultMemory>,
    /// `SLURM_CONF`; `None` when there is no such file.
    pub conf_file: Option<&'a str>,
    /// The folder of the submission; `None` means the working directory.
    pub submit_dir: Option<&'a str>,
    pub gpus: GpuView,
    /// The network of the nodes.
    pub topology: Option<&'a Topology>,
}

/// One task of an array, with the indices of the whole array.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArrayFacts {
    pub array: JobId,
    pub task: u32,
    pub count: u64,
    pub min: u32,
    pub max: u32,
    pub step: u32,
}

impl ArrayFacts {
    /// `all` are the indices that were submitted.
    pub fn new(array: JobId, task: u32, all: &IndexSet) -> Self {
        let mut first_two = all.iter();
        let step = match (first_two.next(), first_two.next()) {
            (Some(first), Some(second)) => second - first,
            _ => 1,
        };
        let (min, max) = (all.first().unwrap_or(task), all.last().unwrap_or(task));
        Self { array, task, count: all.len(), min, max, step }
    }
}

/// The variables that are the same on every node. `salloc` sets them for its shell.
pub fn allocation(facts: &JobFacts<'_>) -> Environment {
    let mut env = Environment::new();
    let (spec, nodes) = (facts.spec, &facts.allocation.nodes);
    let node_list = hostlist::compress(facts.allocation.node_names());
    for name in ["SLURM_JOB_ID", "SLURM_JOBID"] {
        env.set(name, facts.job);
    }
    for name in ["SLURM_JOB_NODELIST", "SLURM_NODELIST"] {
        env.set(name, &node_list);
    }
    for name in ["SLURM_JOB_NUM_NODES", "SLURM_NNODES"] {
        env.set(name, nodes.len());
    }
    env.set("SLURM_CLUSTER_NAME", facts.cluster);
    env.set("SLURM_JOB_ACCOUNT", facts.account);
    env.set("SLURM_JOB_CPUS_PER_NODE", compress_counts(nodes.iter().map(|n| n.cpus.len())));
    env.set("SLURM_JOB_GID", spec.owner.gid);
    env.set("SLURM_JOB_NAME", &spec.name);
    env.set("SLURM_JOB_PARTITION", &facts.allocation.partition);
    env.set("SLURM_JOB_QOS", facts.qos);
    env.set("SLURM_JOB_UID", spec.owner.uid);
    env.set("SLURM_JOB_USER", &spec.owner.name);
    env.set("SLURM_NODE_ALIASES", "(null)");
    env.set("SLURM_SUBMIT_DIR", facts.submit_dir.unwrap_or(&spec.launch.work_dir));
    env.set("SLURM_SUBMIT_HOST", &spec.submit_host);
    env.set(
        "SLURM_TASKS_PER_NODE",
        compress_counts(nodes.iter().map(|n| tasks_on(spec.request(), n))),
    );
    if let Some(conf_file) = facts.conf_file {
        env.set("SLURM_CONF", conf_file);
    }
    if facts.restarts > 0 {
        env.set("SLURM_RESTART_COUNT", facts.restarts);
    }
    // Of Slurm since 23.02: scripts that stop in time read them.
    for (name, time) in [("SLURM_JOB_START_TIME", facts.start), ("SLURM_JOB_END_TIME", facts.end)] {
        if let Some(time) = time {
            env.set(name, time.secs());
        }
    }
    set_request(&mut env, facts, spec.request());
    if let Some(array) = &facts.array {
        set_array(&mut env, array);
    }
    env
}

/// The tasks on a node. Without a number of tasks in the request there is one for each CPU, or for each `-c` CPUs.
fn tasks_on(request: &Request, share: &NodeShare) -> u32 {
    let is_requested = request.tasks.is_some()
        || request.tasks_per_node.is_some()
        || request.tasks_per_gpu.is_some()
        || request.gres.iter().any(|gres| gres.per == Per::Task);
    let each = request.cpus_per_task.min.max(1);
    if is_requested { share.tasks } else { (share.cpus.len() / each).max(share.tasks) }
}

/// The variables of options that were given.
fn set_request(env: &mut Environment, facts: &JobFacts<'_>, request: &Request) {
    if request.tasks.is_some() || request.tasks_per_node.is_some() {
        for name in ["SLURM_NTASKS", "SLURM_NPROCS"] {
            env.set(name, facts.allocation.task_count());
        }
    }
    let given = [
        ("SLURM_NTASKS_PER_NODE", request.tasks_per_node),
        ("SLURM_NTASKS_PER_SOCKET", request.tasks_per_socket),
        ("SLURM_NTASKS_PER_CORE", request.tasks_per_core),
        ("SLURM_NTASKS_PER_GPU", request.tasks_per_gpu),
        ("SLURM_CPUS_PER_GPU", request.cpus_per_gpu),
        ("SLURM_THREADS_PER_CORE", request.threads_per_core),
        ("SLURM_CPUS_PER_TASK", request.cpus_per_task_given.then_some(request.cpus_per_task.min)),
        ("SLURM_OVERCOMMIT", request.overcommit.then_some(1)),
    ];
    for (name, value) in given {
        if let Some(value) = value {
            env.set(name, value);
        }
    }
    let gpus = [
        ("SLURM_GPUS", Per::Job),
        ("SLURM_GPUS_PER_TASK", Per::Task),
        ("SLURM_GPUS_PER_SOCKET", Per::Socket),
    ];
    for (name, per) in gpus {
        let asked: Vec<String> = request
            .gres
            .iter()
            .filter(|g| g.per == per && g.name == "gpu")
            .map(gpu_count)
            .collect();
        if !asked.is_empty() {
            env.set(name, asked.join(","));
        }
    }
    let memory = match &request.memory {
        Memory::PerNode(range) if range.is_exact() => Some(DefaultMemory::PerNode(range.min)),
        Memory::PerNode(_) => granted_memory(facts.allocation).map(DefaultMemory::PerNode),
        Memory::PerCpu(each) => Some(DefaultMemory::PerCpu(*each)),
        Memory::PerGpu(each) => Some(DefaultMemory::PerGpu(*each)),
        Memory::WholeNode => None,
        Memory::Default => facts.default_memory,
    };
    match memory {
        Some(DefaultMemory::PerNode(each)) => env.set("SLURM_MEM_PER_NODE", each.mib()),
        Some(DefaultMemory::PerCpu(each)) => env.set("SLURM_MEM_PER_CPU", each.mib()),
        Some(DefaultMemory::PerGpu(each)) => env.set("SLURM_MEM_PER_GPU", each.mib()),
        None => {}
    }
    if let Some(reservation) = facts.reservation {
        env.set("SLURM_JOB_RESERVATION", reservation);
    }
    set_container(env, facts.spec.launch.container.as_deref());
}

/// What a job that asked for a range of memory has on each of its nodes. `srun` takes the variable for what a step asks for: the
/// lower end would cut each step short. `None` where nodes differ, or memory is not counted: steps have there what the job has.
fn granted_memory(allocation: &Allocation) -> Option<Bytes> {
    let first = allocation.nodes.first()?.memory;
    let is_same = allocation.nodes.iter().all(|share| share.memory == first);
    // Rounded down, since a step that asks for more than its job has is refused.
    let granted = Bytes::from_mib(first.mib_floor());
    (is_same && granted > Bytes(0)).then_some(granted)
}

/// The variable of the image, as it was named.
pub(super) const CONTAINER: &str = "SLURM_CONTAINER";

/// A step that names a container of its own is not told its job's image.
pub(super) fn set_container(env: &mut Environment, container: Option<&Container>) {
    let Some(container) = container else { return };
    env.remove(CONTAINER);
    if let Some(image) = container.image_name() {
        env.set(CONTAINER, image);
    }
}

/// `2`, `h100:2`.
fn gpu_count(gres: &GresRequest) -> String {
    match gres.kinds.as_slice() {
        [] => gres.count.min.to_string(),
        kinds => format!("{}:{}", kinds.join("|"), gres.count.min),
    }
}

fn set_array(env: &mut Environment, array: &ArrayFacts) {
    env.set("SLURM_ARRAY_JOB_ID", array.array);
    env.set("SLURM_ARRAY_TASK_ID", array.task);
    env.set("SLURM_ARRAY_TASK_COUNT", array.count);
    env.set("SLURM_ARRAY_TASK_MIN", array.min);
    env.set("SLURM_ARRAY_TASK_MAX", array.max);
    env.set("SLURM_ARRAY_TASK_STEP", array.step);
}

/// The variables that differ from node to node.
pub(super) fn set_node(
    env: &mut Environment,
    share: &NodeShare,
    node_index: usize,
    topology: Option<&Topology>,
) {
    env.set("SLURMD_NODENAME", &share.node);
    env.set("SLURM_CPUS_ON_NODE", share.cpus.len());
    env.set("SLURM_NODEID", node_index);
    env.set(PRIO_PROCESS, 0);
    let unknown = || (share.node.clone(), "node".to_owned());
    let (address, pattern) = topology.map_or_else(unknown, |known| known.address(&share.node));
    env.set("SLURM_TOPOLOGY_ADDR", address);
    env.set("SLURM_TOPOLOGY_ADDR_PATTERN", pattern);
}

/// Variables that only some jobs have. A job that was submitted inside another one does not inherit them.
const OPTIONAL_VARIABLES: [&str; 23] = [
    "SLURM_NTASKS",
    "SLURM_NPROCS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_THREADS_PER_CORE",
    "SLURM_OVERCOMMIT",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_TASK",
    "SLURM_GPUS_PER_SOCKET",
    "SLURM_GPUS_ON_NODE",
    "SLURM_JOB_GPUS",
    "SLURM_MEM_PER_NODE",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_JOB_RESERVATION",
    CONTAINER,
    "SLURM_RESTART_COUNT",
    "SLURM_JOB_START_TIME",
    "SLURM_JOB_END_TIME",
];

fn is_of_another_job(name: &str) -> bool {
    OPTIONAL_VARIABLES.contains(&name)
        || name.starts_with("SLURM_ARRAY_")
        || name.starts_with("SLURM_STEP_")
        || gpu::VISIBLE_DEVICES.contains(&name)
        || super::het_job::is_het_variable(name)
}

/// The batch script's environment on one node: the job's variables over those that the user exported.
pub fn batch(facts: &JobFacts<'_>, node_index: usize, exported: Environment) -> Environment {
    let mut env = exported;
    // Outside a job, device variables are the user's own and stay.
    if env.get("SLURM_JOB_ID").is_some() {
        env.retain(|name| !is_of_another_job(name));
    }
    env.extend(allocation(facts));
    env.set("ENVIRONMENT", "BATCH");
    env.set("SLURM_GTIDS", 0);
    env.set("SLURM_LOCALID", 0);
    env.set("SLURM_PROCID", 0);
    env.set_default("TMPDIR", "/tmp");
    for name in ["USER", "LOGNAME"] {
        env.set_default(name, &facts.spec.owner.name);
    }
    if let Some(share) = facts.allocation.nodes.get(node_index) {
        env.set("HOSTNAME", &share.node);
        set_node(&mut env, share, node_index, facts.topology);
        gpu::set(&mut env, share, facts.gpus, "SLURM_JOB_GPUS");
    }
    env
}

/// The variables of the batch script that only the node knows.
pub fn batch_process_variables() -> Vec<(String, ProcessVariable)> {
    vec![
        ("SLURM_TASK_PID".to_owned(), ProcessVariable::Pid),
        ("SLURM_TMPDIR".to_owned(), ProcessVariable::Scratch),
    ]
}

#[cfg(test)]
#[path = "job_tests.rs"]
mod tests;

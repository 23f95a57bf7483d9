//! The variables of a step's tasks: what `srun` adds to its own environment on each node.

use super::cpu_freq::set_cpu_frequency;
use super::gpu::{self, DeviceNames, GpuView};
use super::gpu_bind::{self, TaskGpus};
use super::job::{self, JobFacts};
use super::mem_bind::mem_bind_variables;
use super::{Environment, compress_counts};
use model::allocation::NodeShare;
use model::container::Container;
use model::hostlist;
use model::request::Memory;
use model::step::TaskDistribution;
use wire::order::{ProcessVariable, TaskOrder};
use wire::step::{StepLaunch, StepLayout};

/// The variables that are set over the environment of the launch, on the step's node number `node_index`. `share` is what
/// the step has on that node.
pub fn variables(
    facts: &JobFacts<'_>,
    layout: &StepLayout,
    launch: &StepLaunch,
    node_index: usize,
    share: Option<&NodeShare>,
) -> Environment {
    let own = launch.shape.own;
    let mut env = job::allocation(facts);
    if own {
        remove_defaults(&mut env, facts);
    } else {
        let cpus_per_node = env.get("SLURM_JOB_CPUS_PER_NODE").unwrap_or_default().to_owned();
        env.set("SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0", cpus_per_node);
    }
    set_layout(&mut env, layout);
    set_distribution(&mut env, layout, launch);
    env.set("SLURM_UMASK", format!("{:04o}", launch.umask));
    set_launcher(&mut env, launch);
    if let Some(cpus) = launch.cpus_per_task {
        env.set("SLURM_CPUS_PER_TASK", cpus);
    }
    for (name, value) in launch.mem_bind.iter().flat_map(mem_bind_variables) {
        env.set(name, value);
    }
    set_cpu_frequency(&mut env, launch.cpu_frequency.as_ref());
    job::set_container(&mut env, own_image(launch));
    let node = layout.nodes.get(node_index).map(|node| node.node.as_str());
    let of_job = node.and_then(|node| facts.allocation.share(node));
    if let Some(of_job) = of_job {
        let share = share.unwrap_or(of_job);
        job::set_node(&mut env, share, node_index, facts.topology);
        if !own {
            gpu::set(&mut env, of_job, facts.gpus, "SLURM_JOB_GPUS");
        }
        env.retain(|name| !gpu::is_step_gpu_variable(name));
        gpu::set(&mut env, share, facts.gpus, "SLURM_STEP_GPUS");
    }
    env
}

/// The step's own container, unless it is in its job's image.
fn own_image(launch: &StepLaunch) -> Option<&Container> {
    launch.container.as_deref().filter(|own| !own.has_image_of_job())
}

/// The tasks of an `srun` that made its own allocation are told only what was asked for.
fn remove_defaults(env: &mut Environment, facts: &JobFacts<'_>) {
    env.remove("SLURM_NODE_ALIASES");
    if facts.spec.request().memory == Memory::Default {
        for name in ["SLURM_MEM_PER_CPU", "SLURM_MEM_PER_NODE", "SLURM_MEM_PER_GPU"] {
            env.remove(name);
        }
    }
}

/// The launch as one node is sent it, without the programs of other tasks. A step that has none of its job's GPUs does not
/// inherit the variables that name them, and one outside of its job's container not the one that names its image.
pub fn launch_on(
    launch: &StepLaunch,
    of_job: Option<&NodeShare>,
    share: Option<&NodeShare>,
) -> StepLaunch {
    let mut launch = StepLaunch { programs: Vec::new(), ..launch.clone() };
    let has_gpus = |share: &NodeShare| share.gres_count("gpu") > 0;
    let could = launch.shape.gres.is_some() || of_job.is_some_and(has_gpus);
    let without_gpus = could && share.is_some_and(|share| !has_gpus(share));
    let without_image = own_image(&launch).is_some_and(|own| own.image_name().is_none());
    if without_gpus || without_image {
        let mut environment = Environment::from_block(&launch.environment);
        environment.retain(|name| {
            let of_gpus = without_gpus && gpu::is_step_gpu_variable(name);
            let of_image = without_image && name == job::CONTAINER;
            !(of_gpus || of_image)
        });
        launch.environment = environment.to_block();
    }
    launch
}

/// What differs between the tasks on a node: a program of `--multi-prog`, GPUs of `--gpus-per-task` and `--gpu-bind`.
/// `near` are the GPUs close to the step's CPUs.
pub fn task_orders(
    launch: &StepLaunch,
    share: Option<&NodeShare>,
    ranks: &[u32],
    near: &[u32],
    view: GpuView,
    names: &DeviceNames,
) -> Vec<TaskOrder> {
    let mut gpus = gpu_bind::task_gpus(launch, share, ranks.len(), near, view);
    if launch.programs.is_empty() && gpus.is_empty() {
        return Vec::new();
    }
    gpus.resize(ranks.len(), TaskGpus::default());
    let task = |(rank, mut gpus): (&u32, TaskGpus)| {
        gpu::use_device_names_of_task(&mut gpus.environment, names);
        TaskOrder {
            argv: launch.programs.get(*rank as usize).cloned().unwrap_or_default(),
            environment: gpus.environment,
            lines: gpus.lines,
        }
    };
    ranks.iter().zip(gpus).map(task).collect()
}

fn set_distribution(env: &mut Environment, layout: &StepLayout, launch: &StepLaunch) {
    let tasks: usize = layout.nodes.iter().map(|node| node.tasks.len()).sum();
    let usual = if tasks <= layout.nodes.len() { "cyclic" } else { "block" };
    match &launch.distribution {
        Some(text) => env.set("SLURM_DISTRIBUTION", text),
        None if !launch.shape.own => env.set("SLURM_DISTRIBUTION", usual),
        None => {}
    }
    if let Some(TaskDistribution::Plane(size)) = launch.shape.distribution {
        env.set("SLURM_DIST_PLANESIZE", size);
    }
}

fn set_layout(env: &mut Environment, layout: &StepLayout) {
    let tasks: usize = layout.nodes.iter().map(|node| node.tasks.len()).sum();
    let node_list = hostlist::compress(layout.nodes.iter().map(|node| &node.node));
    let per_node = compress_counts(layout.nodes.iter().map(|node| node.tasks.len() as u32));
    for name in ["SLURM_STEP_ID", "SLURM_STEPID"] {
        env.set(name, layout.step);
    }
    for name in ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"] {
        env.set(name, tasks);
    }
    for name in ["SLURM_NNODES", "SLURM_STEP_NUM_NODES"] {
        env.set(name, layout.nodes.len());
    }
    for name in ["SLURM_NODELIST", "SLURM_STEP_NODELIST"] {
        env.set(name, &node_list);
    }
    for name in ["SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"] {
        env.set(name, &per_node);
    }
}

/// The address on which the `srun` of the step listens.
fn set_launcher(env: &mut Environment, launch: &StepLaunch) {
    // An `srun` of a build without encryption has only the other addresses.
    let address = launch.encrypted_listen.first().or(launch.listen.first());
    let Some((host, port)) = address.and_then(|address| address.rsplit_once(':')) else {
        return;
    };
    let host = host.trim_start_matches('[').trim_end_matches(']');
    for name in ["SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"] {
        env.set(name, host);
    }
    for name in ["SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT"] {
        env.set(name, port);
    }
}

/// The variables that differ from task to task. The node fills them in.
pub fn process_variables() -> Vec<(String, ProcessVariable)> {
    [
        ("SLURM_PROCID", ProcessVariable::Rank),
        ("SLURM_LOCALID", ProcessVariable::LocalRank),
        ("SLURM_TASK_PID", ProcessVariable::Pid),
        ("SLURM_GTIDS", ProcessVariable::RanksHere),
        ("SLURM_CPU_BIND", ProcessVariable::CpuBind),
        ("SLURM_CPU_BIND_VERBOSE", ProcessVariable::CpuBindVerbose),
        ("SLURM_CPU_BIND_TYPE", ProcessVariable::CpuBindType),
        ("SLURM_CPU_BIND_LIST", ProcessVariable::CpuBindList),
        ("SLURM_TMPDIR", ProcessVariable::Scratch),
    ]
    .map(|(name, variable)| (name.to_owned(), variable))
    .to_vec()
}

//! The variables of a step's tasks: what `srun` adds to its own environment on each node.

use super::job::{self, JobFacts};
use super::{Environment, compress_counts};
use model::hostlist;
use wire::order::ProcessVariable;
use wire::step::{StepLaunch, StepLayout};

/// What is set over the environment that the launch carries, on the step's node number `node_index`.
pub fn variables(
    facts: &JobFacts<'_>,
    layout: &StepLayout,
    launch: &StepLaunch,
    node_index: usize,
) -> Environment {
    let mut env = job::allocation(facts);
    let cpus_per_node = env.get("SLURM_JOB_CPUS_PER_NODE").unwrap_or_default().to_owned();
    env.set("SLURM_JOB_CPUS_PER_NODE_PACK_GROUP_0", cpus_per_node);
    set_layout(&mut env, layout);
    env.set("SLURM_UMASK", format!("{:04o}", launch.umask));
    set_launcher(&mut env, launch);
    if let Some(cpus) = launch.cpus_per_task {
        env.set("SLURM_CPUS_PER_TASK", cpus);
    }
    let node = layout.nodes.get(node_index).map(|node| node.node.as_str());
    if let Some(share) = node.and_then(|node| facts.allocation.share(node)) {
        job::set_node(&mut env, share, node_index);
        job::set_gpus(&mut env, share, facts.numbering, "SLURM_JOB_GPUS");
        job::set_gpus(&mut env, share, facts.numbering, "SLURM_STEP_GPUS");
    }
    env
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
    let one_each = tasks <= layout.nodes.len();
    env.set("SLURM_DISTRIBUTION", if one_each { "cyclic" } else { "block" });
}

/// Where the `srun` that waits for the step listens.
fn set_launcher(env: &mut Environment, launch: &StepLaunch) {
    let Some((host, port)) = launch.listen.first().and_then(|address| address.rsplit_once(':'))
    else {
        return;
    };
    for name in ["SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST"] {
        env.set(name, host);
    }
    for name in ["SLURM_SRUN_COMM_PORT", "SLURM_STEP_LAUNCHER_PORT"] {
        env.set(name, port);
    }
}

/// What differs from task to task; the node fills it in.
pub fn process_variables() -> Vec<(String, ProcessVariable)> {
    [
        ("SLURM_PROCID", ProcessVariable::Rank),
        ("SLURM_LOCALID", ProcessVariable::LocalRank),
        ("SLURM_TASK_PID", ProcessVariable::Pid),
        ("SLURM_GTIDS", ProcessVariable::RanksHere),
    ]
    .map(|(name, variable)| (name.to_owned(), variable))
    .to_vec()
}

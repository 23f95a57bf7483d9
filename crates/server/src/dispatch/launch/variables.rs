//! The variables of a job's script and of a task's commands, in the job's dialect.

use super::{Facts, process_policy};
use crate::shared::Shared;
use model::run::LaunchKind;
use slurm::environment::gpu;
use slurm::environment::job::{ArrayFacts, JobFacts};
use slurm::environment::{self, Environment};
use wire::order::ProcessVariable;

/// The variable of a task that names the folder of its repository: the one that it starts in, where it has none.
pub(super) const REPOSITORY_VARIABLE: &str = "DSTACK_REPO_DIR";
/// Where a worker finds the router of its service.
const ROUTER_VARIABLE: &str = "DSTACK_ROUTER_INTERNAL_IP";
/// Variables of a task that name the folder that it starts in.
const FOLDER_VARIABLES: [&str; 2] = ["DSTACK_WORKING_DIR", REPOSITORY_VARIABLE];

pub(super) fn process_variables(
    kind: LaunchKind,
    own_folder: bool,
) -> Vec<(String, ProcessVariable)> {
    let scratch = |name: &&str| ((*name).to_owned(), ProcessVariable::Scratch);
    match kind {
        LaunchKind::Task => {
            let of_own_folder = FOLDER_VARIABLES.iter().filter(|_| own_folder);
            ["SLURM_TMPDIR"].iter().chain(of_own_folder).map(scratch).collect()
        }
        _ => environment::job::batch_process_variables(),
    }
}

pub(super) fn folder_variables(kind: LaunchKind) -> Vec<String> {
    match kind {
        LaunchKind::Task => FOLDER_VARIABLES.map(str::to_owned).to_vec(),
        LaunchKind::Batch | LaunchKind::Interactive => Vec::new(),
    }
}

/// Sets where the job's own commands find the server: the state folder with its socket.
pub(super) fn set_state_folder(shared: &Shared, environment: &mut Environment) {
    if let Some(dir) = &shared.setup.client_state {
        environment.set("SLUICE_STATE", dir);
    }
}

pub(super) fn job_facts<'a>(facts: &'a Facts) -> JobFacts<'a> {
    JobFacts {
        cluster: &facts.cluster,
        job: facts.job.id,
        array: facts.job.task.map(|task| match &facts.tasks {
            Some(all) => ArrayFacts::new(task.array, task.index, all),
            None => ArrayFacts::new(task.array, task.index, &Default::default()),
        }),
        spec: &facts.job.spec,
        allocation: &facts.attempt().allocation,
        reservation: facts.attempt().reservation.as_deref(),
        account: &facts.job.account,
        qos: &facts.qos,
        restarts: facts.job.restarts(),
        start: Some(facts.attempt().start),
        end: facts.attempt().end_limit,
        default_memory: facts.default_memory,
        conf_file: None,
        submit_dir: None,
        gpus: facts.gpus,
        topology: facts.topology.as_deref(),
    }
}

pub(super) fn slurm_environment(shared: &Shared, facts: &Facts, base: &str) -> Vec<String> {
    let exported = Environment::from_block(base);
    let mut environment =
        environment::job::batch(&job_facts(facts), facts.node_index as usize, exported);
    if !facts.het_components.is_empty() {
        let of_each =
            facts.het_components.iter().map(|one| environment::job::allocation(&job_facts(one)));
        environment::het_job::set_components(&mut environment, &of_each.collect::<Vec<_>>());
    }
    set_state_folder(shared, &mut environment);
    process_policy::export_niceness(facts.nice, Environment::from_block(base), &mut environment);
    gpu::use_device_names(&mut environment, &facts.gpu_names);
    environment.to_entries()
}

pub(super) fn task_environment(
    shared: &Shared,
    facts: &Facts,
    base: &str,
    repo_id: &str,
) -> Vec<String> {
    let task = &facts.task;
    let run = facts.job.run.to_string();
    let node = dstack::environment::TaskNode {
        run_id: &run,
        run_name: &facts.job.spec.name,
        job_id: &run,
        working_dir: &facts.job.spec.launch.work_dir,
        repo_id,
        node_ips: &task.addresses,
        rank: task.first_rank + facts.node_index,
        gpus: &task.gpus,
    };
    let mut variables = Environment::from_block(base);
    for (name, value) in node.variables().into_iter().filter(|(_, value)| !value.is_empty()) {
        variables.set(name, value);
    }
    if let Some(address) = &facts.router_address {
        variables.set(ROUTER_VARIABLE, address);
    }
    for (name, value) in dstack::environment::MPI_VARIABLES {
        if variables.get(name).is_none() {
            variables.set(name, value);
        }
    }
    // The device variables are the devices' own, whatever the language; so is the job's number,
    // by which `srun` and `sbatch` in the commands find their way.
    let slurm =
        environment::job::batch(&job_facts(facts), facts.node_index as usize, Environment::new());
    for (name, value) in slurm.iter().filter(|(name, _)| !is_batch_only(name)) {
        variables.set(name, value);
    }
    gpu::use_device_names(&mut variables, &facts.gpu_names);
    set_state_folder(shared, &mut variables);
    variables.to_entries()
}

/// Variables of a batch script that would be wrong for a task.
fn is_batch_only(name: &str) -> bool {
    matches!(name, "ENVIRONMENT" | "TMPDIR" | "HOSTNAME")
}

//! The environment of prolog and epilog programs: facts of the job, and nothing that the user set.

use super::Environment;
use super::gpu;
use super::job::{self, JobFacts};
use model::run::ExitStatus;
use model::search_path::SYSTEM_PATH;
use wire::order::{PrologEpilogEnvironment, PrologEpilogVariable};

/// The variables of the job that prolog and epilog have too.
const JOB_VARIABLES: [&str; 22] = [
    "SLURM_CLUSTER_NAME",
    "SLURM_CONF",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_GID",
    "SLURM_JOB_ID",
    "SLURM_JOBID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_RESERVATION",
    "SLURM_JOB_UID",
    "SLURM_JOB_USER",
    "SLURM_NODELIST",
    "SLURM_RESTART_COUNT",
    "SLURM_ARRAY_JOB_ID",
    "SLURM_ARRAY_TASK_ID",
    "SLURM_ARRAY_TASK_COUNT",
    "SLURM_ARRAY_TASK_MAX",
    "SLURM_ARRAY_TASK_MIN",
    "SLURM_ARRAY_TASK_STEP",
];

fn job_variables(facts: &JobFacts<'_>) -> Environment {
    let mut env = job::allocation(facts);
    env.retain(|name| JOB_VARIABLES.contains(&name));
    env.set("PATH", SYSTEM_PATH);
    env.set("SLURM_UID", facts.spec.owner.uid);
    env.set("SLURM_JOB_NTASKS", facts.allocation.task_count());
    env.set("SLURM_JOB_RESTART_COUNT", facts.restarts);
    env.set("SLURM_JOB_WORK_DIR", &facts.spec.launch.work_dir);
    if let Some(comment) = &facts.spec.comment {
        env.set("SLURM_JOB_COMMENT", comment);
    }
    if let Some(constraint) = &facts.spec.request().constraint {
        env.set("SLURM_JOB_CONSTRAINTS", constraint);
    }
    env
}

/// The environment of `PrologSlurmctld`, and with `ended`, the exit of the job and of its steps, of `EpilogSlurmctld`.
pub fn controller_variables(
    facts: &JobFacts<'_>,
    ended: Option<(ExitStatus, ExitStatus)>,
) -> Environment {
    let mut env = job_variables(facts);
    match ended {
        None => env.set("SLURM_SCRIPT_CONTEXT", "prolog_slurmctld"),
        Some((exit, derived)) => {
            let status = if exit.signal > 0 { exit.signal } else { exit.code << 8 };
            env.set("SLURM_SCRIPT_CONTEXT", "epilog_slurmctld");
            env.set("SLURM_JOB_EXIT_CODE", status);
            env.set("SLURM_JOB_EXIT_CODE2", exit);
            env.set("SLURM_JOB_DERIVED_EC", derived.code);
        }
    }
    env
}

/// The facts of the job in the environment of `MailProg`.
pub fn mail_variables(facts: &JobFacts<'_>) -> Environment {
    job_variables(facts)
}

/// The environment of `Prolog` and `Epilog` on a node.
pub fn node_programs(facts: &JobFacts<'_>, node_index: usize) -> PrologEpilogEnvironment {
    let mut env = job_variables(facts);
    if let Some(share) = facts.allocation.nodes.get(node_index) {
        env.set("SLURMD_NODENAME", &share.node);
        let gpus = gpu::gpu_indices(share);
        if !gpus.is_empty() {
            env.set("SLURM_JOB_GPUS", gpu::list(&gpus));
        }
    }
    let context = PrologEpilogVariable::Context {
        before: "prolog_slurmd".to_owned(),
        after: "epilog_slurmd".to_owned(),
    };
    PrologEpilogEnvironment {
        environment: env.to_entries(),
        variables: vec![
            ("SLURM_SCRIPT_CONTEXT".to_owned(), context),
            ("SLURM_JOB_EXIT_CODE".to_owned(), PrologEpilogVariable::WaitStatus),
            ("SLURM_JOB_EXIT_CODE2".to_owned(), PrologEpilogVariable::Exit),
            ("SLURM_JOB_MOUNTPOINT_SRC".to_owned(), PrologEpilogVariable::PrivateFolder),
        ],
    }
}

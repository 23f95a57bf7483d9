//! What Slurm's prolog and epilog find in their environment: the job's facts, and nothing of the user's.

use super::Environment;
use super::job::{self, JobFacts};
use model::run::ExitStatus;
use wire::order::{PrologEpilogEnvironment, PrologEpilogVariable};

/// The variables that the programs of a node have of those that the job has.
const OF_JOB: [&str; 22] = [
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

/// A path that has nothing of the user's in it.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn of_job(facts: &JobFacts<'_>) -> Environment {
    let mut env = job::allocation(facts);
    env.retain(|name| OF_JOB.contains(&name));
    env.set("PATH", PATH);
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

/// On the server's machine; with the job's exit and its steps' after it has ended.
pub fn of_controller(facts: &JobFacts<'_>, ended: Option<(ExitStatus, ExitStatus)>) -> Environment {
    let mut env = of_job(facts);
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

pub fn of_node(facts: &JobFacts<'_>, node_index: usize) -> PrologEpilogEnvironment {
    let mut env = of_job(facts);
    if let Some(share) = facts.allocation.nodes.get(node_index) {
        env.set("SLURMD_NODENAME", &share.node);
        let of_gpus = share.gres.iter().filter(|gres| gres.name == "gpu");
        let mut gpus: Vec<u32> = of_gpus.flat_map(|gres| gres.indices.iter().copied()).collect();
        gpus.sort_unstable();
        if !gpus.is_empty() {
            let list: Vec<String> = gpus.iter().map(u32::to_string).collect();
            env.set("SLURM_JOB_GPUS", list.join(","));
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

//! The variables of a heterogeneous job: those of each component, with its number behind the name (`…_HET_GROUP_1`).

use super::Environment;

/// The variables that are repeated for each component that has them.
const COMPONENT_VARIABLES: [&str; 28] = [
    "SLURM_CPUS_PER_GPU",
    "SLURM_CPUS_PER_TASK",
    "SLURM_GPUS",
    "SLURM_GPUS_PER_TASK",
    "SLURM_JOBID",
    "SLURM_JOB_ACCOUNT",
    "SLURM_JOB_CPUS_PER_NODE",
    "SLURM_JOB_ID",
    "SLURM_JOB_NAME",
    "SLURM_JOB_NODELIST",
    "SLURM_JOB_NUM_NODES",
    "SLURM_JOB_PARTITION",
    "SLURM_JOB_QOS",
    "SLURM_JOB_RESERVATION",
    "SLURM_MEM_PER_CPU",
    "SLURM_MEM_PER_GPU",
    "SLURM_MEM_PER_NODE",
    "SLURM_NNODES",
    "SLURM_NODELIST",
    "SLURM_NODE_ALIASES",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_CORE",
    "SLURM_NTASKS_PER_GPU",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_NTASKS_PER_SOCKET",
    "SLURM_TASKS_PER_NODE",
    "SLURM_THREADS_PER_CORE",
];

const SIZE: &str = "SLURM_HET_SIZE";

/// Adds the variables of all components, in their order, to the environment of the first.
pub fn set_components(env: &mut Environment, components: &[Environment]) {
    env.set(SIZE, components.len());
    for (at, own) in components.iter().enumerate() {
        for name in COMPONENT_VARIABLES {
            if let Some(value) = own.get(name) {
                env.set(&group_variable(name, at as u32), value);
            }
        }
    }
}

/// Sets the id by which a task finds the whole job: as in Slurm that of the first component, in whichever the task runs.
pub fn set_job_id(env: &mut Environment, first: impl ToString) {
    let first = first.to_string();
    for name in ["SLURM_JOB_ID", "SLURM_JOBID"] {
        env.set(name, &first);
    }
}

fn group_variable(name: &str, at: u32) -> String {
    format!("{name}_HET_GROUP_{at}")
}

/// The number of components of the job that this process runs in; `None` outside a heterogeneous job.
pub fn size(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    variable(SIZE)?.parse().ok()
}

/// The value of a variable in component `at`.
pub fn component_variable(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
    at: u32,
) -> Option<String> {
    if COMPONENT_VARIABLES.contains(&name) {
        variable(&group_variable(name, at))
    } else {
        variable(name)
    }
}

/// Whether only a heterogeneous job has this variable. A job that is submitted inside one does not inherit it.
pub(super) fn is_het_variable(name: &str) -> bool {
    name == SIZE || name.contains("_HET_GROUP_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_reads_its_own_variables_and_shares_the_others() {
        let of = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<Environment>();
        let mut env = of(&[("SLURM_JOB_ID", "5"), ("SLURM_NTASKS", "4"), ("HOME", "/root")]);
        let first = env.clone();
        set_components(&mut env, &[first, of(&[("SLURM_JOB_ID", "6")])]);
        assert_eq!(env.get("SLURM_JOB_ID_HET_GROUP_0"), Some("5"));
        let get = |name: &str| env.get(name).map(str::to_owned);
        assert_eq!(size(get), Some(2));
        assert_eq!(component_variable(get, "SLURM_JOB_ID", 1).as_deref(), Some("6"));
        assert_eq!(component_variable(get, "SLURM_NTASKS", 0).as_deref(), Some("4"));
        assert_eq!(
            component_variable(get, "SLURM_NTASKS", 1),
            None,
            "the first one's is not its own"
        );
        assert_eq!(component_variable(get, "HOME", 1).as_deref(), Some("/root"));
        env.retain(|name| !is_het_variable(name));
        assert_eq!(size(|name| env.get(name).map(str::to_owned)), None);
    }
}

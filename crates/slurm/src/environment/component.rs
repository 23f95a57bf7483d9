//! The variables of a heterogeneous job: each component's own, with its place behind their names.

use super::Environment;

/// Variables that each component has, where it has them.
const OF_EACH: [&str; 28] = [
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

/// Adds what the components have, in their order, to the environment of the first.
pub fn set_components(env: &mut Environment, components: &[Environment]) {
    env.set(SIZE, components.len());
    for (at, own) in components.iter().enumerate() {
        for name in OF_EACH {
            if let Some(value) = own.get(name) {
                env.set(&of_group(name, at as u32), value);
            }
        }
    }
}

/// As in Slurm a task finds the whole job under its number: that of the first component, whichever it is of.
pub fn name_job(env: &mut Environment, first: impl ToString) {
    let first = first.to_string();
    for name in ["SLURM_JOB_ID", "SLURM_JOBID"] {
        env.set(name, &first);
    }
}

fn of_group(name: &str, at: u32) -> String {
    format!("{name}_HET_GROUP_{at}")
}

/// How many components the job has within which this is called; none where it is no heterogeneous one.
pub fn size(variable: impl Fn(&str) -> Option<String>) -> Option<u32> {
    variable(SIZE)?.parse().ok()
}

/// A variable as component `at` has it.
pub fn of_component(
    variable: impl Fn(&str) -> Option<String>,
    name: &str,
    at: u32,
) -> Option<String> {
    match OF_EACH.contains(&name) {
        true => variable(&of_group(name, at)),
        false => variable(name),
    }
}

/// Whether a variable is one of a heterogeneous job's: that of a job around is not its own.
pub(super) fn is_of_components(name: &str) -> bool {
    name == SIZE || name.contains("_HET_GROUP_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_has_its_own_of_what_differs_and_the_first_ones_of_the_rest() {
        let of = |pairs: &[(&str, &str)]| pairs.iter().copied().collect::<Environment>();
        let mut env = of(&[("SLURM_JOB_ID", "5"), ("SLURM_NTASKS", "4"), ("HOME", "/root")]);
        let first = env.clone();
        set_components(&mut env, &[first, of(&[("SLURM_JOB_ID", "6")])]);
        assert_eq!(env.get("SLURM_JOB_ID_HET_GROUP_0"), Some("5"));
        let get = |name: &str| env.get(name).map(str::to_owned);
        assert_eq!(size(get), Some(2));
        assert_eq!(of_component(get, "SLURM_JOB_ID", 1).as_deref(), Some("6"));
        assert_eq!(of_component(get, "SLURM_NTASKS", 0).as_deref(), Some("4"));
        assert_eq!(of_component(get, "SLURM_NTASKS", 1), None, "the first one's is not its own");
        assert_eq!(of_component(get, "HOME", 1).as_deref(), Some("/root"));
        env.retain(|name| !is_of_components(name));
        assert_eq!(size(|name| env.get(name).map(str::to_owned)), None);
    }
}

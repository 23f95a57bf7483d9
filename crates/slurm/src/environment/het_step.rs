//! The variables of a heterogeneous step: one `srun` runs a step in each of several components, and its tasks and nodes are
//! counted over all of them.

use super::het_job::{set_components, set_job_id};
use super::{Environment, compress_counts};
use model::hostlist;

/// The most nodes that a count in short form stands for; more is nonsense.
const NODES_MAX: u32 = 1 << 16;

/// The step in one component: what the component's job has, and where the tasks are.
#[derive(Debug, Clone, Copy)]
pub struct HetStepComponent<'a> {
    /// The variables of the job's allocation.
    pub job: &'a Environment,
    pub job_nodes: &'a [String],
    /// The step's nodes in order, with the ranks of the tasks there.
    pub nodes: &'a [(String, Vec<u32>)],
}

impl HetStepComponent<'_> {
    pub fn tasks(&self) -> u32 {
        self.nodes.iter().map(|(_, tasks)| tasks.len() as u32).sum()
    }
}

/// The variables that are set over those of each step. `steps` are the components that the step runs in, `job` all
/// components of the job. The number of a node differs from node to node and is not among them.
pub fn variables(steps: &[HetStepComponent<'_>], job: &[Environment]) -> Environment {
    let mut env = Environment::new();
    if job.len() > 1 {
        set_jobs(&mut env, steps, job);
    }
    let nodes = || steps.iter().flat_map(|step| step.nodes);
    let tasks: u32 = steps.iter().map(HetStepComponent::tasks).sum();
    for name in ["SLURM_NTASKS", "SLURM_NPROCS", "SLURM_STEP_NUM_TASKS"] {
        env.set(name, tasks);
    }
    for name in ["SLURM_NNODES", "SLURM_STEP_NUM_NODES"] {
        env.set(name, nodes().count());
    }
    let list = hostlist::compress(nodes().map(|(node, _)| node));
    for name in ["SLURM_NODELIST", "SLURM_STEP_NODELIST"] {
        env.set(name, &list);
    }
    let per_node = compress_counts(nodes().map(|(_, tasks)| tasks.len() as u32));
    for name in ["SLURM_TASKS_PER_NODE", "SLURM_STEP_TASKS_PER_NODE"] {
        env.set(name, &per_node);
    }
    env
}

/// The variables of the components' jobs. A job with one component has them already.
fn set_jobs(env: &mut Environment, steps: &[HetStepComponent<'_>], components: &[Environment]) {
    set_components(env, components);
    if let Some(first) = components.first().and_then(|first| first.get("SLURM_JOB_ID")) {
        set_job_id(env, first);
    }
    let nodes = || steps.iter().flat_map(|step| step.job_nodes);
    env.set("SLURM_JOB_NUM_NODES", nodes().count());
    env.set("SLURM_JOB_NODELIST", hostlist::compress(nodes()));
    let cpus = steps.iter().filter_map(|step| step.job.get("SLURM_JOB_CPUS_PER_NODE"));
    env.set("SLURM_JOB_CPUS_PER_NODE", compress_counts(cpus.flat_map(counts)));
}

/// `2(x2),1`: a count for each node.
fn counts(text: &str) -> Vec<u32> {
    let run = |word: &str| {
        let (count, times) = word.split_once("(x").unwrap_or((word, "1"));
        let times: u32 = times.trim_end_matches(')').parse().ok()?;
        Some(vec![count.parse().ok()?; times.min(NODES_MAX) as usize])
    };
    text.split(',').filter_map(run).flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_and_nodes_are_counted_over_all_components() {
        let job = |id: &str, cpus: &str| -> Environment {
            [("SLURM_JOB_ID", id), ("SLURM_JOB_CPUS_PER_NODE", cpus)].into_iter().collect()
        };
        let components = [job("768", "2(x2)"), job("769", "1")];
        let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let (first, second) = (names(&["node1", "node2"]), names(&["node3"]));
        let nodes = [
            vec![("node1".to_owned(), vec![0, 1]), ("node2".to_owned(), vec![2])],
            vec![("node3".to_owned(), vec![0])],
        ];
        let steps = [
            HetStepComponent { job: &components[0], job_nodes: &first, nodes: &nodes[0] },
            HetStepComponent { job: &components[1], job_nodes: &second, nodes: &nodes[1] },
        ];
        let env = variables(&steps, &components);
        let table = [
            ("SLURM_JOB_ID", "768"),
            ("SLURM_HET_SIZE", "2"),
            ("SLURM_JOB_ID_HET_GROUP_1", "769"),
            ("SLURM_NTASKS", "4"),
            ("SLURM_STEP_NUM_NODES", "3"),
            ("SLURM_NODELIST", "node[1-3]"),
            ("SLURM_TASKS_PER_NODE", "2,1(x2)"),
            ("SLURM_JOB_CPUS_PER_NODE", "2(x2),1"),
            ("SLURM_JOB_NUM_NODES", "3"),
        ];
        for (name, value) in table {
            assert_eq!(env.get(name), Some(value), "{name}");
        }
        assert_eq!(env.get("SLURM_PROCID"), None, "the node knows it");
    }
}

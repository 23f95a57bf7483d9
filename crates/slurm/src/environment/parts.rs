//! The variables of tasks that one `srun` runs as steps of several components: tasks and nodes count over all of them.

use super::component::{name_job, set_components};
use super::{Environment, compress_counts};
use model::hostlist;

/// The most nodes that a count in short form stands for; more is nonsense.
const NODES_MAX: u32 = 1 << 16;

/// One of the steps: what its job has, and where its tasks are.
#[derive(Debug, Clone, Copy)]
pub struct Part<'a> {
    /// The variables of the job's allocation.
    pub job: &'a Environment,
    pub job_nodes: &'a [String],
    /// Its nodes in order, with the ranks of the tasks there.
    pub nodes: &'a [(String, Vec<u32>)],
}

impl Part<'_> {
    pub fn tasks(&self) -> u32 {
        self.nodes.iter().map(|(_, tasks)| tasks.len() as u32).sum()
    }
}

/// What is set over each step's own: `components` are all that the job has, of which some are run on. A node's number
/// differs from node to node and is not among them.
pub fn variables(parts: &[Part<'_>], components: &[Environment]) -> Environment {
    let mut env = Environment::new();
    if components.len() > 1 {
        set_jobs(&mut env, parts, components);
    }
    let nodes = || parts.iter().flat_map(|part| part.nodes);
    let tasks: u32 = parts.iter().map(Part::tasks).sum();
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

/// What is told of the components' jobs; parts of a job of one kind have it as ever.
fn set_jobs(env: &mut Environment, parts: &[Part<'_>], components: &[Environment]) {
    set_components(env, components);
    if let Some(first) = components.first().and_then(|first| first.get("SLURM_JOB_ID")) {
        name_job(env, first);
    }
    let nodes = || parts.iter().flat_map(|part| part.job_nodes);
    env.set("SLURM_JOB_NUM_NODES", nodes().count());
    env.set("SLURM_JOB_NODELIST", hostlist::compress(nodes()));
    let cpus = parts.iter().filter_map(|part| part.job.get("SLURM_JOB_CPUS_PER_NODE"));
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
    fn tasks_and_nodes_count_over_all_parts_as_captured() {
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
        let parts = [
            Part { job: &components[0], job_nodes: &first, nodes: &nodes[0] },
            Part { job: &components[1], job_nodes: &second, nodes: &nodes[1] },
        ];
        let env = variables(&parts, &components);
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

//! The `DSTACK_*` variables that a task finds on each of its nodes.

/// One node of a run, as its variables describe it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskNode<'a> {
    /// A UUID.
    pub run_id: &'a str,
    pub run_name: &'a str,
    /// The UUID of this node's part in this attempt.
    pub job_id: &'a str,
    pub working_dir: &'a str,
    /// [`NO_REPOSITORY`] for a run without one.
    pub repo_id: &'a str,
    /// The address of each node in the order of the ranks: the first is the master. Never empty.
    pub node_ips: &'a [String],
    pub rank: u32,
    /// How many GPUs each node has, in the same order.
    pub gpus: &'a [u32],
}

/// dstack's name for the repository of a run without one.
pub const NO_REPOSITORY: &str = "none";

impl TaskNode<'_> {
    pub fn variables(&self) -> Vec<(&'static str, String)> {
        let nodes = u32::try_from(self.node_ips.len()).unwrap_or(u32::MAX);
        let gpus: u32 = self.gpus.iter().sum();
        let own_gpus = self.gpus.get(self.rank as usize).copied().unwrap_or_default();
        let master = self.node_ips.first().cloned().unwrap_or_default();
        vec![
            ("DSTACK_RUN_ID", self.run_id.to_owned()),
            ("DSTACK_JOB_ID", self.job_id.to_owned()),
            ("DSTACK_RUN_NAME", self.run_name.to_owned()),
            ("DSTACK_REPO_ID", self.repo_id.to_owned()),
            ("DSTACK_REPO_DIR", self.working_dir.to_owned()),
            ("DSTACK_WORKING_DIR", self.working_dir.to_owned()),
            ("DSTACK_NODES_IPS", self.node_ips.join("\n")),
            ("DSTACK_MASTER_NODE_IP", master),
            ("DSTACK_NODE_RANK", self.rank.to_string()),
            ("DSTACK_NODES_NUM", nodes.to_string()),
            ("DSTACK_GPUS_PER_NODE", own_gpus.to_string()),
            ("DSTACK_GPUS_NUM", gpus.to_string()),
        ]
    }
}

/// For Open MPI, whose `mpirun` takes the job's number for the sign of a Slurm that starts its daemons: in a run it goes by the
/// hostfile and `ssh`, and its daemons stay in their sessions, which end with them. A daemon starts so many others that a user's
/// connections on one node suffice. The second half are the names of version 5.
pub const MPI_VARIABLES: [(&str, &str); 8] = [
    ("OMPI_MCA_plm", "^slurm"),
    ("OMPI_MCA_ras", "^slurm"),
    ("OMPI_MCA_orte_leave_session_attached", "1"),
    ("OMPI_MCA_routed_radix", "32"),
    ("PRTE_MCA_plm", "^slurm"),
    ("PRTE_MCA_ras", "^slurm"),
    ("PRTE_MCA_prte_leave_session_attached", "1"),
    ("PRTE_MCA_routed_radix", "32"),
];

/// The variable that tells where the text of [`mpi_hostfile`] is, and the name of that file.
pub const MPI_HOSTFILE: (&str, &str) = ("DSTACK_MPI_HOSTFILE", "mpi_hostfile");

/// The file behind `DSTACK_MPI_HOSTFILE`: a line for each node, with a slot for each GPU it has.
pub fn mpi_hostfile(node_ips: &[String], gpus: &[u32]) -> String {
    let line = |(ip, slots): (&String, &u32)| match slots {
        0 => format!("{ip}\n"),
        slots => format!("{ip} slots={slots}\n"),
    };
    node_ips.iter().zip(gpus).map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_of_two_nodes_knows_itself_and_the_others() {
        let node_ips = ["10.0.0.1".to_owned(), "10.0.0.2".to_owned()];
        let node = TaskNode {
            run_id: "bdcb2139-bb4f-4f70-8c55-331ecf6c82bc",
            run_name: "hello",
            job_id: "00b09257-071a-4097-92bb-072195c73acf",
            working_dir: "/home/ada",
            repo_id: "thing-1",
            node_ips: &node_ips,
            rank: 1,
            gpus: &[8, 4],
        };
        let text: Vec<String> =
            node.variables().into_iter().map(|(name, value)| format!("{name}={value:?}")).collect();
        insta::assert_snapshot!(text.join("\n"), @r#"
        DSTACK_RUN_ID="bdcb2139-bb4f-4f70-8c55-331ecf6c82bc"
        DSTACK_JOB_ID="00b09257-071a-4097-92bb-072195c73acf"
        DSTACK_RUN_NAME="hello"
        DSTACK_REPO_ID="thing-1"
        DSTACK_REPO_DIR="/home/ada"
        DSTACK_WORKING_DIR="/home/ada"
        DSTACK_NODES_IPS="10.0.0.1\n10.0.0.2"
        DSTACK_MASTER_NODE_IP="10.0.0.1"
        DSTACK_NODE_RANK="1"
        DSTACK_NODES_NUM="2"
        DSTACK_GPUS_PER_NODE="4"
        DSTACK_GPUS_NUM="12"
        "#);
    }

    #[test]
    fn the_hostfile_has_a_slot_for_each_gpu() {
        let ips = ["a".to_owned(), "b".to_owned()];
        assert_eq!(mpi_hostfile(&ips, &[4, 2]), "a slots=4\nb slots=2\n");
        assert_eq!(mpi_hostfile(&ips, &[0, 0]), "a\nb\n");
    }
}

//! Thousands of declared nodes on one machine, to try a large configuration out.

use crate::harness::Cluster;

const NODES: usize = 3000;

/// More than what an agent of one node has open, and far fewer than one for each node.
const DESCRIPTORS_MAX: usize = 100;

fn conf() -> String {
    format!(
        "ClusterName=large\nKillWait=1\nNodeName=n[1-{NODES}] CPUs=4 RealMemory=4000\n\
         PartitionName=main Nodes=ALL Default=YES State=UP\n"
    )
}

fn descriptors(cluster: &Cluster, of: &str) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", cluster.pid(of))).unwrap().count()
}

#[test]
fn up_thousands_of_declared_nodes_need_no_descriptors_and_run_a_job_of_hundreds() {
    let cluster = Cluster::up(&conf());
    let states = cluster.shell("sinfo -h -o '%D %t'").ok();
    assert_eq!(states.trim(), format!("{NODES} idle"), "up means that every node answers");
    for of in ["agent", "server"] {
        let open = descriptors(&cluster, of);
        assert!(open < DESCRIPTORS_MAX, "the {of} has {open} open");
    }
    let said = cluster.shell("srun -N 50 sh -c 'echo $SLURMD_NODENAME' | sort -u | wc -l").ok();
    assert_eq!(said.trim(), "50");
    let job =
        cluster.submit(&["-N", "400", "-o", "job.out", "--wrap", "echo $SLURM_JOB_NUM_NODES"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(cluster.read("job.out").trim(), "400");
    let open = descriptors(&cluster, "agent");
    assert!(open < DESCRIPTORS_MAX, "{open} are open when the job has ended");
}

#[test]
fn up_does_not_say_that_it_is_up_while_its_agent_is_not() {
    let cluster = Cluster::folder(
        "ClusterName=none\nNodeName=n1 CPUs=1 RealMemory=100\nPartitionName=main Nodes=ALL Default=YES\n",
    );
    let needed = cluster.state().join("nodes/n1");
    std::fs::create_dir_all(needed.parent().unwrap()).unwrap();
    // The agent needs a folder of this name.
    std::fs::write(&needed, "").unwrap();
    let said = cluster.try_start();
    assert_ne!(said.code, 0, "{}", said.stdout);
    assert_eq!(said.stdout, "");
    assert!(said.stderr.contains("the server runs, and its agent does not"), "{}", said.stderr);
    assert!(said.stderr.contains("nodes/n1"), "{}", said.stderr);
    // Once the cause is gone, the same cluster comes up by itself.
    std::fs::remove_file(&needed).unwrap();
    crate::harness::until("the node answers", || {
        cluster.node_states().contains("idle").then_some(())
    });
}

//! A node whose machine has less than the configuration says is INVAL, with the difference as its reason.

use crate::harness::{Cluster, until};

const ONE_NODE: &str = "\
ClusterName=test
GresTypes=gpu
DefMemPerCPU=16
NodeName=node1 CPUs=1 RealMemory=500 Gres=gpu:4096
PartitionName=main Nodes=node1 Default=YES State=UP
";

#[test]
fn up_node_without_its_gpus_is_invalid_until_the_configuration_fits() {
    let cluster = Cluster::folder(ONE_NODE);
    cluster.write_conf("gres.conf", "AutoDetect=nvml\n");
    cluster.start();
    let states = || cluster.node_states();
    until("the node is invalid", || states().starts_with("inval|").then_some(()));
    let reason = states();
    let start = "inval|gres/gpu count reported lower than configured (";
    assert!(reason.starts_with(start) && reason.ends_with(" < 4096)"), "{reason}");
    let shown = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
    assert!(shown.contains("State=IDLE+DRAIN+INVALID_REG "), "{shown}");
    let job = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    cluster.await_state(job, "PENDING");
    cluster.write_conf("gres.conf", "");
    cluster.write_conf("slurm.conf", &ONE_NODE.replace(" Gres=gpu:4096", ""));
    cluster.shell("scontrol reconfigure").ok();
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert!(!states().contains("inval"), "{}", states());
}

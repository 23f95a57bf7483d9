//! Network topology: topology.conf, `--switches`, blocks, and the variables of jobs.

use crate::harness::{Cluster, until};

const NODES: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
KillWait=1
DefMemPerCPU=16
NodeName=n[1-6] CPUs=4 RealMemory=1000
PartitionName=p Nodes=n[1-6] Default=YES
";

const TREE: &str = "\
SwitchName=s0 Nodes=n[1-3]
SwitchName=s1 Nodes=n[4-6]
SwitchName=top Switches=s[0-1]
";

const BLOCKS: &str = "\
BlockName=b1 Nodes=n[1-3]
BlockName=b2 Nodes=n[4-6]
BlockSizes=3
";

fn up(plugin: &str, topology: &str) -> Cluster {
    let cluster = Cluster::folder(&format!("{NODES}TopologyPlugin=topology/{plugin}\n"));
    cluster.write_conf("topology.conf", topology);
    cluster.start();
    cluster
}

fn submit(cluster: &Cluster, args: &str) -> u32 {
    let line = format!("sbatch --parsable {args} --wrap 'exec sleep 600'");
    cluster.shell(&line).ok().trim().parse().expect("a job id")
}

fn nodes_of(cluster: &Cluster, id: u32) -> String {
    cluster.await_state(id, "RUNNING");
    cluster.shell(&format!("squeue -h -j {id} -o %N")).ok().trim().to_string()
}

#[test]
fn up_jobs_are_placed_below_few_switches() {
    let cluster = up("tree", TREE);
    assert_eq!(
        cluster.shell("scontrol show topology").ok(),
        "SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-3]\n\
         SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[4-6]\n\
         SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-6] Switches=s[0-1]\n"
    );
    let one = cluster.shell("scontrol show topology n4").ok();
    assert!(one.starts_with("SwitchName=s1 Level=0") && one.lines().count() == 2, "{one}");
    let said = cluster.shell("scontrol show topology zz");
    let words = "scontrol: error: Topology information contains no switch or node named zz\n";
    assert_eq!((said.code, &*said.stderr), (0, words));

    // A node below the first switch is in use, so three close nodes are below the other.
    let first = submit(&cluster, "-w n1 -c4");
    assert_eq!(nodes_of(&cluster, first), "n1");
    let three = submit(&cluster, "-N3 -c4");
    assert_eq!(nodes_of(&cluster, three), "n[4-6]");
    cluster.shell(&format!("scancel {first} {three}")).ok();
    until("nothing is left", || cluster.shell("squeue -h").ok().trim().is_empty().then_some(()));

    let few = submit(&cluster, "--switches=1 -N4");
    until("it waits", || (cluster.state_of(few) == "PENDING|Resources").then_some(()));
    let job = cluster.shell(&format!("scontrol show job {few}")).ok();
    assert!(job.contains("Switches=1@00:05:00"), "{job}");
    let given_up = submit(&cluster, "--switches=1@0 -N4");
    assert_eq!(nodes_of(&cluster, given_up), "n[1-4]");
    for (args, said) in [
        ("--switches=0", "Invalid numeric value \"0\" for --switches."),
        ("--switches=x", "Invalid numeric value \"x\" for --switches."),
    ] {
        let answer = cluster.shell(&format!("sbatch {args} --wrap true"));
        assert!(answer.code == 1 && answer.stderr.contains(said), "{answer:?}");
    }
}

#[test]
fn up_a_job_has_the_topology_variables_of_its_nodes() {
    let cluster = up("tree", TREE);
    let told = "env | grep ^SLURM_TOPOLOGY | sort > told";
    cluster.submit(&["-w", "n5", "--wrap", told]);
    let told = cluster.await_file("told", |text| text.lines().count() == 2);
    let wanted = "SLURM_TOPOLOGY_ADDR=top.s1.n5\nSLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node\n";
    assert_eq!(told, wanted);
}

#[test]
fn up_job_segments_stay_within_blocks() {
    let cluster = up("block", BLOCKS);
    let four = submit(&cluster, "-N4 -c4 --segment=2");
    assert_eq!(nodes_of(&cluster, four), "n[1-2,4-5]");
    let said = cluster.shell("scontrol show topology");
    assert!(said.stdout.contains("BlockName=b2 BlockIndex=1 Nodes=n[4-6] BlockSize=3"), "{said:?}");
}

#[test]
fn an_invalid_topology_is_refused_with_its_line() {
    let cluster = Cluster::folder(&format!("{NODES}TopologyPlugin=topology/tree\n"));
    cluster.write_conf("topology.conf", "SwitchName=s0 Nodes=n[5-8]\n");
    let said = cluster.try_start();
    assert_ne!(said.code, 0);
    let words = "topology.conf:1: Nodes: \"n[7-8]\": no NodeName line of slurm.conf declares this";
    assert!(said.stderr.contains(words), "{}", said.stderr);
}

/// A run of dstack on so many whole nodes, which waits where there is no room for it.
fn distributed(cluster: &Cluster, name: &str, nodes: u32) -> crate::harness::CommandOutput {
    let text = format!(
        "type: task\nname: {name}\nnodes: {nodes}\ncommands: [exec sleep 600]\nretry: {{on_events: [no-capacity]}}\n\
         resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n"
    );
    cluster.write(&format!("{name}.dstack.yml"), &text);
    cluster.sluice(&["apply", "-f", &format!("{name}.dstack.yml"), "-y", "-d"])
}

#[test]
fn up_distributed_run_waits_for_nodes_below_one_switch() {
    let cluster = up("tree", TREE);
    let busy = submit(&cluster, "-w n[1-2,4-5] -N4 -c4");
    assert_eq!(nodes_of(&cluster, busy), "n[1-2,4-5]");
    // A batch job of two nodes spans the switches.
    let spans = submit(&cluster, "-N2 -c4");
    assert_eq!(nodes_of(&cluster, spans), "n[3,6]");
    cluster.shell(&format!("scancel {spans}")).ok();
    until("its nodes are free", || {
        (cluster.shell("sinfo -h -N -t idle -o %N").ok() == "n3\nn6\n").then_some(())
    });
    distributed(&cluster, "pair", 2).ok();
    let pair: u32 = cluster.shell("squeue -h -n pair -o %i").ok().trim().parse().expect("a job id");
    until("it waits", || (cluster.state_of(pair) == "PENDING|Resources").then_some(()));
    let why = cluster.sluice(&["explain", "pair"]).ok();
    assert!(why.contains("free are not together below one switch"), "{why}");
    cluster.shell(&format!("scancel {busy}")).ok();
    let nodes = nodes_of(&cluster, pair);
    assert!(
        ["n[1-2]", "n[1,3]", "n[2-3]", "n[4-5]", "n[4,6]", "n[5-6]"].contains(&&*nodes),
        "{nodes}"
    );
    // Four nodes are below no leaf: the lowest switch for them is the one above.
    distributed(&cluster, "four", 4).ok();
    let four: u32 = cluster.shell("squeue -h -n four -o %i").ok().trim().parse().expect("a job id");
    nodes_of(&cluster, four);
}

#[test]
fn up_distributed_run_that_no_switch_can_hold_is_refused() {
    let cluster = up("tree", "SwitchName=s0 Nodes=n[1-3]\nSwitchName=s1 Nodes=n[4-6]\n");
    let said = distributed(&cluster, "four", 4);
    let words = "4 nodes below one switch, the largest has 3 that fit";
    assert!(said.code != 0 && (said.stdout + &said.stderr).contains(words), "it was not refused");
    distributed(&cluster, "three", 3).ok();
    let three = cluster.shell("squeue -h -n three -o %i").ok().trim().parse().expect("a job id");
    let nodes = nodes_of(&cluster, three);
    assert!(nodes == "n[1-3]" || nodes == "n[4-6]", "{nodes}");
}

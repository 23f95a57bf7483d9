//! `HealthCheckProgram`: an unhealthy node is drained with what the check printed, and returns when the check passes.

use crate::harness::{Cluster, until};

const ONE_NODE: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
GresTypes=gpu AuthInfo=cred_expire=0
DefMemPerCPU=16
KillWait=1
NodeName=node1 CPUs=4 RealMemory=1000
PartitionName=main Nodes=node1 Default=YES State=UP
HealthCheckInterval=1
";

/// A check that fails with the text of the file `ill` in the work folder, if there is one, and counts its runs.
const CHECK: &str =
    "cd $(dirname $0)/../work; echo x >> runs; [ -e ill ] || exit 0; cat ill; exit 1";

fn up_with(check: &str, more: &str) -> Cluster {
    let cluster = Cluster::folder("");
    let path = cluster.write_program("check", check);
    cluster.write_conf("slurm.conf", &format!("{ONE_NODE}HealthCheckProgram={path}\n{more}"));
    cluster.start();
    cluster
}

fn await_node(cluster: &Cluster, wanted: &str) {
    until(wanted, || (cluster.node_states() == wanted).then_some(()));
}

fn runs(cluster: &Cluster) -> usize {
    cluster.read("runs").lines().count()
}

fn await_runs(cluster: &Cluster, more: usize) {
    let before = runs(cluster);
    until("further checks", || (runs(cluster) >= before + more).then_some(()));
}

#[test]
fn up_failing_health_check_drains_the_node_until_it_passes() {
    let cluster = up_with(CHECK, "");
    cluster.shell("srun true").ok();
    cluster.write("ill.new", "no\tscratch\nand more\n");
    cluster.shell("mv ill.new ill").ok();
    await_node(&cluster, "drained|no\\tscratch");
    let shown = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
    assert!(shown.contains("Reason=no\\tscratch [slurm@"), "{shown}");
    let job = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    await_runs(&cluster, 2);
    assert!(cluster.state_of(job).starts_with("PENDING"), "{}", cluster.state_of(job));
    cluster.shell("rm ill").ok();
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(cluster.node_states(), "idle|none");
}

#[test]
fn up_passed_health_check_leaves_a_drain_of_an_administrator() {
    let cluster = up_with(CHECK, "");
    cluster.write("ill", "ill\n");
    await_node(&cluster, "drained|ill");
    cluster.shell("scontrol update node=node1 reason=mine").ok();
    cluster.shell("rm ill").ok();
    await_runs(&cluster, 3);
    assert_eq!(cluster.node_states(), "drained|mine");
    cluster.shell("scontrol update node=node1 state=resume").ok();
    await_node(&cluster, "idle|none");
}

#[test]
fn up_health_check_runs_only_on_nodes_of_its_states() {
    let cluster = up_with(CHECK, "HealthCheckNodeState=IDLE\n");
    await_runs(&cluster, 1);
    let job = cluster.submit_sleeper("-n 2");
    cluster.await_state(job, "RUNNING");
    // A check that had begun before the job counts once more.
    cluster.write("ill", "ill\n");
    let before = runs(&cluster);
    let other = cluster.submit(&["-n1", "-o", "/dev/null", "--wrap", "sleep 3"]);
    assert_eq!(cluster.await_end(other), "COMPLETED|0:0");
    assert!(runs(&cluster) <= before + 1, "a busy node is not checked");
    assert_eq!(cluster.node_states(), "mixed|none");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    await_node(&cluster, "drained|ill");
}

#[test]
fn up_node_whose_check_was_removed_returns() {
    let cluster = up_with("echo ill; exit 1", "");
    await_node(&cluster, "drained|ill");
    cluster.write_conf("slurm.conf", ONE_NODE);
    cluster.shell("scontrol reconfigure").ok();
    await_node(&cluster, "idle|none");
}

/// Needs root: only a control group holds a process that left its process group.
#[test]
fn root_up_what_a_health_check_leaves_running_ends_with_the_next() {
    let left = "setsid sleep 1000 & echo $! >> $(dirname $0)/../work/left";
    let cluster = up_with(left, "");
    let second = cluster.await_file("left", |text| text.lines().count() > 1);
    let first: i32 = second.lines().next().expect("a line").parse().expect("a pid");
    until("the first is dead", || (!crate::harness::is_alive(first)).then_some(()));
    cluster.write_conf("slurm.conf", ONE_NODE);
    cluster.shell("scontrol reconfigure").ok();
    until("no group is left", || cluster.groups().is_empty().then_some(()));
}

#[test]
fn up_bad_health_check_settings_are_refused() {
    let cluster = Cluster::folder("");
    for (line, said) in [
        ("HealthCheckInterval=soon", "HealthCheckInterval: \"soon\""),
        ("HealthCheckNodeState=SLEEPY", "HealthCheckNodeState: \"SLEEPY\""),
    ] {
        cluster.write_conf(
            "slurm.conf",
            &format!("{ONE_NODE}{line}\n").replace("HealthCheckInterval=1\n", ""),
        );
        let refused = cluster.try_start();
        assert!(refused.code != 0 && refused.stderr.contains(said), "{}", refused.stderr);
    }
}

//! Jobs that are cancelled or suspended while prolog or epilog run. Needs root.

use crate::harness::{Cluster, until};
use std::os::unix::fs::PermissionsExt;

/// The program `NAME` writes a file and waits for another.
const WAITS: &str = "#!/bin/sh
cd $(dirname $0)/../work; echo $$ >> NAME.runs
until [ -e NAME.go ]; do sleep 0.05; done
echo NAME >> order
";

fn up(programs: &[&str]) -> Cluster {
    let cluster = Cluster::folder("");
    let mut conf = String::from(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=100\n\
         KillWait=1 AuthInfo=cred_expire=0\nNodeName=node1 CPUs=8 RealMemory=4000\n\
         PartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    for name in programs {
        let path = cluster.path("bin").join(name);
        std::fs::write(&path, WAITS.replace("NAME", name)).expect("a program");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).expect("a mode");
        conf.push_str(&format!("{name}={}\n", path.display()));
    }
    cluster.write_conf("slurm.conf", &conf);
    cluster.start();
    cluster
}

fn pid_of(cluster: &Cluster, name: &str) -> i32 {
    let text = cluster.await_file(&format!("{name}.runs"), |text| text.ends_with('\n'));
    text.trim().parse().expect("one pid")
}

#[test]
fn root_up_a_job_suspended_during_its_prolog_starts_when_it_is_resumed() {
    let cluster = up(&["Prolog"]);
    let job = cluster.submit(&["-o", "out", "--wrap", "echo script >> order; exit 3"]);
    pid_of(&cluster, "Prolog");
    cluster.sluice(&["scontrol", "suspend", &job.to_string()]).ok();
    cluster.await_state(job, "SUSPENDED");
    // Suspending the job does not stop the prolog.
    cluster.write("Prolog.go", "");
    cluster.await_file("order", |text| text == "Prolog\n");
    // The node has handled a later order, and the script has still not run.
    let other = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    assert_eq!(cluster.await_end(other), "COMPLETED|0:0");
    assert_eq!(cluster.read("order"), "Prolog\nProlog\n");
    assert!(cluster.state_of(job).starts_with("SUSPENDED"));
    cluster.sluice(&["scontrol", "resume", &job.to_string()]).ok();
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    assert_eq!(cluster.read("order"), "Prolog\nProlog\nscript\n");
    until("nothing is left", || cluster.groups().is_empty().then_some(()));
    assert_eq!(cluster.node_states(), "idle|none");
}

#[test]
fn root_up_a_job_suspended_and_cancelled_during_its_prolog_ends() {
    let cluster = up(&["Prolog", "Epilog"]);
    cluster.write("Epilog.go", "");
    let job = cluster.submit(&["-o", "out", "--wrap", "echo script >> order"]);
    let prolog = pid_of(&cluster, "Prolog");
    cluster.sluice(&["scontrol", "suspend", &job.to_string()]).ok();
    cluster.await_state(job, "SUSPENDED");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    assert!(cluster.await_end(job).starts_with("CANCELLED"));
    until("its prolog is dead", || (!crate::harness::is_alive(prolog)).then_some(()));
    until("nothing is left", || cluster.groups().is_empty().then_some(()));
    assert_eq!(cluster.read("order"), "Epilog\n", "what the prolog has begun, the epilog ends");
    assert_eq!(cluster.node_states(), "idle|none");
}

#[test]
fn root_up_a_cancel_during_the_epilog_has_no_effect() {
    let cluster = up(&["Epilog"]);
    let job = cluster.submit(&["-o", "out", "--wrap", "echo script >> order; exit 3"]);
    let epilog = pid_of(&cluster, "Epilog");
    cluster.await_state(job, "COMPLETING");
    let said = cluster.sluice(&["scancel", &job.to_string()]);
    assert_eq!((said.code, said.stderr.as_str()), (0, ""));
    let said = cluster.sluice(&["scontrol", "suspend", &job.to_string()]);
    let words = format!("Job/step already completing or completed for job {job}\n");
    assert_eq!((said.code, said.stderr), (1, words));
    assert!(crate::harness::is_alive(epilog), "the epilog goes on");
    cluster.write("Epilog.go", "");
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    assert_eq!(cluster.read("order"), "script\nEpilog\n");
    assert!(!cluster.read("out").contains("CANCELLED"), "{}", cluster.read("out"));
    until("nothing is left", || cluster.groups().is_empty().then_some(()));
    assert_eq!(cluster.node_states(), "idle|none");
}

#[test]
fn root_up_the_epilog_of_a_cancelled_job_runs_to_its_end() {
    let cluster = up(&["Epilog"]);
    let job = cluster.submit(&["-o", "out", "--wrap", "echo script >> order; sleep 600"]);
    cluster.await_file("order", |text| text == "script\n");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    let epilog = pid_of(&cluster, "Epilog");
    // An agent that restarts while the epilog runs gets the cancel again.
    let killed = cluster.pid("agent");
    cluster.kill_alone("agent");
    until("another agent is there", || (cluster.pid("agent") != killed).then_some(()));
    let other = cluster.submit(&["-H", "--wrap", "true"]);
    cluster.sluice(&["scancel", &job.to_string()]);
    cluster.sluice(&["scancel", &other.to_string()]).ok();
    assert!(crate::harness::is_alive(epilog), "the epilog goes on");
    cluster.write("Epilog.go", "");
    assert!(cluster.await_end(job).starts_with("CANCELLED"));
    assert_eq!(cluster.read("order"), "script\nEpilog\n");
    assert_eq!(cluster.read("out").matches("CANCELLED AT").count(), 1, "it is said once");
    until("nothing is left", || cluster.groups().is_empty().then_some(()));
}

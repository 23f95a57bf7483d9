//! An operator and a coordinator manage jobs of others; they run nothing as them and read nothing of theirs.

use crate::harness::{Cluster, TWO_NODES};

const OPERATOR: &str = "games";
const COORDINATOR: &str = "mail";
const MEMBER: &str = "man";

/// A cluster whose `lab` has the member and the coordinator, and which has an operator.
fn staffed() -> Cluster {
    let cluster = Cluster::up(TWO_NODES);
    let lines = [
        "add account lab".to_owned(),
        format!("add user {MEMBER},{COORDINATOR} account=lab"),
        format!("add coordinator account=lab names={COORDINATOR}"),
        format!("add user {OPERATOR} account=lab adminlevel=operator"),
    ];
    for line in lines {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    cluster
}

/// Each line fails with Slurm's words for it.
fn refused(cluster: &Cluster, user: &str, lines: &[String]) {
    for line in lines {
        let said = cluster.shell_as(user, line);
        assert_ne!(said.code, 0, "{user}: {line}: {said:?}");
        assert!(!said.stdout.contains("root:"), "{user}: {line}: {}", said.stdout);
        let words = ["Access/permission denied", "Invalid user id"];
        assert!(words.iter().any(|w| said.stderr.contains(w)), "{line}: {}", said.stderr);
    }
}

#[test]
fn root_an_operator_does_not_become_root() {
    let cluster = staffed();
    let job = cluster.submit_sleeper("");
    let held = cluster.submit_sleeper("--hold");
    cluster.await_state(job, "RUNNING");
    refused(
        &cluster,
        OPERATOR,
        &[
            format!("srun --jobid={job} --overlap head -1 /etc/shadow"),
            format!("scontrol write batch_script {job} -"),
            format!("scontrol update job={held} StdOut=/etc/planted"),
            format!("scontrol update job={held} WorkDir=/etc"),
        ],
    );
    cluster.shell_as(OPERATOR, &format!("scontrol update job={held} comment=seen")).ok();
    cluster.shell_as(OPERATOR, &format!("scancel {held} {job}")).ok();
    assert!(cluster.await_end(job).starts_with("CANCELLED"), "an operator still manages jobs");
}

#[test]
fn root_a_coordinator_does_not_become_a_member() {
    let cluster = staffed();
    let home = cluster.path("home").display().to_string();
    cluster.shell(&format!("install -d -m 700 -o {MEMBER} -g {MEMBER} {home}")).ok();
    let sleeper = "-o /dev/null --wrap 'sleep 600'";
    let job = cluster.submit_as(MEMBER, sleeper);
    let held = cluster.submit_as(MEMBER, &format!("--hold {sleeper}"));
    cluster.await_state(job, "RUNNING");
    refused(
        &cluster,
        COORDINATOR,
        &[
            format!("srun --jobid={job} --overlap touch {home}/planted"),
            format!("scontrol write batch_script {job} -"),
            format!("scontrol update job={held} StdOut={home}/planted"),
            format!("scontrol update job={held} name=../home/planted"),
        ],
    );
    assert!(!cluster.path("home/planted").exists());
    cluster.shell_as(MEMBER, &format!("srun --jobid={job} --overlap touch {home}/own")).ok();
    assert!(cluster.path("home/own").exists(), "the owner runs steps in the job");
    let script = cluster.shell_as(MEMBER, &format!("scontrol write batch_script {job} -")).ok();
    assert!(script.contains("sleep 600"), "the owner reads the script: {script}");
    cluster.shell_as(COORDINATOR, &format!("scancel {held} {job}")).ok();
    assert!(cluster.await_end(job).starts_with("CANCELLED"), "a coordinator still manages jobs");
}

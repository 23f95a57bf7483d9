//! A job that makes itself root in a user namespace of its own. To the cluster and to the machine it is its user still.

use crate::harness::{Cluster, TWO_NODES, skip};

const MEMBER: &str = "man";

/// What a shell ends with where a command is not there.
const NO_COMMAND: i32 = 127;

/// Each line is tried by the namespace's root, and prints `got` and its number where it succeeds.
fn attacks(cluster: &Cluster, roots_job: u32) -> Vec<String> {
    let state = cluster.state().display().to_string();
    vec![
        format!("scancel {roots_job}"),
        format!("scontrol update job={roots_job} comment=seen"),
        format!("scontrol write batch_script {roots_job} -"),
        format!("srun --jobid={roots_job} --overlap true"),
        "scontrol update node=node1 state=drain reason=attack".into(),
        "sacctmgr -i add account attack".into(),
        "scontrol reconfigure".into(),
        format!("{} token user root", crate::harness::program()),
        format!("ls {state}/server"),
        format!("cat {state}/admin.token"),
        format!("kill -0 {}", cluster.pid("agent")),
        "kill -0 $PPID_OF_SCRIPT".into(),
        "head -1 /etc/shadow".into(),
        "mknod disk b 8 0 && head -c 1 disk".into(),
        "find /sys/fs/cgroup -maxdepth 3 -name 'memory*limit_in_bytes' -writable | grep .".into(),
        "find /sys/fs/cgroup -maxdepth 3 -name memory.max -writable | grep .".into(),
    ]
}

#[test]
fn root_root_of_a_jobs_own_namespace_gets_no_more_than_its_user() {
    let cluster = Cluster::up(TWO_NODES);
    let may = cluster.shell_as(MEMBER, "unshare -Ur true");
    assert_ne!(may.code, NO_COMMAND, "{}", may.stderr);
    if may.code != 0 {
        return skip("userns", "users may not make user namespaces here");
    }
    let roots_job = cluster.submit_sleeper("");
    cluster.await_state(roots_job, "RUNNING");
    let mut script = String::from("id -u\n");
    for (number, line) in attacks(&cluster, roots_job).iter().enumerate() {
        script += &format!(
            "( {line} ) < /dev/null > tried.{number} 2>&1 && echo got {number}: '{}'\n",
            line.replace('\'', "")
        );
    }
    cluster.write("attack.sh", &format!("{script}echo over\n"));
    // The supervisor is the parent of the script.
    let job = cluster.submit_as(
        MEMBER,
        "-o attack.out --wrap 'export PPID_OF_SCRIPT=$PPID; unshare -Ur sh attack.sh'",
    );
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(cluster.read("attack.out"), "0\nover\n");
    for (number, line) in attacks(&cluster, roots_job).iter().enumerate() {
        // An attack whose command is not there proves nothing.
        let said = cluster.read(&format!("tried.{number}"));
        assert!(!said.contains("not found"), "{line} was not tried: {said}");
        let is_search = line.starts_with("find ");
        assert!(is_search || !said.trim().is_empty(), "{line} failed without a word");
    }
    assert_eq!(cluster.state_of(roots_job), "RUNNING|None");
    assert_eq!(cluster.node_states().lines().filter(|line| line.contains("drain")).count(), 0);
}

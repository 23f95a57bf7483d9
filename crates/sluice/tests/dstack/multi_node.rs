//! A task on several nodes: which of them start first, when it is done, and the file that MPI reads.

use crate::harness::{Cluster, until};
use std::os::unix::fs::PermissionsExt;

const CONF: &str = "\
ClusterName=several
KillWait=1
DefMemPerCPU=64
NodeName=node[1-2] CPUs=2 RealMemory=2000
PartitionName=main Nodes=ALL Default=YES State=UP
";

fn state(cluster: &Cluster, run: &str) -> String {
    cluster.sluice(&["ps", "-a", "-n", "20"]).ok().lines().filter(|l| l.contains(run)).collect()
}

/// A cluster where the nodes of some jobs take their time. A master that did not wait for them would be seen.
fn with_slow_prolog(is_slow: &str) -> Cluster {
    let cluster = Cluster::folder(CONF);
    let prolog = cluster.path("conf").join("prolog");
    let work = cluster.path("work").display().to_string();
    let text = format!(
        "#!/bin/sh\n{is_slow} || exit 0\n\
         for i in 1 2 3 4 5 6 7 8 9 10; do [ -e {work}/master ] && touch {work}/early; sleep 0.1; done\n"
    );
    std::fs::write(&prolog, text).unwrap();
    std::fs::set_permissions(&prolog, std::fs::Permissions::from_mode(0o755)).unwrap();
    cluster.write_conf("slurm.conf", &format!("{CONF}Prolog={}\n", prolog.display()));
    cluster.start();
    cluster
}

#[test]
fn up_groups_start_in_order_and_the_run_is_done_with_its_master() {
    // The second group of the first run is job 2.
    let cluster = with_slow_prolog("[ $SLURM_JOB_ID = 2 ]");
    let group = |cpus: u32, command: &str| {
        format!(
            "  - resources: {{cpu: {cpus}, memory: 64MB.., disk: 0GB..}}\n    commands: ['{command}']\n"
        )
    };
    let (head, workers) = (group(1, "touch master"), group(2, "sleep 600"));
    let text = format!(
        "type: task\nname: pair\nstartup_order: workers-first\nstop_criteria: master-done\ngroups:\n{head}{workers}"
    );
    cluster.write("pair.dstack.yml", &text);
    cluster.sluice(&["apply", "-f", "pair.dstack.yml", "-y", "-d"]).ok();
    until("the run is done though its worker sleeps", || {
        state(&cluster, "pair").contains("exited (0)").then_some(())
    });
    assert!(cluster.path("work").join("master").exists());
    assert!(!cluster.path("work").join("early").exists(), "the master started before its worker");
    let jobs = cluster.sluice(&["sacct", "-nXP", "-o", "JobID,State,ExitCode"]).ok();
    assert_eq!(jobs, "1+0|COMPLETED|0:0\n1+1|COMPLETED|0:0\n");
}

#[test]
fn up_workers_start_first_and_the_run_is_done_with_its_master() {
    let cluster = with_slow_prolog("[ $SLURMD_NODENAME = node2 ]");
    cluster.write(
        "mpi.dstack.yml",
        "type: task\nname: mpi\nnodes: 2\nstartup_order: workers-first\nstop_criteria: master-done\n\
         resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n\
         commands:\n  - cat $DSTACK_MPI_HOSTFILE > hosts.$DSTACK_NODE_RANK\n  \
         - if [ $DSTACK_NODE_RANK = 0 ]; then touch master; else sleep 600; fi\n",
    );
    cluster.sluice(&["apply", "-f", "mpi.dstack.yml", "-y", "-d"]).ok();
    until("the run is done though its worker sleeps", || {
        state(&cluster, "mpi").contains("exited (0)").then_some(())
    });
    assert!(cluster.path("work").join("master").exists());
    assert!(!cluster.path("work").join("early").exists(), "the master started before its worker");
    let hosts = cluster.read("hosts.0");
    assert_eq!(hosts.lines().count(), 2, "{hosts}");
    assert_eq!(cluster.read("hosts.1"), hosts);
}

#[test]
fn up_stop_duration_lies_between_the_signal_and_the_kill() {
    let cluster = Cluster::up(CONF);
    let text = |name: &str, more: &str| {
        format!(
            "type: task\nname: {name}\n{more}resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\ncommands:\n  \
             - trap 'sleep 3; touch {name}.saved; exit 0' TERM; touch {name}.runs; while :; do sleep 0.1; done\n"
        )
    };
    // KillWait is a second, in which nothing of three is saved: it is not a task's, which has dstack's five minutes.
    for (name, more, saved) in [("short", "stop_duration: 1s\n", false), ("long", "", true)] {
        cluster.write(&format!("{name}.dstack.yml"), &text(name, more));
        cluster.sluice(&["apply", "-f", &format!("{name}.dstack.yml"), "-y", "-d"]).ok();
        cluster.await_file(&format!("{name}.runs"), |_| true);
        cluster.sluice(&["stop", name, "-y"]).ok();
        until("the run has stopped", || {
            let shown = state(&cluster, name);
            (!shown.contains("running") && !shown.contains("terminating")).then_some(())
        });
        let file = cluster.path("work").join(format!("{name}.saved"));
        assert_eq!(file.exists(), saved, "{name}");
    }
}

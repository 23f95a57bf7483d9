//! A server killed under a thousand running jobs: no job is lost or runs twice, and no output is missing.

use crate::harness::{Cluster, until, within};
use std::collections::BTreeSet;
use std::process::Stdio;
use std::time::{Duration, Instant};

const JOBS: usize = 1000;

const CONF: &str = "\
ClusterName=many
SlurmdParameters=config_overrides
DefMemPerCPU=8
KillWait=1
NodeName=node[1-2] CPUs=512 Sockets=2 CoresPerSocket=256 ThreadsPerCore=1 RealMemory=8000
PartitionName=main Nodes=node[1-2] Default=YES State=UP
";

/// How long a thousand launches and ends may take on a busy machine.
const LONG: Duration = Duration::from_secs(120);

fn count(cluster: &Cluster, state: &str) -> usize {
    let said = cluster.sluice(&["squeue", "-h", "-r", "-n", "many", "-t", state, "-o", "%A"]);
    said.stdout.lines().count()
}

#[test]
fn up_a_restart_of_the_server_under_a_thousand_running_jobs_loses_no_output() {
    let cluster = Cluster::up(CONF);
    cluster.shell("mkdir out; mkfifo gate").ok();
    // They block in the kernel instead of polling: a thousand of them cost nothing.
    let body = "echo before; read line < gate; echo after $SLURM_ARRAY_TASK_ID";
    let began = Instant::now();
    let last = (JOBS - 1).to_string();
    cluster.submit(&["-J", "many", "-o", "out/%a", &format!("--array=0-{last}"), "--wrap", body]);
    let srun = cluster
        .command(&["srun", "sh", "-c", "echo one; read line < gate; echo two; exit 4"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    within(LONG, "all of them run", || (count(&cluster, "R") == JOBS).then_some(()));
    let written = |word: &str| {
        let files = std::fs::read_dir(cluster.path("work").join("out")).unwrap().flatten();
        files.filter(|f| std::fs::read_to_string(f.path()).is_ok_and(|t| t.contains(word))).count()
    };
    within(LONG, "each has begun", || (written("before") == JOBS).then_some(()));
    report(&cluster, "running", began.elapsed());

    for _ in 0..2 {
        cluster.kill("server");
        let began = Instant::now();
        cluster.start();
        assert_eq!(count(&cluster, "R"), JOBS, "all are found again");
        report(&cluster, "restarted", began.elapsed());
    }
    let began = Instant::now();
    // They end while no server runs.
    cluster.kill("server");
    cluster.shell(": > gate").ok();
    within(LONG, "each has said its last", || (written("after") == JOBS).then_some(()));
    cluster.start();
    within(LONG, "all have ended", || (count(&cluster, "R,CG") == 0).then_some(()));
    report(&cluster, "ended", began.elapsed());

    for task in 0..JOBS {
        let text = cluster.read(&format!("out/{task}"));
        assert_eq!(text, format!("before\nafter {task}\n"), "task {task}");
    }
    let output = srun.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "one\ntwo\n");
    assert_eq!(output.status.code(), Some(4));
    let line = ["sacct", "-n", "-X", "-D", "-P", "-S", "now-1hour", "-o", "JobIDRaw,JobName,State"];
    let rows = until("the books have them", || {
        let text = cluster.sluice(&line).ok();
        (text.matches("|many|COMPLETED").count() == JOBS).then_some(text)
    });
    let ids: BTreeSet<&str> = rows.lines().filter_map(|r| r.split('|').next()).collect();
    assert_eq!((ids.len(), rows.lines().count()), (JOBS + 1, JOBS + 1), "one entry each");
    within(LONG, "no group is left", || cluster.groups().is_empty().then_some(()));
}

/// Prints time and memory for information; nothing is asserted.
fn report(cluster: &Cluster, when: &str, took: Duration) {
    for of in ["server", "agent"] {
        let pid = cluster.pid(of);
        let memory = crate::harness::processes::resident_kb(pid).unwrap_or(0);
        let ticks = crate::harness::processes::cpu_ticks(pid).unwrap_or(0);
        println!("{when} after {took:?}: {of} {memory} kB, {ticks} ticks");
    }
    let there = crate::harness::processes::supervisors(&cluster.state());
    let own: u64 = there.iter().filter_map(|pid| crate::harness::processes::own_kb(*pid)).sum();
    println!("{when}: {} supervisors, {own} kB of their own", there.len());
}

//! Preemption by partition and by QOS: requeue, cancel, suspend, gang scheduling, grace time.

use crate::harness::{Cluster, TWO_NODES, until};

/// The cluster of two nodes with a partition `urgent` over node1, of a higher tier.
fn tiers(mode: &str, of_partition: &str) -> Cluster {
    let conf = TWO_NODES.replace("Default=YES", &format!("Default=YES {of_partition}"));
    Cluster::up(&format!(
        "{conf}PreemptType=preempt/partition_prio\nPreemptMode={mode}\n\
         PartitionName=urgent Nodes=node1 PriorityTier=9 State=UP\n"
    ))
}

/// A job that takes all of node1 in the low partition.
const ALL: [&str; 5] = ["-w", "node1", "-n32", "-o", "%x.out"];

fn low(cluster: &Cluster, more: &[&str]) -> u32 {
    let job = cluster.submit(&[&ALL, more].concat());
    cluster.await_state(job, "RUNNING");
    job
}

fn urgent(cluster: &Cluster, wrap: &str) -> u32 {
    cluster.submit(&["-p", "urgent", "-n4", "-o", "/dev/null", "--wrap", wrap])
}

fn states(cluster: &Cluster, job: u32) -> Vec<String> {
    let job = job.to_string();
    let line = ["sacct", "-n", "-X", "-D", "-P", "-j", &job, "-o", "State"];
    cluster.sluice(&line).ok().lines().map(str::to_owned).collect()
}

#[test]
fn up_a_preempted_job_is_requeued_and_runs_again() {
    let cluster = tiers("REQUEUE", "");
    let script = "echo run ${SLURM_RESTART_COUNT:-0} >> runs; sleep 600";
    let victim = low(&cluster, &["-J", "victim", "--wrap", script]);
    cluster.await_file("runs", |text| text == "run 0\n");
    let first = urgent(&cluster, "while [ ! -e done ]; do sleep 0.05; done");
    cluster.await_state(first, "RUNNING");
    cluster.await_state(victim, "PENDING");
    assert_eq!(states(&cluster, victim), ["PREEMPTED", "PENDING"]);
    let told = cluster.await_file("victim.out", |text| text.contains("PREEMPTION"));
    assert!(told.contains(&format!("*** JOB {victim} ON node1 CANCELLED AT ")), "{told}");
    let shown = cluster.sluice(&["scontrol", "show", "job", &victim.to_string()]).ok();
    assert!(shown.contains("Restarts=1"), "{shown}");
    cluster.write("done", "");
    cluster.await_end(first);
    cluster.await_file("runs", |text| text == "run 0\nrun 1\n");
}

#[test]
fn up_a_preempted_job_that_may_not_requeue_ends_as_preempted() {
    let cluster = tiers("REQUEUE", "");
    let victim = low(&cluster, &["--no-requeue", "--wrap", "sleep 600"]);
    let first = urgent(&cluster, "true");
    assert_eq!(cluster.await_end(victim), "PREEMPTED|0:0");
    let text = cluster.sluice(&["explain", &victim.to_string()]).ok();
    assert!(text.contains("took it (preemption).") && text.contains("--requeue"), "{text}");
    assert_eq!(cluster.await_end(first), "COMPLETED|0:0");
    let compact = ["squeue", "-h", "-t", "PR", "-o", "%i %t"];
    assert_eq!(cluster.sluice(&compact).ok().trim(), format!("{victim} PR"));
}

/// The steps are signalled at once, the script only after the grace. A server restart in between changes nothing.
#[test]
fn up_a_preemption_grace_survives_a_server_restart() {
    let cluster = tiers("CANCEL", "GraceTime=15");
    let task = "trap 'echo step told >> told' TERM; echo up >> told; while :; do sleep 0.05; done";
    cluster.write("task.sh", task);
    let body = "trap 'echo script told >> told' TERM\nsrun -n1 sh task.sh &\n\
                while :; do sleep 0.05; done";
    cluster.write("body.sh", &format!("#!/bin/sh\n{body}\n"));
    let victim = low(&cluster, &["body.sh"]);
    cluster.await_file("told", |text| text == "up\n");
    let waiting = urgent(&cluster, "true");
    cluster.await_file("told", |text| text == "up\nstep told\n");
    let shown = cluster.sluice(&["scontrol", "show", "job", &victim.to_string()]).ok();
    assert!(shown.contains("JobState=RUNNING"), "{shown}");
    assert!(!shown.contains("PreemptTime=None"), "{shown}");
    assert!(cluster.state_of(waiting).starts_with("PENDING"));
    cluster.kill("server");
    cluster.start();
    assert_eq!(cluster.await_end(victim), "PREEMPTED|0:0");
    assert_eq!(cluster.await_end(waiting), "COMPLETED|0:0");
    assert!(cluster.read("told").contains("script told\n"), "{}", cluster.read("told"));
}

#[test]
fn up_a_job_suspended_by_preemption_stops_and_resumes_afterwards() {
    let cluster = tiers("SUSPEND,GANG", "");
    let script = "while :; do echo tick >> ticks; sleep 0.05; done";
    let victim = low(&cluster, &["--mem-per-cpu=16", "--wrap", script]);
    cluster.await_file("ticks", |text| text.len() > 20);
    let first = urgent(&cluster, "while [ ! -e done ]; do sleep 0.05; done");
    cluster.await_state(first, "RUNNING");
    cluster.await_state(victim, "SUSPENDED");
    let length = || cluster.read("ticks").len();
    // The order to stop may still be on its way: waits until nothing is written any more.
    let stood = until("it stands still", || {
        let before = length();
        std::thread::sleep(std::time::Duration::from_millis(500));
        (length() == before).then_some(before)
    });
    let memory = cluster.sluice(&["sinfo", "-h", "-N", "-n", "node1", "-o", "%C"]).ok();
    assert!(memory.starts_with("4/28/0/32"), "its cores are free: {memory}");
    let denied = cluster.sluice(&["scontrol", "resume", &victim.to_string()]);
    assert_eq!(denied.code, 0, "{}", denied.stderr);
    assert!(cluster.state_of(victim).starts_with("SUSPENDED"), "others have its cores");
    cluster.write("done", "");
    cluster.await_end(first);
    cluster.await_state(victim, "RUNNING");
    cluster.await_file("ticks", |text| text.len() > stood);
}

#[test]
fn up_a_qos_preempts_the_qos_it_names_after_the_exempt_time() {
    let conf = format!("{TWO_NODES}PreemptType=preempt/qos\nPreemptMode=CANCEL\n");
    let cluster = Cluster::up(&conf);
    for line in [
        "add qos low",
        "add qos safe set PreemptExemptTime=01:00:00",
        "add qos high set Preempt=low,safe",
    ] {
        cluster.shell(&format!("sacctmgr -i {line}")).ok();
    }
    let safe = low(&cluster, &["--qos=safe", "--wrap", "sleep 600"]);
    // A replica of a service is a job as any other.
    let served = ["--service=8000", "-J", "web", "-w", "node2", "-n32", "--qos=low"];
    let other = cluster.submit(&[&served[..], &["--wrap", "sleep 600"]].concat());
    cluster.await_state(other, "RUNNING");
    let high = cluster.submit(&["-n32", "--qos=high", "--wrap", "true"]);
    let plain = cluster.submit(&["-n32", "--wrap", "sleep 600"]);
    assert_eq!(cluster.await_end(high), "COMPLETED|0:0");
    assert_eq!(cluster.await_end(other), "PREEMPTED|0:0");
    assert!(cluster.state_of(safe).starts_with("RUNNING"), "it has not had its hour");
    cluster.await_state(plain, "RUNNING");
    cluster.sluice(&["scancel", &safe.to_string(), &plain.to_string()]).ok();
}

/// Two jobs on the same cores: one runs and the other is suspended, and after a time slice they change.
#[test]
fn up_gang_scheduled_jobs_take_turns() {
    let cluster = Cluster::up(&format!(
        "{TWO_NODES}PreemptMode=GANG\nSchedulerTimeSlice=5\n\
         PartitionName=share Nodes=node2 OverSubscribe=FORCE:2 State=UP\n"
    ));
    let job = |name: &str| {
        let script = format!("while :; do echo tick >> {name}; sleep 0.05; done");
        cluster.submit(&["-p", "share", "-n32", "-o", "/dev/null", "--wrap", &script])
    };
    let (first, second, third) = (job("one"), job("two"), job("three"));
    cluster.await_state(first, "RUNNING");
    cluster.await_state(second, "SUSPENDED");
    assert!(cluster.state_of(third).starts_with("PENDING"), "no more than two share");
    cluster.await_state(second, "RUNNING");
    cluster.await_state(first, "SUSPENDED");
    cluster.await_file("two", |text| !text.is_empty());
    cluster.sluice(&["scancel", &second.to_string()]).ok();
    cluster.await_state(first, "RUNNING");
    cluster.await_state(third, "SUSPENDED");
}

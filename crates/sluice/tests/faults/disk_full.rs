//! A disk that fills up: submits are refused with a message, nothing is half-written, the server keeps running, a node with
//! a full spool takes no jobs, and job ends are recorded.

use crate::harness::processes::supervisors;
use crate::harness::{Cluster, TWO_NODES, until};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A file that fills the disk. It is removed on drop, so that a failing test can stop its cluster.
struct Filler(PathBuf);

impl Filler {
    /// Fills the rest of the disk; dd fails when it is full, as intended.
    fn fill(dir: &Path) -> Self {
        let filler = Self(dir.join("filler"));
        for block in ["bs=64k", "bs=512"] {
            let _ = Command::new("dd")
                .args(["if=/dev/zero", block, "oflag=append", "conv=notrunc"])
                .arg(format!("of={}", filler.0.display()))
                .stderr(std::process::Stdio::null())
                .status();
        }
        filler
    }
}

impl Drop for Filler {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

#[test]
fn root_a_full_disk_refuses_submits_and_the_server_keeps_running() {
    let mut cluster = Cluster::folder(TWO_NODES);
    cluster.mount(&cluster.state(), 120);
    cluster.start();
    let server = cluster.pid("server");
    let kept = cluster.submit(&["-H", "--wrap", "true"]);
    let running =
        cluster.submit(&["--wrap", "touch started; while [ ! -e go ]; do sleep 0.05; done"]);
    // The server says RUNNING before the node has written the script; the disk must not fill in between.
    cluster.await_file("started", |_| true);
    let filler = Filler::fill(&cluster.state());
    // The scripts differ, so that each needs space.
    let body = "#".repeat(300_000);
    let mut refused = None;
    let mut taken = 0;
    for n in 0..400 {
        cluster.write("big.sh", &format!("#!/bin/sh\n# {n}\n{body}\n"));
        let said = cluster.sluice(&["sbatch", "--parsable", "-H", "big.sh"]);
        if said.code != 0 {
            refused = Some(said);
            break;
        }
        taken += 1;
    }
    let said = refused.expect("a full disk refuses a submit at some point");
    assert_eq!(said.code, 1, "{}", said.stderr);
    assert_eq!(said.stderr.lines().count(), 1, "one line: {}", said.stderr);
    assert!(
        said.stderr.starts_with("sbatch: error: Batch job submission failed: "),
        "{}",
        said.stderr
    );
    let count =
        |cluster: &Cluster| cluster.sluice(&["squeue", "-h", "-o", "%A"]).ok().lines().count();
    assert_eq!(count(&cluster), taken + 2, "the refused job is not there");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(running), "COMPLETED|0:0", "ends are still recorded");
    drop(filler);
    let later = cluster.submit(&["-H", "--wrap", "true"]);
    assert!(later > kept);
    assert_eq!(cluster.pid("server"), server, "it went on, and was not started again");
    cluster.kill("server");
    cluster.start();
    assert_eq!(count(&cluster), taken + 2, "all that was acknowledged, and nothing else");
}

#[test]
fn root_no_job_is_lost_when_the_disk_fills_under_running_jobs() {
    let mut cluster = Cluster::folder(TWO_NODES);
    cluster.mount(&cluster.state(), 140);
    cluster.mount(&cluster.path("work").join("small"), 1);
    // Snapshots are due all the time, also while the disk is full.
    let line = format!(
        "SLUICE_SNAPSHOT_EVENTS=10 {} up --detach --state {} --config {} --listen 127.0.0.1:0 --agents 127.0.0.1:0",
        crate::harness::program(),
        cluster.state().display(),
        cluster.path("conf").display()
    );
    cluster.shell(&line).ok();
    cluster.shell("mkfifo gate").ok();
    let body = "echo run >> marks-$SLURM_JOB_ID; echo before; read line < gate; echo after";
    let jobs: Vec<u32> = (0..12).map(|_| cluster.submit(&["--wrap", body])).collect();
    // A job whose output disk is full gets the error from its own write.
    let loud = "read line < gate; head -c 4000000 /dev/zero || exit 9";
    let loud = cluster.submit(&["-o", "small/out", "--wrap", loud]);
    let held = cluster.submit(&["-H", "--wrap", "true"]);
    for id in jobs.iter().chain([&loud]) {
        cluster.await_state(id, "RUNNING");
    }
    for id in &jobs {
        cluster.await_file(&format!("slurm-{id}.out"), |t| t == "before\n");
    }
    let filler = Filler::fill(&cluster.state());
    cluster.shell(": > gate").ok();
    for id in &jobs {
        cluster.await_file(&format!("slurm-{id}.out"), |t| t == "before\nafter\n");
    }
    until("their ends are known while the disk is full", || {
        let text = cluster.sluice(&["squeue", "-h", "-t", "R,CG"]).ok();
        text.trim().is_empty().then_some(())
    });
    assert_eq!(cluster.sluice(&["squeue", "-h", "-o", "%A"]).ok().trim(), held.to_string());
    drop(filler);
    let check = |when: &str| {
        for id in &jobs {
            assert_eq!(cluster.await_end(id), "COMPLETED|0:0", "{when}: job {id}");
            assert_eq!(cluster.read(&format!("marks-{id}")), "run\n", "{when}: job {id}");
        }
        assert_eq!(cluster.await_end(loud), "FAILED|9:0", "{when}");
    };
    check("with room again");
    let later = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(later), "COMPLETED|0:0");
    cluster.kill("server");
    cluster.start();
    check("from the disk");
    until("no group is left", || cluster.groups().is_empty().then_some(()));
}

/// The spool of one node is on a small disk, the other's is not.
fn small_spool(megabytes: u32) -> Cluster {
    let mut cluster = Cluster::folder(TWO_NODES);
    cluster.mount(&cluster.state().join("nodes/node1"), megabytes);
    cluster.start();
    cluster
}

#[test]
fn root_a_node_with_a_full_spool_is_drained_and_its_jobs_run_elsewhere() {
    let cluster = small_spool(1);
    let filler = Filler::fill(&cluster.state().join("nodes/node1"));
    // Without the drain each would be placed on the first node.
    let jobs: Vec<u32> = (0..5).map(|_| cluster.submit(&["--wrap", "hostname"])).collect();
    for id in &jobs {
        assert_eq!(cluster.await_end(id), "COMPLETED|0:0", "job {id}");
        let line = ["sacct", "-n", "-X", "-P", "-j", &id.to_string(), "-o", "NodeList"];
        assert_eq!(cluster.sluice(&line).ok(), "node2\n", "job {id}");
    }
    let node = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
    assert!(node.contains("State=IDLE+DRAIN"), "{node}");
    assert!(node.contains("Reason=spool: No space left on device [slurm@"), "{node}");
    let said = cluster.log("server");
    // The order is refused where it cannot be noted that it came.
    let words = ["node1 could not launch", "node1 refuses an order"];
    let told = said.lines().filter(|line| words.iter().any(|word| line.contains(word))).count();
    assert!((1..=jobs.len()).contains(&told), "once for each that was tried: {said}");
    // With free space the node works again after it is resumed.
    drop(filler);
    cluster.sluice(&["scontrol", "update", "nodename=node1", "state=resume"]).ok();
    let back = cluster.submit(&["-w", "node1", "--wrap", "true"]);
    assert_eq!(cluster.await_end(back), "COMPLETED|0:0");
}

#[test]
fn root_a_job_end_without_an_agent_is_written_on_a_full_disk() {
    let cluster = small_spool(1);
    cluster.shell("mkfifo gate").ok();
    let body = "echo run >> marks; read line < gate; exit 4";
    let job = cluster.submit(&["-w", "node1", "--wrap", body]);
    cluster.await_state(job, "RUNNING");
    cluster.await_file("marks", |text| text == "run\n");
    let filler = Filler::fill(&cluster.state().join("nodes/node1"));
    cluster.kill("agent");
    cluster.shell(": > gate").ok();
    until("its supervisor is done", || supervisors(&cluster.state()).is_empty().then_some(()));
    drop(filler);
    cluster.kill("server");
    cluster.start();
    assert_eq!(cluster.await_end(job), "FAILED|4:0");
    assert_eq!(cluster.read("marks"), "run\n");
}

//! A disk that fills up: submits are refused and say so, nothing is half-written, and the server
//! goes on.

mod harness;

use harness::{Cluster, TWO_NODES, until};
use std::process::Command;

/// A small file system of its own under the server's folder.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(at: &std::path::Path, megabytes: u32) -> Self {
        std::fs::create_dir_all(at).unwrap();
        let size = format!("size={megabytes}m");
        let status =
            Command::new("mount").args(["-t", "tmpfs", "-o", &size, "tmpfs"]).arg(at).status();
        assert!(status.unwrap().success(), "a tmpfs can be mounted");
        Self(at.to_path_buf())
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

#[test]
fn root_a_full_disk_refuses_submits_and_the_server_goes_on() {
    let cluster = Cluster::folder(TWO_NODES);
    let _disk = SmallDisk::mount(&cluster.state(), 120);
    cluster.start();
    let kept = cluster.submit(&["-H", "--wrap", "true"]);
    let running = cluster.submit(&["--wrap", "while [ ! -e go ]; do sleep 0.05; done"]);
    cluster.await_state(running, "RUNNING");
    let filler = cluster.state().join("filler");
    // dd ends with an error when the disk is full; that is what is wanted.
    let _ = Command::new("dd")
        .args(["if=/dev/zero", "bs=64k", &format!("of={}", filler.display())])
        .stderr(std::process::Stdio::null())
        .status();
    // Scripts that differ, so that each needs room of its own.
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
    std::fs::remove_file(filler).unwrap();
    let later = cluster.submit(&["-H", "--wrap", "true"]);
    assert!(later > kept);
    cluster.kill("server");
    cluster.start();
    assert_eq!(count(&cluster), taken + 2, "all that was acknowledged, and nothing else");
    cluster.sluice(&["down", "--jobs"]).ok();
}

/// Fills what is left; dd ends with an error when nothing is, and that is what is wanted.
fn fill(dir: &std::path::Path) -> std::path::PathBuf {
    let filler = dir.join("filler");
    for block in ["bs=64k", "bs=512"] {
        let _ = Command::new("dd")
            .args(["if=/dev/zero", block, "oflag=append", "conv=notrunc"])
            .arg(format!("of={}", filler.display()))
            .stderr(std::process::Stdio::null())
            .status();
    }
    filler
}

#[test]
fn root_a_disk_that_fills_under_running_jobs_costs_none_of_them() {
    let cluster = Cluster::folder(TWO_NODES);
    let _disk = SmallDisk::mount(&cluster.state(), 140);
    let _own = SmallDisk::mount(&cluster.path("work").join("small"), 1);
    // Snapshots are due all the time, also while there is no room for one.
    let line = format!(
        "SLUICE_SNAPSHOT_EVENTS=10 {} up --detach --state {} --config {} --listen 127.0.0.1:0 --agents 127.0.0.1:0",
        harness::program(),
        cluster.state().display(),
        cluster.path("conf").display()
    );
    cluster.shell(&line).ok();
    cluster.shell("mkfifo gate").ok();
    let body = "echo run >> marks-$SLURM_JOB_ID; echo before; read line < gate; echo after";
    let jobs: Vec<u32> = (0..12).map(|_| cluster.submit(&["--wrap", body])).collect();
    // A job whose own file has no room is told so by its own write.
    let loud = "read line < gate; head -c 4000000 /dev/zero || exit 9";
    let loud = cluster.submit(&["-o", "small/out", "--wrap", loud]);
    let held = cluster.submit(&["-H", "--wrap", "true"]);
    for id in jobs.iter().chain([&loud]) {
        cluster.await_state(id, "RUNNING");
    }
    for id in &jobs {
        cluster.await_file(&format!("slurm-{id}.out"), |t| t == "before\n");
    }
    let filler = fill(&cluster.state());
    cluster.shell(": > gate").ok();
    for id in &jobs {
        cluster.await_file(&format!("slurm-{id}.out"), |t| t == "before\nafter\n");
    }
    until("their ends are known while the disk is full", || {
        let text = cluster.sluice(&["squeue", "-h", "-t", "R,CG"]).ok();
        text.trim().is_empty().then_some(())
    });
    assert_eq!(cluster.sluice(&["squeue", "-h", "-o", "%A"]).ok().trim(), held.to_string());
    std::fs::remove_file(filler).unwrap();
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
    cluster.sluice(&["down", "--jobs"]).ok();
}

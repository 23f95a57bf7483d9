//! A disk that fills up: submits are refused and say so, nothing is half-written, and the server
//! goes on.

mod harness;

use harness::{Cluster, TWO_NODES};
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

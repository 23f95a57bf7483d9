//! A process that is stuck in the kernel cannot be killed: its node is drained until an administrator resumes it.

use crate::harness::{Cluster, TWO_NODES, is_alive, until};
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A FUSE file system whose server reads requests and answers only the first one.
struct Mute {
    at: PathBuf,
    /// Closing it wakes all waiting processes.
    device: Option<File>,
}

impl Mute {
    fn mount(at: &Path) -> Mute {
        std::fs::create_dir_all(at).expect("a folder to mount on");
        let device = OpenOptions::new().read(true).write(true).open("/dev/fuse").expect("a device");
        let options =
            format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", device.as_raw_fd());
        nix::mount::mount(
            Some("mute"),
            at,
            Some("fuse"),
            nix::mount::MsFlags::empty(),
            Some(options.as_str()),
        )
        .expect("a mount");
        let mut mute = Mute { at: at.to_owned(), device: Some(device) };
        mute.greet();
        mute
    }

    /// The only answer: protocol version 7.31 without options.
    fn greet(&mut self) {
        let question = self.question();
        let mut answer = Vec::new();
        let body: [u32; 16] = [7, 31, 1 << 12, 0, 0, 1 << 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        answer.extend(80_u32.to_ne_bytes());
        answer.extend(0_i32.to_ne_bytes());
        answer.extend(&question[8..16]);
        answer.extend(body.iter().flat_map(|word| word.to_ne_bytes()));
        let device = self.device.as_mut().expect("open");
        assert_eq!(device.write(&answer).expect("an answer"), answer.len());
    }

    /// Reads requests until a lookup arrives, whose process then waits for ever.
    fn swallow(&mut self) {
        const LOOKUP: u32 = 1;
        while self.question()[4..8] != LOOKUP.to_ne_bytes() {}
    }

    /// Reads one whole request of the kernel.
    fn question(&mut self) -> Vec<u8> {
        let mut question = vec![0; 1 << 16];
        let device = self.device.as_mut().expect("open");
        let length = device.read(&mut question).expect("a question");
        question.truncate(length);
        question
    }
}

impl Drop for Mute {
    fn drop(&mut self) {
        self.device = None;
        let _ = Command::new("umount").arg("-l").arg(&self.at).status();
    }
}

#[test]
fn root_an_unkillable_process_drains_its_node() {
    let cluster = Cluster::up(&format!("{TWO_NODES}UnkillableStepTimeout=1\n"));
    let at = cluster.path("mute");
    let mut mute = Mute::mount(&at);
    cluster.write("job.sh", &format!("#!/bin/sh\ncat {}/name\n", at.display()));
    let job = cluster.submit(&["-o", "/dev/null", "-w", "node1", "job.sh"]);
    mute.swallow();
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    let reason = until("the node is drained", || {
        let text = cluster.sluice(&["sinfo", "-h", "-R", "-o", "%n|%E"]).stdout;
        text.lines().find(|line| line.starts_with("node1|")).map(str::to_owned)
    });
    assert_eq!(reason, "node1|Kill task failed");
    // Its resources are not granted to another job while the process exists.
    assert!(cluster.state_of(job).starts_with("COMPLETING"), "{}", cluster.state_of(job));
    assert!(!cluster.groups().is_empty(), "its group is still there");
    drop(mute);
    assert!(cluster.await_end(job).starts_with("CANCELLED"));
    until("its groups are gone", || cluster.groups().is_empty().then_some(()));
    let state = cluster.sluice(&["sinfo", "-h", "-n", "node1", "-p", "gpu", "-o", "%T"]).stdout;
    assert!(state.trim().starts_with("drain"), "still drained: {state}");
}

/// A frozen file system: every writer waits until this is dropped.
struct Frozen(PathBuf);

impl Frozen {
    fn new(at: &Path) -> Frozen {
        let frozen = Command::new("fsfreeze").arg("-f").arg(at).status();
        assert!(frozen.expect("fsfreeze runs").success(), "a disk can be frozen");
        Frozen(at.to_owned())
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _ = Command::new("fsfreeze").arg("-u").arg(&self.0).status();
    }
}

#[test]
fn root_up_a_job_is_ended_though_its_output_disk_hangs() {
    let mut cluster = Cluster::folder(TWO_NODES);
    let disk = cluster.path("disk");
    cluster.mount_ext4(&disk, 16);
    cluster.start();
    let out = disk.join("out").display().to_string();
    let job = cluster.submit(&["-o", &out, "--wrap", "echo $$ > began; exec sleep 600"]);
    let pid = cluster.await_file("began", |text| text.ends_with('\n'));
    let pid: i32 = pid.trim().parse().expect("a number");
    let frozen = Frozen::new(&disk);
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    // The notice cannot be written to that disk, and nothing waits for it.
    until("its process is gone", || (!is_alive(pid)).then_some(()));
    drop(frozen);
    assert_eq!(cluster.await_end(job), "CANCELLED by 0|0:0");
    let next = cluster.submit(&["-w", "node1", "-o", &out, "--wrap", "true"]);
    assert_eq!(cluster.await_end(next), "COMPLETED|0:0", "the node is as good as before");
}

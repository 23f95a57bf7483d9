//! A session by `sluice attach` in a job whose script runs in a container: it is in that container, with its files and
//! processes, and files and ports go the same way.

use super::containers::{USER, assert_nothing_is_left, cluster};
use crate::harness::ssh_client::Ssh;
use crate::harness::{CommandOutput, program, until};

#[test]
fn root_session_is_in_the_container_of_the_jobs_script() {
    let cluster = cluster("");
    let rootfs = cluster.path("work/rootfs");
    let script = "echo of the script > /tmp/made; sleep 600";
    let options = format!("-o /dev/null --container={}", rootfs.display());
    let job = cluster.submit_as(USER, &format!("{options} --wrap '{script}'"));
    cluster.await_state(job, "RUNNING");
    let attach = |command: &str| {
        cluster.shell_as(USER, &format!("{} attach {job} -- '{command}'", program()))
    };
    until("the script has written its file", || {
        attach("cat /tmp/made").stdout.contains("of the script").then_some(())
    });
    let said = attach("ps; id -u; cat /etc/release").ok();
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    assert!(said.contains("sleep 600") && said.contains("made on the spot"), "{said}");
    assert!(said.contains(&format!("\n{uid}\n")), "{said}");
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    assert_nothing_is_left(&cluster);
}

/// By OpenSSH's own clients: the paths are the container's, and what is written there is its user's.
#[test]
fn root_files_go_into_and_out_of_the_container_by_scp_and_sftp() {
    let cluster = cluster("");
    let Some(ssh) = Ssh::of_user(&cluster, USER) else { return };
    let rootfs = cluster.path("work/rootfs");
    let options = format!("-o /dev/null --container={}", rootfs.display());
    let job = cluster.submit_as(USER, &format!("{options} --wrap 'sleep 600'"));
    cluster.await_state(job, "RUNNING");
    let bytes: Vec<u8> =
        (0..3_000_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    std::fs::write(cluster.path("work").join("there"), &bytes).expect("written");
    let remote = |path: &str| format!("{job}@127.0.0.1:{path}");
    let copy = |from: &str, to: &str| -> CommandOutput {
        ssh.command("scp").args([from, to]).output().expect("scp runs").into()
    };
    until("the container is there", || (ssh.run(job, &["true"]).code == 0).then_some(()));
    copy("there", &remote("/tmp/inside")).ok();
    let uid = nix::unistd::User::from_name(USER).expect("users").expect("the user").uid;
    let said = ssh.run(job, &["stat -c '%u %s' /tmp/inside; cat /etc/release"]).ok();
    assert_eq!(said, format!("{uid} 3000000\nmade on the spot\n"));
    copy(&remote("/tmp/inside"), "back").ok();
    assert!(std::fs::read(cluster.path("work").join("back")).expect("read") == bytes);
    copy(&remote("/etc/release"), "release").ok();
    assert_eq!(cluster.read("release"), "made on the spot\n", "a file of the image");
    let batch = cluster.write(
        "batch",
        "cd /tmp\nmkdir made\nput there made/a\nrename made/a made/b\nls -l made\nget made/b again\nrm made/b\nrmdir made\n",
    );
    let mut sftp = ssh.command("sftp");
    let said: CommandOutput =
        sftp.arg("-b").arg(batch).arg(format!("{job}@127.0.0.1")).output().expect("sftp").into();
    assert!(said.ok().contains("made/b"));
    assert!(std::fs::read(cluster.path("work").join("again")).expect("read") == bytes);
    // No way out: links and `..` end at the container's root.
    for path in ["/../../../../../../etc/release", "/tmp/out/release"] {
        ssh.run(job, &["rm -f /tmp/out; ln -s /../../../../etc /tmp/out"]);
        let _ = std::fs::remove_file(cluster.path("work").join("out"));
        copy(&remote(path), "out").ok();
        assert_eq!(cluster.read("out"), "made on the spot\n", "{path}");
    }
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_end(job);
    assert_nothing_is_left(&cluster);
}

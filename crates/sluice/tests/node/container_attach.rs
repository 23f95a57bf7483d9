//! A session by `sluice attach` in a job whose script runs in a container: it is in that container, with its files and
//! processes, and files and ports go the same way.

use super::containers::{USER, assert_nothing_is_left, cluster};
use crate::harness::program;

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
    crate::harness::until("the script has written its file", || {
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

//! How processes in a container of an OCI runtime live and end: on a terminal, and at the time limit.

use super::containers::{USER, assert_nothing_is_left, cluster};
use crate::harness::pty::OnTerminal;

/// The terminal is that of the `srun`, with its size and its keys.
#[test]
fn root_a_terminal_leads_into_a_container() {
    let cluster = cluster("");
    let container = format!("--container={}", cluster.path("work/rootfs").display());
    // While there is no size yet, this stty prints none and does not fail.
    let script = "until size=$(busybox stty size 2>/dev/null); [ -n \"$size\" ]; do sleep 0.05; done; echo $size; [ -t 0 ] && [ -t 1 ] && echo terminal; ls /dev/pts > /dev/null && \
                  trap 'echo caught; exit 5' INT; echo up; while :; do sleep 0.05; done";
    // A line of the screen has all that is printed.
    let size = (400, 24);
    let args = ["srun", "--pty", &container, "sh", "-c", script];
    let mut srun = OnTerminal::start(&cluster, &args, size, &[]);
    srun.until("it runs", |screen| screen.contains("up"));
    srun.press("\x03");
    assert_eq!(srun.end().code(), Some(5), "{:?}", srun.seen);
    for said in ["24 400\r\n", "terminal\r\n", "caught\r\n"] {
        assert!(srun.seen.contains(said), "{said:?} in {:?}", srun.seen);
    }
    assert_nothing_is_left(&cluster);
}

/// `srun` does not wait until a container's mounts are taken apart, but for every process of its user.
#[test]
fn root_what_a_task_leaves_running_in_its_container_is_dead_when_srun_returns() {
    let cluster = cluster("");
    let rootfs = cluster.path("work/rootfs");
    // The number tells these from all other processes.
    let seconds = 800_000 + std::process::id() % 100_000;
    for options in ["", "--container-remap-root"] {
        let line = format!(
            "srun --container={} {options} sh -c '(trap \"\" TERM; sleep {seconds}) & echo up'",
            rootfs.display()
        );
        assert_eq!(cluster.shell_as(USER, &line).ok(), "up\n", "{options}");
        let left = cluster.shell(&format!("pgrep -f 'sleep {seconds}$'"));
        assert_eq!(left.stdout, "", "{options}");
    }
    assert_nothing_is_left(&cluster);
}

/// A limit is a minute at least. What ignores the signal is killed when `KillWait` has passed, in the script's container and in
/// that of a step.
#[test]
fn root_the_time_limit_ends_a_container_with_all_that_runs_in_it() {
    let cluster = cluster("");
    let rootfs = cluster.path("work/rootfs").display().to_string();
    let stays = "(trap \"\" TERM; while :; do sleep 1; done) & while :; do sleep 1; done";
    let script = format!(
        "#!/bin/sh\nsrun --overlap -n1 --container={rootfs} --container-name=n sh -c '{stays}' &\n\
         echo up\n{stays}\n"
    );
    cluster.write("job.sh", &script);
    let job = cluster.submit(&["-n1", "-t", "1", "-o", "out", "--container", &rootfs, "job.sh"]);
    cluster.await_file("out", |text| text.contains("up\n"));
    assert_eq!(cluster.await_end(job), "TIMEOUT|0:0", "{}", cluster.read("out"));
    assert!(cluster.read("out").contains("DUE TO TIME LIMIT"), "{}", cluster.read("out"));
    assert_nothing_is_left(&cluster);
}

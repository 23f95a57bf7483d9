//! Why a run ended, in dstack's words: each part of a launch that fails has its own reason, and so has a retry that is used up.

use super::containers::cluster;
use crate::harness::{Cluster, until};
use serde_json::Value;

/// Applies a task and waits for its end; the run as `ps --json` shows it.
fn ended(cluster: &Cluster, name: &str, rest: &str) -> Value {
    let rootfs = cluster.path("work/rootfs").display().to_string();
    let head = format!("type: task\nname: {name}\nresources: {{cpu: 1, memory: 100MB}}\n");
    cluster.write("task.dstack.yml", &format!("{head}{}", rest.replace("ROOTFS", &rootfs)));
    cluster.sluice(&["apply", "-y", "-d", "-f", "task.dstack.yml"]).ok();
    until("the run ends", || Some(cluster.listed_run(name)).filter(|run| run["status"] == "failed"))
}

#[test]
fn root_every_part_of_a_launch_that_fails_has_its_termination_reason() {
    let cluster = cluster("");
    cluster.write("note.txt", "a note\n");
    cluster.sluice(&["volume", "create", "data", "--node", "node1"]).ok();
    let table = [
        ("image", "image: ROOTFS/nothing\n", "creating_container_error"),
        ("user", "image: ROOTFS\nuser: nobody-has-this-name\n", "creating_container_error"),
        ("folder", "image: ROOTFS\nvolumes: ['/nothing-is-here:/data']\n", "volume_error"),
        ("volume", "volumes: ['data:/nothing-is-here/data']\n", "volume_error"),
        ("files", "files: ['note.txt:/proc/note']\n", "executor_error"),
    ];
    for (name, rest, reason) in table {
        let run = ended(&cluster, name, &format!("{rest}commands: ['true']\n"));
        assert_eq!(run["termination_reason"], reason, "{run}");
        assert_eq!(run["run_termination_reason"], "job_failed", "{run}");
        let error = run["error"].as_str().unwrap_or_default();
        let words = format!("{}: ", reason.replace('_', " "));
        assert!(error.starts_with(&words) && error.len() > words.len(), "{run}");
        // As long as the server has the job, and in the books.
        let events = cluster.sluice(&["event", "--within-run", name]).ok();
        assert!(events.contains(&reason.to_uppercase()), "{events}");
    }
}

/// An image that cannot be had is an error like any other, which `retry` covers.
#[test]
fn root_retry_makes_a_new_attempt_after_a_container_that_cannot_be_made() {
    let cluster = cluster("");
    let file = |attempts: u32| {
        let retry = format!("retry: {{on_events: [error], attempts: {attempts}}}\n");
        format!("image: ROOTFS/nothing\n{retry}commands: ['true']\n")
    };
    let once = ended(&cluster, "once", &file(1));
    assert_eq!(once["termination_reason"], "creating_container_error", "{once}");
    assert_eq!(once["run_termination_reason"], "retry_limit_exceeded", "{once}");
    let error = once["error"].as_str().unwrap_or_default();
    assert!(error.starts_with("retry limit exceeded; creating container error: "), "{once}");
    let text = file(2).replace("ROOTFS", &cluster.path("work/rootfs").display().to_string());
    let head = "type: task\nname: twice\nresources: {cpu: 1, memory: 100MB}\n";
    cluster.write("task.dstack.yml", &format!("{head}{text}"));
    cluster.sluice(&["apply", "-y", "-d", "-f", "task.dstack.yml"]).ok();
    until("it waits for its second attempt", || {
        Some(cluster.listed_run("twice")).filter(|run| run["status_message"] == "retrying")
    });
}

//! `retry` through the program: which ends it covers, its pauses, and how many attempts it makes.

use crate::harness::{Cluster, TWO_NODES, until};
use serde_json::Value;

fn apply(cluster: &Cluster, name: &str, command: &str, retry: &str) {
    let head = format!("type: task\nname: {name}\ncommands: [{command:?}]\n");
    let text = format!("{head}retry: {retry}\nresources: {{cpu: 1, memory: 100MB}}\n");
    cluster.write("task.dstack.yml", &text);
    cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]).ok();
}

fn await_status(cluster: &Cluster, name: &str, message: &str) -> Value {
    until(&format!("{name} is {message}"), || {
        Some(cluster.listed_run(name)).filter(|run| run["status_message"] == message)
    })
}

#[test]
fn up_a_failed_run_is_tried_again_after_a_pause() {
    let cluster = Cluster::up(TWO_NODES);
    let command = "echo x >> tries; wc -l < tries; [ $(wc -l < tries) -ge 3 ]";
    apply(&cluster, "flaky", command, "{on_events: [error], duration: 1h}");
    for (attempt, pause_s) in [(1, 15), (2, 30)] {
        let waits = until("it waits for its next attempt", || {
            let tries = std::fs::read_to_string(cluster.path("work/tries")).ok()?;
            let ended = tries.lines().count() == attempt;
            Some(cluster.listed_run("flaky"))
                .filter(|run| ended && run["status_message"] == "retrying")
        });
        assert_eq!(
            (&waits["status"], &waits["attempts"]),
            (&"pending".into(), &(attempt + 1).into())
        );
        for options in [&["logs", "flaky"][..], &["logs", "flaky", "-a"]] {
            until("the log of its last attempt is shown", || {
                let said = cluster.sluice(options).ok();
                (said == format!("{attempt}\n")).then_some(())
            });
        }
        let job = waits["job_id"].to_string();
        let shown = cluster.sluice(&["scontrol", "show", "job", &job]).ok();
        assert!(shown.contains(&format!("Restarts={attempt} ")), "{shown}");
        assert!(!shown.contains("StdOut="), "the server has its log, and no file: {shown}");
        let time = |key: &str| {
            let word = shown.split_whitespace().find_map(|word| word.strip_prefix(key));
            let word = word.unwrap_or_else(|| panic!("{key} in {shown}"));
            word.parse::<jiff::civil::DateTime>().expect("a time")
        };
        let pause = time("EligibleTime=") - time("SubmitTime=");
        let seconds = pause.total(jiff::Unit::Second).expect("seconds");
        assert!((seconds - f64::from(pause_s)).abs() <= 1.0, "{seconds} s, not {pause_s}");
        // Nobody has to sit through it.
        cluster.sluice(&["scontrol", "update", &format!("JobId={job}"), "StartTime=now"]).ok();
    }
    assert_eq!(await_status(&cluster, "flaky", "exited (0)")["attempts"], 3);
    assert_eq!(cluster.read("tries"), "x\nx\nx\n");
}

#[test]
fn up_a_run_has_no_more_attempts_than_it_says_and_for_no_other_events() {
    let cluster = Cluster::up(TWO_NODES);
    apply(&cluster, "once", "exit 3", "{on_events: [error], attempts: 1}");
    let once = await_status(&cluster, "once", "exited (3)");
    assert_eq!(once["attempts"], 1);
    assert_eq!(once["termination_reason"], "container_exited_with_error");
    assert_eq!(once["run_termination_reason"], "retry_limit_exceeded");
    assert_eq!(once["error"], "retry limit exceeded");
    apply(&cluster, "other", "exit 4", "{on_events: [no-capacity, interruption]}");
    let other = await_status(&cluster, "other", "exited (4)");
    assert_eq!(
        (&other["attempts"], &other["run_termination_reason"]),
        (&1.into(), &"job_failed".into())
    );
    cluster.write("task.dstack.yml", "type: task\ncommands: [a]\nretry: {attempts: 0}\n");
    let refused = cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y"]);
    let words = "task.dstack.yml:3:19: `retry.attempts`: invalid";
    assert!(refused.code != 0 && refused.stderr.contains(words), "{refused:?}");
}

/// Where nothing is free a run ends at once, waits as long as its retry says, or waits for what is free later.
#[test]
fn up_without_capacity_a_run_waits_only_where_its_retry_says_so() {
    let cluster = Cluster::up(TWO_NODES);
    let all = cluster.submit_sleeper("-N2 --exclusive");
    cluster.await_state(all, "RUNNING");
    let file = |retry: &str| {
        let head = "type: task\nname: late\ncommands: [echo now]\n";
        cluster.write(
            "task.dstack.yml",
            &format!("{head}{retry}resources: {{cpu: 1, memory: 64MB}}\n"),
        );
        cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"])
    };
    let refused = file("");
    assert!(
        refused.code != 0 && refused.stderr.contains("nothing is free for it now"),
        "{refused:?}"
    );
    file("retry: {on_events: [no-capacity], duration: 1s}\n").ok();
    let late = await_status(&cluster, "late", "no capacity");
    assert_eq!(late["run_termination_reason"], "retry_limit_exceeded");
    file("retry: {on_events: [no-capacity]}\n").ok();
    await_status(&cluster, "late", "pending");
    cluster.sluice(&["scancel", &all.to_string()]).ok();
    await_status(&cluster, "late", "exited (0)");
}

/// Without `retry` too: that nothing is free while its parent runs says nothing about the time after.
#[test]
fn up_run_that_depends_on_another_waits_while_that_has_all_nodes() {
    let cluster = Cluster::up(TWO_NODES);
    let task = |name: &str, more: &str, command: &str| {
        let resources = "resources: {cpu: 1.., memory: 100MB.., disk: 0GB..}\n";
        let text = format!("type: task\nname: {name}\n{more}commands: [{command:?}]\n{resources}");
        cluster.write("task.dstack.yml", &text);
        cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"])
    };
    task("prepare", "nodes: 2\n", "until [ -e go ]; do sleep 0.1; done").ok();
    await_status(&cluster, "prepare", "running");
    let refused = task("impatient", "", "true");
    assert!(refused.code != 0, "{refused:?}");
    task("train", "depends_on: prepare\n", "echo x > trained").ok();
    until("it waits for its parent", || {
        let reason = cluster.sluice(&["squeue", "-h", "-n", "train", "-o", "%t %r"]).ok();
        (reason == "PD Dependency\n").then_some(())
    });
    cluster.write("go", "");
    await_status(&cluster, "train", "exited (0)");
    assert_eq!(cluster.read("trained"), "x\n");
}

//! One id leads from a client's call to the lines of server, agent and supervisor.

use crate::harness::{Cluster, TWO_NODES, until};
use std::process::Stdio;

#[test]
fn up_id_of_a_call_is_in_the_lines_of_server_agent_and_supervisor() {
    let cluster = Cluster::up(TWO_NODES);
    let call = |id: &str, words: &[&str]| -> String {
        let mut command = cluster.command(words);
        let output = command.env("SLUICE_CALL_ID", id).stdin(Stdio::null()).output();
        let output = output.expect("the program runs");
        assert!(output.status.success(), "{words:?}");
        String::from_utf8_lossy(&output.stdout).trim().to_owned()
    };
    let job = call("probe-7", &["sbatch", "--parsable", "--wrap", "true"]);
    assert_eq!(cluster.await_end(&job), "COMPLETED|0:0");
    let has = |of: &str, parts: &[&str]| {
        until(&format!("{of}: {parts:?}"), || {
            let log = cluster.log(of);
            log.lines().any(|line| parts.iter().all(|part| line.contains(part))).then_some(())
        });
    };
    let id = "call=\"probe-7\"";
    has("server", &["job submitted", &format!("job={job} "), id]);
    has("agent", &["launch ordered", &format!("attempt={job}.1"), id]);
    has("agent", &["supervisor: attempt started", id]);
    has("agent", &["supervisor: attempt ended", id, "exit=0:0"]);
    let held = cluster.submit(&["-H", "--wrap", "true"]).to_string();
    call("probe-8", &["scancel", &held]);
    has("server", &["call=probe-8", "kind=Cancel"]);
    // A call without one has its own, and one that would forge a line is not taken.
    call("a\nforged line", &["scancel", &job]);
    assert!(!cluster.log("server").contains("forged"));
}

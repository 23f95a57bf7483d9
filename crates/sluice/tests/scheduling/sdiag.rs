//! `sdiag`: the server's statistics.

use crate::harness::{Cluster, TWO_NODES};

/// The number behind a label.
fn figure(text: &str, label: &str) -> u64 {
    let line = text.lines().map(str::trim).find(|line| line.starts_with(label));
    let line = line.unwrap_or_else(|| panic!("no {label}: {text}"));
    line.rsplit(':').next().unwrap().trim().parse().expect("a number")
}

/// The count of a kind of call.
fn calls(text: &str, name: &str) -> u64 {
    let line = text.lines().find(|line| line.trim().starts_with(name));
    let count = line.and_then(|line| line.split("count:").nth(1)?.split_whitespace().next());
    count.map_or(0, |count| count.parse().expect("a number"))
}

#[test]
fn up_jobs_plans_and_calls_are_counted_and_reset() {
    let cluster = Cluster::up(TWO_NODES);
    let first = cluster.submit(&["--wrap", "true"]);
    assert!(cluster.await_end(first).starts_with("COMPLETED"));
    let second = cluster.submit(&["--wrap", "exit 3"]);
    assert!(cluster.await_end(second).starts_with("FAILED"));
    let third = cluster.submit(&["-N", "2", "--exclusive", "-t", "60", "--wrap", "sleep 600"]);
    cluster.await_state(third, "RUNNING");
    let fourth = cluster.submit(&["-N", "2", "--exclusive", "--wrap", "sleep 600"]);
    cluster.await_state(fourth, "PENDING|Resources");
    let fifth = cluster.submit(&["--hold", "--wrap", "true"]);
    cluster.shell(&format!("scancel {fifth}")).ok();
    let text = cluster.shell("sdiag").ok();
    assert!(
        text.starts_with(
            "*******************************************************\nsdiag output at "
        )
    );
    for (label, count) in [
        ("Jobs submitted", 5),
        ("Jobs started", 3),
        ("Jobs completed", 2),
        ("Jobs canceled", 1),
        ("Jobs failed", 0),
        ("Jobs pending", 1),
        ("Jobs running", 1),
        ("Last queue length", 1),
        ("Last table size", 1),
        ("Server thread count", 1),
    ] {
        assert_eq!(figure(&text, label), count, "{label}: {text}");
    }
    assert!(figure(&text, "Total cycles") >= 3, "{text}");
    assert_eq!(calls(&text, "REQUEST_SUBMIT_BATCH_JOB"), 5, "{text}");
    assert!(calls(&text, "REQUEST_KILL_JOB") >= 1, "{text}");
    assert!(text.contains("Remote Procedure Call statistics by user\n\t"), "{text}");
    let by_number = cluster.shell("sdiag -i").ok();
    let numbers: Vec<u32> = by_number
        .lines()
        .skip_while(|line| !line.contains("by message type"))
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_once('(')?.1.split_once(')')?.0.trim().parse().ok())
        .collect();
    assert!(numbers.len() > 3 && numbers.is_sorted(), "{by_number}");
    for (option, label) in [("-t", "total_time:"), ("-T", "ave_time:")] {
        let text = cluster.shell(&format!("sdiag {option}")).ok();
        let lines = text.lines().skip_while(|line| !line.contains("by message type"));
        let lines = lines.take_while(|line| !line.is_empty());
        let time = |line: &str| -> Option<u64> {
            line.split(label).nth(1)?.split_whitespace().next()?.parse().ok()
        };
        let times: Vec<u64> = lines.filter_map(time).collect();
        assert!(times.len() > 3 && times.is_sorted_by(|a, b| a >= b), "{option}: {text}");
    }
    assert_eq!(cluster.shell("sdiag --reset").ok(), "Reset scheduling statistics\n");
    let text = cluster.shell("sdiag --all").ok();
    assert_eq!(figure(&text, "Jobs submitted"), 0, "{text}");
    assert_eq!(calls(&text, "REQUEST_SUBMIT_BATCH_JOB"), 0, "{text}");
    let again = cluster.submit(&["--array=1-4", "--wrap", "true"]);
    let text = cluster.shell("sdiag").ok();
    assert_eq!(figure(&text, "Jobs submitted"), 4, "each task counts: {text}");
    cluster.shell(&format!("scancel {again}")).ok();
    let said = cluster.shell("sdiag --json");
    let unrecognized =
        "sdiag: unrecognized option '--json'\nTry \"sdiag --help\" for more information\n";
    assert_eq!((said.code, said.stderr.as_str()), (1, unrecognized));
}

#[test]
fn root_up_only_operators_reset_the_counters() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.shell_as("games", "sdiag").ok();
    cluster.submit(&["--hold", "--wrap", "true"]);
    let said = cluster.shell_as("games", "sdiag -r");
    let refused = "slurm_reset_statistics: Access/permission denied\n";
    assert_eq!((said.code, said.stderr.as_str()), (255, refused));
    assert_eq!(figure(&cluster.shell("sdiag").ok(), "Jobs submitted"), 1);
}

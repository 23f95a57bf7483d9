//! `sreport` through the program: what a job used is in the reports of its account, its user and the cluster.

use crate::harness::{Cluster, TWO_NODES, user_name};

/// The first cell after those that name the row.
fn used(line: &str) -> u64 {
    line.split('|').find_map(|cell| cell.parse().ok()).expect("a number")
}

#[test]
fn up_what_jobs_used_is_in_the_reports_of_the_books() {
    let cluster = Cluster::up(TWO_NODES);
    let report = |words: &str| {
        let line = format!("sreport -n -P -t seconds {words} start=now-1hours end=now");
        cluster.shell(&line).ok()
    };
    assert_eq!(report("user top"), "", "nobody has used anything");
    cluster.sluice(&["sacctmgr", "-i", "add", "account", "physics"]).ok();
    let me = user_name();
    cluster.sluice(&["sacctmgr", "-i", "add", "user", &me, "account=physics"]).ok();
    let job = cluster.submit(&["-A", "physics", "-n4", "-o", "/dev/null", "--wrap", "sleep 1.5"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let running = cluster.submit_sleeper("-A physics -n2");
    cluster.await_state(running, "RUNNING");

    let top = report("user top");
    assert!(top.starts_with(&format!("test|{me}|")) && top.contains("|physics|"), "{top}");
    assert!(used(&top) >= 4, "four CPUs for a second and more: {top}");
    assert!(used(&top) < 4 * 3600, "{top}");
    let accounts = report("cluster AccountUtilizationByUser tree");
    let lines: Vec<&str> = accounts.lines().collect();
    assert!(lines[0].starts_with("test|root||") && lines[1].starts_with("test| physics||"));
    assert!(lines[2].starts_with(&format!("test| physics|{me}|")), "{accounts}");
    assert!(used(lines[0]) >= used(lines[2]), "an account has what is below it: {accounts}");
    assert_eq!(report("user top users=nobody"), "");
    let sizes = report("job sizes grouping=3 PrintJobCount");
    assert!(sizes.starts_with("test|root|1|1|"), "{sizes}");
    let whole = report("cluster utilization format=reported");
    let reported: u64 = whole.trim().parse().expect("a number");
    let busy: u64 =
        report("cluster utilization format=allocated").trim().parse().expect("a number");
    assert!(busy < reported && reported < 64 * 3600, "since its first start alone: {reported}");
    let before = "sreport -n -P -t seconds cluster utilization start=now-2hours end=now-1hours";
    let before = cluster.shell(before).ok();
    assert_eq!(before, "test|0|0|0|0|0|0\n", "there was no cluster");
    let shown = cluster.shell("sreport cluster utilization start=now-1hours end=now").ok();
    assert!(shown.contains("Cluster Utilization ") && shown.contains("(3600 secs)"), "{shown}");
    assert!(shown.contains("Usage reported in CPU Minutes"), "{shown}");

    for (words, line) in [
        ("", "sreport: error: no report given"),
        ("user bottom", "sreport: error: Not valid report bottom: expected topusage"),
        ("user top colour=red", "sreport: error: Unknown condition: colour=red"),
        ("reservation utilization", "sreport: error: reservations are not in the books"),
    ] {
        let said = cluster.shell(&format!("sreport {words}"));
        assert!(said.code == 1 && said.stderr.starts_with(line), "{words}: {said:?}");
    }
}

//! What must hold when all is quiet again: every acknowledged job is in the books once, and nothing is allocated.

use crate::harness::{Cluster, within};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Ends everything, and waits until the cluster has forgotten it.
pub fn end_all_jobs(cluster: &Cluster) {
    cluster.shell("scontrol reconfigure").ok();
    // A node that cannot be trusted is taken out: nobody waits for its word.
    cluster.shell("scontrol update node=rogue1 state=down reason=over").ok();
    for node in ["node1", "node2"] {
        // Refused where there is nothing to resume.
        cluster.shell(&format!("scontrol update node={node} state=resume"));
    }
    within(Duration::from_secs(120), "the queue is empty", || {
        cluster.shell("squeue -h -r -o %A | xargs -r -n 500 scancel");
        let left = cluster.shell("squeue -h -t all -o '%A %T'").ok();
        left.trim().is_empty().then_some(())
    });
    cluster.shell("scontrol update node=rogue1 state=resume");
    within(Duration::from_secs(30), "the nodes are idle", || {
        // An administrator among the attackers may have hidden partitions: all are shown.
        let shown = cluster.shell("sinfo -a -h -N -n node1,node2 -o '%N %t' | sort -u").ok();
        let words: Vec<&str> = shown.split_whitespace().collect();
        (words == ["node1", "idle", "node2", "idle"]).then_some(())
    });
}

/// The states of every job in the books, by its number as it is shown.
pub fn books(cluster: &Cluster) -> BTreeMap<String, String> {
    let line = "sacct -n -X -P -a -S now-1day -o JobID,State";
    let mut books = BTreeMap::new();
    for row in cluster.shell(line).ok().lines() {
        let (job, state) = row.split_once('|').expect("two columns");
        let before = books.insert(job.to_owned(), state.to_owned());
        assert_eq!(before, None, "job {job} is in the books twice");
    }
    books
}

/// `acknowledged` are numbers of jobs, `runs` the names of dstack's.
pub fn check(cluster: &Cluster, acknowledged: &BTreeSet<u64>, runs: &BTreeSet<String>) {
    let books = books(cluster);
    for (job, state) in &books {
        let open = ["PENDING", "RUNNING", "SUSPENDED", "COMPLETING", "REQUEUED"];
        assert!(!open.contains(&state.as_str()), "job {job} is {state} in the books");
    }
    let number = |shown: &str| shown.split(['_', '+']).next().and_then(|id| id.parse::<u64>().ok());
    let known: BTreeSet<u64> = books.keys().filter_map(|shown| number(shown)).collect();
    let lost: Vec<&u64> = acknowledged.difference(&known).collect();
    assert!(lost.is_empty(), "acknowledged, and not in the books: {lost:?}");
    let names = cluster.shell("sacct -n -X -P -a -S now-1day -o JobName").ok();
    let names: BTreeSet<String> = names.lines().map(str::to_owned).collect();
    let lost: Vec<&String> = runs.difference(&names).collect();
    assert!(lost.is_empty(), "acknowledged runs that are not in the books: {lost:?}");
    let cpus = cluster.shell("sinfo -a -h -N -o '%N %C' | sort -u").ok();
    for line in cpus.lines() {
        assert!(line.contains(" 0/"), "CPUs are allocated although nothing runs: {cpus}");
    }
    let licenses = cluster.shell("scontrol show licenses").ok();
    assert!(licenses.contains("Used=0 "), "licenses are in use although nothing runs: {licenses}");
    usage_adds_up(cluster);
}

/// No account has used less than its users and the accounts below it have together. It may have used more: jobs of users
/// without an association, and of those that were removed, stay in it.
fn usage_adds_up(cluster: &Cluster) {
    let text = cluster.shell("sshare -a -P -n -o Account,User,RawUsage").ok();
    // Accounts are indented by their depth; the users of an account follow it.
    let rows: Vec<(usize, u64)> = text
        .lines()
        .map(|line| {
            let mut columns = line.split('|');
            let (account, user) = (columns.next().unwrap_or(""), columns.next().unwrap_or(""));
            let depth = account.len() - account.trim_start().len() + usize::from(!user.is_empty());
            (depth, columns.next().unwrap_or("0").parse().unwrap_or(0))
        })
        .collect();
    for (at, (depth, usage)) in rows.iter().enumerate() {
        let below: Vec<&(usize, u64)> =
            rows[at + 1..].iter().take_while(|row| row.0 > *depth).collect();
        let Some(nearest) = below.iter().map(|row| row.0).min() else { continue };
        let children = below.iter().filter(|row| row.0 == nearest);
        let (count, sum) = children.fold((0, 0), |(n, sum), row| (n + 1, sum + row.1));
        // Each is shown in whole seconds.
        assert!(sum <= usage + count, "{usage} is less than the sum {sum} below it:\n{text}");
    }
}

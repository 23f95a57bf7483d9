//! `strigger`: programs that run when something happens to nodes or jobs, tried with a stand-in that notes its arguments.

use crate::harness::{Cluster, TWO_NODES, until};
use std::time::Instant;

/// A program that notes what it is called with; its path.
fn notes(cluster: &Cluster) -> String {
    let work = cluster.path("work");
    cluster.write_program("notes", &format!("echo \"$@\" >> {}/noted", work.display()))
}

fn set(cluster: &Cluster, options: &str) {
    cluster.shell(&format!("strigger --set {options}")).ok();
}

fn triggers(cluster: &Cluster) -> Vec<String> {
    let listed = cluster.sluice(&["strigger", "--get", "-N"]).ok();
    listed.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
}

#[test]
fn up_triggers_run_their_program_once_when_their_job_or_node_changes() {
    let cluster = Cluster::up(TWO_NODES);
    let program = notes(&cluster);
    let job = cluster.submit_sleeper("");
    cluster.await_state(job, "RUNNING");
    set(&cluster, &format!("--jobid={job} --fini --program='{program} fini'"));
    set(&cluster, &format!("--node=node2 --down --program='{program} down'"));
    set(&cluster, &format!("--node --drained --flags=PERM --program='{program} drained'"));
    let owner = crate::harness::user_name();
    let listed = triggers(&cluster);
    assert_eq!(listed[0], format!("1 job {job} fini 0 {owner} {program} fini"));
    assert_eq!(listed[1], format!("2 node node2 down 0 {owner} {program} down"));
    assert_eq!(listed[2], format!("3 node * drained 0 {owner} PERM {program} drained"));
    // The states at the first look are no events: it is over once another trigger has fired.
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_file("noted", |text| text == format!("fini {job}\n"));
    let log = cluster.log("server");
    let fired = log.lines().find(|line| line.contains("trigger fires trigger=1 "));
    let fired = fired.unwrap_or_else(|| panic!("it is logged before its program runs: {log}"));
    let about = format!("program={program:?} about=\"{job}\"");
    assert!(fired.ends_with(&about), "neither more nor less of its program: {fired}");
    let update = |words: &str| {
        cluster.shell(&format!("scontrol update {words}")).ok();
    };
    update("nodename=node1 state=drain reason=disks");
    cluster.await_file("noted", |text| text.lines().nth(1) == Some("drained node1"));
    update("nodename=node2 state=down reason=disks");
    cluster.await_file("noted", |text| text.lines().nth(2) == Some("down node2"));
    until("what fired is gone and the permanent one stays", || {
        (triggers(&cluster) == listed[2..]).then_some(())
    });
    // The server looks at times of its own: the node is in each state for longer than it takes from one look to the next.
    let begun = Instant::now();
    until("a permanent trigger fires again", || {
        let drains = (begun.elapsed().as_secs() / 3) % 2 == 1;
        update(if drains {
            "nodename=node1 state=drain reason=again"
        } else {
            "nodename=node1 state=resume"
        });
        let fired = cluster.read("noted").lines().filter(|line| *line == "drained node1").count();
        (fired > 1).then_some(())
    });
}

#[test]
fn up_triggers_outlive_the_server_and_are_cleared_by_their_owner() {
    let cluster = Cluster::up(TWO_NODES);
    let program = notes(&cluster);
    let job = cluster.submit(&["-H", "--wrap", "true"]);
    set(&cluster, &format!("-j {job} -f -p {program}"));
    set(&cluster, &format!("-n node1 -u -p {program}"));
    cluster.sluice(&["down"]).ok();
    cluster.start();
    assert_eq!(triggers(&cluster).len(), 2);
    cluster.sluice(&["strigger", "--clear", "--id=2"]).ok();
    assert_eq!(triggers(&cluster).len(), 1);
    let said = cluster.sluice(&["strigger", "--clear", "--id=2"]);
    assert_eq!(said.code, 1, "{}", said.stderr);
    let noted = cluster.sluice(&["sacctmgr", "-n", "-P", "show", "transactions"]).ok();
    assert!(noted.contains("2 up "), "{noted}");
    // A job that ends while no server runs has ended all the same.
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_file("noted", |text| text == format!("{job}\n"));
}

#[test]
fn up_time_limit_of_a_job_is_told_before_it_is_reached() {
    let cluster = Cluster::up(TWO_NODES);
    let program = notes(&cluster);
    let job = cluster.submit_sleeper("-t 2");
    cluster.await_state(job, "RUNNING");
    // It lies in the past for a limit of two minutes: due at once.
    set(&cluster, &format!("-j {job} --time --offset=-120 -p {program}"));
    cluster.await_file("noted", |text| text == format!("{job}\n"));
    assert!(cluster.state_of(job).starts_with("RUNNING"));
}

#[test]
fn up_trigger_that_cannot_come_about_is_refused_with_what_is_right() {
    let cluster = Cluster::up(TWO_NODES);
    let table = [
        ("", "expected one of --set, --get and --clear"),
        ("--set --down", "expected --program"),
        ("--set --program=/bin/true", "expected an event"),
        ("--set --fini --program=/bin/true", "name it with --jobid"),
        ("--set --down --program=true", "expected the full path"),
        ("--set --down --offset=-5 --program=/bin/true", "--offset=-5"),
        ("--set --down --node=node9 --program=/bin/true", "Invalid node name"),
        ("--set --fini --jobid=99 --program=/bin/true", "Invalid job id"),
        ("--set --primary_slurmctld_failure --program=/bin/true", "is not supported"),
        ("--clear", "expected --id, --jobid or --user"),
    ];
    for (options, why) in table {
        let said = cluster.shell(&format!("strigger {options}"));
        assert_ne!(said.code, 0, "{options}");
        assert!(said.stderr.contains(why), "{options}: {}", said.stderr);
    }
    for _ in 0..100 {
        set(&cluster, "--down --program=/bin/true");
    }
    let said = cluster.shell("strigger --set --down --program=/bin/true");
    assert!(said.code != 0 && said.stderr.contains("triggers of one user"), "{}", said.stderr);
}

#[test]
fn root_triggers_are_the_administrators() {
    let cluster = Cluster::up(TWO_NODES);
    set(&cluster, "--down --program=/bin/true");
    let said = cluster.shell_as("daemon", "strigger --set --down --program=/bin/true");
    assert_eq!(said.code, 1);
    assert!(said.stderr.contains("Access/permission denied"), "{}", said.stderr);
    assert_eq!(cluster.shell_as("daemon", "strigger --get -N").ok(), "");
    let said = cluster.shell_as("daemon", "strigger --clear --id=1");
    assert_ne!(said.code, 0, "{}", said.stdout);
    assert_eq!(triggers(&cluster).len(), 1);
}

//! Tests of an agent without root: it runs its own user's jobs, contains them as far as it can, and reports what it
//! cannot enforce.

mod support;

use model::run::ExitStatus;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::path::Path;
use support::{Cluster, UID, attempt, wait_until};
use wire::link::ToServer;
use wire::order::Action;

#[test]
fn root_agent_without_root_runs_its_own_jobs_and_reports_what_it_cannot_enforce() {
    let mut cluster = Cluster::start_as(UID);
    let mut link = cluster.connect();
    let lacks = link.hello.nodes[0].facts.not_enforced.join("\n");
    for what in ["containment:", "memory:", "users:"] {
        assert!(lacks.contains(what), "{what} is missing in {lacks}");
    }
    let script = "#!/bin/sh\nid -u\n(setsid sh -c 'echo $$ > daemon; exec sleep 1000' &)\n\
                  while [ ! -s daemon ]; do :; done\nexit 7\n";
    let launch = cluster.batch(script);
    let end = cluster.run(&mut link, 1, launch);
    assert_eq!(end.exit, ExitStatus { code: 7, signal: 0 });
    assert_eq!(cluster.output("out"), format!("{UID}\n"));
    let daemon = cluster.output("daemon");
    assert!(!Path::new(&format!("/proc/{}", daemon.trim())).exists(), "the daemon lives");
}

#[test]
fn root_agent_without_root_refuses_jobs_of_other_users() {
    let mut cluster = Cluster::start_as(UID + 1);
    let mut link = cluster.connect();
    let launch = cluster.batch("#!/bin/sh\ntrue\n");
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let answer = cluster.next(&mut link);
    assert!(
        matches!(&answer, ToServer::OrderRefused { why, .. } if why.contains("not root")),
        "{answer:?}"
    );
}

#[test]
fn root_without_groups_the_job_of_a_killed_supervisor_is_killed() {
    let mut cluster = Cluster::start_as(UID);
    let mut link = cluster.connect();
    let launch = cluster.batch("#!/bin/sh\necho $$ $PPID > pids\nsleep 1000\n");
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    cluster.await_started(&mut link);
    let home = cluster.home();
    let pids = || std::fs::read_to_string(home.join("pids")).unwrap_or_default();
    wait_until("the script runs", || pids().ends_with('\n'));
    let pids: Vec<i32> =
        pids().split_whitespace().map(|pid| pid.parse().expect("a number")).collect();
    kill(Pid::from_raw(pids[1]), Signal::SIGKILL).expect("the supervisor is there");
    let end = cluster.await_end(&mut link, attempt(1, 1));
    assert!(end.supervisor_lost, "{end:?}");
    wait_until("the script is dead", || !Path::new(&format!("/proc/{}", pids[0])).exists());
}

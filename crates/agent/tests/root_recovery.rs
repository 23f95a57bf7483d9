//! Tests of killed agents, launchers and supervisors under running jobs, and of orders that must be refused.

mod support;

use model::run::ExitStatus;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use std::fs;
use std::path::Path;
use support::{Cluster, FakeLink, attempt, wait_until};
use wire::link::{RefusedOrder, SpooledAttempt, ToAgent, ToServer};
use wire::order::{Action, EndOrder, SignedOrder};
use wire::report::ReportEvent;

/// Writes its pid, and waits for a file.
const WAITING: &str =
    "#!/bin/sh\necho $$ > pid\nwhile [ ! -e go ]; do sleep 0.02; done\necho done\nexit 4\n";
const CODE_4: ExitStatus = ExitStatus { code: 4, signal: 0 };

fn start_waiting(cluster: &mut Cluster, link: &mut FakeLink) {
    let launch = cluster.batch(WAITING);
    cluster.order(link, attempt(1, 1), Action::Launch(Box::new(launch)));
    cluster.await_started(link);
    let pid = cluster.home().join("pid");
    wait_until("the script runs", || {
        fs::read_to_string(&pid).is_ok_and(|text| text.ends_with('\n'))
    });
}

fn let_go(cluster: &Cluster) {
    fs::write(cluster.home().join("go"), "").expect("the word to go on");
}

fn script_pid(cluster: &Cluster) -> i32 {
    cluster.output("pid").trim().parse().expect("a process number")
}

fn parent_of(pid: i32) -> i32 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("the process lives");
    let (_, rest) = stat.rsplit_once(')').expect("a name");
    rest.split_whitespace().nth(1).expect("a parent").parse().expect("a number")
}

fn is_alive(pid: i32) -> bool {
    Path::new(&format!("/proc/{pid}")).exists()
}

#[test]
fn root_job_survives_a_killed_and_restarted_agent() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    start_waiting(&mut cluster, &mut link);
    cluster.kill_agent();
    drop(link);
    cluster.start_agent();
    let mut link = cluster.connect();
    let held = SpooledAttempt { attempt: attempt(1, 1), alive: true };
    assert_eq!(link.hello.nodes[0].attempts, [held]);
    assert!(is_alive(script_pid(&cluster)));
    let_go(&cluster);
    let end = cluster.await_end(&mut link, attempt(1, 1));
    assert_eq!((end.exit, end.supervisor_lost), (CODE_4, false));
    assert_eq!(cluster.output("out"), "done\n");
}

#[test]
fn root_end_without_an_agent_is_reported_by_the_next_until_forgotten() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    start_waiting(&mut cluster, &mut link);
    cluster.kill_agent();
    drop(link);
    let_go(&cluster);
    let status = cluster.spool().join("1.1/status.json");
    let written = || std::fs::read_to_string(&status).is_ok_and(|text| text.contains("ended"));
    wait_until("the end is in the spool", written);
    cluster.assert_no_groups();
    for _ in 0..2 {
        cluster.start_agent();
        let mut link = cluster.connect();
        let held = SpooledAttempt { attempt: attempt(1, 1), alive: false };
        assert_eq!(link.hello.nodes[0].attempts, [held], "kept until it is forgotten");
        let end = cluster.await_end(&mut link, attempt(1, 1));
        assert_eq!((end.exit, end.supervisor_lost), (CODE_4, false));
        cluster.kill_agent();
    }
    cluster.start_agent();
    let mut link = cluster.connect();
    cluster.order(&mut link, attempt(1, 1), Action::Forget);
    wait_until("the folder is gone", || !cluster.spool().join("1.1").exists());
}

#[test]
fn root_job_of_a_killed_supervisor_is_killed() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    start_waiting(&mut cluster, &mut link);
    let script = script_pid(&cluster);
    kill(Pid::from_raw(parent_of(script)), Signal::SIGKILL).expect("the supervisor is there");
    let end = cluster.await_end(&mut link, attempt(1, 1));
    assert!(end.supervisor_lost, "{end:?}");
    wait_until("the script is dead", || !is_alive(script));
    cluster.assert_no_groups();
}

#[test]
fn root_supervisor_killed_without_an_agent_is_reported_lost() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    start_waiting(&mut cluster, &mut link);
    let script = script_pid(&cluster);
    cluster.kill_agent();
    kill(Pid::from_raw(parent_of(script)), Signal::SIGKILL).expect("the supervisor is there");
    cluster.start_agent();
    let mut link = cluster.connect();
    let end = cluster.await_end(&mut link, attempt(1, 1));
    assert!(end.supervisor_lost, "{end:?}");
    wait_until("the script is dead", || !is_alive(script));
    cluster.assert_no_groups();
}

#[test]
fn root_group_of_no_attempt_is_killed_before_the_hello() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    start_waiting(&mut cluster, &mut link);
    let script = script_pid(&cluster);
    cluster.kill_agent();
    drop(link);
    // As if the folder had been lost with the disk under it.
    kill(Pid::from_raw(parent_of(script)), Signal::SIGKILL).expect("the supervisor is there");
    fs::remove_dir_all(cluster.spool().join("1.1")).expect("removed");
    cluster.start_agent();
    let link = cluster.connect();
    assert_eq!(link.hello.nodes[0].attempts, []);
    wait_until("the script is dead", || !is_alive(script));
    cluster.assert_no_groups();
}

#[test]
fn root_agent_ends_when_its_launcher_is_lost() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    start_waiting(&mut cluster, &mut link);
    let launcher = parent_of(parent_of(script_pid(&cluster)));
    let name = fs::read_to_string(format!("/proc/{launcher}/comm")).expect("its name");
    assert_eq!(name, "sluice-launcher\n");
    kill(Pid::from_raw(launcher), Signal::SIGKILL).expect("the launcher is there");
    assert_ne!(cluster.wait_agent(), 0, "so that whoever watches it starts it again");
    cluster.start_agent();
    let mut link = cluster.connect();
    let_go(&cluster);
    assert_eq!(cluster.await_end(&mut link, attempt(1, 1)).exit, CODE_4);
}

#[test]
fn root_forged_and_replayed_orders_are_refused() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let launch = Action::Launch(Box::new(cluster.batch("#!/bin/sh\necho ran >> count\n")));
    let signed = cluster.server.sign(attempt(1, 1), launch);
    let refusal = |cluster: &Cluster, link: &mut FakeLink, order: &SignedOrder| {
        cluster.send(link, &ToAgent::Order(order.clone()));
        match cluster.next(link) {
            ToServer::OrderRefused { why, .. } => why,
            other => panic!("not refused: {other:?}"),
        }
    };
    let forged = SignedOrder { body: signed.body.replace("count", "other"), ..signed.clone() };
    assert!(refusal(&cluster, &mut link, &forged).contains("not signed"));

    cluster.send(&mut link, &ToAgent::Order(signed.clone()));
    cluster.await_end(&mut link, attempt(1, 1));
    assert!(refusal(&cluster, &mut link, &signed).contains("taken before"));
    cluster.order(&mut link, attempt(1, 1), Action::Forget);
    wait_until("forgotten", || !cluster.spool().join("1.1").exists());
    cluster.kill_agent();
    cluster.start_agent();
    let mut link = cluster.connect();
    assert!(refusal(&cluster, &mut link, &signed).contains("launched here before"));
    assert_eq!(cluster.output("count"), "ran\n");
}

#[test]
fn root_repeated_launch_order_does_not_lose_the_running_attempt() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    start_waiting(&mut cluster, &mut link);
    let again = Action::Launch(Box::new(cluster.batch("#!/bin/sh\necho ran >> count\n")));
    cluster.order(&mut link, attempt(1, 1), again);
    let said = cluster.next(&mut link);
    assert!(
        matches!(said, ToServer::OrderRefused { order: RefusedOrder::Other, .. }),
        "it runs here: {said:?}"
    );
    let end = EndOrder { step: None, grace_s: 0, notice: None, step_notice: None, exit: None };
    cluster.order(&mut link, attempt(1, 1), Action::End(end));
    cluster.await_end(&mut link, attempt(1, 1));
}

#[test]
fn root_forget_of_a_running_and_end_of_an_unknown_attempt_are_refused() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    start_waiting(&mut cluster, &mut link);
    cluster.order(&mut link, attempt(1, 1), Action::Forget);
    assert!(
        matches!(cluster.next(&mut link), ToServer::OrderRefused { why, .. } if why.contains("still runs"))
    );
    let end = |grace_s| {
        Action::End(EndOrder { step: None, grace_s, notice: None, step_notice: None, exit: None })
    };
    cluster.order(&mut link, attempt(7, 1), end(0));
    assert!(
        matches!(cluster.next(&mut link), ToServer::OrderRefused { why, .. } if why.contains("no attempt 7.1"))
    );
    cluster.order(&mut link, attempt(1, 1), end(0));
    let ended = cluster.await_end(&mut link, attempt(1, 1));
    assert_eq!(ended.exit, ExitStatus { code: 0, signal: libc::SIGKILL });
}

#[test]
fn root_reports_are_repeated_until_acknowledged() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    let launch = cluster.batch("#!/bin/sh\ntrue\n");
    cluster.order(&mut link, attempt(1, 1), Action::Launch(Box::new(launch)));
    let is_end = |message: ToServer| matches!(message, ToServer::Report(r) if matches!(r.event, ReportEvent::Ended(_)));
    while !is_end(cluster.next(&mut link)) {}
    drop(link);
    let mut link = cluster.connect();
    assert!(
        matches!(cluster.next(&mut link), ToServer::Report(r) if r.event == ReportEvent::Started)
    );
    let end = cluster.await_end(&mut link, attempt(1, 1));
    assert!(end.exit.is_success());
}

#[test]
fn root_stopped_agent_leaves_running_jobs_but_no_empty_groups() {
    let mut cluster = Cluster::start();
    let mut link = cluster.connect();
    start_waiting(&mut cluster, &mut link);
    drop(link);
    assert_eq!(cluster.stop_agent(), 0);
    assert!(is_alive(script_pid(&cluster)), "jobs go on");
    cluster.start_agent();
    let mut link = cluster.connect();
    let_go(&cluster);
    assert_eq!(cluster.await_end(&mut link, attempt(1, 1)).exit, CODE_4);
    assert_eq!(cluster.stop_agent(), 0);
    let roots = support::roots_of(&cluster.state());
    assert!(roots.is_empty(), "left over: {roots:?}");
}

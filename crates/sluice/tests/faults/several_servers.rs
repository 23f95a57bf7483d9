//! Several servers on one PostgreSQL: one leads, another takes over, and nothing that was acknowledged is lost.

use crate::database::TestDatabase;
use crate::harness::{Cluster, TIMEOUT, TWO_NODES, signal, within};
use crate::servers::{
    Pair, Server, agent, await_backup, await_cancelled, copy_keys, job_until_go, jobs,
    server_command,
};
use std::collections::BTreeSet;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

#[test]
fn up_standby_takes_over_every_acknowledged_job_from_a_killed_leader() {
    let mut pair = Pair::up();
    let (first, second) = (&pair.first, &pair.second);

    let submit = |cluster: &Cluster| cluster.submit(&["-H", "--wrap", "echo kept"]);
    let mut acknowledged: BTreeSet<u32> = (0..20).map(|_| submit(first)).collect();
    assert_eq!(acknowledged.len(), 20);
    pair.leader.end("KILL");
    pair.standby.await_line("sluice is up");
    assert_eq!(jobs(second), acknowledged);
    for _ in 0..5 {
        assert!(acknowledged.insert(submit(second)), "an id was given out twice");
    }
    let checked = second.sluice(&["store", "check", "--store", &pair.database.url()]).ok();
    assert!(checked.contains(" is sound: 25 jobs as of event "), "{checked}");
    assert!(checked.lines().last().is_some_and(|line| line.ends_with(" leads")), "{checked}");
    // The script of a job that another server took.
    let oldest = *acknowledged.first().expect("a job");
    let script = second.sluice(&["scontrol", "write", "batch_script", &oldest.to_string(), "-"]);
    let script = script.ok();
    assert!(script.contains("echo kept"), "{script}");
    // What ended under one leader is in the books of the next.
    second.sluice(&["scancel", &oldest.to_string()]).ok();
    await_cancelled(second, oldest);

    // The former leader waits now, and takes over when the other is told to stop.
    let back = Server::start(first, &pair.database);
    back.await_line("sluice waits as a standby");
    pair.standby.end("TERM");
    back.await_line("sluice is up");
    acknowledged.remove(&oldest);
    assert!(jobs(first).is_superset(&acknowledged));
    assert!(acknowledged.insert(submit(first)), "an id was given out twice");
    await_cancelled(first, oldest);
}

/// A server that has its cluster's keys from the database.
fn start_by_key(cluster: &Cluster, database: &TestDatabase, key: &std::path::Path) -> Server {
    Server::spawn(server_command(cluster, &database.url()).arg("--store-key-file").arg(key))
}

#[test]
fn up_standby_joins_by_the_database_alone_and_has_what_the_leader_changed() {
    const LINE: &str = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAILM+rvN+ot98qgEN796jTiQfZfG1KaT0PtFDJ/XFSqti ada@laptop\n";
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let key = first.write("store.key", &format!("{}\n", "4f".repeat(32)));
    let mut leader = start_by_key(&first, &database, &key);
    leader.await_line("sluice is up");
    let mut standby = start_by_key(&second, &database, &key);
    standby.await_line("sluice waits as a standby");
    let token = |cluster: &Cluster| {
        std::fs::read_to_string(cluster.state().join("admin.token")).expect("a token")
    };
    assert_eq!(token(&first), token(&second));

    // What changes in files of the leader's machine: a key of a user, the key of secrets, the administrator's token.
    let line = first.write("ada.pub", LINE).display().to_string();
    first.sluice(&["key", "add", &line]).ok();
    first.sluice(&["secret", "set", "shared", "hush-7c1"]).ok();
    first.sluice(&["secret", "rotate-key"]).ok();
    first.sluice(&["token", "rotate", "admin"]).ok();
    leader.end("KILL");
    standby.await_line("sluice is up");
    assert!(second.sluice(&["key", "list"]).ok().contains("ada@laptop"));
    assert_eq!(second.sluice(&["secret", "get", "shared", "--raw"]).ok(), "hush-7c1");
    // It has the new token by its next start.
    standby.end("TERM");
    let again = start_by_key(&second, &database, &key);
    again.await_line("sluice is up");
    assert_eq!(token(&first), token(&second));

    // Another key opens nothing, and says so.
    let third = Cluster::folder(TWO_NODES);
    let other = first.write("other.key", &"5a".repeat(32));
    let mut command = server_command(&third, &database.url());
    let said = command.arg("--store-key-file").arg(&other).output().expect("the program runs");
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.contains("every server needs the same --store-key-file"), "{said}");
}

/// The answer of a server to one call on its socket, with its head.
fn raw_call(cluster: &Cluster, call: &str) -> String {
    let body = format!(r#"{{"version":{},"call":{call}}}"#, wire::version::PROTOCOL);
    raw_post(cluster, "/api/v1/call", &body)
}

/// The same to a body that is sent to any path.
fn raw_post(cluster: &Cluster, path: &str, body: &str) -> String {
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
        body.len()
    );
    let mut stream = UnixStream::connect(cluster.state().join("sluice.sock")).expect("a server");
    stream.write_all(format!("{head}{body}").as_bytes()).expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

#[test]
fn up_standby_answers_what_only_looks_and_passes_changes_on() {
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let mut leader = Server::lead(&first, &database);
    copy_keys(&first, &second);
    let log = std::fs::File::create(second.path("server.log")).expect("a log");
    let mut command = server_command(&second, &database.url());
    let standby = Server::spawn_with_log(&mut command, log.into());
    standby.await_line("sluice waits as a standby");

    // A submit to the standby is the leader's, and whoever asks the standby next sees it.
    let submit = |cluster: &Cluster| cluster.submit(&["-H", "--wrap", "true"]);
    let job = submit(&second);
    assert_eq!(jobs(&second), BTreeSet::from([job]));
    assert_eq!(jobs(&first), BTreeSet::from([job]));
    let answer = raw_call(&second, r#""cluster""#);
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    assert!(answer.contains("sluice-standby-lag-ms: "), "{answer}");
    assert!(!raw_call(&first, r#""cluster""#).contains("sluice-standby-lag-ms"));
    second.sluice(&["sinfo"]).ok();
    second.sluice(&["scontrol", "show", "job", &job.to_string()]).ok();
    let script = second.sluice(&["scontrol", "write", "batch_script", &job.to_string(), "-"]).ok();
    assert!(script.contains("true"), "the leader has it: {script}");
    second.sluice(&["scancel", &job.to_string()]).ok();
    assert!(jobs(&first).is_empty() && jobs(&second).is_empty());
    await_cancelled(&second, job);
    within(TIMEOUT, "each names both servers", || {
        let said = [&first, &second].map(|cluster| cluster.sluice(&["scontrol", "ping"]).ok());
        let both = |said: &String| {
            said.contains("Slurmctld(primary) at ") && said.contains("Slurmctld(backup1) at ")
        };
        said.iter().all(both).then_some(())
    });

    // Why a job waits is found out by the standby itself.
    let waits = second.submit(&["-N2", "--exclusive", "--wrap", "true"]);
    within(TIMEOUT, "the standby says why", || {
        let said = second.sluice(&["squeue", "-h", "-j", &waits.to_string(), "-o", "%r"]).ok();
        (said.trim() != "None").then_some(())
    });
    second.sluice(&["scancel", &waits.to_string()]).ok();
    assert!(second.sluice(&["sdiag"]).ok().contains(": leads, term "), "the leader says it");
    let doctor = first.sluice(&["doctor"]);
    assert!(doctor.stdout.contains(": follows, "), "{}", doctor.stdout);

    // It leads with the state that it has followed.
    let kept = submit(&second);
    leader.end("KILL");
    standby.await_line("sluice is up");
    assert_eq!(jobs(&second), BTreeSet::from([kept]));
    assert!(!raw_call(&second, r#""cluster""#).contains("sluice-standby-lag-ms"));
    let log = std::fs::read_to_string(second.path("server.log")).expect("a log");
    assert!(log.contains("is_hot=true"), "{log}");
}

#[test]
fn up_standby_shows_dstacks_runs_itself_and_passes_on_what_the_leader_alone_knows() {
    let pair = Pair::up();
    let second = &pair.second;
    // The leader takes it, and whoever asks the standby next sees it. No node is up: it waits.
    let submit = |name: &str, lines: &str| {
        let rest = "retry: {on_events: [no-capacity], duration: 1h}\n\
                    resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n";
        let file = format!("{name}.dstack.yml");
        second.write(&file, &format!("name: {name}\n{lines}{rest}"));
        second.submit(&[&file])
    };
    submit("kept", "type: task\ncommands: [echo words of kept]\n");
    // Only the standby's own answers have it.
    let is_own = |answer: &String| answer.contains("sluice-standby-lag-ms: ");
    let ask = |path: &str, body: &str| {
        let answer = raw_post(second, path, body);
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
        answer
    };
    let active = || ask("/api/runs/list", r#"{"only_active":true}"#);
    let named = || ask("/api/project/main/runs/get", r#"{"run_name":"kept"}"#);
    // Until the standby has read the run's text, the leader shows it: never without it.
    let show_text = |look: &dyn Fn() -> String| {
        let answer = look();
        assert!(answer.contains("echo words of kept"), "{answer}");
        answer
    };
    for look in [&active as &dyn Fn() -> String, &named] {
        let shown = || Some(show_text(look)).filter(is_own);
        within(TIMEOUT, "the standby shows the run itself", shown);
    }
    for path in ["/api/volumes/list", "/api/project/main/volumes/list"] {
        assert!(is_own(&ask(path, "{}")), "{path}");
    }

    // Where a service is found gateways have told the leader: a list with one is the leader's.
    submit("web", "type: service\nport: 8000\ncommands: [sleep 600]\n");
    let with_service = active();
    assert!(with_service.contains("/proxy/services/main/web/"), "{with_service}");
    assert!(!is_own(&with_service), "{with_service}");
    assert!(is_own(&show_text(&named)), "another run is shown as before");

    // What changes is the leader's, and is seen here next.
    let stop = r#"{"runs_names":["kept","web"],"abort":true}"#;
    assert!(!is_own(&ask("/api/project/main/runs/stop", stop)));
    let none = active();
    assert!(none.ends_with("\r\n\r\n[]") && is_own(&none), "{none}");
    assert!(is_own(&show_text(&named)), "also once it has ended");
}

#[test]
fn up_tokens_hold_at_a_standby_as_at_the_leader() {
    let pair = Pair::up();
    let (first, second) = (&pair.first, &pair.second);
    let port = second.address_of("listen");
    let token = std::fs::read_to_string(first.state().join("admin.token")).expect("a token");
    let ask = |path: &str, token: &str| {
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n");
        let rest = format!("Authorization: Bearer {token}\r\nContent-Length: 2\r\n\r\n{{}}");
        let mut stream = std::net::TcpStream::connect(&port).expect("a server");
        stream.write_all(format!("{head}{rest}").as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        answer
    };
    // Passed on, and answered here.
    let passed = ask("/api/users/get_my_user", token.trim());
    assert!(passed.starts_with("HTTP/1.1 200"), "{passed}");
    assert!(!passed.contains("sluice-standby-lag-ms"), "{passed}");
    let lists = ["/api/projects/list", "/api/runs/list"];
    for path in lists {
        let listed = ask(path, token.trim());
        assert!(listed.starts_with("HTTP/1.1 200"), "{path}: {listed}");
        assert!(listed.contains("sluice-standby-lag-ms: "), "{path}: {listed}");
    }
    for path in ["/api/users/get_my_user", "/api/v1/call"].into_iter().chain(lists) {
        let refused = ask(path, "00");
        assert!(refused.starts_with("HTTP/1.1 40"), "{path}: {refused}");
    }
}

#[test]
fn up_running_job_goes_on_under_the_next_leader() {
    let mut pair = Pair::up();
    let (first, second) = (&pair.first, &pair.second);
    let _agent = agent("node1", &[first, second]);

    let job = job_until_go(first, &["-w", "node1"]);
    pair.leader.end("KILL");
    pair.standby.await_line("sluice is up");
    assert_eq!(second.state_of(job), "RUNNING|None");
    first.write("go", "");
    assert_eq!(second.await_end(job), "FAILED|3:0");
    assert_eq!(first.read("runs"), "run\n");
}

#[test]
fn up_log_of_a_run_that_ended_is_read_from_the_next_leader() {
    let mut pair = Pair::up();
    let (first, second) = (&pair.first, &pair.second);
    let mut agent = agent("node1", &[first, second]);
    // Its node may not be up yet.
    let text = "type: task\nname: talks\ncommands: [seq 3000, echo last]\n\
                retry: {on_events: [no-capacity], duration: 1h}\n\
                resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n";
    first.write("talks.dstack.yml", text);
    let job = first.submit(&["talks.dstack.yml"]);
    assert_eq!(first.await_end(job), "COMPLETED|0:0");
    let expected: String = (1..=3000).map(|n| format!("{n}\n")).chain(["last\n".into()]).collect();
    let log = |cluster: &Cluster| cluster.sluice(&["logs", "talks"]).stdout;
    within(TIMEOUT, "the leader has the whole log", || (log(first) == expected).then_some(()));
    // The node is gone: whoever has the log has it from the database.
    agent.end("KILL");
    pair.leader.end("KILL");
    pair.standby.await_line("sluice is up");
    assert_eq!(log(second), expected);
}

#[test]
fn up_frozen_leader_writes_nothing_after_another_has_taken_over() {
    let mut pair = Pair::up();
    let (first, second) = (&pair.first, &pair.second);
    let job = first.submit(&["-H", "--wrap", "true"]);
    signal(pair.leader.process.id() as i32, "STOP");
    pair.standby.await_line("sluice is up");
    signal(pair.leader.process.id() as i32, "CONT");
    // It finds another in its place, and ends.
    pair.leader.await_succeeded();
    assert_eq!(jobs(second), BTreeSet::from([job]));
}

#[test]
fn up_sbatch_that_loses_its_leader_is_one_job_under_the_next() {
    let pair = Pair::up();
    let second = &pair.second;
    // Its standby cannot pass the submit on, and takes over while the command waits.
    signal(pair.leader.process.id() as i32, "STOP");
    let job = second.submit(&["-H", "--wrap", "true"]);
    pair.standby.await_line("sluice is up");
    assert_eq!(jobs(second), BTreeSet::from([job]));
    signal(pair.leader.process.id() as i32, "CONT");
}

#[test]
fn up_lead_is_handed_over_and_back_one_server_at_a_time() {
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let mut leader = Server::lead(&first, &database);
    let alone = first.sluice(&["scontrol", "takeover"]);
    assert!(alone.stderr.contains("no other server waits"), "{}", alone.stderr);
    let mut standby = Server::wait_beside(&first, &second, &database);
    await_backup(&first);

    let job = first.submit(&["-H", "--wrap", "true"]);
    // Asked of the standby, it is passed on.
    let said = second.sluice(&["server", "handover"]).ok();
    assert!(said.contains(" leads, in term "), "{said}");
    standby.await_line("sluice is up");
    leader.await_succeeded();
    assert_eq!(jobs(&second), BTreeSet::from([job]));
    // A new program is started in its place, and leads when the other is upgraded.
    let upgraded = Server::start(&first, &database);
    upgraded.await_line("sluice waits as a standby");
    within(TIMEOUT, "the leader knows the standby", || {
        let said = second.sluice(&["scontrol", "ping"]).ok();
        said.contains("is UP\nSlurmctld(backup1)").then_some(())
    });
    second.sluice(&["scontrol", "takeover"]).ok();
    upgraded.await_line("sluice is up");
    standby.process.wait().expect("it ends");
    assert_eq!(jobs(&first), BTreeSet::from([job]));
}

#[test]
fn up_database_that_is_away_refuses_submits_in_one_line_and_loses_none() {
    let mut database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let _server = Server::lead(&cluster, &database);
    let submit = || cluster.sluice(&["sbatch", "--parsable", "-H", "--wrap", "true"]);
    let mut acknowledged = BTreeSet::from([submit().ok()]);
    database.crash();
    let refused = submit();
    assert_ne!(refused.code, 0);
    assert_eq!(refused.stderr.lines().count(), 1, "{}", refused.stderr);
    assert!(refused.stderr.contains("the database cannot be reached"), "{}", refused.stderr);
    database.restart();
    let said = within(TIMEOUT, "the server takes submits again", || {
        Some(submit()).filter(|said| said.code == 0)
    });
    assert!(acknowledged.insert(said.ok()), "an id was given out twice");
    let acknowledged: BTreeSet<u32> =
        acknowledged.iter().map(|id| id.trim().parse().expect("a job id")).collect();
    assert_eq!(jobs(&cluster), acknowledged);
}

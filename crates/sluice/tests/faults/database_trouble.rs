//! A database that is slow, full, read-only, away or out of sessions: commands are refused in one line or wait, jobs run on, and nothing
//! is lost.

use crate::database::TestDatabase;
use crate::harness::clock::Clock;
use crate::harness::{Cluster, CommandOutput, TIMEOUT, TWO_NODES, signal, within};
use crate::servers::{Server, agent, before_commits, jobs, server_command};
use std::collections::BTreeSet;
use std::process::Stdio;

fn submit(cluster: &Cluster) -> CommandOutput {
    cluster.sluice(&["sbatch", "--parsable", "-H", "--wrap", "true"])
}

/// Refused in one line that says why.
fn refused(said: &CommandOutput, why: &str) {
    assert_ne!(said.code, 0, "{}", said.stdout);
    assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
    assert!(said.stderr.contains(why), "{}", said.stderr);
}

/// Ends the sessions of servers: the next have what was set meanwhile.
fn end_sessions(database: &TestDatabase) {
    let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity
               WHERE application_name = 'sluice' AND pid <> pg_backend_pid()";
    database.execute("postgres", end);
}

/// A job of node1 that runs, and ends with 3 when the file `go` is there. The file `runs` has its begin and its end.
fn job_that_notes_its_end(cluster: &Cluster) -> u32 {
    let body = "echo run >> runs; until [ -e go ]; do sleep 0.05; done; echo ended >> runs; exit 3";
    let job = cluster.submit(&["-w", "node1", "--no-requeue", "-o", "/dev/null", "--wrap", body]);
    cluster.await_file("runs", |text| !text.is_empty());
    job
}

fn without_trouble(database: &TestDatabase) {
    database.execute("sluice", "DROP TRIGGER trouble ON sluice.journal");
}

#[test]
fn up_full_database_refuses_submits_in_one_line_until_it_is_not() {
    let database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let _server = Server::lead(&cluster, &database);
    let kept = submit(&cluster).ok();
    let full = "RAISE EXCEPTION 'could not extend file: No space left' USING ERRCODE = '53100';";
    before_commits(&database, full);
    refused(&submit(&cluster), "No space left");
    // What only looks is answered meanwhile.
    let known = BTreeSet::from([kept.trim().parse().expect("an id")]);
    assert_eq!(jobs(&cluster), known);
    without_trouble(&database);
    within(TIMEOUT, "submits are taken again", || (submit(&cluster).code == 0).then_some(()));
    assert_eq!(jobs(&cluster).len(), 2);
}

#[test]
fn up_slow_database_is_waited_for_and_commits_go_together() {
    let database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let _server = Server::lead(&cluster, &database);
    before_commits(&database, "PERFORM pg_sleep(1);");
    let spawn = |_| {
        let mut command = cluster.command(&["sbatch", "--parsable", "-H", "--wrap", "true"]);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().expect("sbatch runs")
    };
    let children: Vec<_> = (0..12).map(spawn).collect();
    let mut ids = BTreeSet::new();
    for child in children {
        let said = child.wait_with_output().expect("sbatch ends");
        assert!(said.status.success());
        let id: u32 = String::from_utf8_lossy(&said.stdout).trim().parse().expect("an id");
        assert!(ids.insert(id), "{id} was given out twice");
    }
    without_trouble(&database);
    assert_eq!(jobs(&cluster), ids);
}

#[test]
fn up_database_that_becomes_read_only_refuses_changes_and_shows_what_it_has() {
    let database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let _server = Server::lead(&cluster, &database);
    let kept = submit(&cluster).ok();
    database.execute("postgres", "ALTER DATABASE sluice SET default_transaction_read_only = on");
    end_sessions(&database);
    // The first may find the lost session, and the next the new one.
    within(TIMEOUT, "it is said to be read-only", || {
        let said = submit(&cluster);
        assert_ne!(said.code, 0);
        assert_eq!(said.stderr.lines().count(), 1, "{}", said.stderr);
        said.stderr.contains("read-only").then_some(())
    });
    assert_eq!(jobs(&cluster), BTreeSet::from([kept.trim().parse().expect("an id")]));
    database.execute("postgres", "ALTER DATABASE sluice SET default_transaction_read_only = off");
    end_sessions(&database);
    within(TIMEOUT, "submits are taken again", || (submit(&cluster).code == 0).then_some(()));
}

#[test]
fn up_server_waits_for_a_database_that_has_no_session_left() {
    let mut database = TestDatabase::start();
    let settings = ["max_connections=6", "superuser_reserved_connections=0", "max_wal_senders=0"];
    database.serve_with(&settings, None);
    let held = database.take_sessions("sluice", 6);
    let cluster = Cluster::folder(TWO_NODES);
    let log = std::fs::File::create(cluster.path("server.log")).expect("a log");
    let mut command = server_command(&cluster, &database.url());
    let server = Server::spawn_with_log(&mut command, log.into());
    within(TIMEOUT, "the server says that it waits", || {
        let log = std::fs::read_to_string(cluster.path("server.log")).unwrap_or_default();
        log.contains("too many clients").then_some(())
    });
    drop(held);
    server.await_line("sluice is up");
    submit(&cluster).ok();
}

#[test]
fn up_leader_that_finds_no_session_left_refuses_in_one_line_while_its_job_runs_on() {
    let mut database = TestDatabase::start();
    let settings = ["max_connections=8", "superuser_reserved_connections=3", "max_wal_senders=0"];
    database.serve_with(&settings, None);
    // The tests' own user is a superuser, who always has a session left to end those of others.
    database.execute("postgres", "CREATE ROLE ordinary LOGIN");
    database.execute("postgres", "ALTER DATABASE sluice OWNER TO ordinary");
    let cluster = Cluster::folder(TWO_NODES);
    let store = format!("[store]\nurl = '{}'\n", database.url_as("ordinary"));
    cluster.write_conf("sluice.toml", &store);
    // With a keeper: a server that ends because it had no session for long is started again, with the same ports.
    cluster.start();
    let job = job_that_notes_its_end(&cluster);
    // It is frozen until all sessions are taken: else it would have those again that it loses.
    let server = cluster.pid("server");
    signal(server, "STOP");
    end_sessions(&database);
    let held = database.take_sessions("ordinary", 5);
    signal(server, "CONT");
    refused(&submit(&cluster), "");
    within(TIMEOUT, "the server finds no session left", || {
        cluster.log("server").contains("connection slots are reserved").then_some(())
    });
    cluster.write("go", "");
    cluster.await_file("runs", |text| text.contains("ended"));
    drop(held);
    within(TIMEOUT, "submits are taken again", || (submit(&cluster).code == 0).then_some(()));
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    let id = job.to_string();
    let records = cluster.sluice(&["sacct", "-n", "-X", "-D", "-P", "-j", &id, "-o", "State"]);
    assert_eq!(records.ok(), "FAILED\n", "its end is in the books once");
    assert_eq!(cluster.read("runs"), "run\nended\n");
}

#[test]
fn up_clock_of_the_database_decides_who_leads_also_where_it_is_an_hour_off_and_is_set() {
    let mut database = TestDatabase::start();
    let clock = Clock::make(database.folder());
    clock.set(3600);
    database.serve_in(&clock.environment());
    let is_off = "DO $$ BEGIN ASSERT (SELECT clock_timestamp() - interval '30 minutes') > \
                  to_timestamp(NOW); END $$";
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).expect("a time");
    database.execute("sluice", &is_off.replace("NOW", &now.as_secs().to_string()));
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let mut leader = Server::lead(&first, &database);
    let standby = Server::wait_beside(&first, &second, &database);
    let id = |said: CommandOutput| -> u32 { said.ok().trim().parse().expect("an id") };
    let mut acknowledged = BTreeSet::from([id(submit(&first))]);
    leader.end("KILL");
    standby.await_line("sluice is up");
    acknowledged.insert(id(submit(&second)));
    // It is set right while a server leads, and then wrong the other way. The leader renews its lease, and nobody else waits.
    for seconds in [0, -3600] {
        clock.set(seconds);
        acknowledged.insert(id(submit(&second)));
    }
    assert_eq!(acknowledged.len(), 4, "no id was given out twice");
    assert_eq!(jobs(&second), acknowledged);
}

#[test]
fn up_end_of_a_job_is_kept_on_its_node_until_the_database_is_back() {
    let mut database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let _server = Server::lead(&cluster, &database);
    let _agent = agent("node1", &[&cluster]);
    let job = job_that_notes_its_end(&cluster);
    database.crash();
    cluster.write("go", "");
    cluster.await_file("runs", |text| text.contains("ended"));
    database.restart();
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    assert_eq!(cluster.read("runs"), "run\nended\n");
}

#[test]
fn up_replica_takes_the_databases_place_and_nothing_acknowledged_is_lost() {
    let mut database = TestDatabase::start();
    let replica = database.replica();
    let url = database.url_with(&replica);
    let cluster = Cluster::folder(TWO_NODES);
    let start = || Server::spawn(&mut server_command(&cluster, &url));
    let mut server = start();
    server.await_line("sluice is up");
    let id = |said: String| -> u32 { said.trim().parse().expect("an id") };
    let mut acknowledged: BTreeSet<u32> = (0..10).map(|_| id(submit(&cluster).ok())).collect();
    database.crash();
    replica.promote();
    // The server may find another history than it knew, and is started again then.
    let next = within(TIMEOUT, "submits are taken again", || {
        if server.process.try_wait().expect("its end").is_some() {
            server = start();
        }
        Some(submit(&cluster)).filter(|said| said.code == 0)
    });
    assert!(acknowledged.insert(id(next.ok())), "an id was given out twice");
    assert!(jobs(&cluster).is_superset(&acknowledged));
}

//! A server that dies under `sluice up` is started again by its keeper. Clients wait for it, and jobs do not notice.

use crate::harness::{Cluster, is_alive, signal, until};
use std::process::Stdio;

const ONE_NODE: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
DefMemPerCPU=100
KillWait=3 AuthInfo=cred_expire=0
NodeName=node1 CPUs=8 RealMemory=4000
PartitionName=main Nodes=node1 Default=YES State=UP
";

const KEEPER: &str = "server-keeper";

/// Kills the server alone; the pid of the next one.
fn next_server(cluster: &Cluster) -> i32 {
    let killed = cluster.pid("server");
    cluster.kill_alone("server");
    until("another server is there", || {
        let now = cluster.pid("server");
        (now != killed && is_alive(now)).then_some(now)
    })
}

/// Processes with this cluster's folder on their command line.
fn processes(cluster: &Cluster) -> Vec<String> {
    let folder = cluster.state().display().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&folder)).collect()
}

fn assert_nothing_is_left(cluster: &Cluster) {
    assert_eq!(processes(cluster), Vec::<String>::new());
    for of in ["server", KEEPER, "keeper", "agent"] {
        let pid_file = cluster.state().join(format!("{of}.pid"));
        assert!(!pid_file.exists(), "{}", pid_file.display());
    }
}

/// Kills the server until its keeper waits for longer than a command takes.
fn enter_long_pause(cluster: &Cluster) {
    while !cluster.log("server").contains("started again in 6400 ms") {
        let server = cluster.pid("server");
        if is_alive(server) {
            signal(server, "KILL");
        }
        until("the server is started again, or its keeper waits", || {
            let next = cluster.pid("server") != server;
            (next || cluster.log("server").contains("in 6400 ms")).then_some(())
        });
    }
}

#[test]
fn up_a_killed_server_is_started_again_while_jobs_and_clients_go_on() {
    let cluster = Cluster::up(ONE_NODE);
    let body = "echo run >> runs; until [ -e go ]; do sleep 0.05; done; exit 3";
    let running = cluster.submit(&["--no-requeue", "--wrap", body]);
    let held = cluster.submit(&["-H", "--wrap", "true"]);
    cluster.await_file("runs", |text| !text.is_empty());
    let (killed, keeper) = (cluster.pid("server"), cluster.pid(KEEPER));
    signal(killed, "KILL");
    // Nobody is refused: the keeper holds the sockets, and a command that comes now waits.
    until("the server is dead", || (!is_alive(killed)).then_some(()));
    let shown = cluster.sluice(&["squeue", "-h", "-o", "%A %T", "-S", "i"]).ok();
    assert_eq!(shown, format!("{running} RUNNING\n{held} PENDING\n"));
    assert_ne!(cluster.pid("server"), killed);
    assert_eq!(cluster.pid(KEEPER), keeper);
    assert!(!std::path::Path::new(&format!("/proc/{killed}")).exists(), "it was waited for");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(running), "FAILED|3:0");
    assert_eq!(cluster.read("runs"), "run\n");
    let log = cluster.log("server");
    assert!(log.contains("the server was killed by SIGKILL; it is started again"), "{log}");
    until("it is said that it is back", || {
        cluster.log("server").contains("the server is up again: http://").then_some(())
    });
    cluster.sluice(&["down"]).ok();
    assert_nothing_is_left(&cluster);
}

#[test]
fn up_a_server_comes_back_from_five_kills_in_a_row() {
    let cluster = Cluster::up(ONE_NODE);
    let mut jobs = Vec::new();
    for round in 0..5 {
        jobs.push(cluster.submit(&["-H", "--wrap", "true"]).to_string());
        next_server(&cluster);
        // Every other one is killed while it starts.
        if round % 2 == 0 {
            let shown = cluster.sluice(&["squeue", "-h", "-o", "%A", "-S", "i"]).ok();
            assert_eq!(shown.lines().collect::<Vec<_>>(), jobs);
        }
    }
    let job = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
}

#[test]
fn up_down_ends_a_keeper_that_waits_to_start_its_server() {
    let cluster = Cluster::up(ONE_NODE);
    enter_long_pause(&cluster);
    let second = cluster.try_start();
    assert_eq!(second.code, 1);
    assert!(second.stderr.contains("a server is started again in"), "{}", second.stderr);
    cluster.sluice(&["down"]).ok();
    assert_nothing_is_left(&cluster);
    let log = cluster.log("server");
    assert!(log.trim_end().ends_with("it is started again in 6400 ms"), "none was: {log}");
}

#[test]
fn up_a_keeper_that_is_told_to_stop_stops_its_server() {
    let cluster = Cluster::up(ONE_NODE);
    let (keeper, server) = (cluster.pid(KEEPER), cluster.pid("server"));
    signal(keeper, "TERM");
    until("both have ended", || (!is_alive(keeper) && !is_alive(server)).then_some(()));
    assert!(!cluster.state().join("server-keeper.pid").exists());
    let log = cluster.log("server");
    assert!(
        log.contains("the server stops; jobs that run go on") && !log.contains("started again"),
        "{log}"
    );
    cluster.start();
    // A server that is told to stop takes its keeper with it.
    let (keeper, server) = (cluster.pid(KEEPER), cluster.pid("server"));
    signal(server, "TERM");
    until("both have ended", || (!is_alive(keeper) && !is_alive(server)).then_some(()));
}

/// The exit code of a process whose state folder is gone.
const FOLDER_GONE: i32 = 72;

#[test]
fn up_a_server_whose_folder_is_removed_or_replaced_ends_and_is_not_started_again() {
    for is_replaced in [false, true] {
        let cluster = Cluster::folder(ONE_NODE);
        let (state, conf) = (cluster.state(), cluster.path("conf"));
        let mut up = cluster.command(&["up", "--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"]);
        up.arg("--state").arg(&state).arg("--config").arg(conf).stdin(Stdio::null());
        let said = std::fs::File::create(cluster.path("said")).expect("a file");
        up.stdout(said.try_clone().expect("a handle")).stderr(said);
        let mut keeper = up.spawn().expect("the program runs");
        let said = || std::fs::read_to_string(cluster.path("said")).unwrap_or_default();
        until("it is up", || said().contains("sluice is up").then_some(()));
        let others = ["server", "agent", "keeper"].map(|of| cluster.pid(of));

        if is_replaced {
            std::fs::rename(&state, cluster.path("aside")).expect("moved");
            std::fs::create_dir(&state).expect("another folder");
        } else {
            // Server and agent may make files in the midst of it.
            until("the folder is removed", || std::fs::remove_dir_all(&state).ok());
        }
        let ended = until("the keeper ends", || keeper.try_wait().expect("a child"));
        assert_eq!(ended.code(), Some(FOLDER_GONE), "{}", said());
        until("so do the others", || others.iter().all(|pid| !is_alive(*pid)).then_some(()));
        let said = said();
        let line = "was removed or replaced while the server ran: the server ends";
        assert_eq!(said.matches(line).count(), 1, "{said}");
        assert!(!said.contains("started again"), "{said}");
        if is_replaced {
            std::fs::remove_dir_all(&state).expect("no server is to be started there");
        }
    }
}

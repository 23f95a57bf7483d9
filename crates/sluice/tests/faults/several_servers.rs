//! Several servers on one PostgreSQL: one leads, another takes over, and nothing that was acknowledged is lost.

use crate::database::TestDatabase;
use crate::harness::{Cluster, TIMEOUT, TWO_NODES, signal, within};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};

/// A server or an agent, and what it prints.
pub struct Server {
    pub process: Child,
    lines: Receiver<String>,
}

impl Server {
    pub fn start(cluster: &Cluster, database: &TestDatabase) -> Self {
        Self::spawn(&mut server_command(cluster, &database.url()))
    }

    pub fn spawn(command: &mut Command) -> Self {
        Self::spawn_with_log(command, Stdio::null())
    }

    fn spawn_with_log(command: &mut Command, log: Stdio) -> Self {
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(log);
        let mut process = command.spawn().expect("the program runs");
        let (send, lines) = channel();
        let said = BufReader::new(process.stdout.take().expect("its output"));
        std::thread::spawn(move || {
            said.lines().map_while(Result::ok).try_for_each(|line| send.send(line))
        });
        Self { process, lines }
    }

    /// Waits for the next line, which begins with this.
    pub fn await_line(&self, wanted: &str) {
        let line = self.lines.recv_timeout(TIMEOUT).expect("the server says something");
        assert!(line.starts_with(wanted), "{line}");
    }

    pub fn end(&mut self, by: &str) {
        signal(self.process.id() as i32, by);
        self.process.wait().expect("it ends");
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn server_command(cluster: &Cluster, store: &str) -> Command {
    let (state, conf) = (cluster.state(), cluster.path("conf"));
    let mut command = cluster.command(&["server", "--store", store]);
    command.arg("--state").arg(state).arg("--config").arg(conf).stdin(Stdio::null());
    command.args(["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"]);
    command
}

/// What a further server of a cluster needs of the first.
pub fn copy_keys(from: &Cluster, to: &Cluster) {
    let (from, to) = (from.state(), to.state());
    let line = format!(
        "umask 077 && mkdir -p {to}/server && cp -a {from}/server/keys {to}/server/ && cp -a {from}/admin.token {to}/",
        from = from.display(),
        to = to.display()
    );
    let copied = Command::new("sh").arg("-c").arg(line).status().expect("the shell runs");
    assert!(copied.success());
}

/// Two servers of one cluster: the one leads, and the other waits.
fn leader_and_standby(
    first: &Cluster,
    second: &Cluster,
    database: &TestDatabase,
) -> (Server, Server) {
    let leader = Server::start(first, database);
    leader.await_line("sluice is up");
    copy_keys(first, second);
    let standby = Server::start(second, database);
    standby.await_line("sluice waits as a standby");
    (leader, standby)
}

pub fn jobs(cluster: &Cluster) -> BTreeSet<u32> {
    let listed = cluster.sluice(&["squeue", "-h", "-o", "%A"]).ok();
    listed.lines().map(|line| line.trim().parse().expect("a job id")).collect()
}

#[test]
fn up_standby_takes_over_every_acknowledged_job_from_a_killed_leader() {
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let (mut leader, mut standby) = leader_and_standby(&first, &second, &database);

    let submit = |cluster: &Cluster| cluster.submit(&["-H", "--wrap", "echo kept"]);
    let mut acknowledged: BTreeSet<u32> = (0..20).map(|_| submit(&first)).collect();
    assert_eq!(acknowledged.len(), 20);
    leader.end("KILL");
    standby.await_line("sluice is up");
    assert_eq!(jobs(&second), acknowledged);
    for _ in 0..5 {
        assert!(acknowledged.insert(submit(&second)), "an id was given out twice");
    }
    let checked = second.sluice(&["store", "check", "--store", &database.url()]).ok();
    assert!(checked.contains(" is sound: 25 jobs as of event "), "{checked}");
    assert!(checked.lines().last().is_some_and(|line| line.ends_with(" leads")), "{checked}");
    // The script of a job that another server took.
    let oldest = acknowledged.first().expect("a job").to_string();
    let script = second.sluice(&["scontrol", "write", "batch_script", &oldest, "-"]).ok();
    assert!(script.contains("echo kept"), "{script}");
    // What ended under one leader is in the books of the next.
    second.sluice(&["scancel", &oldest]).ok();
    let ended = |cluster: &Cluster| {
        let said = cluster.sluice(&["sacct", "-X", "-n", "-P", "-j", &oldest, "-o", "State"]);
        said.stdout.starts_with("CANCELLED").then_some(())
    };
    within(TIMEOUT, "the end is in the books", || ended(&second));

    // The former leader waits now, and takes over when the other is told to stop.
    let back = Server::start(&first, &database);
    back.await_line("sluice waits as a standby");
    standby.end("TERM");
    back.await_line("sluice is up");
    acknowledged.remove(&oldest.parse().expect("a job id"));
    assert!(jobs(&first).is_superset(&acknowledged));
    assert!(acknowledged.insert(submit(&first)), "an id was given out twice");
    within(TIMEOUT, "the end is in the books of the first server too", || ended(&first));
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

/// Where agents find a server.
pub fn agents_address(cluster: &Cluster) -> serde_json::Value {
    let saved = std::fs::read(cluster.state().join("ports.json")).expect("the ports");
    let saved: serde_json::Value = serde_json::from_slice(&saved).expect("JSON");
    saved["agents"].clone()
}

/// The answer of a server to one call on its socket, with its head.
fn raw_call(cluster: &Cluster, call: &str) -> String {
    let body = format!(r#"{{"version":{},"call":{call}}}"#, wire::version::PROTOCOL);
    let head = format!(
        "POST /api/v1/call HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {}\r\n\r\n",
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
    let mut leader = Server::start(&first, &database);
    leader.await_line("sluice is up");
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
    within(TIMEOUT, "the end is in the books of the standby", || {
        let id = job.to_string();
        let said = second.sluice(&["sacct", "-X", "-n", "-P", "-j", &id, "-o", "State"]);
        said.stdout.starts_with("CANCELLED").then_some(())
    });
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
fn up_tokens_hold_at_a_standby_as_at_the_leader() {
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let leader = Server::start(&first, &database);
    leader.await_line("sluice is up");
    copy_keys(&first, &second);
    let standby = Server::start(&second, &database);
    standby.await_line("sluice waits as a standby");
    let saved = std::fs::read(second.state().join("ports.json")).expect("the ports");
    let saved: serde_json::Value = serde_json::from_slice(&saved).expect("JSON");
    let port = saved["listen"].as_str().expect("an address").to_owned();
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
    let listed = ask("/api/projects/list", token.trim());
    assert!(listed.starts_with("HTTP/1.1 200"), "{listed}");
    assert!(listed.contains("sluice-standby-lag-ms: "), "{listed}");
    for path in ["/api/users/get_my_user", "/api/projects/list", "/api/v1/call"] {
        let refused = ask(path, "00");
        assert!(refused.starts_with("HTTP/1.1 40"), "{path}: {refused}");
    }
}

#[test]
fn up_running_job_goes_on_under_the_next_leader() {
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let (mut leader, standby) = leader_and_standby(&first, &second, &database);
    let join = first.sluice(&["token", "node", "node1"]).ok();
    let mut join: serde_json::Value = serde_json::from_str(&join).expect("JSON");
    join["servers"] = serde_json::json!([agents_address(&first), agents_address(&second)]);
    let file = first.path("node1.join");
    std::fs::write(&file, join.to_string()).expect("written");
    let mut command = first.command(&["agent", "--join"]);
    command.arg(file).arg("--state").arg(first.path("agent-node1"));
    let _agent = Server::spawn(&mut command);

    let body = "echo run >> runs; until [ -e go ]; do sleep 0.05; done; exit 3";
    let job = first.submit(&["-w", "node1", "--no-requeue", "-o", "/dev/null", "--wrap", body]);
    first.await_file("runs", |text| !text.is_empty());
    leader.end("KILL");
    standby.await_line("sluice is up");
    assert_eq!(second.state_of(job), "RUNNING|None");
    first.write("go", "");
    assert_eq!(second.await_end(job), "FAILED|3:0");
    assert_eq!(first.read("runs"), "run\n");
}

#[test]
fn up_frozen_leader_writes_nothing_after_another_has_taken_over() {
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let (mut leader, standby) = leader_and_standby(&first, &second, &database);
    let job = first.submit(&["-H", "--wrap", "true"]);
    signal(leader.process.id() as i32, "STOP");
    standby.await_line("sluice is up");
    signal(leader.process.id() as i32, "CONT");
    // It finds another in its place, and ends; its service manager starts it again.
    let end =
        within(TIMEOUT, "the former leader ends", || leader.process.try_wait().expect("its end"));
    assert_eq!(end.code(), Some(70));
    assert_eq!(jobs(&second), BTreeSet::from([job]));
}

#[test]
fn up_sbatch_that_loses_its_leader_is_one_job_under_the_next() {
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let leader = Server::start(&first, &database);
    leader.await_line("sluice is up");
    copy_keys(&first, &second);
    let standby = Server::start(&second, &database);
    standby.await_line("sluice waits as a standby");
    // Its standby cannot pass the submit on, and takes over while the command waits.
    signal(leader.process.id() as i32, "STOP");
    let job = second.submit(&["-H", "--wrap", "true"]);
    standby.await_line("sluice is up");
    assert_eq!(jobs(&second), BTreeSet::from([job]));
    signal(leader.process.id() as i32, "CONT");
}

#[test]
fn up_lead_is_handed_over_and_back_one_server_at_a_time() {
    let database = TestDatabase::start();
    let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let mut leader = Server::start(&first, &database);
    leader.await_line("sluice is up");
    let alone = first.sluice(&["scontrol", "takeover"]);
    assert!(alone.stderr.contains("no other server waits"), "{}", alone.stderr);
    copy_keys(&first, &second);
    let mut standby = Server::start(&second, &database);
    standby.await_line("sluice waits as a standby");
    let waits = || first.sluice(&["scontrol", "ping"]).ok().contains("(backup1)").then_some(());
    within(TIMEOUT, "the leader knows the standby", waits);

    let job = first.submit(&["-H", "--wrap", "true"]);
    // Asked of the standby, it is passed on.
    let said = second.sluice(&["server", "handover"]).ok();
    assert!(said.contains(" leads, in term "), "{said}");
    standby.await_line("sluice is up");
    let ended = || leader.process.try_wait().expect("its end");
    let end = within(TIMEOUT, "the leader of before ends", ended);
    assert_eq!(end.code(), Some(70), "its service manager starts it again");
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
fn up_store_that_cannot_be_used_is_refused_in_one_line() {
    let database = TestDatabase::start();
    let (first, other) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
    let server = Server::start(&first, &database);
    server.await_line("sluice is up");
    let refusal = |store: &str| {
        let said = server_command(&other, store).output().expect("the program runs");
        assert_ne!(said.status.code(), Some(0));
        let text = String::from_utf8_lossy(&said.stderr).into_owned();
        let errors: Vec<&str> =
            text.lines().filter(|line| line.starts_with("sluice: error: ")).collect();
        assert_eq!(errors.len(), 1, "{text}");
        assert!(!text.contains("hunter2"), "{text}");
        errors[0].to_owned()
    };
    let said = refusal(&database.url());
    assert!(
        said.contains("the store of another cluster") && said.contains("server/keys"),
        "{said}"
    );
    let said = refusal("postgres://sluice:hunter2@127.0.0.1/sluice?sslmode=disable");
    assert!(said.contains("--store-password-file"), "{said}");
    let said = refusal("postgres://sluice@127.0.0.1/sluice");
    assert!(said.contains("sslrootcert=FILE"), "{said}");
    let said = refusal("/var/lib/sluice");
    assert!(said.contains("expected postgres://USER@HOST/DATABASE"), "{said}");
}

#[test]
fn up_database_that_is_away_refuses_submits_in_one_line_and_loses_none() {
    let mut database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let server = Server::start(&cluster, &database);
    server.await_line("sluice is up");
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

/// Holds the lock of a state folder as a server does, until the file is dropped.
fn hold_server_lock(cluster: &Cluster) -> std::fs::File {
    let path = cluster.state().join("server.own.lock");
    let file = std::fs::File::options().append(true).open(path).expect("the lock's file");
    let whole = nix::libc::flock {
        l_type: nix::libc::F_WRLCK as nix::libc::c_short,
        l_whence: nix::libc::SEEK_SET as nix::libc::c_short,
        l_start: 0,
        l_len: 0,
        l_pid: 0,
    };
    nix::fcntl::fcntl(&file, nix::fcntl::FcntlArg::F_OFD_SETLK(&whole)).expect("a lock");
    file
}

#[test]
fn up_state_moves_to_a_database_and_back_with_its_books() {
    let database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let state = cluster.state().display().to_string();
    let start = |store: Option<&str>| {
        let mut command = cluster.command(&["server", "--state", &state, "--config"]);
        command.arg(cluster.path("conf"));
        command.args(["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"]);
        if let Some(url) = store {
            command.args(["--store", url]);
        }
        let server = Server::spawn(&mut command);
        server.await_line("sluice is up");
        server
    };
    let mut server = start(None);
    let (kept, ended) =
        (cluster.submit(&["-H", "--wrap", "echo kept"]), cluster.submit(&["-H", "--wrap", "true"]));
    cluster.sluice(&["scancel", &ended.to_string()]).ok();
    let seen = || {
        assert_eq!(jobs(&cluster), BTreeSet::from([kept]));
        let script =
            cluster.sluice(&["scontrol", "write", "batch_script", &kept.to_string(), "-"]).ok();
        assert!(script.contains("echo kept"), "{script}");
        let id = ended.to_string();
        within(TIMEOUT, "the end is in the books", || {
            let said = cluster.sluice(&["sacct", "-X", "-n", "-P", "-j", &id, "-o", "State"]);
            said.stdout.starts_with("CANCELLED").then_some(())
        });
    };
    seen();
    let url = database.url();
    let migrate =
        |from: &str, to: &str| cluster.sluice(&["store", "migrate", "--from", from, "--to", to]);
    let runs = migrate(&state, &url);
    assert!(runs.stderr.contains("a server runs in "), "{}", runs.stderr);
    server.end("TERM");
    let held = hold_server_lock(&cluster);
    let locked = migrate(&state, &url);
    assert!(locked.stderr.contains("a server runs in "), "{}", locked.stderr);
    drop(held);
    let said = migrate(&state, &url).ok();
    assert!(said.contains(", and was compared: "), "{said}");
    let twice = migrate(&state, &url);
    assert!(twice.stderr.contains("there is no journal to be moved"), "{}", twice.stderr);

    let mut server = start(Some(&url));
    seen();
    let led = migrate(&url, &state);
    assert_ne!(led.code, 0, "a server runs");
    // The books of another server of the cluster are made from the database.
    let second = Cluster::folder(TWO_NODES);
    copy_keys(&cluster, &second);
    let standby = Server::start(&second, &database);
    standby.await_line("sluice waits as a standby");
    let id = ended.to_string();
    let said = second.sluice(&["sacct", "-X", "-n", "-P", "-j", &id, "-o", "State"]).ok();
    assert!(said.starts_with("CANCELLED"), "{said}");
    drop(standby);
    server.end("TERM");
    migrate(&url, &state).ok();
    let late = server_command(&second, &url).output().expect("it ends");
    let said = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(said.contains("the state was moved from it to files"), "{said}");
    let _server = start(None);
    seen();
    assert!(cluster.submit(&["-H", "--wrap", "true"]) > ended, "ids go on");
}

#[test]
fn up_store_check_reads_a_folder_and_a_database_and_names_the_damage() {
    let mut database = TestDatabase::start();
    let cluster = Cluster::folder(TWO_NODES);
    let check = |store: &str| cluster.sluice(&["store", "check", "--store", store]);
    let said = check(&database.url());
    assert!(said.stderr.contains("no server has kept its state there"), "{}", said.stderr);
    let mut server = Server::start(&cluster, &database);
    server.await_line("sluice is up");
    cluster.submit(&["-H", "--wrap", "true"]);
    server.end("TERM");
    let sound = check(&database.url()).ok();
    assert!(sound.contains(" is sound: 1 jobs as of event "), "{sound}");
    assert!(sound.contains("nobody leads; "), "{sound}");
    let flip = "UPDATE sluice.journal SET frame = set_byte(frame, 80, 255 - get_byte(frame, 80))
                WHERE last_seq = (SELECT max(last_seq) FROM sluice.journal)";
    database.execute("sluice", flip);
    let damaged = check(&database.url());
    assert_eq!(damaged.code, 1);
    assert!(damaged.stderr.contains("sluice.journal: damaged at"), "{}", damaged.stderr);
    database.crash();
    let away = check(&database.url());
    assert!(away.stderr.contains("the database cannot be reached"), "{}", away.stderr);
    database.restart();

    let alone = Cluster::up(TWO_NODES);
    alone.submit(&["-H", "--wrap", "true"]);
    alone.sluice(&["down"]).ok();
    let state = alone.state().display().to_string();
    let sound = alone.sluice(&["store", "check", "--state", &state]).ok();
    assert!(sound.contains(" is sound: 1 jobs as of event "), "{sound}");
}

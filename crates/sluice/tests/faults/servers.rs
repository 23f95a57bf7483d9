//! Servers and agents of tests on one PostgreSQL, each a process with a state folder of its own.

use crate::database::TestDatabase;
use crate::harness::{Cluster, TIMEOUT, signal};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
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

    pub fn spawn_with_log(command: &mut Command, log: Stdio) -> Self {
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

pub fn server_command(cluster: &Cluster, store: &str) -> Command {
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
pub fn leader_and_standby(
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

/// Where agents find a server.
fn agents_address(cluster: &Cluster) -> serde_json::Value {
    let saved = std::fs::read(cluster.state().join("ports.json")).expect("the ports");
    let saved: serde_json::Value = serde_json::from_slice(&saved).expect("JSON");
    saved["agents"].clone()
}

/// An agent of this node, in a folder of the first server, that knows all of these servers.
pub fn agent(node: &str, servers: &[&Cluster]) -> Server {
    let first = servers[0];
    let join = first.sluice(&["token", "node", node]).ok();
    let mut join: serde_json::Value = serde_json::from_str(&join).expect("JSON");
    join["servers"] = servers.iter().map(|server| agents_address(server)).collect();
    let file = first.path(&format!("{node}.join"));
    std::fs::write(&file, join.to_string()).expect("written");
    let mut command = first.command(&["agent", "--join"]);
    Server::spawn(command.arg(file).arg("--state").arg(first.path(&format!("agent-{node}"))))
}

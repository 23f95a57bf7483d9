//! Servers and agents of tests on one PostgreSQL, each a process with a state folder of its own.

use crate::database::TestDatabase;
use crate::harness::{Cluster, TIMEOUT, TWO_NODES, signal, within};
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
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

    /// A server that leads at once.
    pub fn lead(cluster: &Cluster, database: &TestDatabase) -> Self {
        let server = Self::start(cluster, database);
        server.await_line("sluice is up");
        server
    }

    /// A further server of a cluster, which waits.
    pub fn wait_beside(first: &Cluster, cluster: &Cluster, database: &TestDatabase) -> Self {
        copy_keys(first, cluster);
        let server = Self::start(cluster, database);
        server.await_line("sluice waits as a standby");
        server
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

    /// Waits until it ends because another leads: its service manager starts it again then.
    pub fn await_succeeded(&mut self) {
        let ended = || self.process.try_wait().expect("its end");
        let end = within(TIMEOUT, "the former leader ends", ended);
        assert_eq!(end.code(), Some(70), "its service manager starts it again");
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
    server_command_at(cluster, store, ["127.0.0.1:0", "127.0.0.1:0"])
}

/// The same at these addresses, for clients and for agents.
pub fn server_command_at(cluster: &Cluster, store: &str, [listen, agents]: [&str; 2]) -> Command {
    let (state, conf) = (cluster.state(), cluster.path("conf"));
    let mut command = cluster.command(&["server", "--store", store]);
    command.arg("--state").arg(state).arg("--config").arg(conf).stdin(Stdio::null());
    command.args(["--listen", listen, "--agents", agents]);
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

/// Two servers of one cluster on one database: the one leads, and the other waits. They end before their folders are removed.
pub struct Pair {
    pub leader: Server,
    pub standby: Server,
    pub first: Cluster,
    pub second: Cluster,
    pub database: TestDatabase,
}

impl Pair {
    pub fn up() -> Self {
        let database = TestDatabase::start();
        let (first, second) = (Cluster::folder(TWO_NODES), Cluster::folder(TWO_NODES));
        let leader = Server::lead(&first, &database);
        let standby = Server::wait_beside(&first, &second, &database);
        Self { leader, standby, first, second, database }
    }
}

/// Waits until a server says that another waits for its place.
pub fn await_backup(cluster: &Cluster) {
    within(TIMEOUT, "the leader knows the standby", || {
        cluster.sluice(&["scontrol", "ping"]).ok().contains("(backup1)").then_some(())
    });
}

/// Waits until the books of a server say that a job was cancelled.
pub fn await_cancelled(cluster: &Cluster, job: u32) {
    let id = job.to_string();
    within(TIMEOUT, "the end is in the books", || {
        let said = cluster.sluice(&["sacct", "-X", "-n", "-P", "-j", &id, "-o", "State"]);
        said.stdout.starts_with("CANCELLED").then_some(())
    });
}

/// A job that runs, has noted so in the file `runs`, and ends with 3 when the file `go` is there.
pub fn job_until_go(cluster: &Cluster, options: &[&str]) -> u32 {
    let body = "echo run >> runs; until [ -e go ]; do sleep 0.05; done; exit 3";
    let fixed = ["--no-requeue", "-o", "/dev/null", "--wrap", body];
    let job = cluster.submit(&[options, &fixed[..]].concat());
    cluster.await_file("runs", |text| !text.is_empty());
    job
}

pub fn jobs(cluster: &Cluster) -> BTreeSet<u32> {
    let listed = cluster.sluice(&["squeue", "-h", "-o", "%A"]).ok();
    listed.lines().map(|line| line.trim().parse().expect("a job id")).collect()
}

/// A join file for a node, in the folder of a cluster, that names these addresses of servers.
pub fn join_file(cluster: &Cluster, node: &str, servers: impl Iterator<Item = String>) -> PathBuf {
    let join = cluster.sluice(&["token", "node", node]).ok();
    let mut join: serde_json::Value = serde_json::from_str(&join).expect("JSON");
    join["servers"] = servers.collect();
    let file = cluster.path(&format!("{node}.join"));
    std::fs::write(&file, join.to_string()).expect("written");
    file
}

/// An agent of this node, in a folder of the first server, that knows all of these servers.
pub fn agent(node: &str, servers: &[&Cluster]) -> Server {
    agent_with_log(node, servers, Stdio::null())
}

pub fn agent_with_log(node: &str, servers: &[&Cluster], log: Stdio) -> Server {
    let first = servers[0];
    let file = join_file(first, node, servers.iter().map(|server| server.address_of("agents")));
    let mut command = first.command(&["agent", "--join"]);
    command.arg(file).arg("--state").arg(first.path(&format!("agent-{node}")));
    Server::spawn_with_log(&mut command, log)
}

/// Makes every commit of the journal do this first.
pub fn before_commits(database: &TestDatabase, body: &str) {
    let function = format!(
        "CREATE OR REPLACE FUNCTION public.trouble() RETURNS trigger LANGUAGE plpgsql AS
         $$ BEGIN {body} RETURN NULL; END $$"
    );
    database.execute("sluice", &function);
    let trigger = "CREATE TRIGGER trouble BEFORE INSERT ON sluice.journal
                   FOR EACH STATEMENT EXECUTE FUNCTION public.trouble()";
    database.execute("sluice", trigger);
}

//! Several hosts as network namespaces, made by `scripts/netns-hosts`: one for the server, and one for each agent.

use super::{Cluster, CommandOutput, until};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The hosts of one test, removed on drop.
pub struct Hosts {
    prefix: String,
    dir: std::path::PathBuf,
    count: u32,
    children: Vec<Child>,
}

/// Longer than any command of a test may take.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(150);
/// What `timeout` exits with.
const TIMED_OUT: i32 = 124;

/// Where agents find the server, unless a test says otherwise.
const AGENTS: &str = "0.0.0.0:6831";

const TOOL: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/netns-hosts");

impl Hosts {
    pub fn up(count: u32) -> Self {
        // The prefix is short because interface names must be.
        let prefix = format!("s{}", std::process::id() % 10_000);
        let dir = std::env::temp_dir().join(format!("sluice-hosts-{prefix}"));
        let hosts = Self { prefix, dir, count, children: Vec::new() };
        let said = hosts.tool(&["up", &count.to_string()]);
        assert_eq!(said.code, 0, "{}", said.stderr);
        hosts
    }

    /// The tool with these words, to be started.
    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(TOOL);
        command.args(args).env("NSPREFIX", &self.prefix).env("NSDIR", &self.dir);
        // A proxy in the environment of the tests would not reach the hosts of these namespaces.
        for name in ["HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"] {
            command.env_remove(name);
        }
        command.stdin(Stdio::null());
        command
    }

    /// Runs the tool. A command that does not end is killed: its test fails by name, with what the daemons said.
    pub fn tool(&self, args: &[&str]) -> CommandOutput {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=5", &COMMAND_TIMEOUT.as_secs().to_string(), TOOL]).args(args);
        command.env("NSPREFIX", &self.prefix).env("NSDIR", &self.dir).stdin(Stdio::null());
        let said: CommandOutput = command.output().expect("the tool runs").into();
        let has_ended = said.code != TIMED_OUT || std::thread::panicking();
        assert!(has_ended, "{args:?} did not end: {}{}", said.stdout, said.stderr);
        said
    }

    fn spawn(&mut self, args: &[&str], log: &std::path::Path) {
        let log = std::fs::File::create(log).unwrap();
        let child =
            self.command(args).stdout(log.try_clone().unwrap()).stderr(log).spawn().unwrap();
        self.children.push(child);
    }

    /// The network namespace of a host.
    pub fn namespace(&self, host: u32) -> PathBuf {
        PathBuf::from(format!("/run/netns/{}{host}", self.prefix))
    }

    /// That of the server's host.
    pub fn hub_namespace(&self) -> PathBuf {
        PathBuf::from(format!("/run/netns/{}hub", self.prefix))
    }

    /// A shell line with the environment of the cluster.
    pub fn line(&self, cluster: &Cluster, line: &str) -> String {
        format!(
            "export SLUICE_STATE={} PATH={}:$PATH; cd {}; {line}",
            cluster.state().display(),
            cluster.path("bin").display(),
            cluster.path("work").display()
        )
    }

    /// Runs a command of the cluster on the server's host.
    pub fn in_hub(&self, cluster: &Cluster, line: &str) -> CommandOutput {
        self.tool(&["ctl", "sh", "-c", &self.line(cluster, line)])
    }

    /// The same, as an ordinary user.
    pub fn in_hub_as(&self, user: &str, cluster: &Cluster, line: &str) -> CommandOutput {
        self.tool(&["ctl", "sh", "-c", &as_user(user, &self.line(cluster, line))])
    }

    /// Runs a command on a host as this user, by the socket of the host's agent.
    pub fn on_host_as(
        &self,
        user: &str,
        cluster: &Cluster,
        host: u32,
        line: &str,
    ) -> CommandOutput {
        let line =
            format!("export SLUICE_STATE={}; {line}", self.agent_state(cluster, host).display());
        let line = as_user(user, &self.line(cluster, &line));
        self.tool(&["exec", &host.to_string(), "sh", "-c", &line])
    }

    fn agent_state(&self, cluster: &Cluster, host: u32) -> PathBuf {
        cluster.path(&format!("agent-{}", host_name(host)))
    }

    pub fn start(&mut self, cluster: &Cluster) -> u32 {
        self.start_at(cluster, "127.0.0.1:6830")
    }

    /// Starts the server with its clients' port at this address. Returns what it is stopped by.
    pub fn start_at(&mut self, cluster: &Cluster, listen: &str) -> u32 {
        self.start_program(cluster, std::path::Path::new(super::program()), listen)
    }

    /// The same with this copy of the program.
    pub fn start_program(
        &mut self,
        cluster: &Cluster,
        program: &std::path::Path,
        listen: &str,
    ) -> u32 {
        self.start_server(cluster, program, &["--listen", listen, "--agents", AGENTS])
    }

    /// Starts the server with the ports of clients and of agents at this address of its host.
    pub fn start_on(&mut self, cluster: &Cluster, address: &str) -> u32 {
        let (listen, agents) = (format!("{address}:6830"), format!("{address}:6831"));
        let program = std::path::Path::new(super::program());
        self.start_server(cluster, program, &["--listen", &listen, "--agents", &agents])
    }

    /// Starts the server with an SSH endpoint at this address of its host.
    pub fn start_with_ssh(&mut self, cluster: &Cluster, ssh: &str) -> u32 {
        let program = std::path::Path::new(super::program());
        let listens = ["--listen", "127.0.0.1:6830", "--agents", AGENTS, "--ssh", ssh];
        self.start_server(cluster, program, &listens)
    }

    fn start_server(
        &mut self,
        cluster: &Cluster,
        program: &std::path::Path,
        listens: &[&str],
    ) -> u32 {
        let program = program.to_str().unwrap();
        let (state, conf) = (cluster.state(), cluster.path("conf"));
        let start = [
            "ctl",
            program,
            "server",
            "--state",
            state.to_str().unwrap(),
            "--config",
            conf.to_str().unwrap(),
        ];
        self.spawn(&[&start[..], listens].concat(), &cluster.path("server.out"));
        until("the server answers", || {
            (self.in_hub(cluster, "scontrol ping").stdout.contains("is UP")).then_some(())
        });
        self.children.last().expect("it was started").id()
    }

    /// Starts an agent on a host, with a state folder and an output of this name. Returns what it is stopped by.
    pub fn agent(&mut self, cluster: &Cluster, host: u32, name: &str, options: &[&str]) -> u32 {
        let (host, state) = (host.to_string(), cluster.path(name));
        let start = ["exec", &host, super::program(), "agent", "--state", state.to_str().unwrap()];
        self.spawn(&[&start[..], options].concat(), &cluster.path(&format!("{name}.out")));
        self.children.last().expect("it was started").id()
    }

    /// Stops an agent or a server that was started, and waits for its end.
    pub fn stop(&mut self, daemon: u32) {
        self.end(daemon, "TERM");
    }

    /// Ends it without a chance to say so.
    pub fn kill(&mut self, daemon: u32) {
        self.end(daemon, "KILL");
    }

    fn end(&mut self, daemon: u32, by: &str) {
        let at = self.children.iter().position(|child| child.id() == daemon).expect("it runs");
        let mut child = self.children.remove(at);
        super::signal(daemon as i32, by);
        child.wait().expect("it ends");
    }

    /// What the hosts know a name as, from now on; `None`: it cannot be resolved.
    pub fn set_name(&self, name: &str, address: Option<&str>) {
        let path = self.dir.join("hosts");
        let text = std::fs::read_to_string(&path).unwrap();
        let others = text.lines().filter(|line| line.split(' ').nth(1) != Some(name));
        let mut lines: Vec<String> = others.map(str::to_owned).collect();
        lines.extend(address.map(|address| format!("{address} {name}")));
        // The file itself is what the hosts have mounted: it is written in place.
        std::fs::write(&path, lines.join("\n") + "\n").unwrap();
    }

    /// Runs `ip` on the server's host.
    pub fn ip_in_hub(&self, args: &str) {
        let said = self.tool(&["ctl", "sh", "-c", &format!("ip {args}")]);
        assert_eq!(said.code, 0, "ip {args}: {}", said.stderr);
    }

    /// Takes the link of a host down, or up again: nothing of what is under way arrives.
    pub fn set_link(&self, host: u32, state: &str) {
        let host = host.to_string();
        let said = self.tool(&["exec", &host, "ip", "link", "set", "eth0", state]);
        assert_eq!(said.code, 0, "{}", said.stderr);
    }

    /// Starts the agent of a host, which joins by a token.
    pub fn join(&mut self, cluster: &Cluster, host: u32) {
        let name = host_name(host);
        let file = cluster.path(&format!("{name}.join"));
        let line = format!("{} token node {name} > {}", super::program(), file.display());
        let said = self.in_hub(cluster, &line);
        assert_eq!(said.code, 0, "{}", said.stderr);
        let state = self.agent_state(cluster, host);
        self.spawn(
            &[
                "exec",
                &host.to_string(),
                super::program(),
                "agent",
                "--state",
                state.to_str().unwrap(),
                "--join",
                file.to_str().unwrap(),
            ],
            &cluster.path(&format!("{name}.out")),
        );
    }
}

/// What `scripts/netns-hosts` calls a host.
fn host_name(host: u32) -> String {
    format!("node{host:02}")
}

fn as_user(user: &str, line: &str) -> String {
    let quoted = line.replace('\'', "'\\''");
    format!("setpriv --reuid={user} --regid={user} --init-groups sh -c '{quoted}'")
}

impl Drop for Hosts {
    fn drop(&mut self) {
        // Agents first: a clean stop removes their control groups.
        for child in self.children.iter_mut().rev() {
            super::signal(child.id() as i32, "TERM");
            let deadline = std::time::Instant::now() + std::time::Duration::from_secs(5);
            while matches!(child.try_wait(), Ok(None)) && std::time::Instant::now() < deadline {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        let _ = self.tool(&["down", &self.count.to_string()]);
    }
}

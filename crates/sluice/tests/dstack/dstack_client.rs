//! The published `dstack` client, as tests call it.

use crate::harness::{Cluster, CommandOutput, skip};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// The client with a home folder of its own, in which the cluster's project is known.
pub struct DstackClient<'a> {
    cluster: &'a Cluster,
    program: PathBuf,
    home: PathBuf,
    /// The network namespace that it runs in, where that is not the test's own.
    network: Option<PathBuf>,
}

impl<'a> DstackClient<'a> {
    /// The version that dstack's language was captured from. `None` where the client is not installed.
    pub fn new(cluster: &'a Cluster) -> Option<Self> {
        Self::of_version(cluster, "0.22.5")
    }

    pub fn of_version(cluster: &'a Cluster, version: &str) -> Option<Self> {
        let clients = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/clients");
        let program = PathBuf::from(clients).join(format!("dstack-{version}/bin/dstack"));
        if !program.exists() {
            skip("dstack-client", "scripts/dstack-client has not installed it");
            return None;
        }
        let home = cluster.path("home");
        std::fs::create_dir(&home).expect("a home folder");
        Some(Self { cluster, program, home, network: None })
    }

    pub fn in_network(self, namespace: PathBuf) -> Self {
        Self { network: Some(namespace), ..self }
    }

    pub fn url(&self) -> String {
        let ports = std::fs::read_to_string(self.cluster.state().join("ports.json")).unwrap();
        let ports: serde_json::Value = serde_json::from_str(&ports).unwrap();
        format!("http://{}", ports["listen"].as_str().expect("the port"))
    }

    pub fn token(&self) -> String {
        let token = std::fs::read_to_string(self.cluster.state().join("admin.token")).unwrap();
        token.trim().to_owned()
    }

    pub fn add_project(&self, token: &str) -> CommandOutput {
        let url = self.url();
        self.run(&["project", "add", "--name", "main", "--url", &url, "--token", token, "-y"])
    }

    pub fn run(&self, args: &[&str]) -> CommandOutput {
        self.run_with(args, &[])
    }

    pub fn run_with(&self, args: &[&str], variables: &[(&str, &str)]) -> CommandOutput {
        let mut command = self.command(args);
        command.envs(variables.iter().copied());
        command.output().expect("the client runs").into()
    }

    /// Starts it without waiting; what it prints is dropped.
    pub fn spawn(&self, args: &[&str]) -> Child {
        let mut command = self.command(args);
        command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("the client runs")
    }

    pub fn program(&self) -> &Path {
        &self.program
    }

    pub fn home(&self) -> &Path {
        &self.home
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = match &self.network {
            Some(namespace) => {
                let mut command = Command::new("nsenter");
                command.arg(format!("--net={}", namespace.display())).arg(&self.program);
                command
            }
            None => Command::new(&self.program),
        };
        self.cluster.set_up(&mut command);
        command.args(args).env("HOME", &self.home).env("COLUMNS", "200").stdin(Stdio::null());
        command
    }
}

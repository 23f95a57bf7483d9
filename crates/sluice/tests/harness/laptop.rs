//! A laptop: a network namespace without a link to any other. It reaches the server through a relay, as by a router with
//! NAT, and nobody reaches it.

use super::hosts::Hosts;
use super::relay::Relay;
use super::{Cluster, CommandOutput};
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Where `scripts/netns-hosts` has the server, and where clients find it.
pub const SERVER: &str = "10.77.0.254:6830";
pub const URL: &str = "https://10.77.0.254:6830";

/// The user on the laptop, whom the cluster does not know by this name.
pub const LOCAL_USER: &str = "daemon";

pub struct Laptop {
    name: String,
    home: PathBuf,
    /// The router, in the namespace of one of the hosts.
    pub relay: Relay,
}

fn ip(args: &[&str]) {
    let done = Command::new("ip").args(args).status().expect("ip runs");
    assert!(done.success(), "ip {args:?}");
}

impl Laptop {
    pub fn up(cluster: &Cluster, hosts: &Hosts, router: u32) -> Self {
        let name = format!("l{}", std::process::id() % 10_000);
        ip(&["netns", "add", &name]);
        ip(&["-n", &name, "link", "set", "lo", "up"]);
        // The laptop's side of the router, at the address of the server.
        ip(&["-n", &name, "addr", "add", "10.77.0.254/32", "dev", "lo"]);
        let home = cluster.path("laptop");
        std::fs::create_dir(&home).unwrap();
        let user = nix::unistd::User::from_name(LOCAL_USER).unwrap().expect("every system has it");
        nix::unistd::chown(&home, Some(user.uid), Some(user.gid)).unwrap();
        let namespace = PathBuf::from(format!("/run/netns/{name}"));
        let relay = Relay::start(&namespace, SERVER, &hosts.namespace(router), SERVER);
        Self { name, home, relay }
    }

    pub fn namespace(&self) -> PathBuf {
        PathBuf::from(format!("/run/netns/{}", self.name))
    }

    pub fn home(&self) -> &std::path::Path {
        &self.home
    }

    /// A command on the laptop, in its user's home, with nothing in the environment that names a server.
    pub fn command(&self, cluster: &Cluster, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace().display()));
        let user = format!("--reuid={LOCAL_USER}");
        let group = format!("--regid={LOCAL_USER}");
        command.args(["setpriv", &user, &group, "--clear-groups", "sh", "-c", line]);
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", cluster.path("bin").display());
        command.env_clear().env("PATH", path).env("HOME", &self.home).env("TZ", "UTC");
        command.current_dir(&self.home).stdin(Stdio::null());
        command
    }

    pub fn run(&self, cluster: &Cluster, line: &str) -> CommandOutput {
        self.command(cluster, line).output().expect("the laptop runs it").into()
    }
}

impl Drop for Laptop {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["netns", "del", &self.name]).status();
    }
}

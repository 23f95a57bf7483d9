//! A private network behind a router with NAT: its machines reach the hosts of a test by connections outward alone, all of them
//! from the router's address.

use super::hosts::Hosts;
use super::{Cluster, CommandOutput};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The private network, without the last number of its addresses.
const INSIDE: &str = "192.168.77";

pub struct PrivateNetwork {
    namespaces: Vec<String>,
    children: Vec<Child>,
}

fn works(program: &str, args: &[&str]) -> bool {
    Command::new(program).args(args).status().is_ok_and(|status| status.success())
}

fn ip(args: &[&str]) {
    assert!(works("ip", args), "ip {args:?}");
}

impl PrivateNetwork {
    /// So many machines behind this host; `None` where the kernel or this machine cannot translate addresses.
    pub fn up(hosts: &Hosts, router: u32, machines: u32) -> Option<Self> {
        let router = hosts.namespace(router);
        let router_name = router.file_name().unwrap().to_str().unwrap().to_owned();
        let inside = |args: &[&str]| ip(&[&["-n", router_name.as_str()][..], args].concat());
        let net = format!("--net={}", router.display());
        let source = format!("{INSIDE}.0/24");
        let masquerade =
            ["-t", "nat", "-A", "POSTROUTING", "-s", source.as_str(), "-j", "MASQUERADE"];
        if !works("nsenter", &[&[net.as_str(), "iptables"][..], &masquerade].concat()) {
            return None;
        }
        let forward = ["sh", "-c", "echo 1 > /proc/sys/net/ipv4/ip_forward"];
        assert!(works("nsenter", &[&[net.as_str()][..], &forward].concat()), "it forwards");
        inside(&["link", "add", "lan", "type", "bridge"]);
        inside(&["addr", "add", &format!("{INSIDE}.254/24"), "dev", "lan"]);
        inside(&["link", "set", "lan", "up"]);
        let mut network = Self { namespaces: Vec::new(), children: Vec::new() };
        for machine in 1..=machines {
            let name = format!("p{}x{machine}", std::process::id() % 10_000);
            ip(&["netns", "add", &name]);
            network.namespaces.push(name.clone());
            let port = format!("lan{machine}");
            let link =
                ["link", "add", port.as_str(), "type", "veth", "peer", "name", "eth0", "netns"];
            inside(&[&link[..], &[name.as_str()][..]].concat());
            inside(&["link", "set", &port, "master", "lan", "up"]);
            let (own, gateway) = (format!("{INSIDE}.{machine}/24"), format!("{INSIDE}.254"));
            let on_machine = |args: &[&str]| ip(&[&["-n", name.as_str()][..], args].concat());
            on_machine(&["link", "set", "lo", "up"]);
            on_machine(&["addr", "add", &own, "dev", "eth0"]);
            on_machine(&["link", "set", "eth0", "up"]);
            on_machine(&["route", "add", "default", "via", &gateway]);
        }
        Some(network)
    }

    pub fn namespace(&self, machine: usize) -> PathBuf {
        PathBuf::from(format!("/run/netns/{}", self.namespaces[machine - 1]))
    }

    /// A line on one of the machines, with nothing in the environment that names a server.
    pub fn command(&self, cluster: &Cluster, machine: usize, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net={}", self.namespace(machine).display()));
        command.args(["sh", "-c", line]);
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", cluster.path("bin").display());
        command.env_clear().env("PATH", path).env("HOME", cluster.path("home")).env("TZ", "UTC");
        command.current_dir(cluster.path("work")).stdin(Stdio::null());
        command
    }

    pub fn run(&self, cluster: &Cluster, machine: usize, line: &str) -> CommandOutput {
        self.command(cluster, machine, line).output().expect("the machine runs it").into()
    }

    /// Starts a daemon on one of the machines, which is ended with the network.
    pub fn spawn(&mut self, cluster: &Cluster, machine: usize, line: &str, log: &str) {
        let log = std::fs::File::create(cluster.path(log)).unwrap();
        let mut command = self.command(cluster, machine, &format!("exec {line}"));
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.children.push(command.spawn().expect("it starts"));
    }
}

impl Drop for PrivateNetwork {
    fn drop(&mut self) {
        for child in &mut self.children {
            super::signal(child.id() as i32, "TERM");
            let _ = child.wait();
        }
        for name in &self.namespaces {
            let _ = Command::new("ip").args(["netns", "del", name]).status();
        }
    }
}

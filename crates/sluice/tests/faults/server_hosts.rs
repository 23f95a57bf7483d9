//! Servers and agents of tests on hosts of their own, which are network namespaces, with the database in their hub; and cuts between
//! them.

use crate::database::TestDatabase;
use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, program};
use crate::servers::{Server, join_file};

/// Where the database is: `scripts/netns-hosts` has its hub there.
pub const DATABASE_ADDRESS: &str = "10.77.0.254";
const STORE: &str = "postgres://sluice@10.77.0.254/sluice?sslmode=disable";

pub fn address(host: u32) -> String {
    format!("10.77.0.{host}")
}

/// A database in the hub of these hosts.
pub fn database(hosts: &Hosts) -> TestDatabase {
    let mut database = TestDatabase::start();
    let listen = format!("listen_addresses={DATABASE_ADDRESS}");
    database.serve_with(&[&listen], Some(&hosts.hub_namespace()));
    database
}

/// Starts a server on a host, with these options too.
pub fn start(hosts: &Hosts, host: u32, cluster: &Cluster, options: &[&str]) -> Server {
    let (state, conf) = (cluster.state(), cluster.path("conf"));
    let (listen, agents) = (format!("{}:6820", address(host)), format!("{}:6821", address(host)));
    let mut command = hosts.command(&["exec", &host.to_string(), program(), "server"]);
    command.args(["--store", STORE, "--listen", &listen, "--agents", &agents]).args(options);
    command.arg("--state").arg(state).arg("--config").arg(conf);
    let log = std::fs::File::create(cluster.path("server.out")).expect("a log");
    Server::spawn_with_log(&mut command, log.into())
}

/// Starts the agent of a node on a host, in a folder of the cluster that leads. It knows the servers on these hosts.
pub fn join(hosts: &mut Hosts, host: u32, node: &str, cluster: &Cluster, servers: &[u32]) {
    let servers = servers.iter().map(|host| format!("{}:6821", address(*host)));
    let file = join_file(cluster, node, servers);
    let file = file.to_str().expect("a path");
    hosts.agent(cluster, host, &format!("agent-{node}"), &["--join", file]);
}

/// Cuts a host off from an address: nothing that it sends arrives there.
pub fn cut_off(hosts: &Hosts, host: u32, from: &str) {
    route(hosts, host, "add", from);
}

pub fn mend(hosts: &Hosts, host: u32, from: &str) {
    route(hosts, host, "del", from);
}

fn route(hosts: &Hosts, host: u32, change: &str, to: &str) {
    let (host, to) = (host.to_string(), format!("{to}/32"));
    let said = hosts.tool(&["exec", &host, "ip", "route", change, "blackhole", &to]);
    assert_eq!(said.code, 0, "{}", said.stderr);
}

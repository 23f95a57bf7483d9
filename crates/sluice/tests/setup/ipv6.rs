//! A cluster whose machines have addresses of IPv6 alone.

use super::power::PowerCluster;
use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, program, skip, sorted_lines, until};
use serde_json::Value;

const CONF: &str = "\
ClusterName=hosts
DefMemPerCPU=64
KillWait=1
NodeName=node[01-02] CPUs=2 CoresPerSocket=2 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES State=UP
";

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("JSON")
}

#[test]
fn up_server_agent_and_client_speak_ipv6_alone() {
    if std::net::TcpListener::bind("[::1]:0").is_err() {
        return skip("ipv6", "this machine has no address of IPv6");
    }
    let mut site = PowerCluster::up_at("[::1]:0", "");
    site.start_agent("here", &[]);
    site.await_node("here", "idle");
    let cluster: &Cluster = site.cluster();
    let join = json(&std::fs::read_to_string(cluster.path("here.join")).unwrap());
    let servers = join["servers"].as_array().expect("a list");
    assert!(!servers.is_empty(), "{join}");
    let is_v6 = |server: &Value| server.as_str().is_some_and(|text| text.starts_with("[::1]:"));
    assert!(servers.iter().all(is_v6), "{servers:?}");
    let node = json(&cluster.shell(&format!("{} node show here --json", program())).ok());
    assert_eq!(node["address"], "::1");
    let said = cluster.shell("srun -w here sh -c 'cat; echo $SLURMD_NODENAME' < /dev/null");
    assert_eq!(said.stdout, "here\n", "{said:?}");
    site.await_node("here", "idle");
    let ports = json(&std::fs::read_to_string(cluster.state().join("ports.json")).unwrap());
    let listen = ports["listen"].as_str().expect("an address").to_owned();
    let ask = format!(
        "SLUICE_SERVER=http://{listen} SLUICE_TOKEN=$(cat {}/admin.token) sinfo -h -N -p main -n here -o %N",
        cluster.state().display()
    );
    let said = cluster.shell(&ask);
    assert_eq!(said.stdout.lines().next(), Some("here"), "{said:?}");
}

/// Hosts of their own: between them are no addresses of IPv4.
#[test]
fn root_hosts_without_ipv4_join_run_steps_and_take_logins() {
    let cluster = Cluster::folder(CONF);
    let mut hosts = Hosts::up(3);
    for host in 1..=3 {
        let line =
            format!("ip -4 addr flush dev eth0 && ip -6 addr add fd77::{host}/64 dev eth0 nodad");
        if hosts.tool(&["exec", &host.to_string(), "sh", "-c", &line]).code != 0 {
            return skip("ipv6", "hosts of this machine have no addresses of IPv6");
        }
    }
    hosts.ip_in_hub("-4 addr flush dev br0");
    hosts.ip_in_hub("-6 addr add fd77::254/64 dev br0 nodad");
    hosts.start_on(&cluster, "[fd77::254]");
    for host in [1, 2] {
        hosts.join(&cluster, host);
    }
    until("both nodes are idle", || {
        let states = hosts.in_hub(&cluster, "sinfo -h -o '%D %t'").stdout;
        (states.trim() == "2 idle").then_some(())
    });
    let shown = hosts.in_hub(&cluster, &format!("{} node show node01 --json", program())).ok();
    assert_eq!(json(&shown)["address"], "fd77::1", "{shown}");
    let said =
        hosts.in_hub(&cluster, "echo typed | srun -N2 -n2 sh -c 'read x; echo $x $(hostname)'");
    assert_eq!(sorted_lines(&said.stdout), ["typed node01", "typed node02"], "{}", said.stderr);

    // The nodes are told where the `srun` itself listens, by an address that they reach.
    let told = hosts.in_hub(&cluster, "srun -w node01 printenv SLURM_SRUN_COMM_HOST").ok();
    assert_eq!(told, "fd77::254\n");

    // A machine that is no node of the cluster logs in, and its step's bytes go both ways.
    let home = cluster.path("home").display().to_string();
    std::fs::create_dir(&home).expect("made");
    let line = format!("{} token user games --unix-user games > {home}/token", program());
    hosts.in_hub(&cluster, &line).ok();
    let line = format!(
        "unset SLUICE_STATE; export HOME={home} PATH={}:$PATH; cd {home} && \
         {} login https://[fd77::254]:6830 --ca {} < token >&2 && \
         echo typed | srun -D /tmp -w node01 sh -c 'read x; echo $x by $(id -un)'",
        cluster.path("bin").display(),
        program(),
        cluster.state().join("server/keys/authority.pem").display()
    );
    let said = hosts.tool(&["exec", "3", "sh", "-c", &line]);
    assert_eq!(said.stdout, "typed by games\n", "{said:?}");
}

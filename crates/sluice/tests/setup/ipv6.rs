//! A cluster whose machines have addresses of IPv6 alone.

use super::power::PowerCluster;
use crate::harness::{Cluster, program, skip};
use serde_json::Value;

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

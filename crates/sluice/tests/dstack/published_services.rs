//! Services and gateways as the published `dstack` client sees them.

use crate::dstack_client::DstackClient;
use crate::harness::{Cluster, TWO_NODES, signal, until, user_name};
use crate::published_client::line_of;
use std::process::{Child, Stdio};

/// Ends with the test.
struct Gateway(Child);

impl Drop for Gateway {
    fn drop(&mut self) {
        signal(self.0.id() as i32, "TERM");
        let _ = self.0.wait();
    }
}

#[test]
fn up_published_client_lists_a_gateway_that_runs() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    let user = user_name();
    let said =
        cluster.sluice(&["token", "user", &user, "--role", "gateway", "--name", "edge"]).ok();
    let token = said.lines().find(|line| !line.trim().is_empty()).expect("a token").trim();
    let file = cluster.write("edge.token", token);
    let server = client.url();
    let mut command = cluster.command(&["gateway", "--server", &server, "--name", "edge"]);
    command.args(["--listen", "127.0.0.1:0", "--token-file"]).arg(file);
    command.arg("--dir").arg(cluster.path("gateway")).stdout(Stdio::null());
    let _gateway = Gateway(command.spawn().expect("it runs"));
    let listed = until("the gateway is listed", || {
        Some(client.run(&["gateway", "list"]).ok()).filter(|listed| listed.contains("edge"))
    });
    // The client shows the backend `remote`, which means one of ours, so.
    assert!(line_of(&listed, "edge").contains("ssh (127.0.0.1)"), "{listed}");
}

#[test]
fn up_published_client_applies_a_service_with_groups_and_shows_one_run() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    let group = |name: &str, replicas: u32| {
        format!(
            "- name: {name}\n  replicas: {replicas}\n  commands: [sleep 600]\n  \
             resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n"
        )
    };
    let groups = group("small", 1) + &group("large", 2);
    let text = format!("type: service\nname: web\nport: 8000\ngroups:\n{groups}");
    cluster.write("web.dstack.yml", &text);
    client.run(&["apply", "-f", "web.dstack.yml", "-y", "-d"]).ok();
    until("all replicas run", || {
        let queue = cluster.sluice(&["squeue", "-h", "-n", "web", "-t", "R", "-o", "%i"]).ok();
        (queue.lines().count() == 3).then_some(())
    });
    let listed = client.run(&["ps"]).ok();
    assert!(line_of(&listed, "web").contains("running"), "{listed}");
    client.run(&["stop", "-y", "web"]).ok();
    until("all groups are gone", || {
        let left = cluster.sluice(&["squeue", "-h", "-n", "web", "-o", "%i"]).ok();
        left.trim().is_empty().then_some(())
    });
}

//! Runs with images as dstack's clients see them: while the image is pulled, and when a container cannot be made.

use crate::dstack_client::DstackClient;
use crate::harness::{Cluster, until};
use crate::published_client::line_of;
use serde_json::Value;
use std::net::TcpListener;

const ONE_NODE: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
AuthInfo=cred_expire=0
DefMemPerCPU=200
KillWait=1
NodeName=node1 CPUs=4 RealMemory=2000
PartitionName=main Nodes=node1 Default=YES State=UP
";

fn task(cluster: &Cluster, name: &str, image: &str) {
    let rest = "commands: ['true']\nresources: {cpu: 1, memory: 100MB, disk: 0GB..}\n";
    cluster.write("task.dstack.yml", &format!("type: task\nname: {name}\nimage: {image}\n{rest}"));
}

/// A registry that takes the connection and says nothing.
#[test]
fn root_published_client_shows_a_run_whose_image_is_pulled() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = silent.local_addr().expect("an address");
    let cluster = Cluster::folder(ONE_NODE);
    let toml = format!("[containers]\ninsecure_registries = ['{address}']\n");
    cluster.write_conf("sluice.toml", &toml);
    cluster.start();
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    task(&cluster, "slow", &format!("{address}/lab/slow:1"));
    client.run(&["apply", "-f", "task.dstack.yml", "-y", "-d"]).ok();
    let run = until("the run pulls its image", || {
        let shown = client.run(&["run", "get", "slow", "--json"]).ok();
        let run: Value = serde_json::from_str(&shown).expect("JSON");
        let job = &run["jobs"][0]["job_submissions"][0];
        (job["status"] == "pulling").then(|| run.clone())
    });
    assert_eq!(run["status"], "provisioning", "{run}");
    let listed = client.run(&["ps"]).ok();
    assert!(line_of(&listed, "slow").contains("pulling"), "{listed}");
    client.run(&["stop", "slow", "-y"]).ok();
    until("the run is stopped", || cluster.sluice(&["squeue", "-h"]).ok().is_empty().then_some(()));
}

/// The reason of a launch that failed is a word to all of them.
#[test]
fn root_clients_of_every_version_show_a_run_whose_container_cannot_be_made() {
    let cluster = Cluster::up(ONE_NODE);
    let missing = cluster.path("work/nothing").display().to_string();
    task(&cluster, "broken", &missing);
    cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]).ok();
    until("the run has failed", || {
        (cluster.listed_run("broken")["termination_reason"] == "creating_container_error")
            .then_some(())
    });
    for version in ["0.20.0", "0.21.5", "0.22.5"] {
        let Some(client) = DstackClient::of_version(&cluster, version) else { return };
        client.add_project(&client.token()).ok();
        let listed = client.run(&["ps", "-a", "-v"]).ok();
        assert!(line_of(&listed, "broken").contains("failed"), "{version}: {listed}");
        std::fs::remove_dir_all(client.home()).expect("its home is removed");
    }
}

/// The site's image is for runs that name none; a run says by `runtime: process` that it is to have no container.
#[test]
fn root_run_with_runtime_process_has_no_container_where_the_site_has_a_default_image() {
    let cluster = Cluster::folder(ONE_NODE);
    let missing = cluster.path("work/nothing").display().to_string();
    cluster.write_conf("sluice.toml", &format!("[containers]\ndefault_image = '{missing}'\n"));
    cluster.start();
    for (name, runtime, reason) in [
        ("contained", "", "creating_container_error"),
        ("bare", "runtime: process\n", "done_by_runner"),
    ] {
        let rest = "commands: ['true']\nresources: {cpu: 1, memory: 100MB, disk: 0GB..}\n";
        cluster.write("task.dstack.yml", &format!("type: task\nname: {name}\n{runtime}{rest}"));
        cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]).ok();
        let run = until("the run has ended", || {
            Some(cluster.listed_run(name)).filter(|run| run["termination_reason"].is_string())
        });
        assert_eq!(run["termination_reason"], reason, "{run}");
    }
}

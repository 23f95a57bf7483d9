//! `groups`: nodes of one run with commands of their own.

use crate::dstack_client::DstackClient;
use crate::harness::{Cluster, TWO_NODES};

/// Both groups have run, and the files that they wrote are gone.
fn check(cluster: &Cluster) {
    for (file, said) in [("worker", "worker 1 node1\n"), ("head", "head node2 2\n")] {
        assert_eq!(cluster.await_file(file, |said| said.ends_with('\n')), said);
        std::fs::remove_file(cluster.path("work").join(file)).expect("it was there");
    }
}

#[test]
fn up_nodes_of_a_group_run_its_commands_and_know_the_addresses_of_others() {
    let cluster = Cluster::up(TWO_NODES);
    let text = |worker: &str| {
        format!(
            "type: task\nname: two\ngroups:\n  - nodes: 1\n    resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n    \
             commands: ['echo head ${{{{ groups[1].nodes[0].IP_ADDRESS }}}} $DSTACK_NODES_NUM > head']\n  \
             - nodes: 1\n    resources: {{cpu: {worker}, memory: 64MB.., disk: 0GB..}}\n    \
             commands: ['echo worker $DSTACK_NODE_RANK $DSTACK_MASTER_NODE_IP > worker']\n"
        )
    };
    cluster.write("two.dstack.yml", &text("1.."));
    cluster.sluice(&["apply", "-f", "two.dstack.yml", "-y", "-d"]).ok();
    check(&cluster);
    for (bad, said) in [
        (text("2.."), "groups of different resources are not available yet"),
        (
            text("1..").replace("groups[1]", "groups[2]"),
            "groups[2].nodes[0].IP_ADDRESS }}: there is no such node",
        ),
    ] {
        cluster.write("bad.dstack.yml", &bad);
        let refused = cluster.sluice(&["apply", "-f", "bad.dstack.yml", "-y", "-d"]);
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }

    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    // Its runs start in the user's home.
    let work = cluster.path("work").display().to_string();
    let theirs = text("1..").replace("name: two", &format!("name: theirs\nworking_dir: {work}"));
    cluster.write("theirs.dstack.yml", &theirs);
    client.run(&["apply", "-f", "theirs.dstack.yml", "-y", "-d"]).ok();
    check(&cluster);
}

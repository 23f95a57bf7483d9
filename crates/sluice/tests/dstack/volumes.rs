//! `sluice volume` and dstack's client: what they list, and what is refused in one line.

use super::dstack_client::DstackClient;
use crate::harness::{Cluster, TWO_NODES, until};

#[test]
fn up_volumes_are_created_listed_and_deleted() {
    let cluster = Cluster::up(TWO_NODES);
    assert_eq!(cluster.sluice(&["volume", "list"]).ok().split_whitespace().count(), 4);
    assert_eq!(cluster.sluice(&["volume", "create", "data", "--node", "node2"]).ok(), "OK\n");
    let listed = cluster.sluice(&["volume", "list"]).ok();
    let line = listed.lines().nth(1).expect("a line");
    assert!(line.starts_with(" data  node node2  active"), "{listed}");
    assert!(cluster.sluice(&["volume", "list", "-v"]).ok().contains("ATTACHED"));
    let one = cluster.sluice(&["volume", "get", "data", "--json"]).ok();
    let one: serde_json::Value = serde_json::from_str(&one).expect("JSON");
    assert_eq!((&one["name"], &one["node"]), (&"data".into(), &"node2".into()));
    assert_eq!(one["status"], "active");
    // It outlives a restart of server and agent.
    cluster.sluice(&["down"]).ok();
    cluster.start();
    assert!(cluster.sluice(&["volume", "list"]).ok().contains("data  node node2"));
    let configuration = "type: volume\nname: net\nbackend: aws\nregion: eu-west-1\nsize: 100GB\n";
    cluster.write("data.dstack.yml", configuration);
    cluster.write("task.dstack.yml", "type: task\ncommands: ['true']\n");
    let no_source = "no source of the cluster is of the backend aws";
    let table: [(&[&str], &str); 12] = [
        (&["volume", "get", "none", "--json"], "volume none does not exist"),
        (&["volume", "delete", "none", "-y"], "volume none does not exist"),
        (&["volume", "create", "data", "--node", "node1"], "volume data exists already"),
        (&["volume", "create", "more", "--node", "node9"], "node9"),
        (&["volume", "create", "more"], "--node NODE or --shared FOLDER"),
        (&["volume", "create", "../x", "--node", "node1"], "small letters, digits and -"),
        (&["volume", "create", "more", "--shared", "/tmp"], "[volumes.shared] in sluice.toml"),
        (&["volume", "--project", "none", "list"], "project none does not exist"),
        (&["volume", "create", "-f", "data.dstack.yml"], no_source),
        (&["apply", "-f", "data.dstack.yml", "-y"], no_source),
        (&["volume", "create", "-f", "task.dstack.yml"], "expected `type: volume`"),
        (&["volume", "create", "-f", "none.dstack.yml"], "none.dstack.yml"),
    ];
    for (command, said) in table {
        let refused = cluster.sluice(command);
        assert_ne!(refused.code, 0, "{command:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
    assert_eq!(cluster.sluice(&["volume", "delete", "data", "-y"]).ok(), "OK\n");
    assert_eq!(cluster.sluice(&["volume", "list"]).ok().lines().count(), 1);
}

#[test]
fn up_volume_of_a_node_that_is_away_is_not_deleted() {
    let cluster = Cluster::up(TWO_NODES);
    cluster.sluice(&["volume", "create", "data", "--node", "node1"]).ok();
    cluster.kill("agent");
    until("the server misses the agent", || {
        let states = cluster.sluice(&["sinfo", "-h", "-N", "-o", "%t"]).ok();
        states.lines().all(|state| state.ends_with('*')).then_some(())
    });
    let refused = cluster.sluice(&["volume", "delete", "data", "-y"]);
    assert!(
        refused.code != 0 && refused.stderr.contains("no agent answers for node node1"),
        "{refused:?}"
    );
    let refused = cluster.sluice(&["volume", "create", "more", "--node", "node1"]);
    assert!(refused.code != 0 && refused.stderr.contains("no agent answers"), "{refused:?}");
    let listed = cluster.sluice(&["volume", "list"]).ok();
    assert!(listed.contains("active") && !listed.contains("more"), "{listed}");
}

#[test]
fn up_published_client_lists_and_deletes_volumes() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    cluster.sluice(&["volume", "create", "data", "--node", "node2"]).ok();
    let listed = client.run(&["volume", "list"]).ok();
    assert!(
        listed.contains("data") && listed.contains("node2") && listed.contains("active"),
        "{listed}"
    );
    client.run(&["volume", "delete", "data", "-y"]).ok();
    assert!(!client.run(&["volume", "list"]).ok().contains("data"));
}

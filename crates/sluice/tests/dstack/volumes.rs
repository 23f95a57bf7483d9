//! `sluice volume`: the verbs of dstack's client, while no backend has volumes.

use crate::harness::{Cluster, TWO_NODES};

#[test]
fn up_volumes_are_listed_and_refused_in_one_line() {
    let cluster = Cluster::up(TWO_NODES);
    assert_eq!(cluster.sluice(&["volume", "list"]).ok().split_whitespace().count(), 4);
    assert!(cluster.sluice(&["volume", "list", "-v"]).ok().contains("ATTACHED"));
    let configuration = "type: volume\nname: data\nbackend: aws\nregion: eu-west-1\nsize: 100GB\n";
    cluster.write("data.dstack.yml", configuration);
    cluster.write("task.dstack.yml", "type: task\ncommands: ['true']\n");
    let table: [(&[&str], &str); 6] = [
        (&["volume", "get", "data", "--json"], "volume data does not exist"),
        (&["volume", "delete", "data", "-y"], "volume data does not exist"),
        (&["volume", "create", "-f", "data.dstack.yml"], "network volumes are not available yet"),
        (&["apply", "-f", "data.dstack.yml", "-y"], "network volumes are not available yet"),
        (&["volume", "create", "-f", "task.dstack.yml"], "expected `type: volume`"),
        (&["volume", "create", "-f", "none.dstack.yml"], "none.dstack.yml"),
    ];
    for (command, said) in table {
        let refused = cluster.sluice(command);
        assert_ne!(refused.code, 0, "{command:?}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
}

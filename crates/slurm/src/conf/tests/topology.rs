//! topology.conf, by TopologyPlugin.

use super::{accepted, refused};

const NODES: &str = "NodeName=n[1-6]\nPartitionName=p Nodes=ALL\n";

fn slurm_conf(plugin: &str) -> String {
    format!("ClusterName=c\nTopologyPlugin={plugin}\n{NODES}")
}

#[test]
fn a_tree_of_switches_is_read() {
    let text = "SwitchName=s0 Nodes=n[1-3] LinkSpeed=40\nSwitchName=s1 Nodes=n[4-6]\n\
                # The root.\nSwitchName=top Switches=s[0-1]\n";
    let conf = accepted(&[("slurm.conf", &slurm_conf("topology/tree")), ("topology.conf", text)]);
    let topology = conf.topology.expect("there is one");
    assert_eq!(topology.switches.len(), 3);
    assert_eq!(topology.switches[0].nodes, ["n1", "n2", "n3"]);
    assert_eq!(topology.switches[0].link_speed, 40);
    assert_eq!(topology.switches[2].switches, ["s0", "s1"]);
    assert_eq!(topology.address("n4").0, "top.s1.n4");
    assert!(!topology.is_blocks() && !topology.optional);
}

#[test]
fn blocks_are_read_with_their_sizes() {
    let text = "BlockName=b1 Nodes=n[1-3]\nBlockName=b2 Nodes=n[4-6]\nBlockSizes=3,6\n";
    let conf = accepted(&[("slurm.conf", &slurm_conf("topology/block")), ("topology.conf", text)]);
    let topology = conf.topology.expect("there is one");
    assert_eq!((topology.block_sizes, topology.switches.len()), (vec![3, 6], 2));
}

#[test]
fn without_the_plugin_the_file_is_ignored() {
    let files = [("slurm.conf", &*slurm_conf("topology/none")), ("topology.conf", "SwitchName=s0")];
    assert_eq!(accepted(&files).topology, None);
    let optional = format!("{}TopologyParam=TopoOptional\n", slurm_conf("topology/tree"));
    let files = [("slurm.conf", &*optional), ("topology.conf", "SwitchName=s0 Nodes=ALL")];
    assert!(accepted(&files).topology.is_some_and(|topology| topology.optional));
}

#[test]
fn errors_name_their_place() {
    let table = [
        ("SwitchName=s0 Nodes=n[5-9]", "/c/topology.conf:1: Nodes: \"n[7-9]\": no NodeName line"),
        ("SwitchName=s0", "/c/topology.conf:1: SwitchName: \"s0\": expected Nodes= or Switches="),
        ("SwitchName=s0 Nodes=n1 Switches=x", "expected Nodes or Switches, not both"),
        ("SwitchName=s0 Nodes=n1\nSwitchName=s0 Nodes=n2", "topology.conf:2: SwitchName: \"s0\""),
        ("SwitchName=s0 Switches=s1", "Switches: \"s1\": no SwitchName line declares this"),
        ("SwitchName=a Switches=b\nSwitchName=b Switches=a", "is below itself"),
        ("BlockName=b1 Nodes=n1", "BlockName: \"b1\": expected SwitchName lines"),
        ("LinkSpeed=3", "expected SwitchName= on the line"),
        ("SwitchNam=s0 Nodes=n1", "not a key of topology.conf; the nearest is SwitchName"),
    ];
    for (text, said) in table {
        let conf = slurm_conf("topology/tree");
        let errors = refused(&[("slurm.conf", &conf), ("topology.conf", text)]);
        assert!(errors.contains(said), "{text}: {errors}");
    }
    let sizes = "BlockName=b1 Nodes=n1\nBlockSizes=4,6";
    let conf = slurm_conf("topology/block");
    assert!(refused(&[("slurm.conf", &conf), ("topology.conf", sizes)]).contains("power of two"));
    let unknown = refused(&[("slurm.conf", &slurm_conf("topology/ring"))]);
    assert!(unknown.contains("TopologyPlugin: \"topology/ring\""), "{unknown}");
    let absent = refused(&[("slurm.conf", &slurm_conf("topology/tree"))]);
    assert!(absent.contains("/c/topology.conf: cannot be read"), "{absent}");
}

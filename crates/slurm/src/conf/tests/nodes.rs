//! `NodeName` and `DownNodes`.

use model::node::AdminState;

use super::accepted;
use crate::conf::keys::choices::NodeState;

#[test]
fn default_lines_add_up_and_keys_of_the_node_override_them() {
    let conf = accepted(&[(
        "slurm.conf",
        "nodename=default Sockets=2 CoresPerSocket=4 Features=old\n\
         NodeName=DEFAULT RealMemory=1000 Weight=3\n\
         NodeName=a[1-2]\n\
         NodeName=b1 SocketsPerBoard=1 Feature=new RealMemory=5\n",
    )]);
    let [a1, _, b1] = &conf.slurm.nodes[..] else { panic!("three nodes") };
    assert_eq!((a1.config.cpus, a1.config.memory.mib(), a1.config.weight), (8, 1000, 3));
    assert_eq!((b1.config.cpus, b1.config.memory.mib(), b1.config.weight), (4, 5, 3));
    assert_eq!(b1.config.features, ["new"]);
}

#[test]
fn ranges_of_names_addresses_and_ports_are_matched_in_order() {
    let conf = accepted(&[(
        "slurm.conf",
        "NodeName=n[08-10] NodeAddr=10.0.0.[8-10] NodeHostname=host[1-3] Port=[7001-7003]",
    )]);
    let last = &conf.slurm.nodes[2];
    assert_eq!(last.config.name, "n10");
    assert_eq!(last.config.address, "10.0.0.10");
    assert_eq!((last.config.hostname.as_str(), last.port), ("host3", Some(7003)));
    let same = accepted(&[("slurm.conf", "NodeName=n[1-2] NodeHostname=h Port=7001-7002")]);
    assert_eq!(same.slurm.nodes[1].config.address, "h");
    assert_eq!(same.slurm.nodes[1].port, Some(7002));
}

#[test]
fn states_and_reasons_are_kept() {
    let conf = accepted(&[(
        "slurm.conf",
        "NodeName=n[1-3] State=FUTURE\nNodeName=n4 State=drain Reason=\"bad fan\"\n\
         DownNodes=n[2-3] State=DOWN Reason=repair\n",
    )]);
    let initial: Vec<_> = conf.slurm.nodes.iter().map(|n| n.config.initial).collect();
    let (future, down) = (Some(AdminState::Future), Some(AdminState::Down));
    assert_eq!(initial, [future, down, down, Some(AdminState::Drain)]);
    assert_eq!(conf.slurm.nodes[3].reason.as_deref(), Some("bad fan"));
    assert_eq!(conf.slurm.nodes[1].config.initial_reason.as_deref(), Some("repair"));
    assert_eq!(conf.slurm.nodes[1].state, NodeState::Down);
}

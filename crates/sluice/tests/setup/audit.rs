//! The audit trail: `sacctmgr show transactions`, `sacctmgr show event`, `sluice event`. Needs root for a second user.

use crate::harness::Cluster;

const CONF: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
NodeName=node1 CPUs=8 RealMemory=4000
PartitionName=main Nodes=node1 Default=YES State=UP
";

#[test]
fn root_up_who_changed_what_is_in_the_books_and_shown_to_operators_and_to_oneself() {
    let cluster = Cluster::up(CONF);
    cluster.shell("sacctmgr -i add account physics").ok();
    cluster.shell("sacctmgr -i add qos high").ok();
    cluster.shell("scontrol update NodeName=node1 State=DRAIN Reason='bad disk'").ok();
    cluster.shell("scontrol update NodeName=node1 State=RESUME").ok();
    cluster.shell("scontrol update PartitionName=main MaxTime=60").ok();
    let job = cluster.submit_as("daemon", "-H --wrap true");
    cluster.shell(&format!("scancel {job}")).ok();
    let own = cluster.submit(&["-H", "--wrap", "true"]);
    cluster.shell(&format!("scancel {own}")).ok();
    let list = "sacctmgr -nP show transactions format=action,actor,where,info";
    let expected = [
        "Add Accounts|root|physics|",
        "Add QOS|root|high|",
        "Modify Nodes|root|node1|state=drain reason='bad disk'",
        "Modify Nodes|root|node1|state=resume",
        "Modify Partitions|root|main|",
        &format!("Modify Jobs|root|{job}|cancel"),
    ];
    let assert_all = |text: &str| {
        let mut lines = text.lines();
        for wanted in expected {
            assert!(lines.any(|line| line.starts_with(wanted)), "{wanted} in its place in\n{text}");
        }
        assert!(!text.contains(&format!("|{own}|")), "one's own jobs are in sacct:\n{text}");
    };
    assert_all(&cluster.shell(list).ok());
    // It outlives the server, which has the newest in memory alone.
    cluster.kill_alone("server");
    assert_all(&cluster.shell(list).ok());
    assert_eq!(cluster.shell(&format!("{list} where actor=nobody")).ok(), "");
    assert_eq!(cluster.shell(&format!("{list} where start=now+1hour")).ok(), "");
    assert_eq!(cluster.shell(&format!("{list} where action=qos")).ok(), "Add QOS|root|high|\n");
    // What became of nodes is everybody's to see; the rest others did.
    let said = cluster.shell_as("daemon", list).ok();
    assert!(said.lines().all(|line| line.starts_with("Modify Nodes|")), "{said}");
    let said = cluster.sluice(&["event"]).ok();
    assert!(said.contains(&format!("[batch job {job}] Batch job updated: cancel")), "{said}");
    let said = cluster.shell_as("daemon", &format!("{} event", crate::harness::program())).ok();
    assert!(!said.contains("batch job"), "{said}");
}

#[test]
fn up_events_of_nodes_have_a_beginning_an_end_a_reason_and_an_author() {
    let cluster = Cluster::up(CONF);
    cluster.shell("scontrol update NodeName=node1 State=DRAIN Reason='bad disk'").ok();
    let list = "sacctmgr -nP show event format=cluster,nodename,timeend,state,reason,user";
    let user = crate::harness::user_name();
    let open = format!("test|node1|Unknown|DRAIN|bad disk|{user}\n");
    assert_eq!(cluster.shell(list).ok(), open);
    cluster.shell("scontrol update NodeName=node1 State=RESUME").ok();
    let over = cluster.shell(list).ok();
    assert!(over != open && over.ends_with(&format!("|DRAIN|bad disk|{user}\n")), "{over}");
    assert_eq!(cluster.shell(&format!("{list} where nodes=node2")).ok(), "");
    let header = cluster.shell("sacctmgr show event").ok();
    assert!(header.starts_with("   Cluster        NodeName           TimeStart"), "{header}");
}

//! The audit trail: `sacctmgr show transactions`, `sacctmgr show event`, `sluice event`. Needs root for a second user.

use crate::harness::Cluster;

const CONF: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
RebootProgram=/bin/false
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
    cluster.shell("scontrol update PartitionName=main DefaultTime=30 PriorityTier=5").ok();
    let part = cluster.shell("scontrol show partition main").ok();
    assert!(part.contains("DefaultTime=00:30:00") && part.contains("PriorityTier=5"), "{part}");
    let refused = cluster.shell("scontrol update PartitionName=main DefaultTime=120");
    assert!(refused.stderr.contains("is above MaxTime"), "{}", refused.stderr);
    let words = "users=root starttime=now+1hour duration=30 nodes=node1";
    cluster.shell(&format!("scontrol create reservation=kept {words}")).ok();
    cluster.shell("scontrol update reservationname=kept duration=40").ok();
    cluster.shell("scontrol delete reservationname=kept").ok();
    cluster.shell("scontrol update NodeName=node1 Weight=5").ok();
    cluster.shell("scontrol update PartitionName=main State=DOWN").ok();
    cluster.shell(&format!("{} token node --pattern node1", crate::harness::program())).ok();
    cluster.shell("scontrol reboot ASAP node1").ok();
    cluster.shell("scontrol cancel_reboot node1").ok();
    let job = cluster.submit_as("daemon", "-H --wrap true");
    cluster.shell(&format!("scancel {job}")).ok();
    let own = cluster.submit(&["-H", "--wrap", "true"]);
    cluster.shell(&format!("scancel {own}")).ok();
    cluster.write_conf("slurm.conf", &format!("{CONF}PartitionName=more Nodes=node1\n"));
    cluster.shell("scontrol reconfigure").ok();
    let list = "sacctmgr -nP show transactions format=action,actor,where,info";
    let expected = [
        "Add Accounts|root|physics|",
        "Add QOS|root|high|",
        "Modify Nodes|root|node1|state=drain reason='bad disk'",
        "Modify Nodes|root|node1|state=resume",
        "Modify Partitions|root|main|MaxTime=1:00:00",
        "Modify Partitions|root|main|DefaultTime=30:00",
        "Modify Partitions|root|main|PriorityTier=5",
        "Add Reservations|root|kept|",
        "Modify Reservations|root|kept|",
        "Remove Reservations|root|kept|",
        "Modify Nodes|root|node1|Weight=5",
        "Modify Partitions|root|main|State=DOWN",
        "Add Tokens|root|join-",
        "Modify Nodes|root|node1|reboot asap",
        "Modify Nodes|root|node1|cancel_reboot",
        &format!("Modify Jobs|root|{job}|cancel"),
        "Modify Configuration|root|test|",
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
    assert_eq!(cluster.shell(&format!("{list} where nodes=node[1,3]")).ok(), over);
    let refused = cluster.shell(&format!("{list} where nodes=node[1")).stderr;
    assert!(refused.contains("Invalid node list"), "{refused}");
    // A reason alone begins nothing; each state is told as what it is.
    cluster.shell("scontrol update NodeName=node1 Reason=note").ok();
    assert_eq!(cluster.shell(list).ok(), over);
    cluster.shell("scontrol update NodeName=node1 State=DOWN Reason=smoke").ok();
    let down = cluster.shell(list).ok();
    assert!(down.contains(&format!("|Unknown|DOWN|smoke|{user}\n")), "{down}");
    cluster.shell("scontrol update NodeName=node1 State=RESUME").ok();
    let said = cluster.shell("sacctmgr -nP show transactions format=info").ok();
    for wanted in ["reason='note'", "state=down reason='smoke'", "state=resume"] {
        assert!(said.lines().any(|line| line == wanted), "{wanted}: {said}");
    }
    let header = cluster.shell("sacctmgr show event").ok();
    assert!(header.starts_with("   Cluster        NodeName           TimeStart"), "{header}");
}

//! Nodes that no configuration file names: `sluice agent --dynamic`, `scontrol create` and `delete nodename`.

use super::power::PowerCluster;
use crate::harness::{Cluster, TWO_NODES, program, until};

const MORE: &str = "\
MaxNodeCount=5
SuspendExcStates=DYNAMIC_NORM
NodeSet=fast Feature=fast
PartitionName=all Nodes=ALL State=UP
PartitionName=quick Nodes=fast State=UP
";

impl PowerCluster {
    fn sinfo(&self, partition: &str, format: &str) -> String {
        let line = format!("sinfo -h -N -p {partition} -o '{format}'");
        self.cluster().shell(&line).stdout.trim().replace('\n', " ")
    }

    fn await_shown(&self, node: &str, wanted: &str) {
        until(&format!("{node} is {wanted}"), || {
            let shown = self.cluster().shell(&format!("scontrol show node {node}")).stdout;
            shown.contains(wanted).then_some(())
        });
    }

    /// A join file for these names, under the name that a node's agent looks for.
    fn pattern_file(&self, pattern: &str, nodes: &[&str]) {
        for node in nodes {
            let file = self.cluster().path(&format!("{node}.join"));
            let line = format!(
                "{} token node --dynamic --pattern '{pattern}' > {}",
                program(),
                file.display()
            );
            self.cluster().shell(&line).ok();
        }
    }

    /// What an agent says that is expected to end at once.
    fn refused(&self, node: &str, options: &str) -> String {
        let (state, join) = (self.cluster().path("late"), self.cluster().path("d1.join"));
        let said = self.cluster().shell(&format!(
            "timeout 20 {} agent --state {} --join {} --node {node} {options}",
            program(),
            state.display(),
            join.display()
        ));
        assert!(said.code != 0 && said.code != 124, "{said:?}");
        said.stderr
    }

    pub(super) fn certificate_end(&self, node: &str) -> i64 {
        let line = format!("{} node show {node} --json", program());
        let shown: serde_json::Value =
            serde_json::from_str(&self.cluster().shell(&line).ok()).unwrap();
        shown["certificate_end"].as_i64().expect("an end")
    }

    fn said_by(&self, node: &str) -> String {
        std::fs::read_to_string(self.cluster().path(&format!("{node}.out"))).unwrap_or_default()
    }
}

#[test]
fn up_machines_that_no_file_names_join_within_the_pattern_and_max_node_count() {
    let mut site = PowerCluster::up(MORE);
    site.pattern_file("d[1-9],here", &["d1", "d2"]);
    let conf = "CPUs=2 RealMemory=300 Feature=fast,new Weight=7 Gres=lamp:3";
    site.start_agent("d1", &["--node", "d1", "--dynamic", "--conf", conf]);
    site.await_shown("d1", "State=IDLE+DYNAMIC_NORM ");
    let shown = site.show("d1");
    for words in [
        "CPUTot=2",
        "RealMemory=300",
        "AvailableFeatures=fast,new",
        "Weight=7",
        "Gres=lamp:3",
        "NodeAddr=127.0.0.1",
        "Partitions=all,quick",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let said = site.cluster().shell("srun -p quick --gres=lamp:1 sh -c 'echo $SLURMD_NODENAME'");
    assert_eq!(said.stdout, "d1\n", "{said:?}");
    site.start_agent("d2", &["--node", "d2", "--dynamic", "--conf", "RealMemory=300"]);
    site.await_shown("d2", "State=IDLE+DYNAMIC_NORM ");
    assert_eq!(site.sinfo("quick", "%N"), "d1");

    site.cluster().shell("scontrol create nodename=d3 CPUs=1 RealMemory=100").ok();
    for (node, options, words) in [
        ("d4", "", "node d4 is not in the configuration"),
        ("d4", "--dynamic", "beyond MaxNodeCount, which is 5"),
        ("e1", "--dynamic", "node e1 does not fit"),
        ("here", "--dynamic", "without --dynamic"),
        ("d2", "--dynamic", "sluice node rejoin d2"),
        ("d4", "--dynamic --conf Colour=red", "--conf: Colour: not a key of a NodeName line"),
        ("d4", "--dynamic --conf State=IDLE", "--conf: State: not for an agent to say"),
        ("d4", "--conf CPUs=1", "--dynamic"),
    ] {
        let said = site.refused(node, options);
        assert!(said.contains(words), "{options}: {said}");
    }

    // What an administrator changes stays, over a restart of the server and of the configuration.
    site.cluster().shell("scontrol update nodename=d2 features=fast weight=9").ok();
    assert_eq!(site.sinfo("quick", "%N"), "d1 d2");
    site.kill_server();
    site.start_server();
    for node in ["d1", "d2"] {
        site.await_shown(node, "State=IDLE+DYNAMIC_NORM ");
    }
    site.cluster().shell("scontrol reconfigure").ok();
    assert_eq!(site.sinfo("quick", "%N %w"), "d1 7 d2 9");
    assert_eq!(site.sinfo("main", "%N"), "cloud1 here");
    let slurm_conf = site.cluster().path("conf/slurm.conf");
    let text = std::fs::read_to_string(&slurm_conf).unwrap();
    site.cluster().write_conf("slurm.conf", &format!("{text}NodeName=d1\n"));
    let said = site.cluster().shell("scontrol reconfigure");
    assert!(said.code != 0 && said.stderr.contains("a dynamic node has this name"), "{said:?}");
    site.cluster().write_conf("slurm.conf", &text);
}

#[test]
fn up_dynamic_node_is_deleted_when_nothing_is_on_it_and_joins_again_when_its_agent_is_started() {
    let mut site = PowerCluster::up(MORE);
    site.pattern_file("d[1-9]", &["d1"]);
    let options = ["--node", "d1", "--dynamic", "--conf", "RealMemory=300 Feature=fast"];
    site.start_agent("d1", &options);
    site.await_shown("d1", "State=IDLE+DYNAMIC_NORM ");
    let job = site.cluster().submit(&["-p", "quick", "--wrap", "sleep 300"]);
    site.cluster().await_state(job, "RUNNING");
    let refused = |words: &str| {
        let said = site.cluster().shell("scontrol delete nodename=d1");
        assert!(said.code != 0 && said.stderr.contains(words), "{said:?}");
    };
    refused(&format!("scontrol_delete_node error: node d1 is busy: job {job} is on it"));
    site.cluster().shell(&format!("scancel {job}")).ok();
    site.cluster().await_end(job);
    let user = crate::harness::user_name();
    let reserve = format!(
        "scontrol create reservation=held nodes=d1 start=now+1hour duration=60 users={user}"
    );
    site.cluster().shell(&reserve).ok();
    refused("node d1 is in reservation held");
    site.cluster().shell("scontrol delete reservation=held").ok();
    site.cluster().shell("scontrol delete nodename=d1").ok();
    assert_eq!(
        (site.sinfo("quick", "%N").as_str(), site.sinfo("all", "%N")),
        ("", "cloud1 here".into())
    );
    let said = site.cluster().shell("scontrol delete nodename=here");
    assert!(said.stderr.contains("node here is not dynamic"), "{said:?}");
    until("its agent is told", || {
        site.said_by("d1").contains("node d1 is not in the configuration").then_some(())
    });
    site.kill_server();
    site.start_server();
    assert_eq!(site.sinfo("quick", "%N"), "", "it was deleted for good");
    site.stop_agent("d1");
    site.start_agent("d1", &options);
    site.await_shown("d1", "State=IDLE+DYNAMIC_NORM ");
    let said = site.cluster().shell("srun -p quick sh -c 'echo $SLURMD_NODENAME'");
    assert_eq!(said.stdout, "d1\n", "{said:?}");
    site.await_shown("d1", "State=IDLE+DYNAMIC_NORM ");
    let list = "sacctmgr -nP show transactions format=action,actor,where,info";
    let noted = site.cluster().shell(list).ok();
    for wanted in [format!("Remove Nodes|{user}|d1|"), "|d1|joined".into(), "Add Tokens|".into()] {
        assert!(noted.contains(&wanted), "{wanted}:\n{noted}");
    }
}

#[test]
fn up_created_node_of_a_cloud_is_powered_up_for_a_job_and_a_future_one_comes_with_its_agent() {
    let mut site = PowerCluster::up(MORE);
    let create = |line: &str| site.cluster().shell(&format!("scontrol create {line}"));
    for (line, words) in [
        ("nodename=cl1 State=DOWN", "expected CLOUD or FUTURE"),
        ("nodename=here CPUs=1", "node here exists already"),
        ("nodename=cl[1-4] CPUs=1", "beyond MaxNodeCount, which is 5"),
        ("nodename=cl[1-2] NodeAddr=a,b,c", "NodeAddr"),
        ("nodename=cl1 Colour=red", "Colour"),
    ] {
        let said = create(line);
        assert!(said.code != 0 && said.stderr.contains(words), "{line}: {said:?}");
    }
    create("nodename=cl[1-2] CPUs=2 RealMemory=500 Feature=fast State=CLOUD").ok();
    create("NodeName=fu1 CPUs=1 RealMemory=100 State=FUTURE").ok();
    site.await_shown("cl1", "State=IDLE+CLOUD+DYNAMIC_NORM+POWERED_DOWN ");
    site.await_shown("fu1", "State=FUTURE+DYNAMIC_NORM");
    let job = site.cluster().submit(&["-p", "quick", "-w", "cl2", "--wrap", "hostname"]);
    site.cluster().await_state(job, "CONFIGURING");
    until("its program is called", || {
        let called = std::fs::read_to_string(site.cluster().path("work/resumed"));
        called.is_ok_and(|lines| lines.lines().any(|line| line == "cl2")).then_some(())
    });
    site.start_agent("cl2", &[]);
    assert_eq!(site.cluster().await_end(job), "COMPLETED|0:0");
    site.await_shown("cl2", "State=IDLE+CLOUD+DYNAMIC_NORM ");
    site.start_agent("fu1", &["--dynamic", "--node", "fu1"]);
    site.await_shown("fu1", "State=IDLE+DYNAMIC_NORM ");
    site.cluster().shell("scontrol delete nodename=cl1").ok();
    assert_eq!(site.sinfo("quick", "%N"), "cl2");
}

#[test]
fn up_machine_becomes_the_future_node_that_it_is_like() {
    let mut site = PowerCluster::up(MORE);
    let printed = site.cluster().sluice(&["agent", "--print-config"]).ok();
    let own = printed.lines().next().unwrap_or_default();
    let own: Vec<&str> =
        own.split_whitespace().skip(1).filter(|word| !word.starts_with("Gres=")).collect();
    let create = |line: String| site.cluster().shell(&format!("scontrol create {line}")).ok();
    create("nodename=f1 CPUs=512 RealMemory=100 State=FUTURE".into());
    create(format!("nodename=f2 {} Feature=fast State=FUTURE", own.join(" ")));
    site.pattern_file("f[1-9]", &["any", "f2"]);
    let said = site.cluster().shell(&format!(
        "timeout 20 {} agent --state {} --join {} -Fslow",
        program(),
        site.cluster().path("late").display(),
        site.cluster().path("any.join").display()
    ));
    assert!(said.stderr.contains("no FUTURE node of f[1-9] is like this machine"), "{said:?}");
    site.start_agent("f2", &["-F", "fast"]);
    site.await_shown("f2", "State=IDLE+DYNAMIC_FUTURE+DYNAMIC_NORM ");
    let said = site.cluster().shell("srun -p quick sh -c 'echo $SLURMD_NODENAME'");
    assert_eq!(said.stdout, "f2\n", "{said:?}");
    // Started again it is the same node, and needs no other.
    until("the job has ended", || {
        site.cluster().shell("squeue -h").ok().trim().is_empty().then_some(())
    });
    site.stop_agent("f2");
    until("f2 is gone", || (site.sinfo("quick", "%N %t") == "f2 idle*").then_some(()));
    site.start_agent("f2", &["-F", "fast"]);
    site.await_shown("f2", "State=IDLE+DYNAMIC_FUTURE+DYNAMIC_NORM ");
}

#[test]
fn up_start_names_the_nodes_of_other_machines_that_do_not_answer_yet() {
    let cluster = Cluster::up(&format!("{TWO_NODES}MaxNodeCount=3\n"));
    cluster.shell("scontrol create nodename=later CPUs=1 RealMemory=100").ok();
    cluster.sluice(&["down"]).ok();
    let said = cluster.try_start();
    assert_eq!(said.code, 0, "{said:?}");
    assert!(said.stdout.contains("\nnot answering yet: later: "), "{said:?}");
}

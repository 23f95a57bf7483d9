//! Commands away from the server: on a login node, and in jobs on every node, by the socket of the host's own agent.

use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, program, until};

const CONF: &str = "\
ClusterName=hosts
DefMemPerCPU=64
NodeName=node[01-02] CPUs=2 CoresPerSocket=2 RealMemory=1000
PartitionName=main Nodes=node[01-02] Default=YES State=UP
";
/// The third host runs no jobs.
const LOGIN: u32 = 3;
const USER: &str = "games";

/// A server, two nodes, and a login node.
fn with_login_node() -> (Cluster, Hosts) {
    let cluster = Cluster::folder(CONF);
    cluster.write_conf("sluice.toml", "[nodes]\nlogin = 'node03'\n");
    let mut hosts = Hosts::up(3);
    hosts.start(&cluster);
    for host in [1, 2, LOGIN] {
        hosts.join(&cluster, host);
    }
    until("both nodes are idle", || {
        let states = hosts.in_hub(&cluster, "sinfo -h -o '%D %t'").stdout;
        (states.trim() == "2 idle").then_some(())
    });
    until("the login node answers", || {
        (hosts.on_host_as(USER, &cluster, LOGIN, "squeue").code == 0).then_some(())
    });
    (cluster, hosts)
}

#[test]
fn root_login_node_and_jobs_reach_the_server_by_the_socket_of_their_host() {
    let (cluster, hosts) = with_login_node();
    let from_login = |line: &str| hosts.on_host_as(USER, &cluster, LOGIN, line);
    let said = from_login("echo typed | srun -N2 -n2 sh -c 'read x; echo $x on $(hostname)'");
    let mut lines: Vec<&str> = said.stdout.lines().collect();
    lines.sort();
    assert_eq!(lines, ["typed on node01", "typed on node02"], "{}", said.stderr);
    assert_eq!(from_login("srun sh -c 'exit 7'").code, 7);

    // A job on one node submits another to the other node, runs a step there, and sees both.
    let bin = cluster.path("bin");
    cluster.write(
        "outer.sh",
        &format!(
            "#!/bin/sh\nPATH={}:$PATH\nsbatch --parsable -w node02 -o inner.out --wrap 'hostname' > inner.id\n\
             srun -n1 hostname > step.out\nsqueue -h -j $SLURM_JOB_ID -o %i > seen\nscontrol ping >> seen\n",
            bin.display()
        ),
    );
    for export in ["ALL", "NONE"] {
        let line = format!("sbatch --parsable --export={export} -w node01 -o outer.out outer.sh");
        let outer = from_login(&line).ok().trim().to_string();
        let ended = until("the job ends", || {
            let line = format!("sacct -n -X -P -j {outer} -o State");
            let state = from_login(&line).stdout;
            (!state.contains("RUNNING") && !state.contains("PENDING")).then_some(state)
        });
        assert_eq!(ended.trim(), "COMPLETED", "--export={export}: {}", cluster.read("outer.out"));
        assert_eq!(cluster.read("step.out").trim(), "node01");
        let seen = cluster.read("seen");
        assert!(seen.starts_with(&outer) && seen.contains("is UP"), "{seen}");
        cluster.await_file("inner.out", |text| text.trim() == "node02");
        for file in ["inner.out", "step.out", "seen", "inner.id"] {
            std::fs::remove_file(cluster.path("work").join(file)).unwrap();
        }
    }
}

#[test]
fn root_node_speaks_only_for_owners_of_its_jobs_and_no_node_for_root() {
    let (cluster, hosts) = with_login_node();
    let on = |user: &str, host: u32, line: &str| hosts.on_host_as(user, &cluster, host, line);
    let said = on(USER, 2, "squeue");
    let expected = "user games has no running job on node node02, which is not a login node";
    assert!(said.code != 0 && said.stderr.contains(expected), "{}", said.stderr);
    let said = on("root", LOGIN, "scancel -u games");
    assert!(said.stderr.contains("node node03 cannot speak for root"), "{}", said.stderr);
    assert_ne!(said.code, 0);
    // What root of a node asks there about the machine is answered all the same.
    let said = on("root", 2, &format!("{} doctor", program()));
    let told = "answers, and shows this user nothing: ";
    assert!(said.stdout.contains(told) && said.stdout.contains("groups:"), "{said:?}");
    assert_eq!(said.code, 0, "{said:?}");

    // While a job of the user runs there, its node speaks for that user alone.
    let line = "sbatch --parsable -w node02 -o none --wrap 'touch runs; sleep 600'";
    let id = on(USER, LOGIN, line).ok().trim().to_string();
    cluster.await_file("runs", |_| true);
    on(USER, 2, "squeue").ok();
    assert_ne!(on("daemon", 2, "squeue").code, 0);
    assert_ne!(on("daemon", LOGIN, &format!("scancel {id}")).code, 0, "another's job");
    on(USER, 2, &format!("scancel {id}")).ok();
    until("the node no longer speaks for its owner", || {
        (on(USER, 2, "squeue").code != 0).then_some(())
    });
}

/// A reader that stops for longer than an agent may take nothing of its connection: `logs | less`, on a login node.
#[test]
fn root_reader_on_a_login_node_may_pause_and_gets_all() {
    const BYTES: &str = "24000000";
    let (cluster, hosts) = with_login_node();
    let from_login = |line: &str| hosts.on_host_as(USER, &cluster, LOGIN, line);
    let run = format!(
        "type: task\nname: loud\ncommands:\n  - yes 0123456789abcde | head -c {BYTES}\n\
         resources:\n  cpu: 1\n  memory: 64MB..\n  disk: 0GB..\n"
    );
    cluster.write("loud.yml", &run);
    from_login(&format!("{} apply -y -d -f loud.yml", program())).ok();
    until("the run has ended", || {
        let state = from_login("sacct -n -X -P --name loud -o State").stdout;
        (state.trim() == "COMPLETED").then_some(())
    });
    // Longer than what nobody acknowledges is waited for on a link (20 s).
    let said = from_login(&format!("{} logs loud | (sleep 30; wc -c)", program()));
    assert_eq!(said.stdout.trim(), BYTES, "{}", said.stderr);
}

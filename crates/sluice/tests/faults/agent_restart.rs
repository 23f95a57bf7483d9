//! An agent that dies while its server runs is started again, and jobs, prologs and cancels go on.

use crate::harness::{Cluster, is_alive, signal, until};

const ONE_NODE: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
DefMemPerCPU=100
KillWait=8 AuthInfo=cred_expire=0
NodeName=node1 CPUs=8 RealMemory=4000
PartitionName=main Nodes=node1 Default=YES State=UP
";

/// Writes a line in the work folder, and waits for a file there.
const WAITS: &str =
    "cd $(dirname $0)/../work; echo NAME >> NAME.runs; until [ -e NAME.go ]; do sleep 0.05; done";

/// Kills the agent alone; the pid of the next one.
fn next_agent(cluster: &Cluster) -> i32 {
    let killed = cluster.pid("agent");
    cluster.kill_alone("agent");
    await_next(cluster, killed)
}

fn await_next(cluster: &Cluster, last: i32) -> i32 {
    until("another agent is there", || {
        let now = cluster.pid("agent");
        (now != last && is_alive(now)).then_some(now)
    })
}

fn lines(cluster: &Cluster, name: &str) -> usize {
    cluster.read(name).lines().count()
}

#[test]
fn up_a_killed_agent_is_reaped_and_restarted() {
    let cluster = Cluster::up(ONE_NODE);
    let job = cluster.submit(&[
        "--no-requeue",
        "--wrap",
        "echo run >> runs; until [ -e go ]; do sleep 0.05; done",
    ]);
    cluster.await_file("runs", |text| !text.is_empty());
    let killed = cluster.pid("agent");
    let next = next_agent(&cluster);
    assert!(!std::path::Path::new(&format!("/proc/{killed}")).exists(), "it was waited for");
    // Without its launcher an agent ends by itself, and is restarted in the same way.
    let children = std::fs::read_to_string(format!("/proc/{next}/task/{next}/children")).unwrap();
    let launcher = children.split_whitespace().next().expect("a launcher").parse().unwrap();
    signal(launcher, "KILL");
    let third = await_next(&cluster, next);
    let after = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(after), "COMPLETED|0:0", "the node works as before");
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert_eq!(lines(&cluster, "runs"), 1);
    cluster.sluice(&["down"]).ok();
    assert!(!is_alive(third) && !cluster.state().join("keeper.pid").exists());
    assert!(cluster.log("agent").contains("killed by SIGKILL; it is started again"));
}

/// Nobody could end the job any more: its folder, by which the next agent would find it, is gone with the cluster's.
#[test]
fn up_job_ends_when_its_clusters_folder_is_removed() {
    let cluster = Cluster::up(ONE_NODE);
    cluster.submit(&["--wrap", "echo $$ > pid; exec sleep 600"]);
    let pid: i32 =
        cluster.await_file("pid", |text| text.ends_with('\n')).trim().parse().expect("a pid");
    cluster.kill("server");
    cluster.kill("agent");
    assert!(is_alive(pid), "it does not need its agent");
    // Its supervisor begins to listen for the next agent in the midst of it.
    until("the folder is removed", || std::fs::remove_dir_all(cluster.state()).ok());
    until("the job's process ends", || (!is_alive(pid)).then_some(()));
}

#[test]
fn up_a_stopped_agent_is_not_restarted() {
    let cluster = Cluster::up(ONE_NODE);
    let (keeper, agent) = (cluster.pid("keeper"), cluster.pid("agent"));
    signal(agent, "TERM");
    until("its keeper ends with it", || (!is_alive(keeper) && !is_alive(agent)).then_some(()));
    cluster.kill("server");
    cluster.start();
    // The keeper is stopped while the agent dies: `down` finds no agent, and none may be started after it.
    let keeper = cluster.pid("keeper");
    signal(keeper, "STOP");
    cluster.kill_alone("agent");
    let down = cluster.spawn(&["down"]);
    until("the server is gone", || (!cluster.state().join("server.pid").exists()).then_some(()));
    signal(keeper, "CONT");
    assert!(down.wait_with_output().unwrap().status.success());
    assert!(!is_alive(keeper), "nobody is left to start another");
}

#[test]
fn up_a_clean_stop_logs_no_error() {
    let cluster = Cluster::up(ONE_NODE);
    let job = cluster.submit(&["--wrap", "true"]);
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    cluster.sluice(&["down"]).ok();
    // Only the server is killed: its agent waits for the next one.
    cluster.start();
    let server = cluster.pid("server");
    signal(server, "TERM");
    until("the server has gone", || (!is_alive(server)).then_some(()));
    until("the agent has noticed", || cluster.log("agent").contains("refused").then_some(()));
    cluster.start();
    cluster.sluice(&["down"]).ok();
    for of in ["server", "agent"] {
        let log = cluster.log(of);
        let bad: Vec<&str> =
            log.lines().filter(|l| l.contains("WARN") || l.contains("ERROR")).collect();
        assert!(bad.is_empty(), "{of}: {bad:#?}");
        assert!(!log.contains("close_notify"), "{of}: {log}");
    }
}

#[test]
fn root_up_an_agent_killed_during_a_prolog_or_an_epilog_runs_nothing_twice() {
    let cluster = Cluster::folder("");
    let (before, after) = (
        cluster.write_program("prolog", &WAITS.replace("NAME", "prolog")),
        cluster.write_program("epilog", &WAITS.replace("NAME", "epilog")),
    );
    cluster.write_conf("slurm.conf", &format!("{ONE_NODE}Prolog={before}\nEpilog={after}\n"));
    cluster.start();
    let job = cluster.submit(&["--wrap", "echo run >> runs; exit 3"]);
    cluster.await_file("prolog.runs", |text| text.ends_with('\n'));
    next_agent(&cluster);
    assert_eq!(cluster.read("runs"), "", "the script waits for the prolog");
    cluster.write("prolog.go", "");
    cluster.await_file("epilog.runs", |text| text.ends_with('\n'));
    next_agent(&cluster);
    let node = || cluster.sluice(&["sinfo", "-h", "-N", "-o", "%T|%E"]).ok().trim().to_owned();
    until("the node is there again", || (node() == "completing|none").then_some(()));
    assert!(cluster.state_of(job).starts_with("COMPLETING"), "{}", cluster.state_of(job));
    cluster.write("epilog.go", "");
    assert_eq!(cluster.await_end(job), "FAILED|3:0");
    for name in ["prolog.runs", "runs", "epilog.runs"] {
        assert_eq!(lines(&cluster, name), 1, "{name}");
    }
    until("nothing is left", || cluster.groups().is_empty().then_some(()));
    until("the node is free", || (node() == "idle|none").then_some(()));
}

#[test]
fn up_a_cancelled_job_ends_though_its_agent_is_killed_during_the_grace() {
    let cluster = Cluster::up(ONE_NODE);
    let deaf = "trap 'echo asked >> asked' TERM; echo $$ >> runs; while :; do sleep 0.05; done";
    let job = cluster.submit(&["--wrap", deaf]);
    let pid: i32 = cluster.await_file("runs", |t| t.ends_with('\n')).trim().parse().unwrap();
    cluster.sluice(&["scancel", &job.to_string()]).ok();
    cluster.await_file("asked", |text| !text.is_empty());
    next_agent(&cluster);
    assert!(cluster.await_end(job).starts_with("CANCELLED"));
    until("it is dead", || (!is_alive(pid)).then_some(()));
    assert_eq!((lines(&cluster, "runs"), lines(&cluster, "asked")), (1, 1));
    until("nothing is left", || cluster.groups().is_empty().then_some(()));
}

//! Agents by the hundred, which speak the real protocol in one process: a server that is killed and started again has all of
//! them back, refuses none, and no job of theirs is lost.

use crate::harness::{Cluster, until};
use agent::load::many_agents::{Counts, ManyAgents};
use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};
use std::sync::atomic::Ordering;
use std::time::Duration;

const AGENTS: usize = 100;
const JOBS: usize = 300;
/// Descriptors of the server besides those of its agents, that come and go with clients.
const CLIENTS_MAX: usize = 10;

const CONF: &str = "\
ClusterName=agents
SlurmdParameters=config_overrides
ReturnToService=1
NodeName=m[1-100] CPUs=2 RealMemory=1000
PartitionName=main Nodes=ALL Default=YES State=UP
";

fn start_server(cluster: &Cluster) -> Child {
    let conf = cluster.path("conf");
    let mut args = vec!["server", "--config", conf.to_str().unwrap()];
    if !cluster.state().join("ports.json").exists() {
        args.extend(["--listen", "127.0.0.1:0", "--agents", "127.0.0.1:0"]);
    }
    let mut server = cluster.command(&args).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(server.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert!(line.starts_with("sluice is up"), "{line}");
    server
}

fn descriptors(server: &Child) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.id())).unwrap().count()
}

fn connected(counts: &Counts) -> bool {
    counts.connected.load(Ordering::Relaxed) == AGENTS as u64
}

#[test]
fn up_a_hundred_agents_come_back_after_a_kill_of_the_server_and_none_is_refused() {
    let cluster = Cluster::folder(CONF);
    let mut server = start_server(&cluster);
    std::fs::create_dir(cluster.path("joins")).unwrap();
    let mut join_files = Vec::new();
    for node in 1..=AGENTS {
        let file = cluster.path("joins").join(node.to_string());
        let said = cluster.sluice(&["token", "node", &format!("m{node}")]).ok();
        std::fs::write(&file, said).unwrap();
        join_files.push(file);
    }
    let before = descriptors(&server);
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let _inside = runtime.enter();
    let many =
        ManyAgents { state: cluster.path("agents"), join_files, job_time: Duration::from_secs(2) };
    let counts = many.start();
    until("all agents are connected", || connected(&counts).then_some(()));
    let idle = format!("{AGENTS} idle");
    until("their nodes are idle", || {
        (cluster.shell("sinfo -h -o '%D %t'").ok().trim() == idle).then_some(())
    });
    let open = descriptors(&server);
    assert!(open <= before + AGENTS + CLIENTS_MAX, "{open} are open, {before} without agents");

    let array = format!("--array=1-{JOBS}");
    cluster.submit(&["-J", "many", "-o", "/dev/null", &array, "--wrap", "true"]);
    until("jobs run", || (counts.running.load(Ordering::Relaxed) > 0).then_some(()));
    server.kill().unwrap();
    server.wait().unwrap();
    until("the agents notice", || (counts.connected.load(Ordering::Relaxed) == 0).then_some(()));
    let welcomed = counts.welcomed.load(Ordering::Relaxed);
    let mut server = start_server(&cluster);
    until("all agents are connected again", || connected(&counts).then_some(()));
    assert_eq!(counts.welcomed.load(Ordering::Relaxed), welcomed + AGENTS as u64, "each once");
    assert_eq!(counts.refused.load(Ordering::Relaxed), 0, "{}", counts.last_refusal());
    until("all jobs have ended", || {
        cluster.sluice(&["squeue", "-h"]).ok().trim().is_empty().then_some(())
    });
    let ended = cluster.shell("sacct -n -X -P -o State --name many | sort | uniq -c").ok();
    let ended: Vec<&str> = ended.split_whitespace().collect();
    assert_eq!(ended, [&JOBS.to_string(), "COMPLETED"], "none is lost, and none failed");
    assert_eq!(counts.orders_refused.load(Ordering::Relaxed), 0);
    cluster.sluice(&["down"]).ok();
    server.wait().unwrap();
}

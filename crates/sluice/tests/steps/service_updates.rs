//! Updates of services in place: what runs before and after one, while it goes on, and when it is stopped halfway.

use crate::harness::ssh_client::free_port;
use crate::harness::{Cluster, TWO_NODES, until};
use crate::services::{PAGE, answered, apply, apply_lines, await_none, replicas, serving};
use crate::web_pages::{admin, get};

#[test]
fn up_update_of_a_service_loses_no_request() {
    let (cluster, token) = serving("");
    let before = replicas(&cluster);
    assert_eq!(before.len(), 1);
    // At one port the old replica would answer for the new one on this machine, and take connections with it when it ends.
    let port = free_port();
    let said = apply(&cluster, port, "env: [A=b]");
    assert!(said.contains("replaced once the new replicas are ready"), "{said}");
    // Requests go on all the while.
    until("the first replica is gone", || {
        let answer = get(&cluster, PAGE, &[&token]);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let now = replicas(&cluster);
        (now.len() == 1 && now != before).then_some(())
    });
    assert_eq!(get(&cluster, PAGE, &[&token]).status, 200);
    let again = apply(&cluster, port, "env: [A=b]");
    assert!(again.contains("Detected no changes"), "{again}");
}

/// The new replica never listens, and the old one does at the same port of the same machine.
#[test]
fn up_replica_is_not_taken_for_ready_because_another_listens_at_its_port() {
    let cluster = Cluster::up(TWO_NODES);
    let (token, port) = (admin(&cluster), free_port());
    let serve = format!("commands: ['exec python3 -m http.server {port} --bind 127.0.0.1']");
    apply_lines(&cluster, "web", port, &serve);
    answered(&cluster, PAGE, &[&token]);
    let before = replicas(&cluster);
    apply_lines(&cluster, "web", port, "commands: ['exec sleep 600']");
    // The server looks at replicas once a second.
    until("the new replica has run for several looks", || {
        let options = ["squeue", "-h", "-n", "web", "-t", "R", "-o", "%i %M"];
        let listed = cluster.sluice(&options).ok();
        let new = listed.lines().filter_map(|line| line.trim().split_once(' '));
        let mut new = new.filter(|(job, _)| !before.iter().any(|known| known == job));
        let (minutes, seconds) = new.next()?.1.trim().split_once(':')?;
        (minutes != "0" || seconds.parse::<u32>().ok()? > 5).then_some(())
    });
    assert_eq!(replicas(&cluster).len(), 2, "the one before goes on");
    assert_eq!(get(&cluster, PAGE, &[&token]).status, 200);
}

/// There is a place for three replicas, and the service has two.
#[test]
fn up_update_needs_the_place_of_one_replica_alone() {
    let cluster = Cluster::up(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=16\nKillWait=1\n\
         NodeName=node1 CPUs=3 RealMemory=1000\nPartitionName=main Nodes=node1 Default=YES State=UP\n",
    );
    let token = admin(&cluster);
    apply(&cluster, free_port(), "replicas: 2");
    let before = until("both replicas run", || {
        Some(replicas(&cluster)).filter(|running| running.len() == 2)
    });
    apply(&cluster, free_port(), "replicas: 2\nenv: [A=b]");
    until("both replicas are new", || {
        let running = replicas(&cluster);
        let is_new = |job: &String| !before.contains(job);
        (running.len() == 2 && running.iter().all(is_new)).then_some(())
    });
    assert_eq!(get(&cluster, PAGE, &[&token]).status, 200);
}

/// A cluster whose service of two replicas is halfway through an update, with its token, the replicas before the update, and the one new
/// replica. It has the last free place; one of those before it has given its own, which is on a node that is drained.
fn half_updated() -> (Cluster, String, Vec<String>, String) {
    let cluster = Cluster::up(
        "ClusterName=test\nSlurmdParameters=config_overrides\nDefMemPerCPU=16\nKillWait=1\n\
         NodeName=node1 CPUs=2 RealMemory=1000\nNodeName=node2 CPUs=1 RealMemory=1000\n\
         PartitionName=main Nodes=node[1-2] Default=YES State=UP\n",
    );
    let token = admin(&cluster);
    cluster.shell("scontrol update NodeName=node2 State=DRAIN Reason=test").ok();
    apply(&cluster, free_port(), "replicas: 2");
    let before = until("both replicas run", || {
        Some(replicas(&cluster)).filter(|running| running.len() == 2)
    });
    answered(&cluster, PAGE, &[&token]);
    cluster.shell("scontrol update NodeName=node2 State=RESUME").ok();
    cluster.shell("scontrol update NodeName=node1 State=DRAIN Reason=test").ok();
    apply(&cluster, free_port(), "replicas: 2\nenv: [A=b]");
    let new = until("an old replica has given its place to a new one", || {
        let listed =
            cluster.sluice(&["squeue", "-h", "-r", "-n", "web", "-t", "PD", "-o", "%i"]).ok();
        let is_given = listed.lines().any(|job| before.contains(&job.trim().to_owned()));
        let running = replicas(&cluster);
        let new = running.iter().find(|job| !before.contains(job))?;
        (running.len() == 2 && is_given).then(|| new.clone())
    });
    (cluster, token, before, new)
}

/// The array that a replica is a task of.
fn array_of(replica: &str) -> &str {
    replica.split_once('_').expect("a task of an array").0
}

#[test]
fn up_update_that_is_stopped_halfway_leaves_as_many_replicas_as_before() {
    let (cluster, token, mut before, new) = half_updated();
    before.sort();
    cluster.sluice(&["stop", "-y", array_of(&new)]).ok();
    until("the replicas before the update run", || {
        let answer = get(&cluster, PAGE, &[&token]);
        assert_eq!(answer.status, 200, "{}", answer.text());
        let mut running = replicas(&cluster);
        running.sort();
        (running == before).then_some(())
    });
}

/// The server is killed meanwhile.
#[test]
fn up_update_that_a_newer_one_overtakes_leaves_it_its_places() {
    let (cluster, token, before, new) = half_updated();
    apply(&cluster, free_port(), "replicas: 2\nenv: [A=c]");
    cluster.kill_alone("server");
    cluster.shell("scontrol update NodeName=node1 State=RESUME").ok();
    let earlier = [array_of(&before[0]), array_of(&new)];
    until("both replicas are of the newest, and nothing else is left", || {
        let listed = cluster.sluice(&["squeue", "-h", "-r", "-n", "web", "-o", "%i %t"]).ok();
        let jobs: Vec<&str> = listed.lines().map(str::trim).collect();
        let is_newest = |job: &&str| job.ends_with(" R") && !earlier.contains(&array_of(job));
        (jobs.len() == 2 && jobs.iter().all(is_newest)).then_some(())
    });
    assert_eq!(get(&cluster, PAGE, &[&token]).status, 200);
}

#[test]
fn up_stop_during_an_update_ends_both_deployments() {
    let (cluster, token) = serving("");
    // The next deployment never listens: the one before it goes on, beside it.
    apply_lines(&cluster, "web", free_port(), "commands: [sleep 600]");
    until("both run", || (replicas(&cluster).len() == 2).then_some(()));
    assert_eq!(get(&cluster, PAGE, &[&token]).status, 200);
    cluster.sluice(&["stop", "-y", "web"]).ok();
    await_none(&cluster);
}

//! `groups`: nodes of one run with commands of their own.

use crate::dstack_client::DstackClient;
use crate::harness::{Cluster, TWO_NODES, sorted_lines, until};

/// Both groups have run, and the files that they wrote are gone.
fn check(cluster: &Cluster) {
    for (file, said) in [("worker", "worker 1 node1\n"), ("head", "head node2 2\n")] {
        assert_eq!(cluster.await_file(file, |said| said.ends_with('\n')), said);
        std::fs::remove_file(cluster.path("work").join(file)).expect("it was there");
    }
}

#[test]
fn up_nodes_of_a_group_run_its_commands_and_know_the_addresses_of_others() {
    let cluster = Cluster::up(TWO_NODES);
    let text = |worker: &str| {
        format!(
            "type: task\nname: two\ngroups:\n  - nodes: 1\n    resources: {{cpu: 1.., memory: 64MB.., disk: 0GB..}}\n    \
             commands: ['echo head ${{{{ groups[1].nodes[0].IP_ADDRESS }}}} $DSTACK_NODES_NUM > head']\n  \
             - nodes: 1\n    resources: {{cpu: {worker}, memory: 64MB.., disk: 0GB..}}\n    \
             commands: ['echo worker $DSTACK_NODE_RANK $DSTACK_MASTER_NODE_IP > worker']\n"
        )
    };
    cluster.write("two.dstack.yml", &text("1.."));
    cluster.sluice(&["apply", "-f", "two.dstack.yml", "-y", "-d"]).ok();
    check(&cluster);
    let bad = text("1..").replace("groups[1]", "groups[2]");
    cluster.write("bad.dstack.yml", &bad);
    let refused = cluster.sluice(&["apply", "-f", "bad.dstack.yml", "-y", "-d"]);
    assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
    let said = "groups[2].nodes[0].IP_ADDRESS }}: there is no such node";
    assert!(refused.stderr.contains(said), "{refused:?}");

    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    // Its runs start in the user's home.
    let work = cluster.path("work").display().to_string();
    let theirs = text("1..").replace("name: two", &format!("name: theirs\nworking_dir: {work}"));
    cluster.write("theirs.dstack.yml", &theirs);
    client.run(&["apply", "-f", "theirs.dstack.yml", "-y", "-d"]).ok();
    check(&cluster);
}

/// Two groups that ask for different things: their commands and what is said of the run besides.
fn different(name: &str, head: &str, workers: &str, more: &str) -> String {
    let resources = |cpus: u32, gpus: u32| {
        format!("{{cpu: {cpus}.., memory: 64MB.., disk: 0GB.., gpu: {gpus}}}")
    };
    format!(
        "type: task\nname: {name}\n{more}groups:\n  - name: head\n    resources: {}\n    commands: ['{head}']\n  \
         - name: workers\n    resources: {}\n    commands: ['{workers}']\n",
        resources(2, 1),
        resources(4, 3),
    )
}

const SAID: &str = "echo $DSTACK_NODE_RANK of $DSTACK_NODES_NUM by $DSTACK_MASTER_NODE_IP, $DSTACK_GPUS_PER_NODE of \
                    $DSTACK_GPUS_NUM GPUs, run $DSTACK_RUN_ID";

fn apply(cluster: &Cluster, text: &str) {
    cluster.write("it.dstack.yml", text);
    cluster.sluice(&["apply", "-f", "it.dstack.yml", "-y", "-d"]).ok();
}

/// The status of the only run in `ps`, and the nodes of it.
fn shown(cluster: &Cluster, name: &str) -> (String, Vec<String>) {
    let listed = cluster.sluice(&["ps", "-a", "--json"]).ok();
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    let runs = listed["runs"].as_array().expect("runs").iter();
    let of_name: Vec<_> = runs.filter(|run| run["run_spec"]["run_name"] == name).collect();
    assert_eq!(of_name.len(), 1, "one run: {listed}");
    let nodes = of_name[0]["nodes"].as_array().expect("nodes").iter();
    let nodes = nodes.filter_map(|node| node.as_str().map(str::to_owned)).collect();
    (of_name[0]["status_message"].as_str().expect("a status").to_owned(), nodes)
}

#[test]
fn up_groups_of_different_resources_are_one_run() {
    let cluster = Cluster::up(TWO_NODES);
    // Each waits for the other: they run at the same time.
    let meet = |own: &str, other: &str| {
        format!("{SAID}; touch {own}; while [ ! -e {other} ]; do sleep 0.05; done")
    };
    apply(&cluster, &different("pair", &meet("h", "w"), &meet("w", "h"), ""));
    until("the run ends", || (shown(&cluster, "pair").0 == "exited (0)").then_some(()));
    let nodes = shown(&cluster, "pair").1;
    assert_eq!(sorted_lines(&nodes.join("\n")), ["node1", "node2"]);
    let master = &nodes[0];
    let log = |rank: &str| cluster.sluice(&["logs", "pair", "--job", rank]).ok();
    let (head, worker) = (log("0"), log("1"));
    assert!(head.starts_with(&format!("0 of 2 by {master}, 8 of 16 GPUs, run ")), "{head}");
    assert!(worker.starts_with(&format!("1 of 2 by {master}, 8 of 16 GPUs, run ")), "{worker}");
    assert_eq!(head.rsplit(' ').next(), worker.rsplit(' ').next(), "one run");
    let beyond = cluster.sluice(&["logs", "pair", "--job", "2"]);
    assert!(beyond.stderr.contains("has 2 node(s)"), "{beyond:?}");
    let told = cluster.sluice(&["event", "--within-run", "pair"]).ok();
    assert_eq!(told.matches("Run submitted").count(), 1, "{told}");
    assert_eq!(told.matches("Job assigned to instance").count(), 2, "{told}");
    let jobs = cluster.sluice(&["sacct", "-n", "-X", "-P", "-o", "JobID,AllocTRES%80"]).ok();
    assert!(jobs.contains("+0|") && jobs.contains("+1|"), "{jobs}");
    for (more, said) in
        [("array: 1-2\n", "`array`"), ("schedule: {cron: 0 3 * * *}\n", "`schedule`")]
    {
        cluster.write("bad.dstack.yml", &different("bad", "true", "true", more));
        let refused = cluster.sluice(&["apply", "-f", "bad.dstack.yml", "-y", "-d"]);
        assert_eq!(refused.stderr.lines().count(), 1, "{refused:?}");
        assert!(refused.stderr.contains(said), "{refused:?}");
    }
}

#[test]
fn up_failure_of_a_group_ends_the_run_and_a_stop_ends_all_groups() {
    let cluster = Cluster::up(TWO_NODES);
    apply(&cluster, &different("fails", "sleep 600", "exit 3", ""));
    until("the run fails", || (shown(&cluster, "fails").0 == "exited (3)").then_some(()));
    // A head that is done leaves the workers alone.
    apply(&cluster, &different("half", "true", "touch there; sleep 600", ""));
    cluster.await_file("there", |_| true);
    let jobs = || cluster.sluice(&["squeue", "-h", "-o", "%i %T"]).ok();
    until("the head is done", || (jobs().lines().count() == 1).then_some(()));
    assert_eq!(shown(&cluster, "half").0, "running");
    assert!(cluster.sluice(&["ps"]).ok().contains("half"));
    cluster.sluice(&["stop", "half", "-y"]).ok();
    until("the run is stopped", || (shown(&cluster, "half").0 == "stopped").then_some(()));
    // All groups begin again where one fails.
    let head = "[ -e failed ] && last=1; echo head >> tries; [ -n \"$last\" ] || sleep 600";
    let worker =
        "until [ -e tries ]; do sleep 0.1; done; [ -e failed ] || { touch failed; exit 1; }";
    let retry = "retry: {on_events: [error], duration: 1h}\n";
    apply(&cluster, &different("again", head, worker, retry));
    until("the retry is done", || (shown(&cluster, "again").0 == "exited (0)").then_some(()));
    assert_eq!(cluster.await_file("tries", |_| true), "head\nhead\n");
    // Also a head that was done before a worker failed.
    let worker = "[ -e lost ] || { until [ -e lose ]; do sleep 0.1; done; touch lost; exit 1; }";
    apply(&cluster, &different("anew", "echo head >> heads", worker, retry));
    cluster.await_file("heads", |_| true);
    until("the head is done", || (jobs().lines().count() == 1).then_some(()));
    cluster.write("lose", "");
    until("the retry is done", || (shown(&cluster, "anew").0 == "exited (0)").then_some(()));
    assert_eq!(cluster.await_file("heads", |_| true), "head\nhead\n");
}

#[test]
fn up_published_client_sees_one_run_of_different_groups() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    cluster.write("pair.dstack.yml", &different("pair", SAID, SAID, ""));
    client.run(&["apply", "-f", "pair.dstack.yml", "-y", "-d"]).ok();
    until("the run ends", || (shown(&cluster, "pair").0 == "exited (0)").then_some(()));
    let listed = client.run(&["ps", "-a"]).ok();
    assert_eq!(listed.matches("pair").count(), 1, "{listed}");
    assert!(listed.contains("job=0") && listed.contains("job=1"), "{listed}");
    let log = |rank: &str| client.run(&["logs", "pair", "--job", rank]).ok();
    assert!(log("0").contains("0 of 2 by node"), "{}", log("0"));
    assert!(log("1").contains("1 of 2 by node"), "{}", log("1"));
    client.run(&["delete", "-f", "pair.dstack.yml", "-y"]).ok();
    assert!(!client.run(&["ps", "-a"]).ok().contains("pair"));
}

//! Offers through the program: by the memory of GPUs together, and by price; what the plan of `apply` shows.

use crate::harness::{Cluster, TWO_NODES};
use serde_json::Value;

/// A task that asks for these resources beside a small part of a node.
fn file(cluster: &Cluster, name: &str, more: &str, gpu: &str) {
    let head = format!("type: task\nname: {name}\ncommands: [sleep 600]\n{more}");
    let resources = format!("resources: {{cpu: 1.., memory: 16MB.., disk: 0GB..{gpu}}}\n");
    cluster.write("task.dstack.yml", &format!("{head}{resources}"));
}

/// Applies the task; what `apply --json` says.
fn apply(cluster: &Cluster) -> Value {
    let said = cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d", "--json"]).ok();
    serde_json::from_str(&said).expect("JSON")
}

fn alloc_tres(cluster: &Cluster, name: &str) -> String {
    cluster.sluice(&["squeue", "-h", "-n", name, "-O", "tres-alloc:90"]).ok()
}

#[test]
fn up_gpus_are_offered_and_granted_by_their_memory_together() {
    let cluster = Cluster::up(&TWO_NODES.replace("gpu:h100:8", "gpu:h100_80gb:8"));
    let table = [
        ("three", "{total_memory: 200GB..}", 3),
        ("within", "{total_memory: 100GB..200GB}", 2),
        ("more", "{count: 3.., total_memory: 80GB..}", 3),
        ("all", "{count: 1..8, total_memory: 640GB}", 8),
    ];
    for (name, gpu, count) in table {
        file(&cluster, name, "", &format!(", gpu: {gpu}"));
        let said = apply(&cluster);
        assert_eq!(said["offers"][0]["gpu"]["count"], count, "{said}");
        let job = said["job_id"].as_u64().expect("a job");
        cluster.await_state(u32::try_from(job).expect("a number"), "RUNNING");
        let granted = alloc_tres(&cluster, name);
        assert!(granted.contains(&format!("gres/gpu={count}")), "{name}: {granted}");
    }
    for (name, gpu) in [
        ("few", "{count: 1..2, total_memory: 200GB..}"),
        ("between", "{total_memory: 90GB..150GB}"),
        ("beyond", "{total_memory: 1TB..}"),
    ] {
        file(&cluster, name, "", &format!(", gpu: {gpu}"));
        let refused = cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]);
        let words = "of memory together of nvidia on one node";
        assert!(refused.code != 0 && refused.stderr.contains(words), "{refused:?}");
        assert!(refused.stdout.contains("No matching instance offers available."), "{refused:?}");
    }
}

#[test]
fn up_offers_are_ordered_by_price_and_bounded_by_max_price() {
    let cluster = Cluster::folder(TWO_NODES);
    cluster.write_conf("sluice.toml", "[nodes.prices]\nnode1 = 3\n\"node[2-2]\" = 1.5\n");
    cluster.start();
    let offers = |words: &[&str]| -> Value {
        let said = cluster.sluice(&[&["offer", "--json"], words].concat()).ok();
        serde_json::from_str(&said).expect("JSON")
    };
    let listed = offers(&["--cpu", "1.."]);
    let found: Vec<_> = listed["offers"].as_array().expect("offers").iter().collect();
    let named: Vec<_> = found.iter().map(|one| (&one["node"], one["price"].as_f64())).collect();
    assert_eq!(named, [(&"node2".into(), Some(1.5)), (&"node1".into(), Some(3.0))]);
    assert!(cluster.sluice(&["fleet"]).ok().contains("$1.5"));
    assert_eq!(offers(&["--max-price", "2"])["total_offers"], 1);
    // The run gets the first offer, and costs what it says.
    file(&cluster, "cheap", "", "");
    let said = apply(&cluster);
    assert_eq!(
        (&said["offers"][0]["node"], &said["offers"][0]["price"]),
        (&"node2".into(), &1.5.into())
    );
    let job = u32::try_from(said["job_id"].as_u64().expect("a job")).expect("a number");
    cluster.await_state(job, "RUNNING");
    assert_eq!(cluster.sluice(&["squeue", "-h", "-o", "%N"]).ok(), "node2\n");
    let shown = cluster.sluice(&["ps"]).ok();
    assert!(shown.contains("$1.5"), "{shown}");
    // Its share of the node is a TRES of the books, and what it has cost a column.
    let (id, fields) = (job.to_string(), "AllocTRES,Cost");
    let booked = cluster.sluice(&["sacct", "-nXP", "-j", &id, "-o", fields]).ok();
    let (tres, cost) = booked.trim_end().split_once('|').expect("two fields");
    assert!(tres.contains("cost=") && cost.parse::<f64>().is_ok(), "{booked}");
    let reported = cluster.shell("sreport -n -P -T cost user top start=now-1hours end=now").ok();
    assert!(reported.contains('|'), "{reported}");
    // `max_price` leaves one node, which the first run takes: the second has none.
    file(&cluster, "two", "max_price: 2\n", "");
    let said = apply(&cluster);
    let dear: Vec<_> =
        said["offers"].as_array().expect("offers").iter().map(|one| &one["node"]).collect();
    assert_eq!(dear, ["node2"]);
    file(&cluster, "one", "max_price: 1\n", "");
    let refused = cluster.sluice(&["apply", "-f", "task.dstack.yml", "-y", "-d"]);
    let words = "no node costs $1 an hour or less";
    assert!(refused.code != 0 && refused.stderr.contains(words), "{refused:?}");
    cluster.write_conf("sluice.toml", "[nodes.prices]\nnode1 = -3\n");
    let refused = cluster.sluice(&["scontrol", "reconfigure"]);
    let words = "sluice.toml: [nodes.prices] node1: -3: expected dollars an hour";
    assert!(refused.code != 0 && refused.stderr.contains(words), "{refused:?}");
    // A node that takes no jobs is not called busy.
    cluster.shell("scontrol update NodeName=node1 State=DRAIN Reason=fan").ok();
    let listed = cluster.sluice(&["offer", "--cpu", "1.."]).ok();
    let drained = listed.lines().find(|line| line.contains("drained"));
    assert!(drained.is_some_and(|line| line.contains("node1")), "{listed}");
    // An offer has the disk of its node, of which the run is held to a part.
    let held = cluster.sluice(&["offer", "--disk", "0GB..1GB"]);
    assert!(held.stderr.contains("offer: `disk`: the maximum of 1GB is not applied"), "{held:?}");
}

#[test]
fn up_plan_says_which_type_a_configuration_has() {
    let cluster = Cluster::up(TWO_NODES);
    let small = "resources: {cpu: 1.., memory: 16MB.., disk: 0GB..}\n";
    cluster.write("dev.dstack.yml", &format!("type: dev-environment\nide: vscode\n{small}"));
    let asked = cluster.sluice(&["apply", "-f", "dev.dstack.yml"]);
    let line = asked.stdout.lines().find(|line| line.trim().starts_with("Type"));
    assert_eq!(
        line.map(|line| line.split_whitespace().collect::<Vec<_>>()),
        Some(vec!["Type", "dev-environment"])
    );
    file(&cluster, "it", "", "");
    let asked = cluster.sluice(&["apply", "-f", "task.dstack.yml"]);
    assert!(asked.stdout.contains("task (nodes=1)"), "{asked:?}");
    // Beside the least CPU and memory that it asks for stands what it would get, with the reason.
    let larger = "\n More is offered than is asked for: the run gets ";
    assert!(asked.stdout.contains(larger), "{asked:?}");
    let exact = "resources: {cpu: 2, memory: 64MB, disk: 0GB..}\n";
    let text = format!("type: task\nname: it\ncommands: [sleep 600]\n{exact}");
    cluster.write("task.dstack.yml", &text);
    let asked = cluster.sluice(&["apply", "-f", "task.dstack.yml"]);
    assert!(!asked.stdout.contains(larger), "{asked:?}");
    assert_eq!(cluster.sluice(&["squeue", "-h"]).ok(), "", "nobody has answered");
}

#[test]
fn up_task_without_fleets_finds_what_it_asks_for_in_other_partitions() {
    let conf = TWO_NODES.replace("node[1-2]", "node2").replace(
        "PartitionName=gpu Nodes=node2 Default=YES",
        "NodeName=node1 CPUs=32 Sockets=2 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=4000\nPartitionName=cpu Nodes=node1 Default=YES State=UP\nPartitionName=gpu Nodes=node2",
    );
    let cluster = Cluster::up(&conf);
    file(&cluster, "train", "", ", gpu: 'H100:2'");
    let said = apply(&cluster);
    assert_eq!(said["offers"][0]["node"], "node2", "{said}");
    let job = u32::try_from(said["job_id"].as_u64().expect("a job")).expect("a number");
    cluster.await_state(job, "RUNNING");
    assert_eq!(cluster.sluice(&["squeue", "-h", "-o", "%P %N"]).ok(), "gpu node2\n");
    // The default comes first where both have it.
    file(&cluster, "plain", "", "");
    let said = apply(&cluster);
    let job = u32::try_from(said["job_id"].as_u64().expect("a job")).expect("a number");
    cluster.await_state(job, "RUNNING");
    let shown = cluster.sluice(&["squeue", "-h", "-n", "plain", "-o", "%P %N"]).ok();
    assert_eq!(shown, "cpu node1\n");
}

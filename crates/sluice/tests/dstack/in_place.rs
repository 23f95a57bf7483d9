//! What a run that is active becomes when its configuration is applied again: the published client's view of it.

use crate::dstack_client::DstackClient;
use crate::harness::{Cluster, TWO_NODES, until};

const SMALL: &str = "resources: {cpu: 1.., memory: 64MB.., disk: 0GB..}\n";

#[test]
fn up_published_client_overrides_or_updates_an_active_run() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(client) = DstackClient::new(&cluster) else { return };
    client.add_project(&client.token()).ok();
    let task = |command: &str| {
        format!(
            "type: task\nname: turn\nretry: {{on_events: [error], duration: 10m}}\ncommands: [{command:?}]\n{SMALL}"
        )
    };
    let apply = ["apply", "-f", "turn.dstack.yml", "-y", "-d"];
    cluster.write("turn.dstack.yml", &task("sleep 600"));
    let said = client.run(&apply).ok();
    assert!(said.contains("10m[error]"), "its retry policy is shown: {said}");
    let number = || cluster.sluice(&["squeue", "-h", "-n", "turn", "-t", "R", "-o", "%i"]).ok();
    let first = until("it runs", || Some(number()).filter(|number| !number.is_empty()));
    // Commands are changed by a stop and a new run.
    let second = cluster.path("work/second");
    cluster.write("turn.dstack.yml", &task(&format!("touch {}; sleep 600", second.display())));
    let said = client.run(&apply).ok();
    let words = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(words.contains("cannot be updated in-place"), "{said}");
    assert!(words.contains("Run turn submitted"), "{said}");
    cluster.await_file("second", |_| true);
    assert_ne!(number(), first);

    let desk = |time: &str| {
        format!(
            "type: dev-environment\nname: desk\nide: vscode\ninactivity_duration: {time}\n{SMALL}"
        )
    };
    let apply = ["apply", "-f", "desk.dstack.yml", "-y", "-d"];
    cluster.write("desk.dstack.yml", &desk("2h"));
    client.run(&apply).ok();
    cluster.write("desk.dstack.yml", &desk("3h"));
    let said = client.run(&apply).ok();
    assert!(said.contains("Run desk updated"), "{said}");
    let shown = client.run(&["run", "get", "desk", "--json"]).ok();
    assert!(shown.contains("\"inactivity_duration\": 10800"), "{shown}");

    let recent = client.run(&["event", "--since", "1h"]).ok();
    assert!(recent.contains("turn] Run submitted"), "{recent}");
    let exact = "type: task\nname: exact\ncommands: [a]\nresources: {cpu: 999, memory: 64MB.., disk: 0GB..}\n";
    cluster.write("exact.dstack.yml", exact);
    let refused = client.run(&["apply", "-f", "exact.dstack.yml", "-y", "-d"]);
    let said = format!("{}{}", refused.stdout, refused.stderr);
    let said = said.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(refused.code != 0 && said.contains("999 CPUs on one node"), "{said}");
    let ours = cluster.sluice(&["offer", "--cpu", "999"]).ok();
    assert!(ours.contains("999 CPUs on one node"), "{ours}");
    // No node has more than 999 either.
    assert!(!said.contains("is exact") && !ours.contains("is exact"), "{said}{ours}");
}

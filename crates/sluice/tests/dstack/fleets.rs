//! The published client brings a host of a fleet, sees it, uses it and deletes it.

use crate::dstack_client::DstackClient;
use crate::harness::ssh_hosts::SshHosts;
use crate::harness::until;

#[test]
fn root_published_client_applies_lists_uses_and_deletes_a_fleet() {
    let Some(hosts) = SshHosts::up(1) else { return };
    let Some(client) = DstackClient::new(&hosts.cluster) else { return };
    let client = client.in_network(hosts.hosts.hub_namespace());
    client.add_project(&client.token()).ok();
    let file = hosts.write_fleet("lab", "", "  hosts: [10.77.0.1]\n");
    let applied = client.run(&["apply", "-f", &file, "-y"]);
    assert_eq!(applied.code, 0, "{}{}", applied.stdout, applied.stderr);
    assert!(applied.stdout.contains("Fleet lab does not exist yet."), "{}", applied.stdout);
    hosts.await_states("lab", "lab-0 idle");
    let line = |text: &str, word: &str| {
        let found = text.lines().find(|line| line.trim().starts_with(word)).map(str::to_owned);
        found.unwrap_or_else(|| panic!("no line for {word}: {text}"))
    };
    let listed = client.run(&["fleet", "list", "-v"]).ok();
    assert!(line(&listed, "lab").contains("active"), "{listed}");
    assert!(line(&listed, "instance=0").contains("idle"), "{listed}");
    let text = "type: task\nname: there\nfleets: [lab]\ncommands: [hostname, sleep 600]\n\
                resources: {cpu: 1.., memory: 64MB.., disk: 1MB..}\n";
    hosts.cluster.write("there.dstack.yml", text);
    client.run(&["apply", "-f", "there.dstack.yml", "-y", "-d"]).ok();
    until("its output is there", || {
        (client.run(&["logs", "there"]).stdout.trim() == "node01").then_some(())
    });
    // Busy, and later unreachable, in both languages.
    let listed = client.run(&["fleet", "list", "-v"]).ok();
    assert!(line(&listed, "instance=0").contains("busy"), "{listed}");
    assert_eq!(hosts.states("lab"), "lab-0 alloc");
    client.run(&["stop", "there", "-y"]).ok();
    hosts.await_states("lab", "lab-0 idle");
    hosts.stop_sshd(1);
    let agents = hosts.agents(1);
    assert!(!agents.is_empty());
    // One that served the job may have ended since: that the node falls silent is what counts.
    hosts.cluster.shell(&format!("kill -9 {agents}"));
    hosts.await_states("lab", "lab-0 idle*");
    let listed = client.run(&["fleet", "list", "-v"]).ok();
    assert!(listed.contains("(unreachable)"), "{listed}");
    hosts.start_sshd(1, "");
    hosts.await_states("lab", "lab-0 idle");
    let deleted = client.run(&["fleet", "delete", "lab", "-y"]);
    assert_eq!(deleted.code, 0, "{}{}", deleted.stdout, deleted.stderr);
    until("the fleet is gone", || {
        let listed = client.run(&["fleet"]).stdout;
        (!listed.contains("lab")).then_some(())
    });
    assert_eq!(hosts.states("lab"), "");
}

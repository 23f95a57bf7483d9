//! Dev environments that nobody is connected to.

use crate::harness::ssh_client::{Held, Ssh};
use crate::harness::{Cluster, TWO_NODES, until};
use std::io::Read;
use std::process::Stdio;

fn dev_environment(cluster: &Cluster, name: &str, inactivity: &str) {
    let text = format!(
        "type: dev-environment\nname: {name}\ninactivity_duration: {inactivity}\nresources: {{cpu: 1, memory: 100MB}}\n"
    );
    let file = format!("{name}.dstack.yml");
    cluster.write(&file, &text);
    cluster.sluice(&["apply", "-f", &file, "-y", "-d"]).ok();
}

fn state(cluster: &Cluster, name: &str) -> String {
    let words = ["sacct", "-n", "-P", "-X", "--name", name, "-o", "State,Reason"];
    cluster.sluice(&words).ok().trim().to_owned()
}

#[test]
fn up_dev_environment_without_connections_ends_and_one_with_a_connection_does_not() {
    let cluster = Cluster::up(TWO_NODES);
    let Some(ssh) = Ssh::of_user(&cluster, "root") else { return };
    dev_environment(&cluster, "used", "20s");
    until("it runs", || state(&cluster, "used").starts_with("RUNNING").then_some(()));
    let mut command = ssh.ssh("used", &["echo in; cat"]);
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("ssh");
    let mut held = Held(child);
    let mut said = [0; 2];
    held.0.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("somebody is in");
    // One that begins later and has the same time ends first.
    dev_environment(&cluster, "unused", "20s");
    let ended = "CANCELLED by 0|InactivityDuration";
    let is_ended = |name: &str| (state(&cluster, name) == ended).then_some(());
    crate::harness::within(crate::harness::TIMEOUT * 2, "the unused one ends", || {
        is_ended("unused")
    });
    assert!(state(&cluster, "used").starts_with("RUNNING"), "{}", state(&cluster, "used"));
    assert!(cluster.sluice(&["ps", "-a"]).ok().contains("terminated"));
    let why = cluster.sluice(&["explain", "unused"]).ok();
    assert!(why.contains("Nobody was connected to it for its inactivity_duration."), "{why}");
    drop(held);
    crate::harness::within(crate::harness::TIMEOUT * 2, "the used one ends", || is_ended("used"));
}

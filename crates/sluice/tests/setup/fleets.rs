//! Fleets over SSH: hosts with a real `sshd` become nodes, run work, and are clean again afterwards.

use crate::harness::program;
use crate::harness::ssh_hosts::{INSTALLED, SshHosts};
use crate::harness::until;

const ONE_HOST: &str = "  hosts: [10.77.0.1]\n";

fn task(fleet: &str, name: &str, command: &str) -> String {
    format!(
        "type: task\nname: {name}\nfleets: [{fleet}]\ncommands: [\"{command}\"]\nresources: {{cpu: 1, memory: 64MB.., disk: 1MB..}}\n"
    )
}

fn run_task(hosts: &SshHosts, fleet: &str, name: &str) -> String {
    let file = hosts.path("work").join(format!("{name}.dstack.yml"));
    std::fs::write(&file, task(fleet, name, "hostname")).expect("written");
    let said = hosts.hub(&format!("{} apply -y -f {}", program(), file.display()));
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    said.stdout
}

#[test]
fn root_fleet_host_is_installed_runs_a_task_and_is_clean_after_delete() {
    let Some(hosts) = SshHosts::up(1) else { return };
    let file = hosts.write_fleet("lab", "", ONE_HOST);
    let said = hosts.apply(&file);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    assert!(said.stdout.contains("lab-0 10.77.0.1 idle"), "{}", said.stdout);
    hosts.await_states("lab", "lab-0 idle");
    let shown = hosts.hub(&format!("{} fleet", program())).ok();
    assert!(shown.contains("lab-0"), "{shown}");
    let cpus = hosts.hub("sinfo -h -p lab -o %c").ok();
    let found = std::thread::available_parallelism().expect("CPUs").get();
    assert_eq!(cpus.trim(), found.to_string(), "the node is as large as its machine");
    assert!(run_task(&hosts, "lab", "first").contains("node01"));
    let said = hosts.hub("sbatch --wait -p lab -o batch.out --wrap hostname");
    assert_eq!(said.code, 0, "{}", said.stderr);
    assert_eq!(hosts.cluster.read("batch.out"), "node01\n");
    // The private key is nowhere in the server's files.
    let key = std::fs::read_to_string(hosts.path("key")).expect("the key");
    let line = key.lines().nth(3).expect("a line of the key");
    let state = hosts.cluster.state();
    let found = hosts.cluster.shell(&format!("grep -rlF -- '{line}' {} {}", state.display(), hosts.path("server.out").display()));
    assert_eq!(found.stdout, "", "{}", found.stderr);
    let said = hosts.hub(&format!("{} fleet delete lab -y", program()));
    assert_eq!((said.code, said.stdout.as_str()), (0, "Fleet lab deleted\n"), "{}", said.stderr);
    assert_eq!(hosts.states("lab"), "");
    assert_eq!(hosts.on(1, &format!("ls {INSTALLED} 2>/dev/null")).stdout, "");
    until("its processes are gone", || hosts.agents(1).is_empty().then_some(()));
}

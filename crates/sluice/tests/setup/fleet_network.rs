//! The network of a fleet over SSH: by which address the hosts of a run are told to reach each other.

use crate::harness::ssh_hosts::SshHosts;
use crate::harness::{program, until};

const ADDRESSES: &str = "type: task\nname: told\nfleets: [lab]\nnodes: 3\ncommands:\n  \
     - echo at $(hostname) of $DSTACK_MASTER_NODE_IP in $DSTACK_NODES_IPS\n  \
     - echo hosts $(cut -d ' ' -f 1 $DSTACK_MPI_HOSTFILE)\n\
     resources: {cpu: 1.., memory: 64MB.., disk: 1MB..}\n";

/// The second is to be reached by an address of its own; the third has no other than that of its login.
fn three_hosts(network: &str) -> String {
    format!(
        "  network: {network}\n  hosts:\n    - 10.77.0.1\n    - 10.77.0.2\n    \
         - {{hostname: 10.77.0.3, internal_ip: 10.77.0.3}}\n"
    )
}

fn listed(hosts: &SshHosts, node: &str) -> String {
    let all = hosts.hub(&format!("{} fleet lab -v", program())).ok();
    all.lines().find(|line| line.contains(node)).unwrap_or_default().to_owned()
}

#[test]
fn root_hosts_of_a_fleet_are_told_their_addresses_in_its_network() {
    let Some(hosts) = SshHosts::up(3) else { return };
    hosts.on(1, "ip addr add 10.88.0.1/24 dev eth0").ok();
    hosts.on(2, "ip addr add 10.88.0.2/24 dev eth0; ip addr add 10.88.0.7/24 dev eth0").ok();
    let cluster = "placement: cluster\n";
    let file = hosts.write_fleet("lab", cluster, &three_hosts("10.88.0.0/24"));
    let said = hosts.apply(&file);
    assert_eq!(said.code, 1, "{}{}", said.stdout, said.stderr);
    let why = "2 addresses in 10.88.0.0/24: 10.88.0.2, 10.88.0.7: name one as `internal_ip`";
    assert!(listed(&hosts, "lab-1").contains(why), "{}", listed(&hosts, "lab-1"));
    let reasons = hosts.hub("sinfo -h -R -p lab -o '%N %E'").ok();
    assert!(reasons.contains(&format!("lab-1 {why}")), "{reasons}");
    assert_eq!(hosts.agents(2), "", "nothing is started there");
    hosts.on(2, "ip addr del 10.88.0.7/24 dev eth0").ok();
    let said = hosts.apply(&file);
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    hosts.await_states("lab", "lab-0 idle,lab-1 idle,lab-2 idle");
    let task = hosts.path("work").join("told.dstack.yml");
    std::fs::write(&task, ADDRESSES).expect("written");
    let said = hosts.hub(&format!("{} apply -y -f {}", program(), task.display()));
    assert_eq!(said.code, 0, "{}{}", said.stdout, said.stderr);
    for told in [
        "at node01 of 10.88.0.1 in 10.88.0.1 10.88.0.2 10.77.0.3",
        "hosts 10.88.0.1 10.88.0.2 10.77.0.3",
    ] {
        assert!(said.stdout.contains(told), "{}{}", said.stdout, said.stderr);
    }
    hosts.hub(&format!("{} fleet delete lab -y", program())).ok();
}

#[test]
fn root_network_of_hosts_in_service_is_changed_under_a_running_job() {
    let Some(hosts) = SshHosts::up(1) else { return };
    hosts.on(1, "ip addr add 10.88.0.1/24 dev eth0").ok();
    let within = |network: &str| format!("  network: {network}\n  hosts:\n    - 10.77.0.1\n");
    let file = hosts.write_fleet("lab", "blocks: auto\n", "  hosts:\n    - 10.77.0.1\n");
    hosts.apply(&file).ok();
    let job = hosts.hub("sbatch --parsable -p lab -o none --wrap 'sleep 600'").ok();
    until("the job runs", || {
        (hosts.hub("squeue -h -o '%T %N'").stdout.trim() == "RUNNING lab-0").then_some(())
    });
    let address = |wanted: &str| {
        until(wanted, || {
            let shown = hosts.hub("scontrol show node lab-0").ok();
            shown.contains(&format!("NodeAddr={wanted} ")).then_some(())
        });
    };
    address("10.77.0.1");
    let agents = hosts.agents(1);
    hosts.write_fleet("lab", "blocks: auto\n", &within("10.88.0.0/24"));
    hosts.apply(&file).ok();
    address("10.88.0.1");
    hosts.write_fleet("lab", "blocks: auto\n", &within("10.99.0.0/16"));
    let said = hosts.apply(&file);
    let why = "no address in 10.99.0.0/16: found 10.77.0.1, 10.88.0.1";
    assert!(said.code == 1 && said.stdout.contains(why), "{}{}", said.stdout, said.stderr);
    assert!(listed(&hosts, "lab-0").contains(why), "{}", listed(&hosts, "lab-0"));
    // An address that comes later is found without another word.
    hosts.on(1, "ip addr add 10.99.0.1/24 dev eth0").ok();
    address("10.99.0.1");
    assert!(!listed(&hosts, "lab-0").contains("no address"), "{}", listed(&hosts, "lab-0"));
    assert_eq!(hosts.agents(1), agents, "nothing was started anew there");
    assert_eq!(hosts.hub("squeue -h -o '%T %N'").ok().trim(), "RUNNING lab-0");
    hosts.hub(&format!("scancel {}", job.trim())).ok();
    hosts.await_states("lab", "lab-0 idle");
    hosts.hub(&format!("{} fleet delete lab -y", program())).ok();
}

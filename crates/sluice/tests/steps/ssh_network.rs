//! The SSH endpoint where server and node are different hosts: what is forwarded leads into the job's network, and never to the
//! server's.

use crate::harness::hosts::Hosts;
use crate::harness::{Cluster, CommandOutput, program, skip, until};
use std::process::Command;

const CONF: &str = "\
ClusterName=hosts
DefMemPerCPU=64
KillWait=1
NodeName=node01 CPUs=2 CoresPerSocket=2 RealMemory=1000
PartitionName=main Nodes=node01 Default=YES State=UP
";

/// What the job serves at the loopback address of its node, at the port that the server's clients have on the server's.
const SERVE: &str = r#"
import socket
server = socket.create_server(("127.0.0.1", 6830))
while True:
    peer, _ = server.accept()
    peer.sendall(b"from the node\n")
    peer.close()
"#;

#[test]
fn root_forwarded_ports_lead_to_the_jobs_node_and_never_to_the_servers_loopback() {
    let cluster = Cluster::folder(CONF);
    let key = cluster.path("key");
    let made =
        Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(&key).status();
    if !made.is_ok_and(|made| made.success()) {
        return skip("ssh-client", "no ssh-keygen");
    }
    let mut hosts = Hosts::up(1);
    hosts.start_with_ssh(&cluster, "127.0.0.1:6832");
    hosts.join(&cluster, 1);
    until("the node is idle", || {
        let state = hosts.in_hub(&cluster, "sinfo -h -o %t").stdout;
        (state.trim() == "idle").then_some(())
    });
    hosts.in_hub(&cluster, &format!("{} key add {}.pub", program(), key.display())).ok();
    cluster.write("serve.py", SERVE);
    let wrapped = "until [ -e go ]; do sleep 0.1; done; exec python3 serve.py";
    let line = format!("sbatch --parsable -o serve.out --wrap '{wrapped}'");
    let job = hosts.in_hub(&cluster, &line).ok().trim().to_owned();
    until("the job runs", || {
        let state = hosts.in_hub(&cluster, "squeue -h -o %T").stdout;
        (state.trim() == "RUNNING").then_some(())
    });
    let ssh = |words: &str| -> CommandOutput {
        let line = format!(
            "ssh -F none -i {} -p 6832 -o IdentitiesOnly=yes -o StrictHostKeyChecking=no \
             -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes {words}",
            key.display()
        );
        hosts.in_hub(&cluster, &line)
    };
    assert_eq!(ssh(&format!("{job}@127.0.0.1 hostname")).ok(), "node01\n");
    // The server's own ports are there on its loopback address, and no client of the endpoint gets to them.
    let listens = hosts.in_hub(&cluster, "scontrol ping").ok();
    assert!(listens.contains("is UP"), "{listens}");
    for address in ["127.0.0.1:6830", "localhost:6830", "127.0.0.1:6832", "10.77.0.254:6830"] {
        let said = ssh(&format!("-W {address} {job}@127.0.0.1"));
        assert_eq!((said.code, said.stdout.as_str()), (255, ""), "{address}: {said:?}");
    }
    // The same address is the node's own once something listens there.
    cluster.write("go", "");
    until("the job's port is reached", || {
        let said = ssh(&format!("-W 127.0.0.1:6830 {job}@127.0.0.1"));
        (said.stdout == "from the node\n").then_some(())
    });
}

/// The node is given no key for the owner of its job, and `ssh` says only that it was denied.
#[test]
fn root_attach_on_a_node_says_that_no_key_is_registered() {
    let cluster = Cluster::folder(CONF);
    if Command::new("ssh").arg("-V").output().is_err() {
        return skip("ssh-client", "no ssh");
    }
    let mut hosts = Hosts::up(1);
    hosts.start_with_ssh(&cluster, "10.77.0.254:6832");
    hosts.join(&cluster, 1);
    until("the node is idle", || {
        let state = hosts.in_hub(&cluster, "sinfo -h -o %t").stdout;
        (state.trim() == "idle").then_some(())
    });
    let line = "sbatch --parsable -o /dev/null --wrap 'sleep 600'";
    let job = hosts.in_hub_as("games", &cluster, line).ok().trim().to_owned();
    until("the job runs", || {
        let state = hosts.in_hub(&cluster, "squeue -h -o %T").stdout;
        (state.trim() == "RUNNING").then_some(())
    });
    let line = format!("{} attach {job} -- true", program());
    let said = hosts.on_host_as("games", &cluster, 1, &line);
    let told = "games has registered none: `sluice key add FILE.pub`";
    assert!(said.code == 1 && said.stderr.contains(told), "{said:?}");
}

//! A node whose machine has less than the configuration says is INVAL, with the difference as its reason.

use crate::harness::{Cluster, until};

const ONE_NODE: &str = "\
ClusterName=test
GresTypes=gpu
DefMemPerCPU=16
NodeName=node1 CPUs=1 RealMemory=500 Gres=gpu:4096
PartitionName=main Nodes=node1 Default=YES State=UP
";

#[test]
fn up_node_without_its_gpus_is_invalid_until_the_configuration_fits() {
    let cluster = Cluster::folder(ONE_NODE);
    cluster.write_conf("gres.conf", "AutoDetect=nvml\n");
    cluster.start();
    let states = || cluster.node_states();
    until("the node is invalid", || states().starts_with("inval|").then_some(()));
    let reason = states();
    let start = "inval|gres/gpu count reported lower than configured (";
    assert!(reason.starts_with(start) && reason.ends_with(" < 4096)"), "{reason}");
    let shown = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
    assert!(shown.contains("State=IDLE+DRAIN+INVALID_REG "), "{shown}");
    let job = cluster.submit(&["-o", "/dev/null", "--wrap", "true"]);
    cluster.await_state(job, "PENDING");
    cluster.write_conf("gres.conf", "");
    cluster.write_conf("slurm.conf", &ONE_NODE.replace(" Gres=gpu:4096", ""));
    cluster.shell("scontrol reconfigure").ok();
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    assert!(!states().contains("inval"), "{}", states());
}

#[test]
fn up_agent_reads_a_gres_conf_of_its_own_machine() {
    let text = ONE_NODE.replace("Gres=gpu:4096", "Gres=gpu:2");
    let cluster = Cluster::folder(&text);
    cluster.start();
    cluster.kill("agent");
    let own = cluster.path("work/own");
    std::fs::create_dir(&own).unwrap();
    let (state, join) = (cluster.state(), cluster.state().join("server/local.join"));
    let agent = |gres: &str| {
        std::fs::write(own.join("gres.conf"), gres).unwrap();
        let mut command = std::process::Command::new(crate::harness::program());
        cluster.set_up(&mut command);
        command.arg("agent").arg("--state").arg(&state).arg("--join").arg(&join);
        command.arg("--config").arg(&own);
        command
    };
    let refused = agent("Name=gpu File=/dev/zero Fiel=x\n").output().unwrap();
    assert_eq!(refused.status.code(), Some(1));
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(said.contains("gres.conf:1") && said.contains("Fiel"), "{said}");
    let start = |gres: &str| agent(gres).stderr(std::process::Stdio::null()).spawn().unwrap();
    let end = |mut running: std::process::Child| {
        running.kill().unwrap();
        running.wait().unwrap();
    };
    let first = start("Name=gpu File=/dev/zero\n");
    let short = "inval|gres/gpu count reported lower than configured (1 < 2)";
    until("the machine has too few", || (cluster.node_states() == short).then_some(()));
    end(first);
    let second = start("Name=gpu File=/dev/zero\nNodeName=node1 Name=gpu File=/dev/full\n");
    until("the machine has enough", || (cluster.node_states() == "idle|none").then_some(()));
    let seen = cluster.shell("srun -n1 --gres=gpu:2 sh -c 'echo $CUDA_VISIBLE_DEVICES'").ok();
    assert_eq!(seen.trim(), "0,1");
    // A supervisor waits for another agent until its job's end is on record.
    until("nothing of the job is left", || cluster.groups().is_empty().then_some(()));
    let recorded = ["sacct", "-n", "-X", "-P", "-o", "State"];
    until("its end is on record", || {
        (cluster.sluice(&recorded).ok().trim() == "COMPLETED").then_some(())
    });
    end(second);
}

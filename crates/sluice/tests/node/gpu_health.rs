//! GPUs by a fake NVML: their health in node states and reasons, their figures in `/metrics`, and a library that fails.
//! Needs a C compiler.

use crate::harness::{Cluster, TWO_NODES, until};
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/fake_nvml/nvml.c");

/// A cluster whose agent loads the fake library, which reads this text.
fn up_with(text: &str) -> Cluster {
    let cluster = Cluster::folder(TWO_NODES);
    let library = cluster.path("bin").join("libfake-nvml.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(SOURCE);
    assert!(cc.status().expect("a C compiler").success());
    say(&cluster, text);
    let state = cluster.path("work").join("nvml");
    let variables = [("SLUICE_NVML", library.as_path()), ("FAKE_NVML", &state)];
    cluster.start_with(&variables.map(|(name, path)| (name, path.to_str().unwrap())));
    cluster
}

/// What the library answers from now on.
fn say(cluster: &Cluster, text: &str) {
    let new = cluster.write("nvml.new", text);
    std::fs::rename(new, cluster.path("work").join("nvml")).unwrap();
}

fn await_nodes(cluster: &Cluster, wanted: &str) {
    let both = format!("{wanted}\n{wanted}");
    until(wanted, || (cluster.node_states() == both).then_some(()));
}

#[test]
fn up_failing_gpu_drains_its_node_until_the_counters_allow_it() {
    let cluster = up_with("temp.1 40\n");
    cluster.shell("srun true").ok();
    say(&cluster, "temp.1 92\n");
    // A warning is shown, and jobs go on.
    await_nodes(&cluster, "idle|warning: GPU 1: too hot");
    let shown = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
    assert!(shown.contains("Reason=warning: GPU 1: too hot [slurm@"), "{shown}");
    assert!(
        shown.contains("GPU=0 Model=NVIDIA_Fake UUID=GPU-0 Memory=81920M Used=1024M"),
        "{shown}"
    );
    cluster.shell("srun true").ok();
    say(&cluster, "temp.1 101\n");
    await_nodes(&cluster, "drained|GPU 1: too hot");
    say(&cluster, "temp.1 40\n");
    await_nodes(&cluster, "idle|none");
    // An error that stays is acknowledged by a resume, and the next one is news.
    say(&cluster, "uncorrected.0 1\n");
    await_nodes(&cluster, "drained|GPU 0: 1 uncorrectable ECC errors");
    cluster.shell("scontrol update node=node[1-2] state=resume").ok();
    cluster.shell("srun true").ok();
    say(&cluster, "uncorrected.0 2\nlost.1 15\n");
    let both = "drained|GPU 0: 2 uncorrectable ECC errors; GPU 1: lost: GPU is lost";
    await_nodes(&cluster, both);
}

#[test]
fn up_library_that_crashes_or_does_not_start_leaves_the_node_in_service() {
    for text in ["crash 1\n", "init 999\n"] {
        let cluster = up_with(text);
        cluster.shell("srun true").ok();
        let notices = || cluster.log("agent").matches("/proc and /sys").count();
        until("a notice", || (notices() > 0).then_some(()));
        await_nodes(&cluster, "idle|none");
        assert_eq!(notices(), 1, "one notice");
    }
}

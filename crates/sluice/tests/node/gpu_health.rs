//! GPUs by a fake NVML: their health in node states and reasons, their figures in `/metrics`, what jobs do with them, and
//! a library that fails.
//! Needs a C compiler.

use crate::harness::{Cluster, TWO_NODES, until};
use std::process::Command;

const SOURCE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/node/fake_nvml/nvml.c");

/// Files that are there play the devices of two GPUs of a machine that is not declared.
const OWN_GPUS: &str = "\
ClusterName=test
GresTypes=gpu
DefMemPerCPU=64
NodeName=node1 CPUs=2 RealMemory=500 Gres=gpu:2
PartitionName=gpu Nodes=node1 Default=YES State=UP
";

/// A cluster whose agent loads the fake library, which reads this text.
fn up_with(text: &str) -> Cluster {
    let cluster = Cluster::folder(TWO_NODES);
    start(&cluster, text);
    cluster
}

fn start(cluster: &Cluster, text: &str) {
    let library = cluster.path("bin").join("libfake-nvml.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(SOURCE);
    assert!(cc.status().expect("a C compiler").success());
    say(cluster, text);
    let state = cluster.path("work").join("nvml");
    let variables = [("SLUICE_NVML", library.as_path()), ("FAKE_NVML", &state)];
    cluster.start_with(&variables.map(|(name, path)| (name, path.to_str().unwrap())));
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

#[test]
fn up_what_a_job_does_with_its_gpus_is_in_sstat_sacct_and_metrics() {
    let cluster = Cluster::folder(OWN_GPUS);
    cluster.write_conf("gres.conf", "Name=gpu File=/dev/zero\nName=gpu File=/dev/full\n");
    start(&cluster, "util.0 80\nutil.1 20\n");
    let step = "srun -n1 --gres=gpu:1 sh -c 'until [ -e go ]; do sleep 0.1; done'";
    let job =
        cluster.submit(&["-n1", "--gres=gpu:2", "-J", "train", "-o", "/dev/null", "--wrap", step]);
    let asked = ["sstat", "-n", "-P", "-a", "-j", &job.to_string(), "-o", "JobID,TRESUsageInAve"];
    let shown = until("its GPUs are read", || {
        let shown = cluster.sluice(&asked).ok();
        (shown.matches("gres/gpuutil=").count() == 2).then_some(shown)
    });
    // The script has both GPUs, the step the first of them.
    for (id, used) in
        [("batch", "gres/gpumem=2G,gres/gpuutil=50"), ("0", "gres/gpumem=1G,gres/gpuutil=80")]
    {
        let line = shown.lines().find(|line| line.starts_with(&format!("{job}.{id}|")));
        assert!(line.is_some_and(|line| line.contains(used)), "{id}: {shown}");
    }
    let table = cluster.sluice(&["metrics", "train"]).ok();
    let lines: Vec<&str> = table.lines().map(str::trim).collect();
    assert!(lines[1].starts_with("job=0  cpu") && lines[1].contains("%"), "{table}");
    assert!(lines[2].starts_with("gpu=0") && lines[2].contains("80%"), "{table}");
    assert!(lines[3].starts_with("gpu=1") && lines[3].contains("1GB/80GB"), "{table}");
    let json = cluster.sluice(&["metrics", "train", "--json"]).ok();
    let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["jobs"][0]["gpus"][1]["readings"][0]["busy_percent"], 20, "{json}");
    assert_eq!(json["jobs"][0]["cpus"], 1, "{json}");
    let wrong = cluster.sluice(&["metrics", "train", "--job", "4"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("--job 4: run train has 1 jobs"), "{}", wrong.stderr);
    cluster.write("go", "");
    assert_eq!(cluster.await_end(job), "COMPLETED|0:0");
    let books = ["sacct", "-n", "-P", "-j", &job.to_string(), "-o", "JobID,TRESUsageInMax"];
    let booked = cluster.sluice(&books).ok();
    for (id, used) in [("batch", "gres/gpuutil=50"), ("0", "gres/gpuutil=80")] {
        let line = booked.lines().find(|line| line.starts_with(&format!("{job}.{id}|")));
        assert!(line.is_some_and(|line| line.contains(used)), "{id}: {booked}");
    }
    let ended = cluster.sluice(&["metrics", "train"]);
    assert_eq!((ended.code, ended.stderr.contains("run train is not running")), (1, true));
}

#[test]
fn up_fleets_and_offers_show_what_the_nodes_have_and_how_they_are() {
    let cluster = up_with("temp.1 92\n");
    await_nodes(&cluster, "idle|warning: GPU 1: too hot");
    let fleets = cluster.sluice(&["fleet", "-v"]).ok();
    let node = fleets.lines().find(|line| line.trim().starts_with("node2")).expect("a node");
    for part in ["gpu=h100:8", "cpu=32", "0/8 busy (warning)", "GPU 1: too hot"] {
        assert!(node.contains(part), "{part}: {fleets}");
    }
    assert_eq!(cluster.sluice(&["fleet", "list", "-v"]).ok(), fleets);
    cluster.shell("scontrol update node=node2 state=drain reason=fan").ok();
    let drained = cluster.sluice(&["fleet", "-v"]).ok();
    let node = drained.lines().find(|line| line.trim().starts_with("node2")).expect("a node");
    assert!(node.contains("0/8 busy (drained)"), "{drained}");
    cluster.shell("scontrol update node=node2 state=resume").ok();
    let one = cluster.sluice(&["fleet", "debug"]).ok();
    assert_eq!(one.lines().count(), 3, "the header, the fleet and its node: {one}");
    let missing = cluster.sluice(&["fleet", "nosuch"]);
    assert_eq!((missing.code, missing.stderr.contains("fleet nosuch does not exist")), (1, true));
    let offers = cluster.sluice(&["offer", "--gpu", "h100:8"]).ok();
    assert_eq!(offers.matches("gpu=h100:8").count(), 3, "the request and two nodes: {offers}");
    cluster.submit_sleeper("--gres=gpu:1 -w node1");
    until("one of them is taken", || {
        let offers = cluster.sluice(&["offer", "--gpu", "h100:8", "--json"]).ok();
        let offers: serde_json::Value = serde_json::from_str(&offers).expect("JSON");
        let all = offers["offers"].as_array().expect("offers").clone();
        let words: Vec<&str> = all.iter().filter_map(|one| one["availability"].as_str()).collect();
        (words == ["idle", "busy"]).then_some(())
    });
    let none = cluster.sluice(&["offer", "--gpu", "h100:9"]).ok();
    assert!(none.contains("No matching instance offers available."), "{none}");
    let wrong = cluster.sluice(&["offer", "--gpu", "h100:x"]);
    assert_eq!(wrong.code, 1);
    assert!(wrong.stderr.contains("h100:x"), "{}", wrong.stderr);
}

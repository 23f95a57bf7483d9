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
    start_with(cluster, text, &[]);
}

pub(super) fn start_with(cluster: &Cluster, text: &str, further: &[(&str, &str)]) {
    let library = cluster.path("bin").join("libfake-nvml.so");
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-fPIC", "-o"]).arg(&library).arg(SOURCE);
    assert!(cc.status().expect("a C compiler").success());
    say(cluster, text);
    let state = cluster.path("work").join("nvml");
    let variables = [("SLUICE_NVML", library.as_path()), ("FAKE_NVML", &state)];
    let own = variables.map(|(name, path)| (name, path.to_str().unwrap()));
    cluster.start_with(&[&own, further].concat());
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
fn up_library_that_fails_halfway_leaves_the_node_in_service() {
    let cluster = up_with("temp.1 40\n");
    let line = |wanted: &str| {
        let shown = cluster.sluice(&["scontrol", "show", "node", "node1"]).ok();
        shown.lines().any(|line| line.trim() == wanted).then_some(())
    };
    let whole = "GPU=1 Model=NVIDIA_Fake UUID=GPU-1 Memory=81920M Used=1024M Util=7% Temp=40C Watts=70 Health=ok";
    until("all is read", || line(whole));
    // What one GPU does not say is left out, and is no illness.
    say(&cluster, "fail.1 1\n");
    until("the rest is read", || {
        line("GPU=1 Model=NVIDIA_Fake UUID=GPU-1 Util=7% Watts=70 Health=ok")
    });
    await_nodes(&cluster, "idle|none");
    say(&cluster, "crash 1\n");
    let notices = || cluster.log("agent").matches("/proc and /sys").count();
    until("a notice", || (notices() > 0).then_some(()));
    cluster.shell("srun true").ok();
    await_nodes(&cluster, "idle|none");
    assert_eq!(notices(), 1, "one notice");
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
    assert_eq!((ended.code, ended.stderr.contains("run train has ended (")), (1, true));
}

/// Answers every request with this text, or with nothing for as long as the test runs.
fn serve(text: &'static str) -> std::net::SocketAddr {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        let mut silent = Vec::new();
        for mut stream in listener.incoming().flatten() {
            if text.is_empty() {
                silent.push(stream);
                continue;
            }
            let _ = stream.read(&mut [0; 4096]);
            let _ = write!(stream, "HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n{text}");
        }
    });
    address
}

/// A scrape of the server with an administrator's token.
pub(super) fn metrics(cluster: &Cluster) -> String {
    use std::io::{Read, Write};
    let read = |name: &str| std::fs::read_to_string(cluster.state().join(name)).expect("a file");
    let ports: serde_json::Value = serde_json::from_str(&read("ports.json")).expect("JSON");
    let address = ports["listen"].as_str().expect("an address");
    let mut stream = std::net::TcpStream::connect(address).expect("a connection");
    let token = read("admin.token");
    let request = format!(
        "GET /metrics HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\nConnection: close\r\n\r\n",
        token.trim()
    );
    stream.write_all(request.as_bytes()).expect("a request");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

/// Two GPUs with a clock, which the fake library does not have, and one more of a machine that has only two.
const EXPORTED: &str = "\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{gpu=\"0\",UUID=\"GPU-0\",device=\"nvidia0\",modelName=\"Fake\",Hostname=\"x\"} 1980
DCGM_FI_DEV_SM_CLOCK{gpu=\"1\",device=\"nvidia1\",modelName=\"Fake\",Hostname=\"x\",user=\"eve\"} 345
DCGM_FI_DEV_SM_CLOCK{gpu=\"9\",UUID=\"GPU-9\",Hostname=\"x\"} 1
# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{gpu=\"0\",UUID=\"GPU-0\",Hostname=\"x\"} 61
sluice_jobs{gpu=\"0\"} 77
";

#[test]
fn up_series_of_an_exporter_on_the_node_are_relayed_with_the_job() {
    let cluster = Cluster::folder(OWN_GPUS);
    cluster.write_conf("gres.conf", "Name=gpu File=/dev/zero\nName=gpu File=/dev/full\n");
    let setting = |address: std::net::SocketAddr| {
        let text = format!("[nodes]\ndcgm_exporter = 'http://{address}/metrics'\n");
        cluster.write_conf("sluice.toml", &text);
    };
    setting(serve(EXPORTED));
    start(&cluster, "util.0 80\nutil.1 20\n");
    let job = cluster.submit_sleeper("-n1 --gres=gpu:1");
    cluster.await_state(job, "RUNNING");
    let line = |start: &str| {
        let text = metrics(&cluster);
        text.lines().find(|line| line.starts_with(start)).map(str::to_owned)
    };
    let clock = "DCGM_FI_DEV_SM_CLOCK{gpu=\"0\",UUID=\"GPU-0\",device=\"nvidia0\",model=\"Fake\",Hostname=\"node1\",";
    let owner = format!("hpc_job=\"{job}\",user=\"root\",account=\"");
    let found =
        until("the clock of the job's GPU", || line(clock).filter(|line| line.contains(&owner)));
    assert!(found.ends_with("} 1980"), "{found}");
    let free = line("DCGM_FI_DEV_SM_CLOCK{gpu=\"1\",").expect("the other GPU");
    let expected =
        "DCGM_FI_DEV_SM_CLOCK{gpu=\"1\",device=\"nvidia1\",model=\"Fake\",Hostname=\"node1\"} 345";
    assert_eq!(free, expected, "nobody's");
    let busy = line("DCGM_FI_DEV_GPU_UTIL{gpu=\"0\"").expect("a family that is ours too");
    assert!(busy.contains(&owner) && busy.ends_with("} 61"), "the exporter's: {busy}");
    let other = line("DCGM_FI_DEV_GPU_UTIL{gpu=\"1\"").expect("a GPU that the exporter leaves out");
    assert!(other.ends_with("} 20"), "ours: {other}");
    assert!(line("DCGM_FI_DEV_GPU_TEMP{").is_some_and(|line| line.contains(&owner)), "ours");
    assert_eq!(metrics(&cluster).matches("sluice_jobs{gpu=").count(), 0);
    // One that hangs harms nothing, and ours are shown again.
    setting(serve(""));
    cluster.shell("scontrol reconfigure").ok();
    cluster.shell("srun -n1 true").ok();
    until("the exporter's series are gone", || {
        line("DCGM_FI_DEV_SM_CLOCK").is_none().then_some(())
    });
    let ours = line("DCGM_FI_DEV_GPU_UTIL{").expect("ours");
    assert!(ours.ends_with("} 80"), "{ours}");
    let notices = || cluster.log("agent").matches("is not relayed").count();
    until("one notice", || (notices() == 1).then_some(()));
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
    let there_are = "fleet nosuch does not exist: there are gpu, debug\n";
    assert!(missing.code == 1 && missing.stderr.ends_with(there_are), "{}", missing.stderr);
    assert_eq!(cluster.sluice(&["fleet", "show", "nosuch"]).stderr, missing.stderr);
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

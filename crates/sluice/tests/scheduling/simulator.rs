//! `sluice sim` replays a trace through the built program: figures as a table and as JSON, a site's configuration, and bad
//! traces named by their line. It needs no server, but for `--live`.

use crate::harness::{Cluster, TWO_NODES, program};
use std::path::Path;
use std::process::{Command, Output};

/// Four processors and five jobs, with starts that are worked out in `sim/replay.rs`.
const FIVE_JOBS: &str = "\
; Version: 2.2
; MaxProcs: 4
1 0 -1  80 2 -1 -1 2 100 -1 1 1 -1 -1 -1 -1 -1 -1
2 1 -1 100 3 -1 -1 3 100 -1 1 2 -1 -1 -1 -1 -1 -1
3 2 -1  50 4 -1 -1 4  50 -1 1 3 -1 -1 -1 -1 -1 -1
4 3 -1 250 1 -1 -1 1 250 -1 1 4 -1 -1 -1 -1 -1 -1
5 4 -1  50 1 -1 -1 1  50 -1 1 5 -1 -1 -1 -1 -1 -1
6 5 -1  -1 1 -1 -1 1  50 -1 1 5 -1 -1 -1 -1 -1 -1
";

fn sim(dir: &Path, args: &[&str]) -> Output {
    Command::new(program()).arg("sim").args(args).current_dir(dir).output().unwrap()
}

fn printed(dir: &Path, args: &[&str]) -> String {
    let output = sim(dir, args);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && said.is_empty(), "{args:?}: {said}");
    String::from_utf8(output.stdout).unwrap()
}

#[test]
fn trace_is_replayed_and_its_figures_are_printed() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("five.swf"), FIVE_JOBS).unwrap();
    let expected = "\
jobs                   5, and 1 record without a run time or processors
nodes                  4
policy                 easy
utilisation            79.2 %
mean wait              1.1 min
maximum wait           0.1 h
mean bounded slowdown  2.2
";
    assert_eq!(printed(dir.path(), &["five.swf"]), expected);
    let json = printed(dir.path(), &["five.swf", "--json"]);
    let figures: serde_json::Value = serde_json::from_str(&json).unwrap();
    let expected = serde_json::json!({
        "jobs": 5,
        "utilisation": 0.792079,
        "mean_wait_s": 66.0,
        "max_wait_s": 251.0,
        "mean_bounded_slowdown": 2.162,
        "records_left_out": 1,
        "jobs_left_out": 0,
    });
    assert_eq!(figures, expected);
    assert_eq!(printed(dir.path(), &["five.swf", "--json"]), json, "the same bytes again");
    // The waits are 0, 79, 178, 227 and 226 s in order, and 0, 79, 178, 227 and 0 s if nobody is delayed.
    for (policy, wait_s) in [("fcfs", 142.0), ("easy", 66.0), ("conservative", 96.8)] {
        let json = printed(dir.path(), &["five.swf", "--json", "--policy", policy]);
        let figures: serde_json::Value = serde_json::from_str(&json).unwrap();
        assert_eq!(figures["mean_wait_s"], wait_s, "{policy}");
    }
    let estimates = printed(dir.path(), &["five.swf", "--estimates"]);
    let expected = "\
processors  jobs that waited  median error, min  nine of ten within, min
2-8         2                 0.3                0.9
";
    assert!(estimates.ends_with(expected), "{estimates}");
    let kinds = printed(dir.path(), &["five.swf", "--kinds"]);
    let expected = "\
run time      processors  jobs  mean wait, min  slowdown  maximum wait, h
below 10 min  1-8         5     1.1             2.2       0.1
";
    assert!(kinds.ends_with(expected), "{kinds}");
    let args = ["five.swf", "--charts", "charts"];
    assert_eq!(printed(dir.path(), &args), printed(dir.path(), &["five.swf"]));
    for chart in ["utilisation.svg", "queue.svg", "waits.svg", "gantt.svg"] {
        let svg = std::fs::read_to_string(dir.path().join("charts").join(chart)).unwrap();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"), "{chart}");
    }
    // A machine without room for a Gantt chart leaves none of an earlier replay beside its other charts.
    printed(dir.path(), &["five.swf", "--nodes", "300", "--charts", "charts"]);
    assert!(!dir.path().join("charts/gantt.svg").exists());
    // On eight processors nothing waits but job 3, for job 1.
    let wide = printed(dir.path(), &["five.swf", "--json", "--nodes", "8"]);
    let figures: serde_json::Value = serde_json::from_str(&wide).unwrap();
    assert_eq!(figures["max_wait_s"], 78.0);
}

#[test]
fn trace_is_replayed_on_the_nodes_of_a_configuration() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("five.swf"), FIVE_JOBS).unwrap();
    let conf = "ClusterName=test\nSelectTypeParameters=CR_Core\nNodeName=n[1-2] CPUs=2\n\
                PartitionName=main Nodes=ALL Default=YES\nSchedulerType=sched/builtin\n";
    std::fs::create_dir(dir.path().join("site")).unwrap();
    std::fs::write(dir.path().join("site/slurm.conf"), conf).unwrap();
    let in_order = printed(dir.path(), &["five.swf", "--json", "--config", "site"]);
    assert_eq!(in_order, printed(dir.path(), &["five.swf", "--json", "--policy", "fcfs"]));
    let easy = ["five.swf", "--json", "--config", "site", "--policy", "easy"];
    assert_eq!(printed(dir.path(), &easy), printed(dir.path(), &["five.swf", "--json"]));
}

/// All five take all four processors, one after another: the starts are worked out in `sim/replay/tests.rs`. The waits are 0, 1040,
/// 980, 550 and 490 s.
const FIVE_JOBS_OF_ONE_USER: &str = "\
; Version: 2.2
; MaxProcs: 4
1    0 -1 1000 4 -1 -1 4  1000 -1 1 1 -1 -1 -1 -1 -1 -1
2   10 -1  500 4 -1 -1 4  6000 -1 1 1 -1 -1 -1 -1 -1 -1
3   20 -1   50 4 -1 -1 4    60 -1 1 1 -1 -1 -1 -1 -1 -1
4 1010 -1  100 4 -1 -1 4   700 -1 1 1 -1 -1 -1 -1 -1 -1
5 1060 -1   10 4 -1 -1 4 80000 -1 1 1 -1 -1 -1 -1 -1 -1
";

#[test]
fn lines_of_the_page_on_the_recommended_policy_schedule_as_it_does() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("five.swf"), FIVE_JOBS_OF_ONE_USER).unwrap();
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/policy.md");
    let page = std::fs::read_to_string(page).unwrap();
    let lines: Vec<&str> = page.lines().filter_map(|line| line.strip_prefix("    ")).collect();
    assert!(lines.contains(&"PriorityType=priority/sluice"), "{lines:?}");
    let conf = format!(
        "ClusterName=test\nSelectTypeParameters=CR_Core\nNodeName=n[1-4] CPUs=1\n\
         PartitionName=main Nodes=ALL Default=YES\n{}\n",
        lines.join("\n")
    );
    std::fs::create_dir(dir.path().join("site")).unwrap();
    std::fs::write(dir.path().join("site/slurm.conf"), conf).unwrap();
    let by_policy = printed(dir.path(), &["five.swf", "--json", "--policy", "sluice"]);
    let figures: serde_json::Value = serde_json::from_str(&by_policy).unwrap();
    assert_eq!(figures["mean_wait_s"], 612.0);
    assert_eq!(printed(dir.path(), &["five.swf", "--json", "--config", "site"]), by_policy);
}

#[test]
fn bad_traces_and_options_get_one_line_with_its_number() {
    let dir = tempfile::tempdir().unwrap();
    let refused = |args: &[&str], expected: &str| {
        let output = sim(dir.path(), args);
        assert!(!output.status.success() && output.stdout.is_empty(), "{args:?}");
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(said, format!("sluice: error: {expected}\n"), "{args:?}");
    };
    let write = |text: &str| std::fs::write(dir.path().join("bad.swf"), text).unwrap();
    write(&FIVE_JOBS[..FIVE_JOBS.len() - 30]);
    refused(&["bad.swf"], "bad.swf: line 8: 8 fields: expected 18");
    write(&FIVE_JOBS.replace("; MaxProcs: 4", "; MaxProcs: 3"));
    refused(&["bad.swf"], "bad.swf: line 5: 4 processors: expected at most the machine's 3");
    write(&FIVE_JOBS.replace("3 2 -1", "3 0 -1"));
    let order = "submit time 0 before 1: expected lines in order of submission";
    refused(&["bad.swf"], &format!("bad.swf: line 5: {order}"));
    refused(&["none.swf"], "none.swf: No such file or directory (os error 2)");
    let idle = ["five.swf", "--without", "n1", "--add-nodes", "3:zz", "--load", "5", "--jobs", "3"];
    refused(&idle, "--jobs has no meaning for a trace: it is for --synthetic");
    refused(&["five.swf", "--state", "x"], "--state has no meaning for a trace: it is for --live");
}

/// The default partition is for some people, briefly and on one node; another is for urgent jobs. Some nodes are not in service.
const REAL_SITE: &str = "\
ClusterName=test
SelectTypeParameters=CR_Core
NodeName=n[1-2] CPUs=2
NodeName=broken CPUs=2 State=DOWN
NodeName=later CPUs=2 State=FUTURE
EnforcePartLimits=ALL
AccountingStorageEnforce=associations,limits,qos
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
PartitionName=main Nodes=ALL Default=YES AllowGroups=nobody-here AllowAccounts=physics MaxTime=3
PartitionName=urgent Nodes=n[1-2] RootOnly=YES PriorityTier=10
";

/// Job 3 preempts whatever runs when it comes at 2, for 50 s. Job 4 is beyond the three minutes of its partition.
#[test]
fn trace_is_replayed_under_the_policy_of_a_real_site() {
    let dir = tempfile::tempdir().unwrap();
    let queued = FIVE_JOBS.replace("50 -1 1 3 -1 -1 -1 -1", "50 -1 1 3 -1 -1 7 -1");
    assert_ne!(queued, FIVE_JOBS);
    std::fs::write(dir.path().join("five.swf"), queued).unwrap();
    std::fs::create_dir(dir.path().join("site")).unwrap();
    std::fs::write(dir.path().join("site/slurm.conf"), REAL_SITE).unwrap();
    let args = ["five.swf", "--config", "site", "--queue", "7=urgent"];
    let json = printed(dir.path(), &[&args[..], &["--json"]].concat());
    let figures: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((&figures["jobs"], &figures["jobs_left_out"]), (&4.into(), &1.into()), "{json}");
    let told = printed(dir.path(), &args);
    let expected = "\
jobs                   4, and 1 record without a run time or processors
left out               1 job that could never start, line 6: its time limit is beyond its partition's MaxTime
nodes                  2
";
    assert!(told.starts_with(expected), "{told}");
    // Without the queue's number job 3 waits for its turn in the default partition.
    let alike = printed(dir.path(), &["five.swf", "--config", "site", "--json"]);
    assert_ne!(alike, json);
    let output = sim(dir.path(), &["five.swf", "--config", "site", "--queue", "7=urgnt"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let expected =
        "sluice: error: five.swf: partition urgnt does not exist: expected one of main, urgent\n";
    assert_eq!(said, expected);
    let twice = ["five.swf", "--config", "site", "--queue", "7=urgent", "--queue", "7=main"];
    let said = sim(dir.path(), &twice);
    assert_eq!(said.status.code(), Some(1));
    let expected =
        "sluice: error: --queue: 7 is given twice: expected one partition for each number\n";
    assert_eq!(String::from_utf8(said.stderr).unwrap(), expected);
    let unused = sim(dir.path(), &[&args[..], &["--queue", "8=urgent"]].concat());
    let said = String::from_utf8(unused.stderr).unwrap();
    assert!(said.contains("sluice: note: five.swf: no job has queue 8\n"), "{said}");
    assert_eq!(String::from_utf8(unused.stdout).unwrap(), told);
    let longer = REAL_SITE.replace("MaxTime=3", "MaxTime=30");
    std::fs::write(dir.path().join("site/slurm.conf"), longer).unwrap();
    let synthetic = ["--synthetic", "lublin", "--jobs", "100", "--config", "site", "--json"];
    let figures: serde_json::Value =
        serde_json::from_str(&printed(dir.path(), &synthetic)).unwrap();
    let jobs = figures["jobs"].as_u64().unwrap() + figures["jobs_left_out"].as_u64().unwrap();
    assert_eq!(jobs, 100, "{figures}");
    assert!(figures["jobs"].as_u64() > Some(10), "{figures}");
}

#[test]
fn output_that_cannot_be_written_ends_a_command_with_one_line() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("five.swf"), FIVE_JOBS).unwrap();
    let full = || std::fs::File::options().write(true).open("/dev/full").unwrap();
    for words in [
        &["sim", "five.swf"][..],
        &["sim", "five.swf", "--json"],
        &["--help"],
        &["sim", "--help"],
        &["help", "states"],
        &["completion", "bash"],
        &["sbatch", "--help"],
    ] {
        let mut command = Command::new(program());
        let output = command.args(words).current_dir(dir.path()).stdout(full()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{words:?}: {said}");
        let name = if words[0] == "sbatch" { "sbatch" } else { "sluice" };
        let is_one_line =
            said.lines().count() == 1 && said.starts_with(&format!("{name}: error: "));
        assert!(is_one_line && said.contains("No space left on device"), "{words:?}: {said}");
    }
}

#[test]
fn pods_of_a_list_are_placed_on_the_nodes_of_another() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| std::fs::write(dir.path().join(name), text).unwrap();
    write("nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\na,8000,65536,2,T4\nb,8000,65536,2,T4\n");
    write(
        "pods.csv",
        "cpu_milli,memory_mib,num_gpu,gpu_milli\n1000,1024,1,1000\n1000,1024,1,500\n",
    );
    let printed = |args: &[&str]| printed(dir.path(), args);
    let pods = ["pods.csv", "--nodes", "nodes.csv", "--json"];
    let figures: serde_json::Value = serde_json::from_str(&printed(&pods)).unwrap();
    // Wholes and halves fill four GPUs, but for a half that may be missing.
    assert!(figures["gpu_allocated_percent"].as_f64().unwrap() >= 87.5, "{figures}");
    assert_eq!(printed(&pods), printed(&pods), "the same bytes again");
    let half = printed(&["pods.csv", "--nodes", "nodes.csv", "--arrive", "25", "--seed", "7"]);
    assert!(half.starts_with("pods            ") && half.contains("nodes           2\n"), "{half}");
    let output = sim(dir.path(), &["pods.csv", "--nodes", "nodes.csv", "--estimates"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let expected =
        "--estimates has no meaning for a list of pods: it is for a trace or --synthetic";
    assert_eq!(said, format!("sluice: error: {expected}\n"));
    write("nodes.csv", "sn,cpu_milli,memory_mib,gpu,model\na,8000,65536,2,T4\na,8000,65536,2,T4\n");
    let output = sim(dir.path(), &["pods.csv", "--nodes", "nodes.csv"]);
    let said = String::from_utf8(output.stderr).unwrap();
    let expected = "nodes.csv: line 3: sn \"a\": expected a name that line 2 does not have";
    assert_eq!(said, format!("sluice: error: {expected}\n"));
}

#[test]
fn up_what_would_change_for_the_jobs_that_wait_is_told() {
    let cluster = Cluster::up(TWO_NODES);
    let nodes = cluster.shell("sinfo -h -N -o %N").ok();
    let node = nodes.lines().next().expect("a node").trim().to_owned();
    let runs = cluster.submit_sleeper("-N2 --exclusive -t 60");
    cluster.await_state(runs, "RUNNING");
    let waits = cluster.submit_sleeper("-N1 --exclusive -t 10");
    let what_if = |args: &[&str]| {
        let said = cluster.sluice(&[&["sim", "--live", "--json"][..], args].concat()).ok();
        serde_json::from_str::<serde_json::Value>(&said).expect("JSON")
    };
    let same = what_if(&[]);
    assert_eq!(same, serde_json::json!({"jobs": 1, "earlier": 0, "later": 0, "changes": []}));
    let more = what_if(&["--add-nodes", &format!("1:{node}")]);
    assert_eq!(more["earlier"], 1, "{more}");
    assert_eq!(more["changes"][0]["job"], waits.to_string(), "{more}");
    let told = cluster.sluice(&["sim", "--live", "--add-nodes", &format!("1:{node}")]).ok();
    assert!(told.starts_with("1 job waits: 1 would start earlier, 0 later\n"), "{told}");
    let many = cluster.sluice(&["sim", "--live", "--add-nodes", &format!("99999:{node}")]);
    assert!(many.stderr.contains("99999 nodes that come or go: expected"), "{}", many.stderr);
    std::fs::create_dir(cluster.path("other")).unwrap();
    let three = TWO_NODES.replace("node[1-2]", "node[1-3]");
    let (nodes, rest): (Vec<&str>, Vec<&str>) =
        three.lines().partition(|line| line.starts_with("NodeName="));
    std::fs::write(cluster.path("other/nodes.inc"), nodes.join("\n")).unwrap();
    let conf = format!("Include nodes.inc\n{}\n", rest.join("\n"));
    std::fs::write(cluster.path("other/slurm.conf"), conf).unwrap();
    let other = cluster.path("other").display().to_string();
    let configured = what_if(&["--config", &other]);
    assert_eq!(configured["earlier"], 1, "{configured}");
    assert!(!cluster.shell("sinfo -h -N -o %N").ok().contains("node3"), "nothing has changed");
    // On one node a second job that wants a whole one waits for the first.
    cluster.submit_sleeper("-N1 --exclusive -t 10");
    let fewer = what_if(&["--without", &node]);
    let counts = ["jobs", "earlier", "later"].map(|key| fewer[key].as_u64());
    assert_eq!(counts, [Some(2), Some(0), Some(1)], "{fewer}");
    let none = cluster.sluice(&["sim", "--live", "--without", "none"]);
    assert!(none.code != 0 && none.stderr.contains("none"), "{}", none.stderr);
}

#[test]
fn synthetic_load_is_drawn_and_replayed() {
    let dir = tempfile::tempdir().unwrap();
    let drawn =
        ["--synthetic", "lublin", "--jobs", "300", "--nodes", "32", "--seed", "5", "--json"];
    let json = printed(dir.path(), &drawn);
    let figures: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(figures["jobs"], 300);
    assert!(figures["utilisation"].as_f64().is_some_and(|part| part > 0.2), "{figures}");
    assert_eq!(printed(dir.path(), &drawn), json, "the same bytes again");
    let other = drawn.map(|word| if word == "5" { "6" } else { word });
    assert_ne!(printed(dir.path(), &other), json);
    let bad = ["--synthetic", "lublin", "--nodes", "nodes.csv"];
    let output = sim(dir.path(), &bad);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, "sluice: error: --nodes nodes.csv: expected a number\n");
}

#[test]
fn histories_of_faults_hold_and_the_same_seed_prints_the_same_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let one = ["faults", "--seed", "7", "--events", "200"];
    let first = printed(dir.path(), &one);
    assert!(first.contains("the journal ends at "), "{first}");
    assert_eq!(printed(dir.path(), &one), first);
    let two = printed(dir.path(), &["faults", "--seeds", "2", "--events", "50"]);
    assert!(two.contains(" histories a second on one core: "), "{two}");
    let at_once =
        printed(dir.path(), &["faults", "--seeds", "3", "--events", "50", "--cores", "2"]);
    assert!(at_once.contains(" histories a second on 2 cores: "), "{at_once}");
    let in_series = printed(dir.path(), &["faults", "--seeds", "3", "--events", "50"]);
    let counted = |said: &str| said.split("\n\n").next().map(str::to_owned);
    assert_eq!(counted(&at_once), counted(&in_series), "a history goes the same way beside others");
    for bad in [&["faults", "--seeds", "0"][..], &["faults", "five.swf"], &["faults", "--live"]] {
        let output = sim(dir.path(), bad);
        assert!(!output.status.success(), "{bad:?}");
    }
}

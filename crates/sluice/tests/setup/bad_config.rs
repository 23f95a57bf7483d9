//! `sluice up` with a bad configuration: the error names file, line, key and what was expected, and nothing is left running.

use crate::harness::{Cluster, CommandOutput};

const GOOD: &str = "\
ClusterName=test
SlurmdParameters=config_overrides
GresTypes=gpu
NodeName=node[1-2] CPUs=32 Sockets=2 CoresPerSocket=16 RealMemory=4000 Gres=gpu:h100:8
PartitionName=gpu Nodes=node[1-2] Default=YES MaxTime=7-0 State=UP
";

/// What to replace in the good file (empty: append), the replacement, and the error.
/// CONF stands for the configuration folder.
const SLURM_CONF: &[(&str, &str, &str)] = &[
    (
        "MaxTime",
        "MaxTiem",
        "CONF/slurm.conf:5: MaxTiem: not a key of a PartitionName line; the nearest is MaxTime",
    ),
    (
        "ClusterName",
        "ClutserName",
        "CONF/slurm.conf:1: ClutserName: not a key of slurm.conf; the nearest is ClusterName",
    ),
    (
        "RealMemory=4000",
        "RealMemory=lots",
        "CONF/slurm.conf:4: RealMemory: \"lots\": expected a whole number of megabytes",
    ),
    (
        "CPUs=32",
        "CPUs=-1",
        "CONF/slurm.conf:4: CPUs: \"-1\": expected a whole number from 0 to 4294967295",
    ),
    (
        "Gres=gpu:h100:8",
        "Gres=gpu:h100:x",
        "CONF/slurm.conf:4: Gres: \"gpu:h100:x\": expected NAME[:TYPE][:no_consume]:COUNT[(S:SOCKETS)], as in gpu:h100:8",
    ),
    (
        "Nodes=node[1-2]",
        "Nodes=node[1-3]",
        "CONF/slurm.conf:5: Nodes: \"node3\": no NodeName line declares this, and no NodeSet has the name",
    ),
    (
        "Nodes=node[1-2]",
        "Nodes=node[1-",
        "CONF/slurm.conf:5: Nodes: \"node[1-\": expected a ] after each [",
    ),
    (
        "MaxTime=7-0",
        "MaxTime=1:2:3:4:5",
        "CONF/slurm.conf:5: MaxTime: \"1:2:3:4:5\": expected minutes, minutes:seconds, hours:minutes:seconds, \
         days-hours, days-hours:minutes, days-hours:minutes:seconds or UNLIMITED",
    ),
    ("Default=YES", "Default=MAYBE", "CONF/slurm.conf:5: Default: \"MAYBE\": expected YES or NO"),
    (
        "State=UP",
        "State=SIDEWAYS",
        "CONF/slurm.conf:5: State: \"SIDEWAYS\": expected one of UP, DOWN, DRAIN, INACTIVE",
    ),
    (
        "",
        "KillWait=soon",
        "CONF/slurm.conf:6: KillWait: \"soon\": expected a whole number from 0 to 65533",
    ),
    ("", "KillWait", "CONF/slurm.conf:6: \"KillWait\": Key=Value expected"),
    ("", "NodeName=", "CONF/slurm.conf:6: \"NodeName=\": a value expected after ="),
    (
        "",
        "SchedulerType=sched/bogus",
        "CONF/slurm.conf:6: SchedulerType: \"sched/bogus\": expected one of sched/backfill, sched/builtin",
    ),
    (
        "",
        "Include nosuch.conf",
        "CONF/slurm.conf:6: Include: \"CONF/nosuch.conf\": No such file or directory (os error 2)",
    ),
    (
        "",
        "PartitionName=gpu Nodes=node1",
        "CONF/slurm.conf:6: PartitionName: \"gpu\": this partition is declared already, at CONF/slurm.conf:5",
    ),
    (
        "",
        "NodeName=node1 CPUs=4",
        "CONF/slurm.conf:6: NodeName: \"node1\": declared already, at CONF/slurm.conf:4",
    ),
];

/// A gres.conf beside the good file, and the error.
const GRES_CONF: &[(&str, &str)] = &[
    (
        "NodeName=node1 Name=gpu Type=h100 Count=7",
        "CONF/gres.conf:1: Name: \"gpu:h100:7\": makes 7 on \"node1\", but 8 by Gres=gpu:h100:8 at CONF/slurm.conf:4",
    ),
    (
        "Name=gpu Type=h100 Cuont=8",
        "CONF/gres.conf:1: Cuont: not a key of gres.conf; the nearest is Count",
    ),
    (
        "Name=gpu Count=x",
        "CONF/gres.conf:1: Count: \"x\": expected a whole number from 0 to 18446744073709551615",
    ),
    ("\n\nType=h100", "CONF/gres.conf:3: Name: \"\": expected Name= on the line, as in Name=gpu"),
    (
        "Name=gpu Type=h100 Count=8 Cores=a-b",
        "CONF/gres.conf:1: Cores: \"a-b\": expected numbers such as 0-3,8",
    ),
    (
        "NodeName=node1 Name=gpu Type=h100 Count=8 Cores=0-99",
        "CONF/gres.conf:1: Name: \"gpu:h100:8\": Cores name one that \"node1\" does not have; it has 32",
    ),
    (
        "Name=gpu Type=h100 File=nvidia[0-7]",
        "CONF/gres.conf:1: File: \"nvidia[0-7]\": expected absolute paths, as in /dev/nvidia[0-7]",
    ),
];

/// Processes with this cluster's folder on their command line.
fn left_running(cluster: &Cluster) -> Vec<String> {
    let folder = cluster.state().display().to_string();
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| std::fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(&folder)).collect()
}

fn assert_refused(cluster: &Cluster, said: &CommandOutput, words: &str) {
    let folder = cluster.path("conf").canonicalize().unwrap();
    let line = format!("sluice: error: {words}\n").replace("CONF", folder.to_str().unwrap());
    assert_eq!((said.code, said.stderr.as_str(), said.stdout.as_str()), (1, line.as_str(), ""));
    assert_eq!(left_running(cluster), Vec::<String>::new(), "{words}");
    for part in ["server.pid", "agent.pid", "sluice.sock", "admin.token"] {
        assert!(!cluster.state().join(part).exists(), "{part} is there after: {words}");
    }
}

#[test]
fn up_a_bad_slurm_conf_is_reported_by_line_and_key_and_starts_nothing() {
    let cluster = Cluster::folder(GOOD);
    for (from, to, words) in SLURM_CONF {
        let text = if from.is_empty() { format!("{GOOD}{to}\n") } else { GOOD.replace(from, to) };
        cluster.write_conf("slurm.conf", &text);
        assert_refused(&cluster, &cluster.try_start(), words);
    }
    cluster.write_conf("slurm.conf", GOOD);
    cluster.start();
}

#[test]
fn up_a_bad_gres_conf_is_reported_by_line_and_key_and_starts_nothing() {
    let cluster = Cluster::folder(GOOD);
    for (text, words) in GRES_CONF {
        cluster.write_conf("gres.conf", &format!("{text}\n"));
        assert_refused(&cluster, &cluster.try_start(), words);
    }
    cluster.write_conf("gres.conf", "Name=gpu Type=h100 Count=8\n");
    cluster.start();
}

#[test]
fn up_all_configuration_errors_are_reported_at_once_in_order() {
    let text = GOOD.replace("MaxTime", "MaxTiem").replace("4000", "lots");
    let cluster = Cluster::folder(&text);
    let words = "CONF/slurm.conf:4: RealMemory: \"lots\": expected a whole number of megabytes\n\
                 sluice: error: CONF/slurm.conf:5: MaxTiem: not a key of a PartitionName line; \
                 the nearest is MaxTime";
    assert_refused(&cluster, &cluster.try_start(), words);
}

#[test]
fn up_a_missing_configuration_folder_is_an_error() {
    let cluster = Cluster::folder(GOOD);
    std::fs::remove_file(cluster.path("conf").join("slurm.conf")).unwrap();
    let words = "CONF/slurm.conf: cannot be read: No such file or directory (os error 2)";
    assert_refused(&cluster, &cluster.try_start(), words);
}

#[test]
fn up_keys_without_effect_are_reported_once() {
    let notices = [
        ("slurm.conf", "BurstBufferType=x", "6: BurstBufferType: accepted; it has no effect here"),
        (
            "slurm.conf",
            "KillWait=1\nKillWait=2",
            "7: KillWait: given before at CONF/slurm.conf:6; this later value counts",
        ),
        (
            "gres.conf",
            "Name=mic Count=1",
            "1: mic: no node has this resource in slurm.conf; the line has no effect",
        ),
        (
            "gres.conf",
            "Name=gpu NodeName=node9 Count=8",
            "1: gpu: \"node9\" has no such resource in slurm.conf; the line has no effect there",
        ),
    ];
    for (file, text, words) in notices {
        let cluster = Cluster::folder(GOOD);
        let whole = match file {
            "slurm.conf" => format!("{GOOD}{text}\n"),
            _ => format!("{text}\n"),
        };
        cluster.write_conf(file, &whole);
        cluster.start();
        let folder = cluster.path("conf").canonicalize().unwrap();
        let line = format!("CONF/{file}:{words}").replace("CONF", folder.to_str().unwrap());
        let log = cluster.log("server");
        assert_eq!(log.matches(&line).count(), 1, "{line} in\n{log}");
        assert_eq!(
            log.matches(folder.to_str().unwrap()).count(),
            line.matches(folder.to_str().unwrap()).count()
        );
    }
}

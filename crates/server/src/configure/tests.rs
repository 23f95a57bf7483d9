//! A key of slurm.conf that is said to act changes the cluster's configuration.

use super::load_files;
use cluster::ClusterConfig;
use slurm::conf::MemoryFiles;
use slurm::conf::samples::{GLOBALS, NODES, PARTITIONS};
use std::path::Path;

/// Keys that act elsewhere, or only beside another key: clients ask for the first two, `mark_declared` looks at the third, the
/// reader of topology.conf at the next, and gang scheduling brings the last.
const ELSEWHERE: [&str; 6] = [
    "WaitTime",
    "KillOnBadExit",
    "SlurmdParameters",
    "TopologyParam",
    "TopologyPlugin",
    "SchedulerTimeSlice",
];

fn configured(text: &str) -> ClusterConfig {
    let files = MemoryFiles::default().with("/c/slurm.conf", text.to_owned());
    let mut config = load_files(&files, Path::new("/c")).unwrap_or_else(|e| panic!("{text}: {e}"));
    config.shown.clear();
    config
}

#[test]
fn every_key_that_acts_changes_the_configuration() {
    let partition = "PartitionName=p Nodes=n";
    let bases = [
        (GLOBALS, format!("{{}}\nNodeName=n\n{partition}\n")),
        (NODES, format!("NodeName=DEFAULT Sockets=2 RealMemory=5\nNodeName=n {{}}\n{partition}\n")),
        (PARTITIONS, "NodeName=n\nPartitionName=p {}\n".to_owned()),
    ];
    let mut idle: Vec<&str> = Vec::new();
    for (samples, base) in bases {
        let plain = configured(&base.replace("{}", ""));
        let key = |sample: &str| sample.split('=').next().unwrap_or_default().to_owned();
        let acting = samples.iter().filter(|sample| !ELSEWHERE.contains(&key(sample).as_str()));
        let without = |sample: &&&str| configured(&base.replace("{}", sample)) == plain;
        idle.extend(acting.filter(without).copied());
    }
    assert!(idle.is_empty(), "without effect: {idle:?}");
}

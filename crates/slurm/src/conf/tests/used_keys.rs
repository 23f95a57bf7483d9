//! Every key that a table marks as used changes the configuration, and no other key does.

use std::collections::BTreeSet;

use super::accepted;
use crate::conf::keys::global_keys::GLOBAL;
use crate::conf::keys::record_keys::{CGROUP, DOWN_NODES, GRES, NODE, NODE_SET, PARTITION};
use crate::conf::keys::{KeySupport, KeyTable};
use crate::conf::samples::{GLOBALS, NODES, PARTITIONS, Samples};
use crate::conf::{Conf, NoticeKind};

const DEVICES: Samples = &[
    "AutoDetect=nvml",
    "CPUs=0",
    "Cores=0",
    "Count=7",
    "File=/dev/a",
    "Files=/dev/a",
    "Flags=CountOnly",
    "Link=-1",
    "Links=-1",
    "MultipleFiles=/dev/a,/dev/b",
    "NodeName=m",
    "Type=t",
];

const CONTROL_GROUPS: Samples = &[
    "AllowedDevices=/dev/kvm",
    "AllowedRAMSpace=50",
    "AllowedSwapSpace=50",
    "CgroupPlugin=cgroup/v2",
    "ConstrainCPUTime=yes",
    "ConstrainCores=yes",
    "ConstrainDevices=yes",
    "ConstrainRAMSpace=yes",
    "ConstrainSwapSpace=yes",
    "MaxCPUTime=50",
    "MaxOpenFiles=100",
    "MaxPids=50",
    "NoNewPrivs=yes",
    "ConstrainScratch=yes",
    "MaxScratch=50",
    "MaxRAMPercent=50",
    "MaxSwapPercent=50",
    "MemorySwappiness=50",
    "MinRAMSpace=50",
];

/// Table, file, a text in which every sample means something (`{}` is where it goes), the samples,
/// and the keys that the text itself or the tests of shapes show the effect of.
const BASES: [(KeyTable, &str, &str, Samples, &[&str]); 5] = [
    (GLOBAL, "slurm.conf", "{}", GLOBALS, &["JobContainerType"]),
    (
        NODE,
        "slurm.conf",
        "NodeName=DEFAULT Sockets=2 RealMemory=5\nNodeName=n {}",
        NODES,
        &["NodeName", "CPUs", "Procs"],
    ),
    (PARTITION, "slurm.conf", "NodeName=n\nPartitionName=p {}", PARTITIONS, &["PartitionName"]),
    (GRES, "gres.conf", "Name=fpga Count=1 {}", DEVICES, &["Name"]),
    (CGROUP, "cgroup.conf", "{}", CONTROL_GROUPS, &[]),
];

#[test]
fn every_used_key_has_a_sample() {
    for (table, _, _, samples, apart) in BASES {
        let keys = samples.iter().map(|sample| sample.split_once('=').expect("a pair").0);
        let sampled: BTreeSet<&str> = keys.chain(apart.iter().copied()).collect();
        let used = table.keys.iter().filter(|key| key.support == KeySupport::Used);
        let used: BTreeSet<&str> = used.map(|key| key.name).collect();
        assert_eq!(sampled, used, "of {}", table.of);
    }
}

#[test]
fn every_used_key_changes_the_configuration() {
    for (table, file, base, samples, _) in BASES {
        let load = |sample: &str| without_text(load_with(file, &base.replace("{}", sample)));
        let plain = load("");
        for sample in samples {
            assert_ne!(load(sample), plain, "{sample} of {}", table.of);
        }
    }
}

#[test]
fn other_keys_change_nothing_and_are_noticed() {
    let plain = without_text(load_with("slurm.conf", ""));
    let table = [
        ("AuthType=auth/munge", NoticeKind::NoEffect),
        ("SlurmctldPort=6817-6820", NoticeKind::NoEffect),
        ("ControlMachine=head", NoticeKind::Retired),
        ("BackupController=head2", NoticeKind::Retired),
    ];
    for (line, why) in table {
        let conf = load_with("slurm.conf", line);
        let [notice] = &conf.notices[..] else { panic!("{line}: {:?}", conf.notices) };
        assert_eq!(notice.why, why, "{line}");
        assert_eq!(without_text(conf), plain, "{line}");
    }
}

#[test]
fn node_sets_and_down_nodes_use_all_their_keys() {
    for table in [NODE_SET, DOWN_NODES] {
        assert!(table.keys.iter().all(|key| key.support == KeySupport::Used), "{}", table.of);
    }
    let conf = load_with(
        "slurm.conf",
        "NodeName=n[1-2]\nNodeName=f Feature=x\nNodeSet=s Feature=x Nodes=n1\n\
         DownNodes=n2 State=FAIL Reason=\"power, ETA=Dec25\"\n",
    );
    let set = &conf.slurm.node_sets[0];
    assert_eq!((set.name.as_str(), set.nodes.join(" ").as_str()), ("s", "n1 f"));
    assert_eq!(conf.slurm.nodes[1].reason.as_deref(), Some("power, ETA=Dec25"));
    assert_eq!(conf.slurm.nodes[1].state_word(), "FAIL");
}

fn load_with(file: &str, text: &str) -> Conf {
    match file {
        "slurm.conf" => accepted(&[(file, text)]),
        _ => accepted(&[("slurm.conf", ""), (file, text)]),
    }
}

/// The typed part: neither the values as written nor the notices.
fn without_text(mut conf: Conf) -> Conf {
    conf.slurm.raw.clear();
    conf.notices.clear();
    conf
}

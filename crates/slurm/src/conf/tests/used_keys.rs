//! Every key that a table marks as used changes the configuration, and no other key does.

use std::collections::BTreeSet;

use super::accepted;
use crate::conf::keys::global_keys::GLOBAL;
use crate::conf::keys::record_keys::{CGROUP, DOWN_NODES, GRES, NODE, NODE_SET, PARTITION};
use crate::conf::keys::{KeySupport, KeyTable};
use crate::conf::{Conf, NoticeKind};

/// A value for each key, other than the default.
type Samples<'a> = &'a [&'a str];

const GLOBALS: Samples = &[
    "AccountingStorageEnforce=limits",
    "AccountingStorageTRES=gres/gpu",
    "AuthInfo=cred_expire=7",
    "CgroupPlugin=cgroup/v2",
    "ClusterName=lab",
    "CompleteWait=7",
    "ContainerType=crun",
    "DefCpuPerGPU=7",
    "DefMemPerCPU=7",
    "DefMemPerGPU=7",
    "DefMemPerNode=7",
    "DependencyParameters=kill_invalid_depend",
    "DisableRootJobs=YES",
    "EnforcePartLimits=ANY",
    "Epilog=/bin/e",
    "EpilogSlurmctld=/bin/e",
    "FirstJobId=7",
    "GresTypes=gpu",
    "HealthCheckInterval=7",
    "HealthCheckNodeState=IDLE",
    "HealthCheckProgram=/bin/h",
    "InactiveLimit=7",
    "InteractiveStepOptions=--pty",
    "JobAcctGatherFrequency=task=7",
    "JobAcctGatherType=jobacct_gather/none",
    "JobFileAppend=1",
    "JobRequeue=0",
    "KillOnBadExit=1",
    "KillWait=7",
    "LaunchParameters=test_exec",
    "Licenses=matlab:2",
    "MailProg=/bin/m",
    "MaxArraySize=7",
    "MaxJobCount=7",
    "MaxJobId=7",
    "MaxMemPerCPU=7",
    "MaxMemPerNode=7",
    "MaxStepCount=7",
    "MaxTasksPerNode=7",
    "MessageTimeout=7",
    "MinJobAge=7",
    "MpiDefault=pmix",
    "OverTimeLimit=7",
    "PreemptExemptTime=7",
    "PreemptMode=CANCEL",
    "PreemptType=preempt/qos\nPreemptMode=CANCEL",
    "PriorityCalcPeriod=7",
    "PriorityDecayHalfLife=7",
    "PriorityFavorSmall=YES",
    "PriorityFlags=MAX_TRES",
    "PriorityMaxAge=7",
    "PriorityType=priority/multifactor",
    "PriorityUsageResetPeriod=DAILY",
    "PriorityWeightAge=7",
    "PriorityWeightAssoc=7",
    "PriorityWeightFairshare=7",
    "PriorityWeightJobSize=7",
    "PriorityWeightPartition=7",
    "PriorityWeightQOS=7",
    "PriorityWeightTRES=cpu=7",
    "PrivateData=jobs",
    "ProctrackType=proctrack/pgid",
    "Prolog=/bin/p",
    "PrologEpilogTimeout=7",
    "PrologFlags=Alloc",
    "PrologSlurmctld=/bin/p",
    "PropagatePrioProcess=1",
    "PropagateResourceLimits=NONE",
    "PropagateResourceLimitsExcept=MEMLOCK",
    "RequeueExit=1-3",
    "RequeueExitHold=4",
    "ResvOverRun=7",
    "ReturnToService=1",
    "SchedulerParameters=bf_continue",
    "SchedulerTimeSlice=7",
    "SchedulerType=sched/builtin",
    "SelectType=select/linear",
    "SelectTypeParameters=CR_CPU",
    "SlurmctldHost=head",
    "SlurmdParameters=config_overrides",
    "SlurmdTimeout=7",
    "SlurmUser=slurm",
    "SrunEpilog=/bin/s",
    "SrunProlog=/bin/s",
    "TaskEpilog=/bin/t",
    "TaskPlugin=task/cgroup",
    "TaskPluginParam=Cores",
    "TaskProlog=/bin/t",
    "TmpFS=/scratch",
    "TopologyParam=TopoOptional",
    "TopologyPlugin=topology/default",
    "TrackWCKey=YES",
    "UnkillableStepProgram=/bin/u",
    "UnkillableStepTimeout=7",
    "WaitTime=7",
];

const NODES: Samples = &[
    "Boards=2",
    "CoreSpecCount=1",
    "CoresPerSocket=2",
    "CpuBind=core",
    "CpuSpecList=0",
    "Feature=f",
    "Features=f",
    "Gres=gpu:2",
    "MemSpecLimit=1",
    "NodeAddr=a",
    "NodeHostname=h",
    "Port=7",
    "RealMemory=7",
    "Reason=r",
    "Sockets=4",
    "SocketsPerBoard=4",
    "State=DOWN",
    "ThreadsPerCore=2",
    "TmpDisk=7",
    "Weight=7",
];

const PARTITIONS: Samples = &[
    "AllocNodes=login",
    "AllowAccounts=a",
    "AllowGroups=a",
    "AllowQos=a",
    "Alternate=p",
    "CpuBind=core",
    "DefCpuPerGPU=7",
    "DefMemPerCPU=7",
    "DefMemPerGPU=7",
    "DefMemPerNode=7",
    "Default=YES",
    "DefaultTime=7",
    "DenyAccounts=a",
    "DenyQos=a",
    "DisableRootJobs=YES",
    "ExclusiveUser=YES",
    "GraceTime=7",
    "Hidden=YES",
    "JobDefaults=DefCpuPerGPU=7",
    "LLN=YES",
    "MaxCPUsPerNode=7",
    "MaxCPUsPerSocket=7",
    "MaxMemPerCPU=7",
    "MaxMemPerNode=7",
    "MaxNodes=7",
    "MaxTime=7",
    "MinNodes=7",
    "Nodes=n",
    "OverSubscribe=EXCLUSIVE",
    "OverTimeLimit=7",
    "PreemptMode=OFF",
    "PriorityJobFactor=7",
    "PriorityTier=7",
    "QOS=q",
    "ReqResv=YES",
    "RootOnly=YES",
    "SelectTypeParameters=CR_Core",
    "Shared=EXCLUSIVE",
    "State=DRAIN",
    "TRESBillingWeights=CPU=2",
];

const DEVICES: Samples = &[
    "AutoDetect=nvml",
    "Cores=0",
    "Count=7",
    "File=/dev/a",
    "Flags=CountOnly",
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
        ("SuspendTime=-1", NoticeKind::NoEffect),
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

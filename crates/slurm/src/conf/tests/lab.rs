//! The configuration of the cluster that the reference captures were taken on.

use model::amount::Bytes;
use model::partition::DefaultMemory;
use model::time::TimeLimit;

use super::accepted;
use crate::conf::keys::choices::{
    AccountingEnforce, CgroupPlugin, NodeState, PreemptMode, PreemptType, PriorityType,
    SelectParameter, SelectType,
};
use crate::conf::{Conf, NoticeKind};

const SLURM: &str = "\
ClusterName=lab
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldHost=localhost(127.0.0.1)
SlurmUser=slurm
SlurmctldPort=16817
AuthType=auth/munge
StateSaveLocation=/lab/state
SlurmdSpoolDir=/lab/spool/%n
SlurmctldPidFile=/lab/run/slurmctld.pid
SlurmdPidFile=/lab/run/slurmd.%n.pid
SlurmctldLogFile=/lab/log/slurmctld.log
SlurmdLogFile=/lab/log/slurmd.%n.log
ReturnToService=2
SlurmctldTimeout=120
SlurmdTimeout=300
InactiveLimit=0
MinJobAge=300
KillWait=5
Waittime=0
MpiDefault=none
ProctrackType=proctrack/cgroup
TaskPlugin=task/cgroup
JobAcctGatherType=jobacct_gather/linux
JobAcctGatherFrequency=30
SchedulerType=sched/backfill
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
PriorityType=priority/multifactor
PriorityDecayHalfLife=7-0
PriorityWeightAge=1000
PriorityWeightFairshare=10000
PriorityWeightJobSize=1000
PriorityWeightPartition=1000
PriorityWeightQOS=10000
PriorityWeightTRES=cpu=100,gres/gpu=1000
PreemptType=preempt/qos
PreemptMode=REQUEUE
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=16819
AccountingStorageTRES=gres/gpu
AccountingStorageEnforce=associations,limits,qos
JobCompType=jobcomp/none
SlurmctldDebug=info
SlurmdDebug=info
GresTypes=gpu
DefMemPerCPU=1000
SlurmdParameters=config_overrides
LaunchParameters=enable_nss_slurm
MaxJobCount=10000
MaxArraySize=1001
Include extra.tuned
NodeName=node1 NodeHostname=localhost NodeAddr=127.0.0.1 Port=16821 CPUs=32 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=128000 Gres=gpu:h100:8 Feature=h100,ib State=UNKNOWN
NodeName=node2 NodeHostname=localhost NodeAddr=127.0.0.1 Port=16822 CPUs=32 Boards=1 SocketsPerBoard=2 CoresPerSocket=16 ThreadsPerCore=1 RealMemory=128000 Gres=gpu:h100:8 Feature=h100,ib State=UNKNOWN
PartitionName=gpu Nodes=node[1-2] Default=YES MaxTime=7-00:00:00 DefaultTime=01:00:00 State=UP
PartitionName=debug Nodes=node1 MaxTime=00:30:00 State=UP PriorityTier=10
";

const TUNED: &str = "\
SchedulerParameters=sched_interval=10,sched_min_interval=50000,batch_sched_delay=1,default_queue_depth=10000,partition_job_depth=0,bf_interval=60,bf_continue
MessageTimeout=60
MinJobAge=60
MaxJobCount=100000
MaxArraySize=100001
SlurmctldDebug=error
SlurmdDebug=error
JobAcctGatherType=jobacct_gather/none
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PriorityType=priority/basic
";

const GRES: &str = "NodeName=node[1-2] Name=gpu Type=h100 File=/lab/dev/nvidia[0-7]\n";

const CGROUP: &str = "\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=no
ConstrainCores=no
ConstrainRAMSpace=yes
ConstrainSwapSpace=no
ConstrainDevices=no
";

fn lab(extra: &str) -> Conf {
    accepted(&[
        ("slurm.conf", SLURM),
        ("extra.tuned", extra),
        ("gres.conf", GRES),
        ("cgroup.conf", CGROUP),
    ])
}

#[test]
fn global_settings_are_read() {
    let conf = lab("");
    let globals = &conf.slurm.globals;
    assert_eq!(conf.slurm.cluster_name, "lab");
    assert_eq!(globals.return_to_service, 2);
    assert_eq!(globals.times.kill_wait_s, 5);
    assert_eq!(globals.memory.default, Some(DefaultMemory::PerCpu(Bytes::from_mib(1000))));
    assert_eq!(globals.memory.max, None);
    assert_eq!(globals.scheduling.select, SelectType::ConsTres);
    assert_eq!(globals.scheduling.select_parameters, [SelectParameter::CoreMemory]);
    assert_eq!(globals.priority.kind, PriorityType::Multifactor);
    assert_eq!(globals.priority.decay_half_life_min, Some(7 * 24 * 60));
    let weights = [("cpu".to_owned(), 100.0), ("gres/gpu".to_owned(), 1000.0)];
    assert_eq!(globals.priority.weight_tres, weights);
    assert_eq!(globals.preemption.kind, PreemptType::Qos);
    assert_eq!(globals.preemption.modes, [PreemptMode::Requeue]);
    let enforced =
        [AccountingEnforce::Associations, AccountingEnforce::Limits, AccountingEnforce::Qos];
    assert_eq!(globals.accounting.enforce, enforced);
    assert!(globals.launch.slurmd_parameters.has("config_overrides"));
    assert_eq!(conf.slurm.raw["StateSaveLocation"].text, "/lab/state");
    assert_eq!(conf.slurm.raw["WaitTime"].place.to_string(), "/c/slurm.conf:19");
}

#[test]
fn a_later_included_file_overrides_earlier_lines() {
    let conf = lab(TUNED);
    let globals = &conf.slurm.globals;
    assert_eq!(globals.ids.max_job_count, 100_000);
    assert_eq!(globals.priority.kind, PriorityType::Basic);
    assert_eq!(globals.scheduling.parameters.get("bf_interval"), Some("60"));
    assert!(globals.scheduling.parameters.has("bf_continue"));
    assert_eq!(conf.slurm.raw["MaxJobCount"].place.to_string(), "/c/extra.tuned:4");
    let repeated = conf.notices.iter().find(|n| n.key == "MinJobAge").expect("a notice");
    assert!(matches!(&repeated.why, NoticeKind::Repeated { first } if first.line == 17));
}

#[test]
fn nodes_have_all_their_devices() {
    let conf = lab("");
    assert_eq!(conf.slurm.nodes.len(), 2);
    let node = conf.slurm.node("node2").expect("declared");
    assert_eq!(
        (node.config.hostname.as_str(), node.config.address.as_str()),
        ("localhost", "127.0.0.1")
    );
    assert_eq!((node.port, node.state), (Some(16822), NodeState::Unknown));
    assert_eq!((node.config.cpus, node.config.sockets, node.config.cores_per_socket), (32, 2, 16));
    assert_eq!(node.config.memory, Bytes::from_mib(128_000));
    assert_eq!(node.config.features, ["h100", "ib"]);
    let [gpus] = &node.config.gres[..] else { panic!("{:?}", node.config.gres) };
    assert_eq!((gpus.name.as_str(), gpus.kind.as_deref(), gpus.count), ("gpu", Some("h100"), 8));
    assert_eq!(gpus.files.len(), 8);
    assert_eq!(gpus.files[7], "/lab/dev/nvidia7");
}

#[test]
fn partitions_are_read() {
    let conf = lab("");
    let gpu = &conf.slurm.default_partition().expect("one is").partition;
    assert_eq!((gpu.name.as_str(), gpu.nodes.len()), ("gpu", 2));
    assert_eq!(gpu.max_time, TimeLimit::Minutes(7 * 1440));
    assert_eq!(gpu.default_time, Some(TimeLimit::Minutes(60)));
    let debug = &conf.slurm.partition("debug").expect("declared").partition;
    assert_eq!((debug.nodes.as_slice(), debug.priority_tier), (&["node1".to_owned()][..], 10));
    assert!(!debug.default);
}

#[test]
fn cgroup_conf_sets_enforcement_and_without_it_all_is_enforced() {
    let conf = lab("");
    assert_eq!(conf.cgroup.plugin, CgroupPlugin::V1);
    assert!(conf.cgroup.constrain_ram && !conf.cgroup.constrain_cores);
    let bare = accepted(&[("slurm.conf", "CgroupPlugin=cgroup/v2")]).cgroup;
    assert!(
        bare.constrain_ram && bare.constrain_cores && bare.constrain_devices && bare.constrain_swap
    );
    assert_eq!(bare.plugin, CgroupPlugin::V2);
    assert_eq!(bare.min_ram, Bytes::from_mib(30));
}

#[test]
fn keys_without_effect_are_noticed_once_each() {
    let conf = lab("");
    let said: Vec<&str> = conf
        .notices
        .iter()
        .filter(|notice| notice.why == NoticeKind::NoEffect)
        .map(|notice| notice.key.as_str())
        .collect();
    assert!(said.contains(&"AuthType") && said.contains(&"SlurmctldPort"));
    assert!(!said.contains(&"SlurmdTimeout"));
    let auth = conf.notices.iter().find(|n| n.key == "AuthType").expect("said");
    assert_eq!(auth.to_string(), "/c/slurm.conf:6: AuthType: accepted; it has no effect here");
}

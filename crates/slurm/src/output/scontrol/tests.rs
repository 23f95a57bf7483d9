//! `scontrol show` against the captures. There is no port where agents dial out: `Port=0` stands for the captured one.
//! `UpTime` of a node is a line of our own, after those of Slurm.

use super::*;
use crate::output::samples::{at, busy_node, cluster, moment, node as idle_node, train};
use model::node::AdminState;
use model::node_reason::{NodeCause, NodeReason, ReasonAuthor};
use std::collections::BTreeMap;
use wire::view::{ConfigView, NodeView};

const PLAIN: Options = Options { details: false, oneliner: false };
const DETAILS: Options = Options { details: true, oneliner: false };
const ONELINER: Options = Options { details: false, oneliner: true };

fn node_text(view: &NodeView, options: Options) -> String {
    let mut out = String::new();
    node::push(&mut out, view, moment(at(0, 46, 21)), options);
    out
}

#[test]
fn nodes_have_the_record_of_slurm() {
    let both = |options| {
        let texts = ["node1", "node2"].map(|name| node_text(&idle_node(name), options));
        texts.concat()
    };
    assert_eq!(
        both(PLAIN),
        concat!(
            "NodeName=node1 Arch=x86_64 CoresPerSocket=16 \n",
            "   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01\n",
            "   AvailableFeatures=h100,ib\n",
            "   ActiveFeatures=h100,ib\n",
            "   Gres=gpu:h100:8\n",
            "   NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8\n",
            "   OS=Linux 6.18.44-fc-v310 #1 SMP @0 \n",
            "   RealMemory=128000 AllocMem=0 FreeMem=18358 Sockets=2 Boards=1\n",
            "   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n",
            "   Partitions=gpu,debug \n",
            "   BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55\n",
            "   LastBusyTime=2026-11-15T00:45:49\n",
            "   CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8\n",
            "   AllocTRES=\n",
            "   CapWatts=n/a\n",
            "   CurrentWatts=0 AveWatts=0\n",
            "   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
            "   UpTime=00:09:13\n",
            "\n",
            "NodeName=node2 Arch=x86_64 CoresPerSocket=16 \n",
            "   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01\n",
            "   AvailableFeatures=h100,ib\n",
            "   ActiveFeatures=h100,ib\n",
            "   Gres=gpu:h100:8\n",
            "   NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8\n",
            "   OS=Linux 6.18.44-fc-v310 #1 SMP @0 \n",
            "   RealMemory=128000 AllocMem=0 FreeMem=18351 Sockets=2 Boards=1\n",
            "   State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n",
            "   Partitions=gpu \n",
            "   BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55\n",
            "   LastBusyTime=2026-11-15T00:45:49\n",
            "   CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8\n",
            "   AllocTRES=\n",
            "   CapWatts=n/a\n",
            "   CurrentWatts=0 AveWatts=0\n",
            "   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
            "   UpTime=00:09:13\n",
            "\n",
        )
    );
    assert_eq!(
        both(ONELINER),
        concat!(
            "NodeName=node1 Arch=x86_64 CoresPerSocket=16  CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01 AvailableFeatures=h100,ib ActiveFeatures=h100,ib Gres=gpu:h100:8 NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8 OS=Linux 6.18.44-fc-v310 #1 SMP @0  RealMemory=128000 AllocMem=0 FreeMem=18358 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu,debug  BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55 LastBusyTime=2026-11-15T00:45:49 CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s UpTime=00:09:13\n",
            "NodeName=node2 Arch=x86_64 CoresPerSocket=16  CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01 AvailableFeatures=h100,ib ActiveFeatures=h100,ib Gres=gpu:h100:8 NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8 OS=Linux 6.18.44-fc-v310 #1 SMP @0  RealMemory=128000 AllocMem=0 FreeMem=18351 Sockets=2 Boards=1 State=IDLE ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A Partitions=gpu  BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55 LastBusyTime=2026-11-15T00:45:49 CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8 AllocTRES= CapWatts=n/a CurrentWatts=0 AveWatts=0 ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s UpTime=00:09:13\n",
        )
    );
    assert_eq!(
        node_text(&busy_node(), DETAILS),
        concat!(
            "NodeName=node1 Arch=x86_64 CoresPerSocket=16 \n",
            "   CPUAlloc=4 CPUEfctv=32 CPUTot=32 CPULoad=1.01\n",
            "   AvailableFeatures=h100,ib\n",
            "   ActiveFeatures=h100,ib\n",
            "   Gres=gpu:h100:8\n",
            "   GresDrain=N/A\n",
            "   GresUsed=gpu:h100:2(IDX:0-1)\n",
            "   NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8\n",
            "   OS=Linux 6.18.44-fc-v310 #1 SMP @0 \n",
            "   RealMemory=128000 AllocMem=8192 FreeMem=18358 Sockets=2 Boards=1\n",
            "   State=MIXED ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n",
            "   Partitions=gpu,debug \n",
            "   BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55\n",
            "   LastBusyTime=2026-11-15T00:45:49\n",
            "   CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8\n",
            "   AllocTRES=cpu=4,mem=8G,gres/gpu=2\n",
            "   CapWatts=n/a\n",
            "   CurrentWatts=0 AveWatts=0\n",
            "   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
            "   UpTime=00:09:13\n",
            "\n",
        )
    );
}

#[test]
fn a_drained_node_shows_its_reason_and_who_set_it() {
    let mut view = idle_node("node1");
    view.admin = Some(AdminState::Drain);
    view.last_busy = Some(at(0, 48, 31));
    view.reason = Some(NodeReason {
        cause: NodeCause::Text("bad gpu 3".into()),
        author: ReasonAuthor::User { name: "root".into(), uid: 0 },
        at: at(0, 48, 20),
    });
    assert_eq!(
        node_text(&view, PLAIN),
        concat!(
            "NodeName=node1 Arch=x86_64 CoresPerSocket=16 \n",
            "   CPUAlloc=0 CPUEfctv=32 CPUTot=32 CPULoad=1.01\n",
            "   AvailableFeatures=h100,ib\n",
            "   ActiveFeatures=h100,ib\n",
            "   Gres=gpu:h100:8\n",
            "   NodeAddr=127.0.0.1 NodeHostName=vm Port=0 Version=22.05.8\n",
            "   OS=Linux 6.18.44-fc-v310 #1 SMP @0 \n",
            "   RealMemory=128000 AllocMem=0 FreeMem=18358 Sockets=2 Boards=1\n",
            "   State=IDLE+DRAIN ThreadsPerCore=1 TmpDisk=0 Weight=1 Owner=N/A MCS_label=N/A\n",
            "   Partitions=gpu,debug \n",
            "   BootTime=2026-11-15T00:37:08 SlurmdStartTime=2026-11-15T00:44:55\n",
            "   LastBusyTime=2026-11-15T00:48:31\n",
            "   CfgTRES=cpu=32,mem=125G,billing=32,gres/gpu=8\n",
            "   AllocTRES=\n",
            "   CapWatts=n/a\n",
            "   CurrentWatts=0 AveWatts=0\n",
            "   ExtSensorsJoules=n/s ExtSensorsWatts=0 ExtSensorsTemp=n/s\n",
            "   Reason=bad gpu 3 [root@2026-11-15T00:48:20]\n",
            "   UpTime=00:09:13\n",
            "\n",
        )
    );
}

#[test]
fn settings_of_one_partition_are_shown() {
    use model::partition::DefaultMemory;
    use model::select::{PartitionSelect, Unit};
    let mut view = cluster(vec![crate::output::samples::node("node1")]);
    let one = &mut view.partitions[0];
    one.select = Some(PartitionSelect { unit: Unit::Socket, memory: false });
    one.cpus_per_gpu = Some(5);
    one.default_memory = Some(DefaultMemory::PerGpu(model::amount::Bytes::from_mib(700)));
    let mut out = String::new();
    partition::push(&mut out, &view.partitions[0], &view, PLAIN);
    for line in [
        "SelectTypeParameters=CR_SOCKET\n",
        "   JobDefaults=DefCpuPerGPU=5,DefMemPerGPU=700\n",
        "   DefMemPerNode=UNLIMITED ",
    ] {
        assert!(out.contains(line), "{out}");
    }
}

#[test]
fn billing_weights_are_shown_where_there_are_some() {
    let view = cluster(vec![idle_node("node1")]);
    let mut weighted = view.partitions[1].clone();
    let weights = [("cpu", 1.0), ("gres/gpu", 2.5), ("mem", 0.25 / 1024.0)];
    weighted.billing_weights = weights.map(|(name, weight)| (name.to_owned(), weight)).into();
    let mut out = String::new();
    partition::push(&mut out, &weighted, &view, PLAIN);
    assert!(out.contains("\n   TRESBillingWeights=cpu=1,gres/gpu=2.5,mem=0.25G\n"), "{out}");
}

#[test]
fn partitions_have_the_record_of_slurm() {
    let view = cluster(vec![idle_node("node1"), idle_node("node2")]);
    let mut out = String::new();
    view.partitions.iter().for_each(|one| partition::push(&mut out, one, &view, PLAIN));
    assert_eq!(
        out,
        concat!(
            "PartitionName=gpu\n",
            "   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n",
            "   AllocNodes=ALL Default=YES QoS=N/A\n",
            "   DefaultTime=01:00:00 DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO\n",
            "   MaxNodes=UNLIMITED MaxTime=7-00:00:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED\n",
            "   Nodes=node[1-2]\n",
            "   PriorityJobFactor=1 PriorityTier=1 RootOnly=NO ReqResv=NO OverSubscribe=NO\n",
            "   OverTimeLimit=NONE PreemptMode=REQUEUE\n",
            "   State=UP TotalCPUs=64 TotalNodes=2 SelectTypeParameters=NONE\n",
            "   JobDefaults=(null)\n",
            "   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n",
            "   TRES=cpu=64,mem=250G,node=2,billing=64,gres/gpu=16\n",
            "\n",
            "PartitionName=debug\n",
            "   AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL\n",
            "   AllocNodes=ALL Default=NO QoS=N/A\n",
            "   DefaultTime=NONE DisableRootJobs=NO ExclusiveUser=NO GraceTime=0 Hidden=NO\n",
            "   MaxNodes=UNLIMITED MaxTime=00:30:00 MinNodes=0 LLN=NO MaxCPUsPerNode=UNLIMITED\n",
            "   Nodes=node1\n",
            "   PriorityJobFactor=1 PriorityTier=10 RootOnly=NO ReqResv=NO OverSubscribe=NO\n",
            "   OverTimeLimit=NONE PreemptMode=REQUEUE\n",
            "   State=UP TotalCPUs=32 TotalNodes=1 SelectTypeParameters=NONE\n",
            "   JobDefaults=(null)\n",
            "   DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED\n",
            "   TRES=cpu=32,mem=125G,node=1,billing=32,gres/gpu=8\n",
            "\n",
        )
    );
}

#[test]
fn steps_have_the_record_of_slurm() {
    let mut out = String::new();
    step::push(&mut out, &train(), None, moment(at(0, 46, 21)), PLAIN);
    assert_eq!(
        out,
        concat!(
            "StepId=3.batch UserId=1001 StartTime=2026-11-15T00:46:19 TimeLimit=UNLIMITED\n",
            "   State=RUNNING Partition=gpu NodeList=node1\n",
            "   Nodes=1 CPUs=0 Tasks=1 Name=batch Network=(null)\n",
            "   TRES=(null)\n",
            "   ResvPorts=(null)\n",
            "   CPUFreqReq=Default\n",
            "   SrunHost:Pid=(null):0\n",
            "\n",
        )
    );
}

fn shown_config(values: &[(&str, &str)]) -> String {
    let values: BTreeMap<String, String> =
        values.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect();
    let mut out = String::new();
    let config = ConfigView { now: at(0, 45, 50), values };
    config::push(&mut out, &config, moment(at(0, 45, 50)), "vm");
    out
}

#[test]
fn settings_are_aligned_and_cgroup_settings_have_a_section() {
    let out = shown_config(&[
        ("SlurmctldPort", "16817"),
        ("AccountingStorageBackupHost", "(null)"),
        ("ClusterName", "lab"),
        ("cgroup.ConstrainCores", "no"),
    ]);
    assert!(out.starts_with(concat!(
        "Configuration data as of 2026-11-15T00:45:50\n",
        "AccountingStorageBackupHost = (null)\n",
        "AccountingStorageEnforce = none\n",
    )));
    assert!(out.contains("ClusterName             = lab\n"), "{out}");
    assert!(out.ends_with(concat!(
        "WaitTime                = 0 sec\n",
        "\n",
        "Cgroup Support Configuration:\n",
        "ConstrainCores          = no\n",
        "\n",
        "Slurmctld(primary) at vm is UP\n",
    )));
}

#[test]
fn settings_are_in_slurms_order_and_have_what_counts_where_nothing_is_set() {
    let out = shown_config(&[
        ("PriorityType", "priority/multifactor"),
        ("PriorityWeightFairshare", "10000"),
        ("WaitTime", "9 sec"),
        ("SlurmctldPort", "16817"),
        ("ContainerType", "oci"),
    ]);
    let at = |line: &str| out.find(line).unwrap_or_else(|| panic!("{line} in {out}"));
    let order = [
        "ContainerType           = oci\n",
        "PreemptType             = preempt/none\n",
        "PreemptExemptTime       = 00:00:00\n",
        "PriorityType            = priority/multifactor\n",
        "PriorityWeightAge       = 0\n",
        "PriorityWeightFairShare = 10000\n",
        "SlurmctldPort           = 16817\n",
        "SLURM_VERSION           = 22.05.8\n",
        "TaskPluginParam         = (null type)\n",
        "WaitTime                = 9 sec\n",
    ];
    assert!(order.is_sorted_by_key(|line| at(line)), "{out}");
    assert_eq!(out.matches("WaitTime ").count(), 1, "{out}");
    let basic = shown_config(&[("PriorityType", "priority/basic")]);
    assert!(!basic.contains("PriorityWeightAge"), "factors count for nothing then: {basic}");
}

#[test]
fn host_lists_are_expanded_and_compressed() {
    let names = "node1\nnode2\nnode3\nnode7\ngpu01\ngpu02\ngpu03\n";
    assert_eq!(hostnames("node[1-3,7],gpu[01-03]").as_deref(), Ok(names));
    assert_eq!(host_list_sorted("node3,node1,node2").as_deref(), Ok("node[1-3]\n"));
    assert_eq!(host_list("node1,node2").as_deref(), Ok("node[1-2]\n"));
    assert!(hostnames("node[1").is_err());
}

#[test]
fn unknown_names_are_reported_in_the_words_of_slurm() {
    assert_eq!(no_node("nosuch"), "Node nosuch not found\n");
    assert_eq!(no_partition("nosuch"), "Partition nosuch not found\n");
    assert_eq!(NO_STEPS, "No job steps in the system\n");
    assert_eq!(ping("vm", true), "Slurmctld(primary) at vm is UP\n");
}

#[test]
fn ping_of_several_servers_has_a_line_for_each() {
    let server = |name: &str, is_leader, seen_ms, events_behind| wire::client::ServerView {
        name: name.into(),
        addresses: Vec::new(),
        version: "1.0".into(),
        is_leader,
        seen_ms,
        events_behind,
        term: 3,
    };
    let servers =
        [server("a", false, 300, 0), server("b", true, 200, 0), server("c", false, 60_000, 12)];
    assert_eq!(
        super::ping_servers(&servers),
        "Slurmctld(primary) at b is UP\nSlurmctld(backup1) at a is UP\n\
         Slurmctld(backup2) at c is DOWN, 12 events behind\n"
    );
    // Servers of one machine are told apart.
    let here = |port, is_leader| wire::client::ServerView {
        addresses: vec![format!("127.0.0.1:{port}")],
        ..server("vm", is_leader, 300, 0)
    };
    assert_eq!(
        super::ping_servers(&[here(1, true), here(2, false), server("c", false, 300, 0)]),
        "Slurmctld(primary) at vm (127.0.0.1:1) is UP\n\
         Slurmctld(backup1) at vm (127.0.0.1:2) is UP\nSlurmctld(backup2) at c is UP\n"
    );
}

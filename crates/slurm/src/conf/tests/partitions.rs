//! `PartitionName` and `NodeSet`.

use model::amount::Bytes;
use model::partition::{Access, DefaultMemory, OverSubscribe, PartitionState};
use model::time::TimeLimit;

use super::{accepted, refused};
use crate::conf::keys::choices::PreemptMode;
use crate::conf::{Conf, NoticeKind};

fn with_nodes(lines: &str) -> Conf {
    let nodes = "NodeName=n[1-4] Feature=small\nNodeName=big[1-2] Feature=large\n";
    accepted(&[("slurm.conf", &format!("{nodes}{lines}"))])
}

fn names(conf: &Conf, partition: &str) -> String {
    conf.slurm.partition(partition).expect("declared").partition.nodes.join(" ")
}

#[test]
fn nodes_are_named_by_list_set_feature_or_all() {
    let conf = with_nodes(
        "PartitionName=all Nodes=ALL\nPartitionName=list Nodes=n[2-3],big1,n2\n\
         PartitionName=set Nodes=some,n1\nPartitionName=feature Nodes=large\n\
         PartitionName=empty\nNodeSet=some Nodes=n[1-2]\nNodeSet=large Feature=large\n",
    );
    assert_eq!(names(&conf, "all"), "n1 n2 n3 n4 big1 big2");
    assert_eq!(names(&conf, "list"), "n2 n3 big1");
    assert_eq!(names(&conf, "set"), "n1 n2");
    assert_eq!(names(&conf, "feature"), "big1 big2");
    assert_eq!(names(&conf, "empty"), "");
}

#[test]
fn every_key_has_its_effect() {
    let conf = with_nodes(
        "PartitionName=p Nodes=ALL Default=YES MaxTime=1-0 DefaultTime=30 MaxNodes=4 MinNodes=2 \
         State=DRAIN PriorityTier=7 PriorityJobFactor=9 AllowAccounts=a,b AllowGroups=g AllowQos=ALL \
         OverSubscribe=FORCE:2 DefMemPerGPU=1024 MaxMemPerNode=UNLIMITED MaxCPUsPerNode=8 QOS=part \
         Hidden=YES RootOnly=YES ExclusiveUser=YES LLN=YES PreemptMode=SUSPEND,GANG GraceTime=60 \
         TRESBillingWeights=CPU=1.5,Mem=0.25G,GRES/gpu=2 Alternate=p DisableRootJobs=YES ReqResv=YES \
         AllocNodes=ALL OverTimeLimit=UNLIMITED CpuBind=core SelectTypeParameters=CR_Core \
         JobDefaults=DefCpuPerGPU=6\n",
    );
    let conf = &conf.slurm.partitions[0];
    let p = &conf.partition;
    assert_eq!(
        (p.max_time, p.default_time),
        (TimeLimit::Minutes(1440), Some(TimeLimit::Minutes(30)))
    );
    assert_eq!((p.max_nodes, p.min_nodes, p.state), (Some(4), 2, PartitionState::Drain));
    assert_eq!((p.priority_tier, p.priority_job_factor, p.grace_time_s), (7, 9, 60));
    assert_eq!(p.allow_accounts, Access::Only(vec!["a".into(), "b".into()]));
    assert_eq!(p.allow_groups, Access::Only(vec!["g".into()]));
    assert_eq!((&p.allow_qos, p.over_subscribe), (&Access::All, OverSubscribe::Force(2)));
    assert_eq!(p.default_memory, Some(DefaultMemory::PerGpu(Bytes::from_gib(1))));
    assert_eq!(
        (p.max_memory, p.max_cpus_per_node, p.qos.as_deref()),
        (None, Some(8), Some("part"))
    );
    assert!(p.hidden && p.root_only && p.exclusive_user && p.least_loaded && p.default);
    assert!(p.disable_root_jobs && p.require_reservation);
    assert_eq!(conf.preempt_mode, Some(vec![PreemptMode::Suspend, PreemptMode::Gang]));
    assert_eq!(p.over_time_limit, Some(TimeLimit::Unlimited));
    assert_eq!(p.billing_weights["cpu"], 1.5);
    assert_eq!(p.billing_weights["mem"], 0.25 / 1024.0);
    assert_eq!((conf.cpu_bind.as_deref(), conf.def_cpu_per_gpu), (Some("core"), Some(6)));
}

#[test]
fn default_lines_hold_for_later_partitions_that_do_not_override_them() {
    let conf = with_nodes(
        "PartitionName=before\nPartitionName=DEFAULT MaxTime=10 DefMemPerCPU=5 Nodes=n1\n\
         PartitionName=after\nPartitionName=own MaxTime=20 DefMemPerNode=7 Nodes=n2\n",
    );
    let get = |name| &conf.slurm.partition(name).expect("declared").partition;
    assert_eq!(get("before").max_time, TimeLimit::Unlimited);
    assert_eq!(get("after").max_time, TimeLimit::Minutes(10));
    assert_eq!(get("after").default_memory, Some(DefaultMemory::PerCpu(Bytes::from_mib(5))));
    assert_eq!(get("own").max_time, TimeLimit::Minutes(20));
    assert_eq!(get("own").default_memory, Some(DefaultMemory::PerNode(Bytes::from_mib(7))));
    assert_eq!((names(&conf, "after").as_str(), names(&conf, "own").as_str()), ("n1", "n2"));
}

#[test]
fn the_last_default_partition_is_the_default_with_a_notice() {
    let conf = with_nodes("PartitionName=a Default=YES\nPartitionName=b Default=YES\n");
    let default = conf.slurm.default_partition().expect("one is");
    assert_eq!(default.partition.name, "b");
    let former = NoticeKind::SecondDefault { former: "a".into() };
    assert!(conf.notices.iter().any(|notice| notice.why == former));
}

#[test]
fn sharing_takes_a_number_of_jobs() {
    let table = [
        ("NO", OverSubscribe::No),
        ("exclusive", OverSubscribe::Exclusive),
        ("YES", OverSubscribe::Yes(4)),
        ("YES:2", OverSubscribe::Yes(2)),
        ("FORCE", OverSubscribe::Force(4)),
    ];
    for (word, sharing) in table {
        let conf = with_nodes(&format!("PartitionName=p Shared={word}\n"));
        assert_eq!(conf.slurm.partitions[0].partition.over_subscribe, sharing, "{word}");
    }
    for word in ["NO:2", "FORCE:0", "FORCE:x", "SOME"] {
        let said = refused(&[("slurm.conf", &format!("PartitionName=p OverSubscribe={word}"))]);
        assert!(said.contains("expected NO, EXCLUSIVE, YES[:jobs] or FORCE[:jobs]"), "{said}");
    }
}

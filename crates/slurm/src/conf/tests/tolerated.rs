//! What files of real sites have and Slurm takes: it is taken with the same effect, and told.

use model::partition::DefaultMemory;
use model::time::TimeLimit;

use super::accepted;
use crate::conf::Conf;
use crate::conf::keys::choices::AccountingEnforce;

/// The notices of a slurm.conf, each without the folder.
fn told(conf: &Conf) -> Vec<String> {
    conf.notices.iter().map(|notice| notice.to_string().replace("/c/", "")).collect()
}

#[test]
fn keys_of_other_versions_are_taken_with_a_notice() {
    for line in [
        "AccountingStoreJobComment=YES",
        "AcctGatherInfinibandType=acct_gather_infiniband/none",
        "BurstBufferParameters=x",
        "CacheGroups=0",
        "CertgenParameters=a",
        "CertgenType=certgen/script",
        "CertmgrParameters=a",
        "CertmgrType=certmgr/script",
        "CheckpointType=checkpoint/none",
        "CliFilterParameters=cli_filter_lua_path=/x",
        "CryptoType=crypto/munge",
        "DataParserParameters=complex",
        "EpilogTimeout=60",
        "FastSchedule=1",
        "HashPlugin=hash/k12",
        "HttpParserType=http_parser/libhttp_parser",
        "JobCheckpointDir=/var/slurm/checkpoint",
        "JobCompPassScript=/x",
        "KeepAliveTime=60",
        "MaxBatchRequeue=5",
        "MemLimitEnforce=no",
        "MetricsType=metrics/openmetrics",
        "PreemptParameters=youngest_first",
        "PrologTimeout=60",
        "SbcastParameters=Compression=lz4",
        "SchedulerAuth=x",
        "SchedulerPort=7321",
        "SchedulerRootFilter=1",
        "SlurmSchedLogLevel=3",
        "TLSParameters=ca_cert_file=/x",
        "TLSType=tls/s2n",
        "UrlParserType=url_parser/libhttp_parser",
        "NodeName=n GresConf=x",
        "NodeName=n Parameters=x",
        "NodeName=n TRESWeights=cpu=1",
        "NodeName=n RestrictedCoresPerGPU=1",
        "PartitionName=p Topology=default",
        "PrologFlags=ForceRequeueOnFail",
        "PrologFlags=RunInJob",
        "SelectTypeParameters=CR_Core,MULTIPLE_SHARING_GRES_PJ",
        "SelectTypeParameters=CR_Core,ENFORCE_BINDING_GRES",
        "SelectTypeParameters=CR_Core,LL_SHARED_GRES",
        "SelectTypeParameters=CR_Core,ONE_TASK_PER_SHARING_GRES",
        "TaskPluginParam=OOMKillStep",
        "JobContainerType=job_container/cncu",
    ] {
        let conf = accepted(&[("slurm.conf", line)]);
        let [notice] = &told(&conf)[..] else { panic!("{line}: {:?}", conf.notices) };
        assert!(notice.starts_with("slurm.conf:1: ") && notice.contains("accepted; "), "{notice}");
    }
}

#[test]
fn priority_of_a_partition_is_its_tier_and_its_factor() {
    let conf = accepted(&[(
        "slurm.conf",
        "PartitionName=a Priority=7\nPartitionName=b Priority=7 PriorityTier=3\n\
         PartitionName=c PriorityJobFactor=5\n",
    )]);
    let both = |name: &str| {
        let partition = &conf.slurm.partition(name).expect(name).partition;
        (partition.priority_tier, partition.priority_job_factor)
    };
    assert_eq!([both("a"), both("b"), both("c")], [(7, 7), (3, 7), (1, 5)]);
    assert!(conf.notices.is_empty());
}

#[test]
fn enforcement_may_be_a_number() {
    for (word, expected) in [
        ("0", AccountingEnforce::Nothing),
        ("1", AccountingEnforce::Associations),
        ("2", AccountingEnforce::Limits),
    ] {
        let conf = accepted(&[("slurm.conf", &format!("AccountingStorageEnforce={word}"))]);
        assert_eq!(conf.slurm.globals.accounting.enforce, [expected], "{word}");
    }
}

#[test]
fn enforcement_of_workload_keys_has_one_notice_by_whichever_word() {
    for words in ["all", "limits,wckeys"] {
        let conf = accepted(&[("slurm.conf", &format!("AccountingStorageEnforce={words}"))]);
        let expected =
            "slurm.conf:1: AccountingStorageEnforce=wckeys: accepted; it has no effect here";
        assert_eq!(told(&conf), [expected], "{words}");
    }
}

#[test]
fn a_misspelt_word_is_told_with_the_one_that_was_meant() {
    let text = "SchedulerParameters=bf_contnue,bf_windwo=600,bf_interval=60,bf_max_job_assoc=5";
    let of = |word: &str, rest: &str| {
        format!("slurm.conf:1: SchedulerParameters={word}: accepted; it has no effect here{rest}")
    };
    let expected = [
        of("bf_contnue", "; the nearest that has one is bf_continue"),
        of("bf_windwo", "; the nearest that has one is bf_window"),
        of("bf_interval", ""),
        of("bf_max_job_assoc", ""),
    ];
    assert_eq!(told(&accepted(&[("slurm.conf", text)])), expected);
}

#[test]
fn of_two_defaults_of_memory_the_first_counts() {
    let text = "DefMemPerNode=2\nDefMemPerCPU=1\nPartitionName=p MaxMemPerCPU=3 MaxMemPerNode=4";
    let conf = accepted(&[("slurm.conf", text)]);
    let per_cpu = |memory| match memory {
        Some(DefaultMemory::PerCpu(amount)) => amount.mib(),
        other => panic!("{other:?}"),
    };
    assert_eq!(per_cpu(conf.slurm.globals.memory.default), 1);
    assert_eq!(per_cpu(conf.slurm.partitions[0].partition.max_memory), 3);
    let told = told(&conf);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().any(|line| {
        line == "slurm.conf:1: DefMemPerNode: excludes DefMemPerCPU, which counts; this one has no effect"
    }));
}

#[test]
fn a_default_time_above_the_limit_is_none() {
    let text =
        "PartitionName=p MaxTime=10 DefaultTime=20\nPartitionName=q MaxTime=10 DefaultTime=5";
    let conf = accepted(&[("slurm.conf", text)]);
    let time = |at: usize| conf.slurm.partitions[at].partition.default_time;
    assert_eq!((time(0), time(1)), (None, Some(TimeLimit::Minutes(5))));
    assert_eq!(told(&conf), ["slurm.conf:1: DefaultTime: 20 is above MaxTime=10:00, which counts"]);
}

#[test]
fn a_resource_that_gres_types_does_not_name_is_left_out() {
    let conf = accepted(&[("slurm.conf", "GresTypes=gpu\nNodeName=n[1-2] Gres=gpu:2,fpga:1")]);
    for node in &conf.slurm.nodes {
        let names: Vec<&str> = node.config.gres.iter().map(|gres| gres.name.as_str()).collect();
        assert_eq!(names, ["gpu"]);
    }
    assert_eq!(
        told(&conf),
        ["slurm.conf:2: Gres=fpga: not among GresTypes=gpu; nodes do not have it"]
    );
}

#[test]
fn a_kind_of_mpi_that_connects_ranks_is_told() {
    let notices = |kind: &str| told(&accepted(&[("slurm.conf", &format!("MpiDefault={kind}"))]));
    assert!(notices("pmix").iter().any(|line| line.contains("ranks of an MPI program")));
    assert!(!notices("none").iter().any(|line| line.contains("ranks of an MPI program")));
}

#[test]
fn cpus_of_a_gres_line_are_its_cores() {
    let slurm = "NodeName=n1 Sockets=1 CoresPerSocket=4 Gres=gpu:1";
    let gres = "Name=gpu File=/dev/nvidia0 CPUs=0-1";
    let conf = accepted(&[("slurm.conf", slurm), ("gres.conf", gres)]);
    let cores = conf.slurm.nodes[0].config.gres[0].cores.as_ref().map(ToString::to_string);
    assert_eq!(cores.as_deref(), Some("0-1"));
}

#[test]
fn files_and_link_of_a_gres_line_are_its_file_and_links() {
    let slurm = "NodeName=n[1-2] Gres=gpu:1";
    let read = |gres: &str| accepted(&[("slurm.conf", slurm), ("gres.conf", gres)]).gres.lines;
    let shown = |gres: &str| {
        let lines = read(gres).into_iter();
        lines.map(|line| (line.files.join(","), line.links)).collect::<Vec<_>>()
    };
    let usual = shown("Name=gpu File=/dev/nvidia0 Links=-1");
    assert_eq!(usual, [("/dev/nvidia0".to_owned(), vec![-1])]);
    assert_eq!(shown("Name=gpu Files=/dev/nvidia0 Link=-1"), usual);
}

#[test]
fn limits_of_memory_that_slurm_no_longer_reads_are_taken_in_cgroup_conf() {
    let text = "MemoryLimitEnforcement=no\nMemoryLimitThreshold=100\n";
    let conf = accepted(&[("slurm.conf", ""), ("cgroup.conf", text)]);
    let told = told(&conf);
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(told.iter().all(|line| line.contains("Slurm no longer uses it")), "{told:?}");
}

//! Keys whose value is one of a few words, or a list of such: an enum each, with its words.

use model::cpu_frequency::Governor;
use model::partition::PartitionState;
use model::private_data::PrivateKind;
use serde::{Deserialize, Serialize};

/// A set of words, each of which stands for one variant of an enum.
pub trait Choice: Copy + PartialEq + 'static {
    /// Every word with its variant. The first word of a variant is its canonical one; the others are
    /// accepted in its place.
    const TABLE: &'static [(&'static str, Self)];

    /// The words of the table, in its order: an error lists them so.
    const WORDS: &'static [&'static str];

    /// The variant of a word in any case.
    fn from_word(word: &str) -> Option<Self> {
        let row = Self::TABLE.iter().find(|(known, _)| known.eq_ignore_ascii_case(word));
        row.map(|(_, variant)| *variant)
    }

    /// The canonical word, in Slurm's spelling.
    fn word(self) -> &'static str {
        let row = Self::TABLE.iter().find(|(_, variant)| *variant == self);
        row.map_or("", |(word, _)| word)
    }
}

/// Implements `Choice` for an enum that is there.
macro_rules! words_of_variants {
    ($name:ident { $($variant:ident = $($word:literal)|+),+ $(,)? }) => {
        impl Choice for $name {
            const TABLE: &'static [(&'static str, Self)] =
                &[$($(($word, $name::$variant)),+),+];
            const WORDS: &'static [&'static str] = &[$($($word),+),+];
        }
    };
}

/// Declares an enum and implements `Choice` for it.
macro_rules! choice {
    (
        $(#[$doc:meta])*
        $name:ident {
            $($(#[$variant_doc:meta])* $variant:ident = $($word:literal)|+),+ $(,)?
        }
    ) => {
        $(#[$doc])*
        #[derive(
            Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        pub enum $name {
            $($(#[$variant_doc])* $variant),+
        }

        words_of_variants!($name { $($variant = $($word)|+),+ });
    };
}

choice!(PriorityType {
    Basic = "priority/basic",
    Multifactor = "priority/multifactor",
    /// Sluice's own order, by expansion factor.
    Sluice = "priority/sluice",
});

choice!(PriorityFlag {
    AccrueAlways = "ACCRUE_ALWAYS",
    CalculateRunning = "CALCULATE_RUNNING",
    DepthOblivious = "DEPTH_OBLIVIOUS",
    FairTree = "FAIR_TREE",
    IncrOnly = "INCR_ONLY",
    MaxTres = "MAX_TRES",
    NoFairTree = "NO_FAIR_TREE",
    NoNormalAll = "NO_NORMAL_ALL",
    NoNormalAssoc = "NO_NORMAL_ASSOC",
    NoNormalPart = "NO_NORMAL_PART",
    NoNormalQos = "NO_NORMAL_QOS",
    NoNormalTres = "NO_NORMAL_TRES",
    SmallRelativeToTime = "SMALL_RELATIVE_TO_TIME",
});

choice!(
    /// When the usage that fair share looks at is set to zero: `PriorityUsageResetPeriod`.
    UsageReset {
        None = "NONE",
        Now = "NOW",
        Daily = "DAILY",
        Weekly = "WEEKLY",
        Monthly = "MONTHLY",
        Quarterly = "QUARTERLY",
        Yearly = "YEARLY",
    }
);

choice!(SchedulerType { Backfill = "sched/backfill", Builtin = "sched/builtin" });

choice!(SelectType {
    /// `cons_res` is the older plugin; it selects in the same way here.
    ConsTres = "select/cons_tres" | "select/cons_res",
    Linear = "select/linear",
    Cray = "select/cray_aries",
});

choice!(SelectParameter {
    Cpu = "CR_CPU",
    CpuMemory = "CR_CPU_MEMORY",
    Core = "CR_CORE",
    CoreMemory = "CR_CORE_MEMORY",
    Socket = "CR_SOCKET",
    SocketMemory = "CR_SOCKET_MEMORY",
    Memory = "CR_MEMORY",
    OneTaskPerCore = "CR_ONE_TASK_PER_CORE",
    CoreDefaultDistBlock = "CR_CORE_DEFAULT_DIST_BLOCK",
    LeastLoadedNodes = "CR_LLN",
    PackNodes = "CR_PACK_NODES",
    OtherConsRes = "OTHER_CONS_RES",
    OtherConsTres = "OTHER_CONS_TRES",
    // Flags of Slurm versions after 22.05, which is the reference here.
    EnforceBindingGres = "ENFORCE_BINDING_GRES",
    LeastLoadedSharedGres = "LL_SHARED_GRES",
    MultipleSharingGres = "MULTIPLE_SHARING_GRES_PJ",
    OneTaskPerSharingGres = "ONE_TASK_PER_SHARING_GRES",
});

choice!(
    /// The nodes on which `HealthCheckProgram` runs.
    HealthCheckState {
        Alloc = "ALLOC",
        Any = "ANY",
        Cycle = "CYCLE",
        /// The second word is of Slurm since 23.11, whose check does not return a node to service: drained nodes need none there.
        Idle = "IDLE" | "NONDRAINED_IDLE",
        Mixed = "MIXED",
    }
);

choice!(PreemptType {
    None = "preempt/none",
    PartitionPrio = "preempt/partition_prio",
    Qos = "preempt/qos",
});

choice!(PreemptMode {
    Off = "OFF",
    Cancel = "CANCEL",
    Gang = "GANG",
    Requeue = "REQUEUE",
    Suspend = "SUSPEND",
    Within = "WITHIN",
    Priority = "PRIORITY",
});

choice!(
    /// Which of the partitions that a job names must admit it when it is submitted.
    EnforcePartLimits {
        No = "NO",
        All = "ALL",
        /// `YES` is how older files say it: a real controller takes it as this one.
        Any = "ANY" | "YES",
    }
);

choice!(AccountingEnforce {
    All = "all",
    // Older files say it in numbers.
    Associations = "associations" | "1",
    Limits = "limits" | "2",
    Nothing = "none" | "0",
    NoJobs = "nojobs",
    NoSteps = "nosteps",
    Qos = "qos",
    Safe = "safe",
    WcKeys = "wckeys",
});

choice!(StoreFlag {
    JobComment = "job_comment",
    JobEnvironment = "job_env",
    JobExtra = "job_extra",
    JobScript = "job_script",
    NoStdio = "no_stdio",
});

choice!(ProctrackType {
    Cgroup = "proctrack/cgroup",
    LinuxProc = "proctrack/linuxproc",
    Pgid = "proctrack/pgid",
    Cray = "proctrack/cray_aries",
});

choice!(
    /// `task/` may be left out.
    TaskPlugin {
        None = "task/none" | "none",
        Affinity = "task/affinity" | "affinity",
        Cgroup = "task/cgroup" | "cgroup",
        Cray = "task/cray_aries" | "cray_aries",
    }
);

choice!(PrologFlag {
    Alloc = "Alloc",
    Contain = "Contain",
    DeferBatch = "DeferBatch",
    ForceRequeueOnFail = "ForceRequeueOnFail",
    NoHold = "NoHold",
    // A flag of Slurm since 24.05, which implies Alloc and Contain.
    RunInJob = "RunInJob",
    Serial = "Serial",
    X11 = "X11",
});

choice!(
    /// `State=` of a node.
    NodeState {
        /// `IDLE` is how older files say it.
        Unknown = "UNKNOWN" | "IDLE",
        Cloud = "CLOUD",
        Down = "DOWN",
        Drain = "DRAIN",
        External = "EXTERNAL",
        Fail = "FAIL",
        Failing = "FAILING",
        Future = "FUTURE",
    }
);

choice!(
    /// What runs containers, where `sluice.toml` names nothing else.
    ContainerType {
        Runc = "runc",
        Crun = "crun",
        Docker = "docker",
        Podman = "podman",
        Enroot = "enroot",
        Apptainer = "apptainer",
        Singularity = "singularity",
    }
);

choice!(CgroupPlugin {
    Autodetect = "autodetect",
    V1 = "cgroup/v1",
    V2 = "cgroup/v2",
    Disabled = "disabled",
});

choice!(
    /// `Flags=` of a line of gres.conf.
    GresFlag {
        CountOnly = "CountOnly",
        OneSharing = "one_sharing",
        AllSharing = "all_sharing",
        NvidiaGpuEnv = "nvidia_gpu_env",
        AmdGpuEnv = "amd_gpu_env",
        IntelGpuEnv = "intel_gpu_env",
        OpenClEnv = "opencl_env",
        NoGpuEnv = "no_gpu_env",
        Explicit = "explicit",
    }
);

choice!(
    /// How a node's devices are found.
    AutoDetect {
        Off = "off",
        Nvml = "nvml",
        Nvidia = "nvidia",
        Rsmi = "rsmi",
        OneApi = "oneapi",
        /// AWS Trainium and Inferentia. None of them is found here.
        Nrt = "nrt",
        Full = "full",
    }
);

words_of_variants!(PrivateKind {
    Accounts = "accounts",
    Events = "events",
    Jobs = "jobs",
    Nodes = "nodes",
    Partitions = "partitions",
    Reservations = "reservations",
    Usage = "usage",
    Users = "users",
});

words_of_variants!(Governor {
    Conservative = "Conservative",
    OnDemand = "OnDemand",
    Performance = "Performance",
    PowerSave = "PowerSave",
    SchedUtil = "SchedUtil",
    UserSpace = "UserSpace",
});

words_of_variants!(PartitionState {
    Up = "UP",
    Down = "DOWN",
    Drain = "DRAIN",
    Inactive = "INACTIVE"
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_any_case_and_written_in_one_spelling() {
        assert_eq!(NodeState::from_word("idle"), Some(NodeState::Unknown));
        assert_eq!(NodeState::Unknown.word(), "UNKNOWN");
        assert_eq!(TaskPlugin::from_word("Affinity"), Some(TaskPlugin::Affinity));
        assert_eq!(TaskPlugin::Affinity.word(), "task/affinity");
        assert_eq!(PartitionState::from_word("up"), Some(PartitionState::Up));
        let idle = HealthCheckState::from_word("NonDrained_Idle");
        assert_eq!(idle, Some(HealthCheckState::Idle));
        assert_eq!(SchedulerType::from_word("backfill"), None);
        assert_eq!(EnforcePartLimits::WORDS, ["NO", "ALL", "ANY", "YES"]);
    }
}

//! The values that are one word of a fixed set, as enums with their words.

use model::partition::PartitionState;
use serde::{Deserialize, Serialize};

/// An enum whose variants are written as words, in any case.
pub trait Choice: Copy + 'static {
    const WORDS: &'static [&'static str];
    fn from_word(word: &str) -> Option<Self>;
    /// The word as Slurm writes it.
    fn word(self) -> &'static str;
}

/// Gives an enum its words.
macro_rules! words {
    ($name:ident { $($variant:ident = $word:literal $(| $alias:literal)*),+ $(,)? }) => {
        impl Choice for $name {
            const WORDS: &'static [&'static str] = &[$($word $(, $alias)*),+];

            fn from_word(word: &str) -> Option<Self> {
                $(if [$word $(, $alias)*].iter().any(|w| w.eq_ignore_ascii_case(word)) {
                    return Some($name::$variant);
                })+
                None
            }

            fn word(self) -> &'static str {
                match self { $($name::$variant => $word),+ }
            }
        }
    };
}

/// Declares enums together with their words.
macro_rules! choices {
    ($($(#[$doc:meta])* $name:ident { $($variant:ident = $word:literal $(| $alias:literal)*),+ $(,)? })+) => {$(
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum $name { $($variant),+ }

        words! { $name { $($variant = $word $(| $alias)*),+ } }
    )+};
}

words! { PartitionState { Up = "UP", Down = "DOWN", Drain = "DRAIN", Inactive = "INACTIVE" } }

choices! {
    PriorityType { Basic = "priority/basic", Multifactor = "priority/multifactor" }

    PriorityFlag {
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
    }

    /// When the recorded usage behind fair share starts again from nothing.
    UsageReset {
        None = "NONE",
        Now = "NOW",
        Daily = "DAILY",
        Weekly = "WEEKLY",
        Monthly = "MONTHLY",
        Quarterly = "QUARTERLY",
        Yearly = "YEARLY",
    }

    SchedulerType { Backfill = "sched/backfill", Builtin = "sched/builtin" }

    SelectType {
        ConsTres = "select/cons_tres" | "select/cons_res",
        Linear = "select/linear",
        Cray = "select/cray_aries",
    }

    SelectParameter {
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
    }

    PreemptType {
        None = "preempt/none",
        PartitionPrio = "preempt/partition_prio",
        Qos = "preempt/qos",
    }

    PreemptMode {
        Off = "OFF",
        Cancel = "CANCEL",
        Gang = "GANG",
        Requeue = "REQUEUE",
        Suspend = "SUSPEND",
        Within = "WITHIN",
        Priority = "PRIORITY",
    }

    /// Whether a submit that breaks a partition's limits is refused: for every partition it
    /// names, for any of them, or never (it waits).
    EnforcePartLimits { No = "NO", All = "ALL" | "YES", Any = "ANY" }

    AccountingEnforce {
        All = "all",
        Associations = "associations",
        Limits = "limits",
        NoJobs = "nojobs",
        NoSteps = "nosteps",
        Qos = "qos",
        Safe = "safe",
        WcKeys = "wckeys",
    }

    ProctrackType {
        Cgroup = "proctrack/cgroup",
        LinuxProc = "proctrack/linuxproc",
        Pgid = "proctrack/pgid",
        Cray = "proctrack/cray_aries",
    }

    TaskPlugin {
        None = "task/none" | "none",
        Affinity = "task/affinity" | "affinity",
        Cgroup = "task/cgroup" | "cgroup",
        Cray = "task/cray_aries" | "cray_aries",
    }

    PrologFlag {
        Alloc = "Alloc",
        Contain = "Contain",
        DeferBatch = "DeferBatch",
        NoHold = "NoHold",
        Serial = "Serial",
        X11 = "X11",
    }

    /// The state a node is declared in. `IDLE` is what older files wrote for `UNKNOWN`.
    NodeState {
        Unknown = "UNKNOWN" | "IDLE",
        Cloud = "CLOUD",
        Down = "DOWN",
        Drain = "DRAIN",
        External = "EXTERNAL",
        Fail = "FAIL",
        Failing = "FAILING",
        Future = "FUTURE",
    }

    CgroupPlugin {
        Autodetect = "autodetect",
        V1 = "cgroup/v1",
        V2 = "cgroup/v2",
        Disabled = "disabled",
    }

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

    AutoDetect {
        Off = "off",
        Nvml = "nvml",
        Nvidia = "nvidia",
        Rsmi = "rsmi",
        OneApi = "oneapi",
        Full = "full",
    }
}

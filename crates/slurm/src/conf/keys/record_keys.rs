//! The keys of lines that describe one thing each (a node, a partition, a device), and of cgroup.conf,
//! topology.conf and job_container.conf, as the manual pages of 22.05 name them.

use model::partition::PartitionState;

use super::choices::{AutoDetect, CgroupPlugin, GresFlag, NodeState, PreemptMode, SelectParameter};
use crate::conf::keys::{
    BOUNDED, KeyTable, U16, U32, U64, ValueKind, accepted, one_of, refused, retired, used, words_of,
};

/// The default binding of tasks.
const CPU_BIND: ValueKind = ValueKind::OneOf(&["none", "socket", "ldom", "core", "thread"]);

/// The states that a DownNodes line may set.
const DOWN_STATE: ValueKind = ValueKind::OneOf(&["DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE"]);

pub const NODE: KeyTable = KeyTable {
    of: "a NodeName line",
    keys: &[
        used("NodeName", ValueKind::Text),
        used("NodeHostname", ValueKind::Hosts),
        used("NodeAddr", ValueKind::Hosts),
        accepted("BcastAddr", ValueKind::Hosts),
        used("Boards", U16),
        used("CoreSpecCount", U16),
        used("CoresPerSocket", U16),
        used("CpuBind", CPU_BIND),
        used("CPUs", U32),
        used("CpuSpecList", ValueKind::Cpus),
        used("Features", ValueKind::Words),
        // As the reference cluster's own file spells it.
        used("Feature", ValueKind::Words),
        used("Gres", ValueKind::Text),
        // This and `Parameters` are keys of Slurm 25.11.
        accepted("GresConf", ValueKind::Text),
        used("MemSpecLimit", ValueKind::Megabytes),
        accepted("Parameters", ValueKind::Text),
        // One port, or a range with one for each node.
        accepted("Port", ValueKind::Text),
        used("Procs", U32),
        used("RealMemory", ValueKind::Megabytes),
        used("Reason", ValueKind::Text),
        accepted("RestrictedCoresPerGPU", U32),
        used("Sockets", U16),
        used("SocketsPerBoard", U16),
        used("State", one_of::<NodeState>()),
        used("ThreadsPerCore", U16),
        used("TmpDisk", ValueKind::Megabytes),
        // `Topology` is a key of Slurm 24.05 and later.
        used("Topology", ValueKind::Text),
        accepted("TRESWeights", ValueKind::Text),
        used("Weight", U32),
    ],
};

pub const PARTITION: KeyTable = KeyTable {
    of: "a PartitionName line",
    keys: &[
        used("PartitionName", ValueKind::Text),
        refused("AllocNodes", ValueKind::Text, &["ALL"], "jobs would be taken from every host"),
        used("AllowAccounts", ValueKind::Words),
        used("AllowGroups", ValueKind::Words),
        used("AllowQos", ValueKind::Words),
        accepted("Alternate", ValueKind::Text),
        used("CpuBind", CPU_BIND),
        used("Default", ValueKind::YesNo),
        used("DefaultTime", ValueKind::Time),
        used("DefCpuPerGPU", U64),
        used("DefMemPerCPU", ValueKind::Megabytes),
        used("DefMemPerGPU", ValueKind::Megabytes),
        used("DefMemPerNode", ValueKind::Megabytes),
        used("DenyAccounts", ValueKind::Words),
        used("DenyQos", ValueKind::Words),
        used("DisableRootJobs", ValueKind::YesNo),
        refused(
            "ExclusiveTopo",
            ValueKind::YesNo,
            &["no", "0", "false"],
            "jobs would share the blocks and switches that are to be theirs alone",
        ),
        used("ExclusiveUser", ValueKind::YesNo),
        used("GraceTime", U32),
        used("Hidden", ValueKind::YesNo),
        // Not in the manual, but `scontrol show partition` lists it.
        used("JobDefaults", ValueKind::Words),
        used("LLN", ValueKind::YesNo),
        used("MaxCPUsPerNode", U32),
        used("MaxCPUsPerSocket", U32),
        used("MaxMemPerCPU", ValueKind::Megabytes),
        used("MaxMemPerNode", ValueKind::Megabytes),
        used("MaxNodes", U32),
        used("MaxTime", ValueKind::Time),
        used("MinNodes", U32),
        used("Nodes", ValueKind::Text),
        used("OverSubscribe", ValueKind::Text),
        used("OverTimeLimit", BOUNDED),
        used("PowerDownOnIdle", ValueKind::YesNo),
        used("PreemptMode", words_of::<PreemptMode>()),
        // Both of the next, where they are not given.
        used("Priority", BOUNDED),
        used("PriorityJobFactor", BOUNDED),
        used("PriorityTier", BOUNDED),
        used("QOS", ValueKind::Text),
        used("ReqResv", ValueKind::YesNo),
        used("ResumeTimeout", U32),
        used("RootOnly", ValueKind::YesNo),
        used("SelectTypeParameters", words_of::<SelectParameter>()),
        used("Shared", ValueKind::Text),
        used("State", one_of::<PartitionState>()),
        // Seconds, INFINITE or -1.
        used("SuspendTime", ValueKind::Text),
        used("SuspendTimeout", U32),
        accepted("Topology", ValueKind::Text),
        used("TRESBillingWeights", ValueKind::Text),
    ],
};

pub const NODE_SET: KeyTable = KeyTable {
    of: "a NodeSet line",
    keys: &[
        used("NodeSet", ValueKind::Text),
        used("Feature", ValueKind::Text),
        used("Nodes", ValueKind::Hosts),
    ],
};

pub const DOWN_NODES: KeyTable = KeyTable {
    of: "a DownNodes line",
    keys: &[
        used("DownNodes", ValueKind::Text),
        used("Reason", ValueKind::Text),
        used("State", DOWN_STATE),
    ],
};

const FRONTEND_WHY: &str = "there are no front ends, and jobs of all users would be taken";

pub const FRONTEND: KeyTable = KeyTable {
    of: "a FrontendName line",
    keys: &[
        accepted("FrontendName", ValueKind::Text),
        accepted("FrontendAddr", ValueKind::Text),
        refused("AllowGroups", ValueKind::Words, &[], FRONTEND_WHY),
        refused("AllowUsers", ValueKind::Words, &[], FRONTEND_WHY),
        refused("DenyGroups", ValueKind::Words, &[], FRONTEND_WHY),
        refused("DenyUsers", ValueKind::Words, &[], FRONTEND_WHY),
        accepted("Port", U16),
        accepted("Reason", ValueKind::Text),
        accepted("State", ValueKind::OneOf(&["DOWN", "DRAIN", "FAIL", "FAILING", "UNKNOWN"])),
    ],
};

pub const TOPOLOGY: KeyTable = KeyTable {
    of: "topology.conf",
    keys: &[
        used("SwitchName", ValueKind::Text),
        used("BlockName", ValueKind::Text),
        used("BlockSizes", ValueKind::Words),
        used("LinkSpeed", U32),
        used("Nodes", ValueKind::Hosts),
        used("Switches", ValueKind::Hosts),
    ],
};

pub const GRES: KeyTable = KeyTable {
    of: "gres.conf",
    keys: &[
        used("AutoDetect", one_of::<AutoDetect>()),
        used("Count", U64),
        used("Cores", ValueKind::Cpus),
        // The former name of `Cores`.
        used("CPUs", ValueKind::Cpus),
        used("File", ValueKind::Text),
        // Slurm takes `Files` for `File` and `Link` for `Links`.
        used("Files", ValueKind::Text),
        used("Flags", words_of::<GresFlag>()),
        used("Link", ValueKind::Words),
        used("Links", ValueKind::Words),
        used("MultipleFiles", ValueKind::Text),
        used("Name", ValueKind::Text),
        used("NodeName", ValueKind::Hosts),
        used("Type", ValueKind::Text),
    ],
};

pub const CGROUP: KeyTable = KeyTable {
    of: "cgroup.conf",
    keys: &[
        // Control groups are found where they are mounted, and made without systemd.
        accepted("CgroupAutomount", ValueKind::YesNo),
        accepted("CgroupMountpoint", ValueKind::Text),
        used("CgroupPlugin", one_of::<CgroupPlugin>()),
        accepted("CgroupSlice", ValueKind::Text),
        accepted("EnableControllers", ValueKind::YesNo),
        accepted("EnableExtraControllers", ValueKind::Words),
        accepted("IgnoreSystemd", ValueKind::YesNo),
        accepted("IgnoreSystemdOnFailure", ValueKind::YesNo),
        accepted("SignalChildrenProcesses", ValueKind::YesNo),
        accepted("SystemdTimeout", U32),
        retired("AllowedDevicesFile", ValueKind::Text),
        accepted("AllowedKmemSpace", U64),
        used("AllowedRAMSpace", ValueKind::Percent),
        used("AllowedSwapSpace", ValueKind::Percent),
        used("ConstrainCores", ValueKind::YesNo),
        used("ConstrainDevices", ValueKind::YesNo),
        accepted("ConstrainKmemSpace", ValueKind::YesNo),
        used("ConstrainRAMSpace", ValueKind::YesNo),
        used("ConstrainSwapSpace", ValueKind::YesNo),
        used("MaxRAMPercent", ValueKind::Percent),
        used("MaxSwapPercent", ValueKind::Percent),
        accepted("MaxKmemPercent", ValueKind::Percent),
        // Slurm takes these two and does nothing with them.
        retired("MemoryLimitEnforcement", ValueKind::YesNo),
        retired("MemoryLimitThreshold", ValueKind::Percent),
        used("MemorySwappiness", U16),
        accepted("MinKmemSpace", ValueKind::Megabytes),
        used("MinRAMSpace", ValueKind::Megabytes),
        // Keys that Slurm does not have: devices that every job may open, CPU time bound to the allocated CPUs, and
        // the most seconds of CPU time and processes of one job on a node, the most open files of each of its processes,
        // and whether a program's setuid bit gives a job's process more rights.
        used("AllowedDevices", ValueKind::Words),
        used("ConstrainCPUTime", ValueKind::YesNo),
        used("MaxCPUTime", U64),
        used("MaxOpenFiles", U64),
        used("MaxPids", U64),
        used("NoNewPrivs", ValueKind::YesNo),
        // Keys that Slurm does not have: the disk space of a job's own folder.
        used("ConstrainScratch", ValueKind::YesNo),
        used("MaxScratch", ValueKind::Megabytes),
    ],
};

const NAMESPACE_SCRIPT_WHY: &str =
    "no program is run in a job's namespace, where it might take things away from the job";

pub const CONTAINER: KeyTable = KeyTable {
    of: "job_container.conf",
    keys: &[
        used("AutoBasePath", ValueKind::YesNo),
        used("BasePath", ValueKind::Text),
        // Keys of Slurm since 23.11.
        refused("CloneNSEpilog", ValueKind::Text, &[], NAMESPACE_SCRIPT_WHY),
        accepted("CloneNSEpilog_Wait", U32),
        refused("CloneNSScript", ValueKind::Text, &[], NAMESPACE_SCRIPT_WHY),
        accepted("CloneNSScript_Wait", U32),
        used("Dirs", ValueKind::Words),
        // The processes of a job are all in its namespace.
        accepted("EntireStepInNS", ValueKind::YesNo),
        used("InitScript", ValueKind::Text),
        used("NodeName", ValueKind::Hosts),
        accepted("Shared", ValueKind::YesNo),
    ],
};

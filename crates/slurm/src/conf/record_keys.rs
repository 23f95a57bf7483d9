//! The keys of lines that describe one thing each (a node, a partition, a device), and of cgroup.conf,
//! topology.conf and job_container.conf, as the manual pages of 22.05 name them.

use model::partition::PartitionState;

use super::choices::{AutoDetect, CgroupPlugin, GresFlag, NodeState, PreemptMode, SelectParameter};
use super::keys::{
    BOUNDED, KeyTable, Kind, U16, U32, U64, accepted, one_of, retired, used, words_of,
};

/// The default binding of tasks.
const CPU_BIND: Kind = Kind::OneOf(&["none", "socket", "ldom", "core", "thread"]);

/// The states that a DownNodes line may set.
const DOWN_STATE: Kind = Kind::OneOf(&["DOWN", "DRAIN", "FAIL", "FAILING", "FUTURE"]);

pub const NODE: KeyTable = KeyTable {
    of: "a NodeName line",
    keys: &[
        used("NodeName", Kind::Text),
        used("NodeHostname", Kind::Hosts),
        used("NodeAddr", Kind::Hosts),
        accepted("BcastAddr", Kind::Hosts),
        used("Boards", U16),
        used("CoreSpecCount", U16),
        used("CoresPerSocket", U16),
        used("CpuBind", CPU_BIND),
        used("CPUs", U32),
        used("CpuSpecList", Kind::Cpus),
        used("Features", Kind::Words),
        // As the reference cluster's own file spells it.
        used("Feature", Kind::Words),
        used("Gres", Kind::Text),
        used("MemSpecLimit", Kind::Megabytes),
        // One port, or a range with one for each node.
        used("Port", Kind::Text),
        used("Procs", U32),
        used("RealMemory", Kind::Megabytes),
        used("Reason", Kind::Text),
        used("Sockets", U16),
        used("SocketsPerBoard", U16),
        used("State", one_of::<NodeState>()),
        used("ThreadsPerCore", U16),
        used("TmpDisk", Kind::Megabytes),
        used("Weight", U32),
    ],
};

pub const PARTITION: KeyTable = KeyTable {
    of: "a PartitionName line",
    keys: &[
        used("PartitionName", Kind::Text),
        used("AllocNodes", Kind::Text),
        used("AllowAccounts", Kind::Words),
        used("AllowGroups", Kind::Words),
        used("AllowQos", Kind::Words),
        used("Alternate", Kind::Text),
        used("CpuBind", CPU_BIND),
        used("Default", Kind::YesNo),
        used("DefaultTime", Kind::Time),
        used("DefCpuPerGPU", U64),
        used("DefMemPerCPU", Kind::Megabytes),
        used("DefMemPerGPU", Kind::Megabytes),
        used("DefMemPerNode", Kind::Megabytes),
        used("DenyAccounts", Kind::Words),
        used("DenyQos", Kind::Words),
        used("DisableRootJobs", Kind::YesNo),
        used("ExclusiveUser", Kind::YesNo),
        used("GraceTime", U32),
        used("Hidden", Kind::YesNo),
        // Not in the manual, but `scontrol show partition` lists it.
        used("JobDefaults", Kind::Words),
        used("LLN", Kind::YesNo),
        used("MaxCPUsPerNode", U32),
        used("MaxCPUsPerSocket", U32),
        used("MaxMemPerCPU", Kind::Megabytes),
        used("MaxMemPerNode", Kind::Megabytes),
        used("MaxNodes", U32),
        used("MaxTime", Kind::Time),
        used("MinNodes", U32),
        used("Nodes", Kind::Text),
        used("OverSubscribe", Kind::Text),
        used("OverTimeLimit", BOUNDED),
        used("PreemptMode", words_of::<PreemptMode>()),
        used("PriorityJobFactor", BOUNDED),
        used("PriorityTier", BOUNDED),
        used("QOS", Kind::Text),
        used("ReqResv", Kind::YesNo),
        accepted("ResumeTimeout", U32),
        used("RootOnly", Kind::YesNo),
        used("SelectTypeParameters", words_of::<SelectParameter>()),
        used("Shared", Kind::Text),
        used("State", one_of::<PartitionState>()),
        // Seconds, INFINITE or -1.
        accepted("SuspendTime", Kind::Text),
        accepted("SuspendTimeout", U32),
        used("TRESBillingWeights", Kind::Text),
    ],
};

pub const NODE_SET: KeyTable = KeyTable {
    of: "a NodeSet line",
    keys: &[used("NodeSet", Kind::Text), used("Feature", Kind::Text), used("Nodes", Kind::Hosts)],
};

pub const DOWN_NODES: KeyTable = KeyTable {
    of: "a DownNodes line",
    keys: &[used("DownNodes", Kind::Text), used("Reason", Kind::Text), used("State", DOWN_STATE)],
};

pub const FRONTEND: KeyTable = KeyTable {
    of: "a FrontendName line",
    keys: &[
        accepted("FrontendName", Kind::Text),
        accepted("FrontendAddr", Kind::Text),
        accepted("AllowGroups", Kind::Words),
        accepted("AllowUsers", Kind::Words),
        accepted("DenyGroups", Kind::Words),
        accepted("DenyUsers", Kind::Words),
        accepted("Port", U16),
        accepted("Reason", Kind::Text),
        accepted("State", Kind::OneOf(&["DOWN", "DRAIN", "FAIL", "FAILING", "UNKNOWN"])),
    ],
};

pub const TOPOLOGY: KeyTable = KeyTable {
    of: "topology.conf",
    keys: &[
        used("SwitchName", Kind::Text),
        used("BlockName", Kind::Text),
        used("BlockSizes", Kind::Words),
        used("LinkSpeed", U32),
        used("Nodes", Kind::Hosts),
        used("Switches", Kind::Hosts),
    ],
};

pub const GRES: KeyTable = KeyTable {
    of: "gres.conf",
    keys: &[
        used("AutoDetect", one_of::<AutoDetect>()),
        used("Count", U64),
        used("Cores", Kind::Cpus),
        used("File", Kind::Text),
        used("Flags", words_of::<GresFlag>()),
        used("Links", Kind::Words),
        used("MultipleFiles", Kind::Text),
        used("Name", Kind::Text),
        used("NodeName", Kind::Hosts),
        used("Type", Kind::Text),
    ],
};

pub const CGROUP: KeyTable = KeyTable {
    of: "cgroup.conf",
    keys: &[
        // Control groups are found where they are mounted, and made without systemd.
        accepted("CgroupAutomount", Kind::YesNo),
        accepted("CgroupMountpoint", Kind::Text),
        used("CgroupPlugin", one_of::<CgroupPlugin>()),
        accepted("CgroupSlice", Kind::Text),
        accepted("EnableControllers", Kind::YesNo),
        accepted("EnableExtraControllers", Kind::Words),
        accepted("IgnoreSystemd", Kind::YesNo),
        accepted("IgnoreSystemdOnFailure", Kind::YesNo),
        accepted("SignalChildrenProcesses", Kind::YesNo),
        accepted("SystemdTimeout", U32),
        retired("AllowedDevicesFile", Kind::Text),
        accepted("AllowedKmemSpace", U64),
        used("AllowedRAMSpace", Kind::Percent),
        used("AllowedSwapSpace", Kind::Percent),
        used("ConstrainCores", Kind::YesNo),
        used("ConstrainDevices", Kind::YesNo),
        accepted("ConstrainKmemSpace", Kind::YesNo),
        used("ConstrainRAMSpace", Kind::YesNo),
        used("ConstrainSwapSpace", Kind::YesNo),
        used("MaxRAMPercent", Kind::Percent),
        used("MaxSwapPercent", Kind::Percent),
        accepted("MaxKmemPercent", Kind::Percent),
        used("MemorySwappiness", U16),
        accepted("MinKmemSpace", Kind::Megabytes),
        used("MinRAMSpace", Kind::Megabytes),
        // Keys that Slurm does not have: devices that every job may open, CPU time bound to the allocated CPUs, and
        // the most seconds of CPU time and processes of one job on a node.
        used("AllowedDevices", Kind::Words),
        used("ConstrainCPUTime", Kind::YesNo),
        used("MaxCPUTime", U64),
        used("MaxPids", U64),
        // Keys that Slurm does not have: the disk space of a job's own folder.
        used("ConstrainScratch", Kind::YesNo),
        used("MaxScratch", Kind::Megabytes),
    ],
};

pub const CONTAINER: KeyTable = KeyTable {
    of: "job_container.conf",
    keys: &[
        used("AutoBasePath", Kind::YesNo),
        used("BasePath", Kind::Text),
        used("Dirs", Kind::Words),
        used("InitScript", Kind::Text),
        used("NodeName", Kind::Hosts),
        accepted("Shared", Kind::YesNo),
    ],
};

//! The cluster-wide keys of slurm.conf, a row each: name, kind of value, what becomes of it here, how it is read,
//! and the field that it sets. They are those of the 22.05 manual page, three that `scontrol show config`
//! lists besides (`JobCredentialPrivateKey`, `JobCredentialPublicCertificate`, `JobDefaults`), those of other
//! versions that files of real sites have, and two of our own: `ContainerType`, and `CgroupPlugin`, which is cgroup.conf's but taken here too.

use super::choices;
use super::fields::{Field, field};
use super::record::Record;
use crate::conf::keys::{
    BOUNDED, Key, KeyTable, U16, U32, U64, ValueKind, accepted, one_of, refused, repeating,
    retired, used, words_of,
};
use crate::conf::slurm_conf::globals::Globals;
use model::cpu_frequency::Governor;

pub const GLOBAL: KeyTable = KeyTable { of: "slurm.conf", keys: &KEYS };

const ZERO_OR_ONE: ValueKind = ValueKind::Number { max: 1 };
const UP_TO_TWO: ValueKind = ValueKind::Number { max: 2 };
const PRIVATE_DATA: ValueKind = ValueKind::WordsOf(&[
    "none",
    "accounts",
    "cloud",
    "events",
    "jobs",
    "nodes",
    "partitions",
    "reservations",
    "usage",
    "users",
]);
/// The states of Slurm 23.02 and later.
const EXEMPT_STATES: ValueKind = ValueKind::WordsOf(&[
    "CLOUD",
    "DOWN",
    "DRAIN",
    "DYNAMIC_FUTURE",
    "DYNAMIC_NORM",
    "FAIL",
    "INVALID_REG",
    "MAINTENANCE",
    "NOT_RESPONDING",
    "PERFCTRS",
    "PLANNED",
    "RESERVED",
]);
const RESOURCE_LIMITS: ValueKind = ValueKind::WordsOf(&[
    "ALL", "NONE", "AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS",
    "STACK",
]);

struct Row {
    key: Key,
    /// The field that the key sets by itself.
    field: Option<Field<Globals>>,
}

/// A used key that sets a field by itself.
macro_rules! sets {
    ($key:literal, $kind:expr, $how:ident, $($place:ident).+) => {
        Row { key: used($key, $kind), field: Some(field!($key, $how, $($place).+)) }
    };
}

/// A key without a field of its own: it has no effect, or a rule in `globals::rules` or `load_dir` reads it.
const fn no_field(key: Key) -> Row {
    Row { key, field: None }
}

/// Sets the fields of the keys that the record has.
pub fn store_fields(record: &Record, globals: &mut Globals) {
    for field in ROWS.iter().filter_map(|row| row.field.as_ref()) {
        field.store(record, globals);
    }
}

static KEYS: [Key; ROWS.len()] = {
    let mut keys = [ROWS[0].key; ROWS.len()];
    let mut at = 0;
    while at < ROWS.len() {
        keys[at] = ROWS[at].key;
        at += 1;
    }
    keys
};

const ROWS: &[Row] = &[
    no_field(accepted("AccountingStorageBackupHost", ValueKind::Text)),
    sets!(
        "AccountingStorageEnforce",
        words_of::<choices::AccountingEnforce>(),
        choices,
        accounting.enforce
    ),
    no_field(accepted("AccountingStorageExternalHost", ValueKind::Words)),
    no_field(accepted("AccountingStorageHost", ValueKind::Text)),
    sets!("AccountingStorageParameters", ValueKind::Words, parameters, accounting.parameters),
    no_field(accepted("AccountingStoragePass", ValueKind::Text)),
    no_field(accepted("AccountingStoragePort", U16)),
    no_field(accepted("AccountingStorageTRES", ValueKind::Words)),
    no_field(accepted("AccountingStorageType", ValueKind::Text)),
    no_field(accepted("AccountingStorageUser", ValueKind::Text)),
    sets!(
        "AccountingStoreFlags",
        words_of::<choices::StoreFlag>(),
        choices,
        accounting.store_flags
    ),
    no_field(accepted("AccountingStoreJobComment", ValueKind::YesNo)),
    no_field(accepted("AcctGatherEnergyType", ValueKind::Text)),
    no_field(accepted("AcctGatherFilesystemType", ValueKind::Text)),
    no_field(retired("AcctGatherInfinibandType", ValueKind::Text)),
    no_field(accepted("AcctGatherInterconnectType", ValueKind::Text)),
    no_field(accepted("AcctGatherNodeFreq", U32)),
    no_field(accepted("AcctGatherProfileType", ValueKind::Text)),
    no_field(accepted("AllowSpecResourcesUsage", ValueKind::YesNo)),
    sets!("AuthAltParameters", ValueKind::Words, parameters, alternate_auth.parameters),
    sets!("AuthAltTypes", ValueKind::Words, words, alternate_auth.types),
    no_field(used("AuthInfo", ValueKind::Words)),
    no_field(accepted("AuthType", ValueKind::Text)),
    no_field(retired("BackupAddr", ValueKind::Text)),
    no_field(retired("BackupController", ValueKind::Text)),
    no_field(accepted("BatchStartTimeout", U32)),
    no_field(accepted("BcastExclude", ValueKind::Words)),
    no_field(accepted("BcastParameters", ValueKind::Words)),
    no_field(accepted("BurstBufferParameters", ValueKind::Text)),
    no_field(accepted("BurstBufferType", ValueKind::Text)),
    no_field(retired("CacheGroups", ZERO_OR_ONE)),
    no_field(accepted("CertgenParameters", ValueKind::Words)),
    no_field(accepted("CertgenType", ValueKind::Text)),
    no_field(accepted("CertmgrParameters", ValueKind::Words)),
    no_field(accepted("CertmgrType", ValueKind::Text)),
    sets!("CgroupPlugin", one_of::<choices::CgroupPlugin>(), some_choice, launch.cgroup_plugin),
    no_field(retired("CheckpointType", ValueKind::Text)),
    no_field(accepted("CliFilterParameters", ValueKind::Words)),
    no_field(accepted("CliFilterPlugins", ValueKind::Words)),
    no_field(used("ClusterName", ValueKind::Text)),
    no_field(accepted("CommunicationParameters", ValueKind::Words)),
    no_field(accepted("CompleteWait", BOUNDED)),
    sets!("ContainerType", one_of::<choices::ContainerType>(), some_choice, launch.container_type),
    no_field(retired("ControlAddr", ValueKind::Text)),
    no_field(retired("ControlMachine", ValueKind::Text)),
    no_field(accepted("CoreSpecPlugin", ValueKind::Text)),
    sets!("CpuFreqDef", one_of::<Governor>(), some_choice, launch.cpu_frequency.usual),
    sets!("CpuFreqGovernors", words_of::<Governor>(), choices, launch.cpu_frequency.allowed),
    no_field(accepted("CredType", ValueKind::Text)),
    no_field(retired("CryptoType", ValueKind::Text)),
    no_field(accepted("DataParserParameters", ValueKind::Text)),
    no_field(accepted("DebugFlags", ValueKind::Words)),
    sets!("DefCpuPerGPU", U64, some_number, memory.cpus_per_gpu),
    no_field(used("DefMemPerCPU", ValueKind::Megabytes)),
    no_field(used("DefMemPerGPU", ValueKind::Megabytes)),
    no_field(used("DefMemPerNode", ValueKind::Megabytes)),
    sets!("DependencyParameters", ValueKind::Words, parameters, scheduling.dependency_parameters),
    sets!("DisableRootJobs", ValueKind::YesNo, flag, disable_root_jobs),
    no_field(accepted("EioTimeout", BOUNDED)),
    sets!(
        "EnforcePartLimits",
        one_of::<choices::EnforcePartLimits>(),
        choice,
        scheduling.enforce_part_limits
    ),
    sets!("Epilog", ValueKind::Text, some_text, programs.epilog),
    no_field(accepted("EpilogMsgTime", U32)),
    sets!("EpilogSlurmctld", ValueKind::Text, some_text, programs.epilog_slurmctld),
    no_field(accepted("EpilogTimeout", U32)),
    no_field(accepted("ExtSensorsFreq", U32)),
    no_field(accepted("ExtSensorsType", ValueKind::Text)),
    no_field(accepted("FairShareDampeningFactor", U32)),
    no_field(retired("FastSchedule", UP_TO_TWO)),
    no_field(accepted("FederationParameters", ValueKind::Words)),
    sets!("FirstJobId", U32, number, ids.first_job_id),
    no_field(accepted("GetEnvTimeout", U32)),
    no_field(accepted("GpuFreqDef", ValueKind::Text)),
    sets!("GresTypes", ValueKind::Words, words, gres_types),
    no_field(accepted("GroupUpdateForce", U32)),
    no_field(accepted("GroupUpdateTime", U32)),
    no_field(accepted("HashPlugin", ValueKind::Text)),
    sets!("HealthCheckInterval", U32, number, programs.health_check_interval_s),
    sets!(
        "HealthCheckNodeState",
        words_of::<choices::HealthCheckState>(),
        choices,
        programs.health_check_states
    ),
    sets!("HealthCheckProgram", ValueKind::Text, name_or_none, programs.health_check),
    no_field(accepted("InactiveLimit", BOUNDED)),
    no_field(accepted("InteractiveStepOptions", ValueKind::Text)),
    no_field(used("JobAcctGatherFrequency", ValueKind::Text)),
    no_field(accepted("JobAcctGatherParams", ValueKind::Words)),
    no_field(used("JobAcctGatherType", ValueKind::Text)),
    no_field(retired("JobCheckpointDir", ValueKind::Text)),
    no_field(accepted("JobCompHost", ValueKind::Text)),
    no_field(accepted("JobCompLoc", ValueKind::Text)),
    no_field(accepted("JobCompParams", ValueKind::Text)),
    no_field(accepted("JobCompPass", ValueKind::Text)),
    no_field(accepted("JobCompPassScript", ValueKind::Text)),
    no_field(accepted("JobCompPort", U16)),
    no_field(accepted("JobCompType", ValueKind::Text)),
    no_field(accepted("JobCompUser", ValueKind::Text)),
    no_field(used("JobContainerType", ValueKind::Text)),
    no_field(accepted("JobCredentialPrivateKey", ValueKind::Text)),
    no_field(accepted("JobCredentialPublicCertificate", ValueKind::Text)),
    no_field(accepted("JobDefaults", ValueKind::Words)),
    sets!("JobFileAppend", ZERO_OR_ONE, switch, launch.job_file_append),
    sets!("JobRequeue", ZERO_OR_ONE, switch, launch.job_requeue),
    no_field(refused(
        "JobSubmitPlugins",
        ValueKind::Words,
        &["", "none", "(null)"],
        "jobs that a plugin would refuse or change would be taken as they are",
    )),
    no_field(accepted("KeepAliveTime", U32)),
    sets!("KillOnBadExit", ZERO_OR_ONE, switch, launch.kill_on_bad_exit),
    sets!("KillWait", BOUNDED, number, times.kill_wait_s),
    no_field(accepted("LaunchParameters", ValueKind::Words)),
    no_field(accepted("LaunchType", ValueKind::Text)),
    sets!("Licenses", ValueKind::Text, some_text, licenses),
    no_field(accepted("LogTimeFormat", ValueKind::Text)),
    sets!("MailDomain", ValueKind::Text, some_text, programs.mail_domain),
    sets!("MailProg", ValueKind::Text, some_text, programs.mail_program),
    sets!("MaxArraySize", U32, number, ids.max_array_size),
    no_field(accepted("MaxBatchRequeue", U32)),
    no_field(accepted("MaxDBDMsgs", U32)),
    sets!("MaxJobCount", U32, number, ids.max_job_count),
    sets!("MaxJobId", U32, number, ids.max_job_id),
    no_field(used("MaxMemPerCPU", ValueKind::Megabytes)),
    no_field(used("MaxMemPerNode", ValueKind::Megabytes)),
    sets!("MaxNodeCount", U32, number, max_node_count),
    sets!("MaxStepCount", U32, number, ids.max_step_count),
    sets!("MaxTasksPerNode", BOUNDED, number, ids.max_tasks_per_node),
    no_field(accepted("MCSParameters", ValueKind::Words)),
    no_field(refused(
        "MCSPlugin",
        ValueKind::Text,
        &["", "mcs/none", "(null)"],
        "jobs of different labels would share nodes and be shown to all",
    )),
    no_field(retired("MemLimitEnforce", ValueKind::YesNo)),
    no_field(accepted("MessageTimeout", U32)),
    no_field(accepted("MetricsType", ValueKind::Text)),
    sets!("MinJobAge", U32, number, times.min_job_age_s),
    no_field(accepted("MpiDefault", ValueKind::Text)),
    no_field(accepted("MpiParams", ValueKind::Text)),
    no_field(refused(
        "NamespaceType",
        ValueKind::Text,
        &["", "none", "namespace/none", "(null)"],
        "jobs would share /tmp and /dev/shm: JobContainerType=job_container/tmpfs keeps them apart",
    )),
    no_field(accepted("NodeFeaturesPlugins", ValueKind::Words)),
    sets!("OverTimeLimit", BOUNDED, limit, times.over_time_limit_min),
    no_field(accepted("PluginDir", ValueKind::Text)),
    no_field(accepted("PlugStackConfig", ValueKind::Text)),
    no_field(accepted("PowerParameters", ValueKind::Words)),
    no_field(accepted("PowerPlugin", ValueKind::Text)),
    no_field(used("PreemptExemptTime", ValueKind::Time)),
    no_field(used("PreemptMode", words_of::<choices::PreemptMode>())),
    no_field(accepted("PreemptParameters", ValueKind::Words)),
    no_field(used("PreemptType", one_of::<choices::PreemptType>())),
    no_field(accepted("PrEpParameters", ValueKind::Words)),
    no_field(accepted("PrEpPlugins", ValueKind::Words)),
    sets!("PriorityCalcPeriod", ValueKind::Time, minutes, priority.calc_period_min),
    sets!(
        "PriorityDecayHalfLife",
        ValueKind::Time,
        minutes_above_zero,
        priority.decay_half_life_min
    ),
    sets!("PriorityFavorSmall", ValueKind::YesNo, flag, priority.favor_small),
    sets!("PriorityFlags", words_of::<choices::PriorityFlag>(), choices, priority.flags),
    sets!("PriorityMaxAge", ValueKind::Time, minutes, priority.max_age_min),
    no_field(accepted("PriorityParameters", ValueKind::Text)),
    no_field(accepted("PrioritySiteFactorParameters", ValueKind::Text)),
    no_field(accepted("PrioritySiteFactorPlugin", ValueKind::Text)),
    sets!("PriorityType", one_of::<choices::PriorityType>(), choice, priority.kind),
    sets!(
        "PriorityUsageResetPeriod",
        one_of::<choices::UsageReset>(),
        choice,
        priority.usage_reset
    ),
    sets!("PriorityWeightAge", U32, number, priority.weight_age),
    sets!("PriorityWeightAssoc", U32, number, priority.weight_assoc),
    sets!("PriorityWeightFairshare", U32, number, priority.weight_fairshare),
    sets!("PriorityWeightJobSize", U32, number, priority.weight_job_size),
    sets!("PriorityWeightPartition", U32, number, priority.weight_partition),
    sets!("PriorityWeightQOS", U32, number, priority.weight_qos),
    no_field(used("PriorityWeightTRES", ValueKind::Words)),
    no_field(used("PrivateData", PRIVATE_DATA)),
    no_field(accepted("ProctrackType", one_of::<choices::ProctrackType>())),
    sets!("Prolog", ValueKind::Text, some_text, programs.prolog),
    no_field(used("PrologEpilogTimeout", U32)),
    sets!("PrologFlags", words_of::<choices::PrologFlag>(), choices, programs.prolog_flags),
    sets!("PrologSlurmctld", ValueKind::Text, some_text, programs.prolog_slurmctld),
    no_field(accepted("PrologTimeout", U32)),
    no_field(used("PropagatePrioProcess", UP_TO_TWO)),
    sets!("PropagateResourceLimits", RESOURCE_LIMITS, words, launch.propagate_limits),
    sets!("PropagateResourceLimitsExcept", RESOURCE_LIMITS, words, launch.propagate_limits_except),
    sets!("RebootProgram", ValueKind::Text, name_or_none, power.reboot_program),
    no_field(accepted("ReconfigFlags", ValueKind::Words)),
    no_field(used("RequeueExit", ValueKind::Text)),
    no_field(used("RequeueExitHold", ValueKind::Text)),
    sets!("ResumeFailProgram", ValueKind::Text, name_or_none, power.resume_fail_program),
    sets!("ResumeProgram", ValueKind::Text, name_or_none, power.resume_program),
    sets!("ResumeRate", U32, number, power.resume_rate),
    sets!("ResumeTimeout", U32, number, power.resume_timeout_s),
    no_field(accepted("ResvEpilog", ValueKind::Text)),
    sets!("ResvOverRun", BOUNDED, limit, times.resv_over_run_min),
    no_field(accepted("ResvProlog", ValueKind::Text)),
    sets!("ReturnToService", UP_TO_TWO, number, return_to_service),
    no_field(accepted("RoutePlugin", ValueKind::Text)),
    no_field(accepted("SbcastParameters", ValueKind::Words)),
    no_field(retired("SchedulerAuth", ValueKind::Text)),
    sets!("SchedulerParameters", ValueKind::Words, parameters, scheduling.parameters),
    no_field(retired("SchedulerPort", U16)),
    no_field(retired("SchedulerRootFilter", ZERO_OR_ONE)),
    no_field(used("SchedulerTimeSlice", BOUNDED)),
    sets!("SchedulerType", one_of::<choices::SchedulerType>(), choice, scheduling.scheduler),
    no_field(accepted("ScronParameters", ValueKind::Words)),
    sets!("SelectType", one_of::<choices::SelectType>(), choice, scheduling.select),
    sets!(
        "SelectTypeParameters",
        words_of::<choices::SelectParameter>(),
        choices,
        scheduling.select_parameters
    ),
    no_field(accepted("SlurmctldAddr", ValueKind::Text)),
    no_field(accepted("SlurmctldDebug", ValueKind::Text)),
    no_field(repeating(used("SlurmctldHost", ValueKind::Text))),
    no_field(accepted("SlurmctldLogFile", ValueKind::Text)),
    no_field(used("SlurmctldParameters", ValueKind::Words)),
    no_field(accepted("SlurmctldPidFile", ValueKind::Text)),
    no_field(accepted("SlurmctldPlugstack", ValueKind::Words)),
    no_field(accepted("SlurmctldPort", ValueKind::Text)),
    no_field(accepted("SlurmctldPrimaryOffProg", ValueKind::Text)),
    no_field(accepted("SlurmctldPrimaryOnProg", ValueKind::Text)),
    no_field(accepted("SlurmctldSyslogDebug", ValueKind::Text)),
    no_field(accepted("SlurmctldTimeout", BOUNDED)),
    no_field(accepted("SlurmdDebug", ValueKind::Text)),
    no_field(accepted("SlurmdLogFile", ValueKind::Text)),
    sets!("SlurmdParameters", ValueKind::Words, parameters, launch.slurmd_parameters),
    no_field(accepted("SlurmdPidFile", ValueKind::Text)),
    no_field(accepted("SlurmdPort", U16)),
    no_field(accepted("SlurmdSpoolDir", ValueKind::Text)),
    no_field(accepted("SlurmdSyslogDebug", ValueKind::Text)),
    sets!("SlurmdTimeout", BOUNDED, number, times.slurmd_timeout_s),
    no_field(accepted("SlurmdUser", ValueKind::Text)),
    no_field(accepted("SlurmSchedLogFile", ValueKind::Text)),
    no_field(accepted("SlurmSchedLogLevel", U16)),
    no_field(accepted("SlurmUser", ValueKind::Text)),
    sets!("SrunEpilog", ValueKind::Text, some_text, programs.srun_epilog),
    no_field(accepted("SrunPortRange", ValueKind::Text)),
    sets!("SrunProlog", ValueKind::Text, some_text, programs.srun_prolog),
    no_field(accepted("StateSaveLocation", ValueKind::Text)),
    no_field(used("SuspendExcNodes", ValueKind::Text)),
    no_field(used("SuspendExcParts", ValueKind::Words)),
    no_field(used("SuspendExcStates", EXEMPT_STATES)),
    sets!("SuspendProgram", ValueKind::Text, name_or_none, power.suspend_program),
    sets!("SuspendRate", U32, number, power.suspend_rate),
    no_field(used("SuspendTime", ValueKind::Text)),
    sets!("SuspendTimeout", U32, number, power.suspend_timeout_s),
    no_field(accepted("SwitchParameters", ValueKind::Words)),
    no_field(accepted("SwitchType", ValueKind::Text)),
    sets!("TaskEpilog", ValueKind::Text, some_text, programs.task_epilog),
    sets!("TaskPlugin", words_of::<choices::TaskPlugin>(), choices, launch.task_plugins),
    sets!("TaskPluginParam", ValueKind::Words, parameters, launch.task_plugin_parameters),
    sets!("TaskProlog", ValueKind::Text, some_text, programs.task_prolog),
    no_field(accepted("TCPTimeout", U32)),
    no_field(accepted("TLSParameters", ValueKind::Words)),
    no_field(accepted("TLSType", ValueKind::Text)),
    sets!("TmpFS", ValueKind::Text, text, launch.tmp_fs),
    sets!("TopologyParam", ValueKind::Words, parameters, scheduling.topology_parameters),
    sets!("TopologyPlugin", ValueKind::Text, text, scheduling.topology_plugin),
    no_field(accepted("TrackWCKey", ValueKind::YesNo)),
    no_field(accepted("TreeWidth", BOUNDED)),
    no_field(accepted("UnkillableStepProgram", ValueKind::Text)),
    sets!("UnkillableStepTimeout", U32, number, times.unkillable_step_timeout_s),
    no_field(refused(
        "UsePAM",
        ValueKind::YesNo,
        &["no", "0", "false"],
        "the limits of PAM would not hold for jobs",
    )),
    no_field(accepted("VSizeFactor", BOUNDED)),
    sets!("WaitTime", BOUNDED, number, times.wait_time_s),
    no_field(accepted("X11Parameters", ValueKind::Words)),
];

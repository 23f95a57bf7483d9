//! The cluster-wide keys of slurm.conf, a row each: name, kind of value, whether it is used, how it is read,
//! and the field that it sets. They are those of the 22.05 manual page, three that `scontrol show config`
//! lists besides (`JobCredentialPrivateKey`, `JobCredentialPublicCertificate`, `JobDefaults`), and two of
//! our own: `ContainerType`, and `CgroupPlugin`, which is cgroup.conf's but taken here too.

use super::choices;
use super::fields::{Field, field};
use super::globals::Globals;
use super::keys::{
    BOUNDED, Key, KeyTable, Kind, U16, U32, U64, accepted, one_of, repeating, retired, used,
    words_of,
};
use super::record::Record;

pub const GLOBAL: KeyTable = KeyTable { of: "slurm.conf", keys: &KEYS };

const ZERO_OR_ONE: Kind = Kind::Number { max: 1 };
const UP_TO_TWO: Kind = Kind::Number { max: 2 };
const HEALTH_STATES: Kind = Kind::WordsOf(&["ALLOC", "ANY", "CYCLE", "IDLE", "MIXED"]);
const PRIVATE_DATA: Kind = Kind::WordsOf(&[
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
const RESOURCE_LIMITS: Kind = Kind::WordsOf(&[
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

const KEYS: [Key; ROWS.len()] = {
    let mut keys = [ROWS[0].key; ROWS.len()];
    let mut at = 0;
    while at < ROWS.len() {
        keys[at] = ROWS[at].key;
        at += 1;
    }
    keys
};

const ROWS: &[Row] = &[
    no_field(accepted("AccountingStorageBackupHost", Kind::Text)),
    sets!(
        "AccountingStorageEnforce",
        words_of::<choices::AccountingEnforce>(),
        choices,
        accounting.enforce
    ),
    no_field(accepted("AccountingStorageExternalHost", Kind::Words)),
    no_field(accepted("AccountingStorageHost", Kind::Text)),
    no_field(accepted("AccountingStorageParameters", Kind::Words)),
    no_field(accepted("AccountingStoragePass", Kind::Text)),
    no_field(accepted("AccountingStoragePort", U16)),
    sets!("AccountingStorageTRES", Kind::Words, words, accounting.tres),
    no_field(accepted("AccountingStorageType", Kind::Text)),
    no_field(accepted("AccountingStorageUser", Kind::Text)),
    no_field(accepted("AccountingStoreFlags", Kind::Words)),
    no_field(accepted("AcctGatherEnergyType", Kind::Text)),
    no_field(accepted("AcctGatherFilesystemType", Kind::Text)),
    no_field(accepted("AcctGatherInterconnectType", Kind::Text)),
    no_field(accepted("AcctGatherNodeFreq", U32)),
    no_field(accepted("AcctGatherProfileType", Kind::Text)),
    no_field(accepted("AllowSpecResourcesUsage", Kind::YesNo)),
    no_field(accepted("AuthAltParameters", Kind::Words)),
    no_field(accepted("AuthAltTypes", Kind::Words)),
    no_field(used("AuthInfo", Kind::Words)),
    no_field(accepted("AuthType", Kind::Text)),
    no_field(retired("BackupAddr", Kind::Text)),
    no_field(retired("BackupController", Kind::Text)),
    no_field(accepted("BatchStartTimeout", U32)),
    no_field(accepted("BcastExclude", Kind::Words)),
    no_field(accepted("BcastParameters", Kind::Words)),
    no_field(accepted("BurstBufferType", Kind::Text)),
    sets!("CgroupPlugin", one_of::<choices::CgroupPlugin>(), some_choice, launch.cgroup_plugin),
    no_field(accepted("CliFilterPlugins", Kind::Words)),
    no_field(used("ClusterName", Kind::Text)),
    no_field(accepted("CommunicationParameters", Kind::Words)),
    sets!("CompleteWait", BOUNDED, number, times.complete_wait_s),
    sets!("ContainerType", Kind::Text, some_text, launch.container_type),
    no_field(retired("ControlAddr", Kind::Text)),
    no_field(retired("ControlMachine", Kind::Text)),
    no_field(accepted("CoreSpecPlugin", Kind::Text)),
    no_field(accepted("CpuFreqDef", Kind::Text)),
    no_field(accepted("CpuFreqGovernors", Kind::Words)),
    no_field(accepted("CredType", Kind::Text)),
    no_field(accepted("DebugFlags", Kind::Words)),
    sets!("DefCpuPerGPU", U64, some_number, memory.cpus_per_gpu),
    no_field(used("DefMemPerCPU", Kind::Megabytes)),
    no_field(used("DefMemPerGPU", Kind::Megabytes)),
    no_field(used("DefMemPerNode", Kind::Megabytes)),
    sets!("DependencyParameters", Kind::Words, parameters, scheduling.dependency_parameters),
    sets!("DisableRootJobs", Kind::YesNo, flag, disable_root_jobs),
    no_field(accepted("EioTimeout", BOUNDED)),
    sets!(
        "EnforcePartLimits",
        one_of::<choices::EnforcePartLimits>(),
        choice,
        scheduling.enforce_part_limits
    ),
    sets!("Epilog", Kind::Text, some_text, programs.epilog),
    no_field(accepted("EpilogMsgTime", U32)),
    sets!("EpilogSlurmctld", Kind::Text, some_text, programs.epilog_slurmctld),
    no_field(accepted("ExtSensorsFreq", U32)),
    no_field(accepted("ExtSensorsType", Kind::Text)),
    no_field(accepted("FairShareDampeningFactor", U32)),
    no_field(accepted("FederationParameters", Kind::Words)),
    sets!("FirstJobId", U32, number, ids.first_job_id),
    no_field(accepted("GetEnvTimeout", U32)),
    no_field(accepted("GpuFreqDef", Kind::Text)),
    sets!("GresTypes", Kind::Words, words, gres_types),
    no_field(accepted("GroupUpdateForce", U32)),
    no_field(accepted("GroupUpdateTime", U32)),
    sets!("HealthCheckInterval", U32, number, times.health_check_interval_s),
    sets!("HealthCheckNodeState", HEALTH_STATES, words, programs.health_check_node_state),
    sets!("HealthCheckProgram", Kind::Text, some_text, programs.health_check),
    sets!("InactiveLimit", BOUNDED, number, times.inactive_limit_s),
    sets!("InteractiveStepOptions", Kind::Text, text, launch.interactive_step_options),
    no_field(used("JobAcctGatherFrequency", Kind::Text)),
    no_field(accepted("JobAcctGatherParams", Kind::Words)),
    no_field(used("JobAcctGatherType", Kind::Text)),
    no_field(accepted("JobCompHost", Kind::Text)),
    no_field(accepted("JobCompLoc", Kind::Text)),
    no_field(accepted("JobCompParams", Kind::Text)),
    no_field(accepted("JobCompPass", Kind::Text)),
    no_field(accepted("JobCompPort", U16)),
    no_field(accepted("JobCompType", Kind::Text)),
    no_field(accepted("JobCompUser", Kind::Text)),
    no_field(used("JobContainerType", Kind::Text)),
    no_field(accepted("JobCredentialPrivateKey", Kind::Text)),
    no_field(accepted("JobCredentialPublicCertificate", Kind::Text)),
    no_field(accepted("JobDefaults", Kind::Words)),
    sets!("JobFileAppend", ZERO_OR_ONE, switch, launch.job_file_append),
    sets!("JobRequeue", ZERO_OR_ONE, switch, launch.job_requeue),
    no_field(accepted("JobSubmitPlugins", Kind::Words)),
    sets!("KillOnBadExit", ZERO_OR_ONE, switch, launch.kill_on_bad_exit),
    sets!("KillWait", BOUNDED, number, times.kill_wait_s),
    sets!("LaunchParameters", Kind::Words, parameters, launch.parameters),
    no_field(accepted("LaunchType", Kind::Text)),
    sets!("Licenses", Kind::Text, some_text, licenses),
    no_field(accepted("LogTimeFormat", Kind::Text)),
    no_field(accepted("MailDomain", Kind::Text)),
    sets!("MailProg", Kind::Text, some_text, programs.mail),
    sets!("MaxArraySize", U32, number, ids.max_array_size),
    no_field(accepted("MaxDBDMsgs", U32)),
    sets!("MaxJobCount", U32, number, ids.max_job_count),
    sets!("MaxJobId", U32, number, ids.max_job_id),
    no_field(used("MaxMemPerCPU", Kind::Megabytes)),
    no_field(used("MaxMemPerNode", Kind::Megabytes)),
    no_field(accepted("MaxNodeCount", U32)),
    sets!("MaxStepCount", U32, number, ids.max_step_count),
    sets!("MaxTasksPerNode", BOUNDED, number, ids.max_tasks_per_node),
    no_field(accepted("MCSParameters", Kind::Words)),
    no_field(accepted("MCSPlugin", Kind::Text)),
    sets!("MessageTimeout", U32, number, times.message_timeout_s),
    sets!("MinJobAge", U32, number, times.min_job_age_s),
    sets!("MpiDefault", Kind::Text, text, launch.mpi_default),
    no_field(accepted("MpiParams", Kind::Text)),
    no_field(accepted("NodeFeaturesPlugins", Kind::Words)),
    sets!("OverTimeLimit", BOUNDED, limit, times.over_time_limit_min),
    no_field(accepted("PluginDir", Kind::Text)),
    no_field(accepted("PlugStackConfig", Kind::Text)),
    no_field(accepted("PowerParameters", Kind::Words)),
    no_field(accepted("PowerPlugin", Kind::Text)),
    no_field(used("PreemptExemptTime", Kind::Time)),
    no_field(used("PreemptMode", words_of::<choices::PreemptMode>())),
    no_field(used("PreemptType", one_of::<choices::PreemptType>())),
    no_field(accepted("PrEpParameters", Kind::Words)),
    no_field(accepted("PrEpPlugins", Kind::Words)),
    sets!("PriorityCalcPeriod", Kind::Time, minutes, priority.calc_period_min),
    sets!("PriorityDecayHalfLife", Kind::Time, minutes_above_zero, priority.decay_half_life_min),
    sets!("PriorityFavorSmall", Kind::YesNo, flag, priority.favor_small),
    sets!("PriorityFlags", words_of::<choices::PriorityFlag>(), choices, priority.flags),
    sets!("PriorityMaxAge", Kind::Time, minutes, priority.max_age_min),
    no_field(accepted("PriorityParameters", Kind::Text)),
    no_field(accepted("PrioritySiteFactorParameters", Kind::Text)),
    no_field(accepted("PrioritySiteFactorPlugin", Kind::Text)),
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
    no_field(used("PriorityWeightTRES", Kind::Words)),
    no_field(used("PrivateData", PRIVATE_DATA)),
    sets!("ProctrackType", one_of::<choices::ProctrackType>(), choice, launch.proctrack),
    sets!("Prolog", Kind::Text, some_text, programs.prolog),
    no_field(used("PrologEpilogTimeout", U32)),
    sets!("PrologFlags", words_of::<choices::PrologFlag>(), choices, programs.prolog_flags),
    sets!("PrologSlurmctld", Kind::Text, some_text, programs.prolog_slurmctld),
    no_field(used("PropagatePrioProcess", UP_TO_TWO)),
    sets!("PropagateResourceLimits", RESOURCE_LIMITS, words, launch.propagate_limits),
    sets!("PropagateResourceLimitsExcept", RESOURCE_LIMITS, words, launch.propagate_limits_except),
    no_field(accepted("RebootProgram", Kind::Text)),
    no_field(accepted("ReconfigFlags", Kind::Words)),
    no_field(used("RequeueExit", Kind::Text)),
    no_field(used("RequeueExitHold", Kind::Text)),
    no_field(accepted("ResumeFailProgram", Kind::Text)),
    no_field(accepted("ResumeProgram", Kind::Text)),
    no_field(accepted("ResumeRate", U32)),
    no_field(accepted("ResumeTimeout", U32)),
    no_field(accepted("ResvEpilog", Kind::Text)),
    sets!("ResvOverRun", BOUNDED, limit, times.resv_over_run_min),
    no_field(accepted("ResvProlog", Kind::Text)),
    sets!("ReturnToService", UP_TO_TWO, number, return_to_service),
    no_field(accepted("RoutePlugin", Kind::Text)),
    sets!("SchedulerParameters", Kind::Words, parameters, scheduling.parameters),
    no_field(used("SchedulerTimeSlice", BOUNDED)),
    sets!("SchedulerType", one_of::<choices::SchedulerType>(), choice, scheduling.scheduler),
    no_field(accepted("ScronParameters", Kind::Words)),
    sets!("SelectType", one_of::<choices::SelectType>(), choice, scheduling.select),
    sets!(
        "SelectTypeParameters",
        words_of::<choices::SelectParameter>(),
        choices,
        scheduling.select_parameters
    ),
    no_field(accepted("SlurmctldAddr", Kind::Text)),
    no_field(accepted("SlurmctldDebug", Kind::Text)),
    no_field(repeating(used("SlurmctldHost", Kind::Text))),
    no_field(accepted("SlurmctldLogFile", Kind::Text)),
    no_field(accepted("SlurmctldParameters", Kind::Words)),
    no_field(accepted("SlurmctldPidFile", Kind::Text)),
    no_field(accepted("SlurmctldPlugstack", Kind::Words)),
    no_field(accepted("SlurmctldPort", Kind::Text)),
    no_field(accepted("SlurmctldPrimaryOffProg", Kind::Text)),
    no_field(accepted("SlurmctldPrimaryOnProg", Kind::Text)),
    no_field(accepted("SlurmctldSyslogDebug", Kind::Text)),
    no_field(accepted("SlurmctldTimeout", BOUNDED)),
    no_field(accepted("SlurmdDebug", Kind::Text)),
    no_field(accepted("SlurmdLogFile", Kind::Text)),
    sets!("SlurmdParameters", Kind::Words, parameters, launch.slurmd_parameters),
    no_field(accepted("SlurmdPidFile", Kind::Text)),
    no_field(accepted("SlurmdPort", U16)),
    no_field(accepted("SlurmdSpoolDir", Kind::Text)),
    no_field(accepted("SlurmdSyslogDebug", Kind::Text)),
    sets!("SlurmdTimeout", BOUNDED, number, times.slurmd_timeout_s),
    no_field(accepted("SlurmdUser", Kind::Text)),
    no_field(accepted("SlurmSchedLogFile", Kind::Text)),
    no_field(accepted("SlurmSchedLogLevel", ZERO_OR_ONE)),
    sets!("SlurmUser", Kind::Text, text, slurm_user),
    sets!("SrunEpilog", Kind::Text, some_text, programs.srun_epilog),
    no_field(accepted("SrunPortRange", Kind::Text)),
    sets!("SrunProlog", Kind::Text, some_text, programs.srun_prolog),
    no_field(accepted("StateSaveLocation", Kind::Text)),
    no_field(accepted("SuspendExcNodes", Kind::Text)),
    no_field(accepted("SuspendExcParts", Kind::Words)),
    no_field(accepted("SuspendProgram", Kind::Text)),
    no_field(accepted("SuspendRate", U32)),
    no_field(accepted("SuspendTime", Kind::Text)),
    no_field(accepted("SuspendTimeout", U32)),
    no_field(accepted("SwitchParameters", Kind::Words)),
    no_field(accepted("SwitchType", Kind::Text)),
    sets!("TaskEpilog", Kind::Text, some_text, programs.task_epilog),
    sets!("TaskPlugin", words_of::<choices::TaskPlugin>(), choices, launch.task_plugins),
    sets!("TaskPluginParam", Kind::Words, parameters, launch.task_plugin_parameters),
    sets!("TaskProlog", Kind::Text, some_text, programs.task_prolog),
    no_field(accepted("TCPTimeout", U32)),
    sets!("TmpFS", Kind::Text, text, launch.tmp_fs),
    sets!("TopologyParam", Kind::Words, parameters, scheduling.topology_parameters),
    sets!("TopologyPlugin", Kind::Text, text, scheduling.topology_plugin),
    sets!("TrackWCKey", Kind::YesNo, flag, accounting.track_wckey),
    no_field(accepted("TreeWidth", BOUNDED)),
    sets!("UnkillableStepProgram", Kind::Text, some_text, programs.unkillable_step),
    sets!("UnkillableStepTimeout", U32, number, times.unkillable_step_timeout_s),
    no_field(accepted("UsePAM", Kind::YesNo)),
    no_field(accepted("VSizeFactor", BOUNDED)),
    sets!("WaitTime", BOUNDED, number, times.wait_time_s),
    no_field(accepted("X11Parameters", Kind::Words)),
];

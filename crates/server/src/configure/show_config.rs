//! The values that `scontrol show config` prints.

use cluster::Parameters;
use model::partition::DefaultMemory;
use slurm::conf::keys::choices::{Choice, SelectParameter};
use std::collections::BTreeMap;

/// The values in effect, whether the file has them or not.
pub(super) fn parameters_shown(
    parameters: &Parameters,
    select: &[SelectParameter],
) -> BTreeMap<String, String> {
    let seconds = |s: u32| format!("{s} sec");
    let yes = |b: bool| if b { "1" } else { "0" }.to_string();
    let select: Vec<&str> = select.iter().map(|p| p.word()).collect();
    let select = if select.is_empty() { "CR_CORE_MEMORY".into() } else { select.join(",") };
    let memory = match parameters.default_memory {
        Some(DefaultMemory::PerCpu(each)) => ("DefMemPerCPU", each.mib().to_string()),
        Some(DefaultMemory::PerNode(each)) => ("DefMemPerNode", each.mib().to_string()),
        Some(DefaultMemory::PerGpu(each)) => ("DefMemPerGPU", each.mib().to_string()),
        None => ("DefMemPerNode", "UNLIMITED".into()),
    };
    let scheduler = if parameters.backfill { "sched/backfill" } else { "sched/builtin" };
    let priority = match &parameters.priority {
        policy if policy.expansion => "priority/sluice",
        policy if policy.multifactor => "priority/multifactor",
        _ => "priority/basic",
    };
    let power = &parameters.power;
    let path = |path: &Option<String>| path.clone().unwrap_or_else(|| "(null)".into());
    let rate = |nodes: u32| format!("{nodes} nodes/min");
    let rows = [
        ("RebootProgram", path(&power.reboot_program)),
        ("ResumeFailProgram", path(&power.resume_fail_program)),
        ("ResumeProgram", path(&power.resume_program)),
        ("ResumeRate", rate(power.resume_rate)),
        ("ResumeTimeout", seconds(power.resume_timeout_s)),
        ("SuspendProgram", path(&power.suspend_program)),
        ("SuspendRate", rate(power.suspend_rate)),
        ("SuspendTime", power.suspend_time_s.map_or_else(|| "INFINITE".into(), seconds)),
        ("SuspendTimeout", seconds(power.suspend_timeout_s)),
        ("SlurmdTimeout", seconds(parameters.slurmd_timeout_s)),
        ("KillWait", seconds(parameters.kill_wait_s)),
        ("MinJobAge", seconds(parameters.min_job_age_s)),
        ("MaxJobCount", parameters.max_job_count.to_string()),
        ("MaxArraySize", parameters.max_array_size.to_string()),
        ("FirstJobId", parameters.first_job_id.to_string()),
        ("MaxJobId", parameters.max_job_id.to_string()),
        ("JobRequeue", yes(parameters.job_requeue)),
        ("JobFileAppend", yes(parameters.job_file_append)),
        ("ReturnToService", parameters.return_to_service.to_string()),
        ("SchedulerType", scheduler.into()),
        ("SelectType", "select/cons_tres".into()),
        ("SelectTypeParameters", select),
        ("PriorityType", priority.into()),
        ("ProctrackType", "proctrack/cgroup".into()),
        ("TaskPlugin", "task/affinity,task/cgroup".into()),
        ("AccountingStorageType", "accounting_storage/sluice".into()),
        ("AuthType", "auth/sluice".into()),
        ("GresTypes", parameters.gres_types.join(",")),
        memory,
    ];
    rows.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
}

/// A value of the file as it is shown: times with their unit, as Slurm shows them.
pub(super) fn value_shown(key: &str, text: &str) -> String {
    let seconds = [
        "SlurmdTimeout",
        "SlurmctldTimeout",
        "KillWait",
        "MinJobAge",
        "MessageTimeout",
        "WaitTime",
        "HealthCheckInterval",
        "ResumeTimeout",
        "SuspendTime",
        "SuspendTimeout",
        "SchedulerTimeSlice",
        "UnkillableStepTimeout",
        "CompleteWait",
        "InactiveLimit",
        "BatchStartTimeout",
        "TCPTimeout",
    ];
    let is_number = text.chars().all(|c| c.is_ascii_digit());
    // Everybody may ask for the configuration.
    if ["AccountingStoragePass", "JobCompPass"].contains(&key) && !text.is_empty() {
        "***".to_string()
    } else if seconds.contains(&key) && is_number {
        format!("{text} sec")
    } else if ["OverTimeLimit", "ResvOverRun"].contains(&key) && is_number {
        format!("{text} min")
    } else if ["ResumeRate", "SuspendRate"].contains(&key) {
        format!("{text} nodes/min")
    } else if key == "SuspendTime" {
        "INFINITE".to_string()
    } else {
        text.to_string()
    }
}

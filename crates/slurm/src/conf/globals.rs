//! The cluster-wide settings of slurm.conf that Sluice acts on, with Slurm's defaults.

use model::partition::DefaultMemory;
use model::run::NicePolicy;
use model::time::TimeLimit;
use model::tres::TresKind;

use super::backfill::{Backfill, read_exits};
use super::choices::{
    AccountingEnforce, CgroupPlugin, Choice, EnforcePartLimits, PriorityFlag, PriorityType,
    ProctrackType, PrologFlag, SchedulerType, SelectParameter, SelectType, TaskPlugin, UsageReset,
};
use super::error::{Findings, NoticeKind};
use super::partition_conf::read_memory;
use super::preemption::Preemption;
use super::record::Record;
use super::value::Parameters;

/// What Slurm's credentials last, and jobs wait after a requeue, where nothing is said.
const CREDENTIAL_S: u32 = 120;

/// Slurm's largest local job id.
pub const JOB_ID_MAX: u32 = 0x03ff_ffff;

#[derive(Debug, Clone, PartialEq)]
pub struct Globals {
    pub slurmctld_hosts: Vec<String>,
    pub slurm_user: String,
    pub ids: JobIds,
    pub times: Times,
    pub memory: MemoryDefaults,
    pub scheduling: Scheduling,
    pub priority: Priority,
    pub preemption: Preemption,
    pub accounting: Accounting,
    pub launch: Launch,
    pub programs: Programs,
    pub gres_types: Vec<String>,
    pub licenses: Option<String>,
    /// Lower-case words of `PrivateData`.
    pub private_data: Vec<String>,
    pub return_to_service: u16,
    pub disable_root_jobs: bool,
}

/// Numbers of jobs, and what they may be called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobIds {
    pub first_job_id: u32,
    pub max_job_id: u32,
    pub max_job_count: u32,
    /// One more than the largest array index.
    pub max_array_size: u32,
    pub max_step_count: u32,
    pub max_tasks_per_node: u32,
}

/// How long each thing may take. Zero switches a time-out off where Slurm's does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    pub slurmd_timeout_s: u32,
    pub complete_wait_s: u32,
    pub inactive_limit_s: u32,
    pub kill_wait_s: u32,
    pub message_timeout_s: u32,
    pub min_job_age_s: u32,
    /// None: a job may overrun its limit for ever.
    pub over_time_limit_min: Option<u32>,
    /// None: prolog and epilog may take for ever.
    pub prolog_epilog_timeout_s: Option<u32>,
    pub resv_over_run_min: Option<u32>,
    pub unkillable_step_timeout_s: u32,
    pub wait_time_s: u32,
    pub health_check_interval_s: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryDefaults {
    /// What a job gets that names no memory; None: the whole node's.
    pub default: Option<DefaultMemory>,
    /// The most that a job may ask for; None: no limit.
    pub max: Option<DefaultMemory>,
    pub cpus_per_gpu: Option<u64>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Scheduling {
    pub scheduler: SchedulerType,
    pub parameters: Parameters,
    pub backfill: Backfill,
    pub select: SelectType,
    pub select_parameters: Vec<SelectParameter>,
    pub enforce_part_limits: EnforcePartLimits,
    pub dependency_parameters: Parameters,
    pub topology_plugin: String,
    pub topology_parameters: Parameters,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Priority {
    pub kind: PriorityType,
    pub flags: Vec<PriorityFlag>,
    pub favor_small: bool,
    pub calc_period_min: u32,
    /// None: usage never decays.
    pub decay_half_life_min: Option<u32>,
    pub usage_reset: UsageReset,
    pub max_age_min: u32,
    pub weight_age: u32,
    pub weight_assoc: u32,
    pub weight_fairshare: u32,
    pub weight_job_size: u32,
    pub weight_partition: u32,
    pub weight_qos: u32,
    /// (TRES name in lower case, weight).
    pub weight_tres: Vec<(String, f64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounting {
    pub enforce: Vec<AccountingEnforce>,
    /// TRES that are booked besides Slurm's own.
    pub tres: Vec<String>,
    pub track_wckey: bool,
    /// Seconds between two samples of usage, 0 for none; None: not said.
    pub sample_s: Option<u32>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub parameters: Parameters,
    pub slurmd_parameters: Parameters,
    pub interactive_step_options: String,
    pub proctrack: ProctrackType,
    pub task_plugins: Vec<TaskPlugin>,
    pub task_plugin_parameters: Parameters,
    pub cgroup_plugin: Option<CgroupPlugin>,
    pub container_type: Option<String>,
    pub mpi_default: String,
    pub job_file_append: bool,
    pub job_requeue: bool,
    pub kill_on_bad_exit: bool,
    /// Exit codes that requeue a job: from, to.
    pub requeue_exit: Vec<(i32, i32)>,
    pub requeue_exit_hold: Vec<(i32, i32)>,
    /// How long a requeued job waits before it starts again: `AuthInfo=cred_expire`.
    pub requeue_wait_s: u32,
    pub propagate_nice: NicePolicy,
    pub propagate_limits: Vec<String>,
    pub propagate_limits_except: Vec<String>,
    pub tmp_fs: String,
}

/// Programs run around jobs. The node's own may be several, each a path or a pattern.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Programs {
    pub prolog: Option<String>,
    pub epilog: Option<String>,
    pub prolog_slurmctld: Option<String>,
    pub epilog_slurmctld: Option<String>,
    pub task_prolog: Option<String>,
    pub task_epilog: Option<String>,
    pub srun_prolog: Option<String>,
    pub srun_epilog: Option<String>,
    pub unkillable_step: Option<String>,
    pub health_check: Option<String>,
    pub health_check_node_state: Vec<String>,
    pub mail: Option<String>,
    pub prolog_flags: Vec<PrologFlag>,
}

impl Globals {
    pub fn read(record: &Record, hosts: Vec<String>, findings: &mut Findings) -> Globals {
        Globals {
            slurmctld_hosts: hosts,
            slurm_user: record.text("SlurmUser").unwrap_or_else(|| "root".into()),
            ids: JobIds::read(record, findings),
            times: Times::read(record),
            memory: MemoryDefaults {
                default: read_memory(
                    record,
                    &["DefMemPerCPU", "DefMemPerNode", "DefMemPerGPU"],
                    findings,
                ),
                max: read_memory(record, &["MaxMemPerCPU", "MaxMemPerNode"], findings),
                cpus_per_gpu: record.number("DefCpuPerGPU"),
            },
            scheduling: Scheduling::read(record, findings),
            priority: Priority::read(record, findings),
            preemption: Preemption::read(record, findings),
            accounting: Accounting {
                enforce: record.choices("AccountingStorageEnforce").unwrap_or_default(),
                tres: record.words("AccountingStorageTRES"),
                track_wckey: record.flag("TrackWCKey").unwrap_or(false),
                sample_s: read_sample_s(record, findings),
            },
            launch: Launch::read(record, findings),
            programs: Programs::read(record, findings),
            gres_types: record.words("GresTypes"),
            licenses: record.text("Licenses"),
            private_data: record
                .words("PrivateData")
                .iter()
                .map(|word| word.to_ascii_lowercase())
                .filter(|word| word != "none")
                .collect(),
            return_to_service: record.number("ReturnToService").unwrap_or(0),
            disable_root_jobs: record.flag("DisableRootJobs").unwrap_or(false),
        }
    }
}

/// `JobAcctGatherFrequency`: `30`, or `task=30,energy=60` of which the task's counts here.
fn read_sample_s(record: &Record, findings: &mut Findings) -> Option<u32> {
    let gathered = record.text("JobAcctGatherType");
    if gathered.is_some_and(|kind| kind.eq_ignore_ascii_case("jobacct_gather/none")) {
        return Some(0);
    }
    let entry = record.entry("JobAcctGatherFrequency")?;
    let mut found = None;
    for word in entry.text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
        let (kind, seconds) = word.split_once('=').unwrap_or(("task", word));
        match (kind.to_ascii_lowercase().as_str(), seconds.parse()) {
            ("task", Ok(seconds)) => found = Some(seconds),
            ("energy" | "network" | "filesystem", Ok(_)) => {}
            _ => {
                let expected = format!("{word:?}: expected seconds such as 30, or task=30");
                findings.wrong(&entry.place, "JobAcctGatherFrequency", &entry.text, expected);
            }
        }
    }
    found
}

impl JobIds {
    fn read(record: &Record, findings: &mut Findings) -> JobIds {
        let ids = JobIds {
            first_job_id: record.number("FirstJobId").unwrap_or(1),
            max_job_id: record.number("MaxJobId").unwrap_or(0x03ff_0000),
            max_job_count: record.number("MaxJobCount").unwrap_or(10_000),
            max_array_size: record.number("MaxArraySize").unwrap_or(1001),
            max_step_count: record.number("MaxStepCount").unwrap_or(40_000),
            max_tasks_per_node: record.number("MaxTasksPerNode").unwrap_or(512),
        };
        let bounds = [
            ("FirstJobId", ids.first_job_id, 1, ids.max_job_id),
            ("MaxJobId", ids.max_job_id, 1, JOB_ID_MAX),
            ("MaxJobCount", ids.max_job_count, 2, u32::MAX),
            ("MaxArraySize", ids.max_array_size, 0, 4_000_001),
        ];
        for (key, value, min, max) in bounds {
            if let Some(entry) = record.entry(key).filter(|_| !(min..=max).contains(&value)) {
                let expected = format!("expected from {min} to {max}");
                findings.wrong(&entry.place, key, &entry.text, expected);
            }
        }
        ids
    }
}

impl Times {
    fn read(record: &Record) -> Times {
        let secs = |key, default| record.number(key).unwrap_or(default);
        let limit = |key, default| record.limit(key).unwrap_or(default);
        // Slurm's own `scontrol show config` prints this for "no limit", so files have it too.
        let unlimited_u16 = u32::from(u16::MAX - 1);
        Times {
            slurmd_timeout_s: secs("SlurmdTimeout", 300),
            complete_wait_s: secs("CompleteWait", 0),
            inactive_limit_s: secs("InactiveLimit", 0),
            kill_wait_s: secs("KillWait", 30),
            message_timeout_s: secs("MessageTimeout", 10),
            min_job_age_s: secs("MinJobAge", 300),
            over_time_limit_min: limit("OverTimeLimit", Some(0)),
            prolog_epilog_timeout_s: limit("PrologEpilogTimeout", None)
                .filter(|secs| *secs < unlimited_u16),
            resv_over_run_min: limit("ResvOverRun", Some(0)),
            unkillable_step_timeout_s: secs("UnkillableStepTimeout", 60),
            wait_time_s: secs("WaitTime", 0),
            health_check_interval_s: secs("HealthCheckInterval", 0),
        }
    }
}

impl Scheduling {
    fn read(record: &Record, findings: &mut Findings) -> Scheduling {
        let parameters = Parameters::new(record.words("SchedulerParameters"));
        Scheduling {
            scheduler: record.choice("SchedulerType").unwrap_or(SchedulerType::Backfill),
            backfill: Backfill::read(record, &parameters, findings),
            parameters,
            select: record.choice("SelectType").unwrap_or(SelectType::ConsTres),
            select_parameters: record
                .choices("SelectTypeParameters")
                .unwrap_or_else(|| vec![SelectParameter::CoreMemory]),
            enforce_part_limits: record
                .choice("EnforcePartLimits")
                .unwrap_or(EnforcePartLimits::No),
            dependency_parameters: Parameters::new(record.words("DependencyParameters")),
            topology_plugin: record.text("TopologyPlugin").unwrap_or("topology/none".into()),
            topology_parameters: Parameters::new(record.words("TopologyParam")),
        }
    }
}

/// Fair share is always the tree's, and a priority is worked out while a job waits.
const WITHOUT_EFFECT: [PriorityFlag; 4] = [
    PriorityFlag::CalculateRunning,
    PriorityFlag::DepthOblivious,
    PriorityFlag::IncrOnly,
    PriorityFlag::NoFairTree,
];

impl Priority {
    fn read(record: &Record, findings: &mut Findings) -> Priority {
        const WEEK_MIN: u32 = 7 * 24 * 60;
        let minutes = |key, default| {
            let limit = record.time(key).unwrap_or(TimeLimit::Minutes(default));
            limit.minutes().unwrap_or(u32::MAX)
        };
        let weight = |key| record.number(key).unwrap_or(0);
        let half_life = minutes("PriorityDecayHalfLife", WEEK_MIN);
        let flags: Vec<PriorityFlag> = record.choices("PriorityFlags").unwrap_or_default();
        if let Some(entry) = record.entry("PriorityFlags") {
            for flag in flags.iter().filter(|flag| WITHOUT_EFFECT.contains(flag)) {
                let key = format!("PriorityFlags={}", flag.word());
                findings.notice(&entry.place, key, NoticeKind::NoEffect);
            }
        }
        Priority {
            kind: record.choice("PriorityType").unwrap_or(PriorityType::Basic),
            flags,
            favor_small: record.flag("PriorityFavorSmall").unwrap_or(false),
            calc_period_min: minutes("PriorityCalcPeriod", 5),
            decay_half_life_min: Some(half_life).filter(|min| *min != 0 && *min != u32::MAX),
            usage_reset: record.choice("PriorityUsageResetPeriod").unwrap_or(UsageReset::None),
            max_age_min: minutes("PriorityMaxAge", WEEK_MIN),
            weight_age: weight("PriorityWeightAge"),
            weight_assoc: weight("PriorityWeightAssoc"),
            weight_fairshare: weight("PriorityWeightFairshare"),
            weight_job_size: weight("PriorityWeightJobSize"),
            weight_partition: weight("PriorityWeightPartition"),
            weight_qos: weight("PriorityWeightQOS"),
            weight_tres: read_weights(record, "PriorityWeightTRES", findings),
        }
    }
}

fn read_weights(record: &Record, key: &str, findings: &mut Findings) -> Vec<(String, f64)> {
    let Some(entry) = record.entry(key) else { return Vec::new() };
    let mut weights = Vec::new();
    for word in record.words(key) {
        let pair = word.split_once('=').and_then(|(tres, weight)| {
            let weight: f64 = weight.parse().ok()?;
            let tres = tres.to_ascii_lowercase();
            let known = tres.parse::<TresKind>().is_ok();
            (known && weight.is_finite()).then_some((tres, weight))
        });
        match pair {
            Some(pair) => weights.push(pair),
            None => {
                let expected = format!("{word:?}: expected weights such as cpu=100,gres/gpu=1000");
                findings.wrong(&entry.place, key, &entry.text, expected);
            }
        }
    }
    weights
}

impl Launch {
    fn read(record: &Record, findings: &mut Findings) -> Launch {
        let text = |key, default: &str| record.text(key).unwrap_or_else(|| default.to_owned());
        let on = |key, default: u16| record.number(key).unwrap_or(default) != 0;
        Launch {
            parameters: Parameters::new(record.words("LaunchParameters")),
            slurmd_parameters: Parameters::new(record.words("SlurmdParameters")),
            interactive_step_options: text(
                "InteractiveStepOptions",
                "--interactive --preserve-env --pty $SHELL",
            ),
            proctrack: record.choice("ProctrackType").unwrap_or(ProctrackType::Cgroup),
            task_plugins: record.choices("TaskPlugin").unwrap_or_else(|| vec![TaskPlugin::None]),
            task_plugin_parameters: Parameters::new(record.words("TaskPluginParam")),
            cgroup_plugin: record.choice("CgroupPlugin"),
            container_type: record.text("ContainerType"),
            mpi_default: text("MpiDefault", "none"),
            job_file_append: on("JobFileAppend", 0),
            job_requeue: on("JobRequeue", 1),
            kill_on_bad_exit: on("KillOnBadExit", 0),
            requeue_exit: read_exits(record, "RequeueExit", findings),
            requeue_exit_hold: read_exits(record, "RequeueExitHold", findings),
            requeue_wait_s: Parameters::new(record.words("AuthInfo"))
                .get("cred_expire")
                .and_then(|text| text.parse().ok())
                .unwrap_or(CREDENTIAL_S),
            propagate_nice: match record.number("PropagatePrioProcess").unwrap_or(0_u64) {
                0 => NicePolicy::Daemon,
                1 => NicePolicy::Submitter,
                _ => NicePolicy::BelowDaemon,
            },
            propagate_limits: record.words("PropagateResourceLimits"),
            propagate_limits_except: record.words("PropagateResourceLimitsExcept"),
            tmp_fs: text("TmpFS", "/tmp"),
        }
    }
}

/// Windows of a display are not forwarded; of the flag only what it implies is done.
const FLAGS_WITHOUT_EFFECT: [PrologFlag; 1] = [PrologFlag::X11];

/// What is an error in Slurm too.
const FLAGS_APART: [(PrologFlag, PrologFlag); 2] =
    [(PrologFlag::NoHold, PrologFlag::Contain), (PrologFlag::NoHold, PrologFlag::X11)];

impl Programs {
    fn read(record: &Record, findings: &mut Findings) -> Programs {
        let prolog_flags: Vec<PrologFlag> = record.choices("PrologFlags").unwrap_or_default();
        if let Some(entry) = record.entry("PrologFlags") {
            for flag in prolog_flags.iter().filter(|flag| FLAGS_WITHOUT_EFFECT.contains(flag)) {
                let key = format!("PrologFlags={}", flag.word());
                findings.notice(&entry.place, key, NoticeKind::NoEffect);
            }
            for (one, other) in FLAGS_APART {
                if prolog_flags.contains(&one) && prolog_flags.contains(&other) {
                    let expected = format!("expected {} without {}", one.word(), other.word());
                    findings.wrong(&entry.place, "PrologFlags", &entry.text, expected);
                }
            }
        }
        Programs {
            prolog: record.text("Prolog"),
            epilog: record.text("Epilog"),
            prolog_slurmctld: record.text("PrologSlurmctld"),
            epilog_slurmctld: record.text("EpilogSlurmctld"),
            task_prolog: record.text("TaskProlog"),
            task_epilog: record.text("TaskEpilog"),
            srun_prolog: record.text("SrunProlog"),
            srun_epilog: record.text("SrunEpilog"),
            unkillable_step: record.text("UnkillableStepProgram"),
            health_check: record.text("HealthCheckProgram"),
            health_check_node_state: record.words("HealthCheckNodeState"),
            mail: record.text("MailProg"),
            prolog_flags,
        }
    }
}

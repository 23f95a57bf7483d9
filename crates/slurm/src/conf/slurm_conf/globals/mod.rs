//! The cluster-wide settings of slurm.conf, and what holds where the file does not say.
//! `keys::global_keys` says which key sets which field; `rules` has the keys that need more than one row.

pub mod backfill;
pub mod kept_texts;
mod licenses;
pub mod power;
pub mod preemption;
mod requeue_exits;
mod rules;

use std::collections::BTreeMap;

use model::cpu_frequency::CpuFrequencyPolicy;
use model::partition::DefaultMemory;
use model::power::PowerPolicy;
use model::private_data::PrivateData;
use model::run::NicePolicy;

use self::backfill::Backfill;
use self::kept_texts::KeptTexts;
use self::preemption::Preemption;
use crate::conf::keys::choices::{
    AccountingEnforce, CgroupPlugin, ContainerType, EnforcePartLimits, HealthCheckState,
    PriorityFlag, PriorityType, PrologFlag, SchedulerType, SelectParameter, SelectType, StoreFlag,
    TaskPlugin, UsageReset,
};
use crate::conf::keys::value::Parameters;

#[derive(Debug, Clone, PartialEq)]
pub struct Globals {
    pub ids: JobIds,
    pub times: Times,
    pub memory: MemoryDefaults,
    pub scheduling: Scheduling,
    pub priority: Priority,
    pub preemption: Preemption,
    pub accounting: Accounting,
    pub alternate_auth: AlternateAuth,
    pub launch: LaunchSettings,
    pub programs: Programs,
    pub power: PowerPolicy,
    /// `GresTypes`, or the names of all resources that nodes have.
    pub gres_types: Vec<String>,
    /// `Licenses`: how many there are of each.
    pub licenses: BTreeMap<String, u64>,
    pub private_data: PrivateData,
    pub return_to_service: u16,
    pub disable_root_jobs: bool,
    /// `SlurmctldHost`: where the machines that the server may be on are dialled.
    pub controllers: Vec<String>,
    /// How many nodes there may be, with those that are in no file; fewer than the file has: as many as that.
    pub max_node_count: u32,
}

/// Numbers of jobs, and how many there may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JobIds {
    pub first_job_id: u32,
    pub max_job_id: u32,
    pub max_job_count: u32,
    /// The first array index that is too large.
    pub max_array_size: u32,
    pub max_step_count: u32,
    pub max_tasks_per_node: u32,
    /// `max_array_tasks`: the most tasks of one array, where that is less than its indices could be.
    pub max_array_tasks: Option<u32>,
    /// `max_script_size`
    pub max_script_bytes: Option<u32>,
}

/// Timeouts and waits, in the unit of the field's name. `None` is without end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    pub slurmd_timeout_s: u32,
    pub kill_wait_s: u32,
    pub min_job_age_s: u32,
    pub over_time_limit_min: Option<u32>,
    pub prolog_epilog_timeout_s: Option<u32>,
    pub resv_over_run_min: Option<u32>,
    pub unkillable_step_timeout_s: u32,
    pub wait_time_s: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryDefaults {
    /// The memory of a job that asks for none; `None` is all memory of its nodes.
    pub default: Option<DefaultMemory>,
    /// The most memory that a job may ask for; `None` is without bound.
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
    /// `TopologyPlugin` as written.
    pub topology_plugin: String,
    pub topology_parameters: Parameters,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Priority {
    pub kind: PriorityType,
    pub flags: Vec<PriorityFlag>,
    pub favor_small: bool,
    pub calc_period_min: u32,
    /// `None`: usage does not decay.
    pub decay_half_life_min: Option<u32>,
    pub usage_reset: UsageReset,
    pub max_age_min: u32,
    pub weight_age: u32,
    pub weight_assoc: u32,
    pub weight_fairshare: u32,
    pub weight_job_size: u32,
    pub weight_partition: u32,
    pub weight_qos: u32,
    /// TRES in lower case with their weights, in the order written.
    pub weight_tres: Vec<(String, f64)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accounting {
    pub enforce: Vec<AccountingEnforce>,
    pub store_flags: Vec<StoreFlag>,
    /// `AccountingStorageParameters`
    pub parameters: Parameters,
    pub kept_texts: KeptTexts,
    /// Seconds between two samples of a task's usage: zero is no samples, `None` is not configured.
    pub sample_s: Option<u32>,
}

/// How clients may say who they are beside the usual way.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AlternateAuth {
    /// `AuthAltTypes`
    pub types: Vec<String>,
    /// `AuthAltParameters`
    pub parameters: Parameters,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaunchSettings {
    pub slurmd_parameters: Parameters,
    pub task_plugins: Vec<TaskPlugin>,
    pub task_plugin_parameters: Parameters,
    pub cgroup_plugin: Option<CgroupPlugin>,
    pub container_type: Option<ContainerType>,
    pub cpu_frequency: CpuFrequencyPolicy,
    pub job_file_append: bool,
    pub job_requeue: bool,
    pub kill_on_bad_exit: bool,
    /// Ranges of exit codes, both ends included.
    pub requeue_exit: Vec<(i32, i32)>,
    pub requeue_exit_hold: Vec<(i32, i32)>,
    /// The pause before a requeued job starts again.
    pub requeue_wait_s: u32,
    pub propagate_nice: NicePolicy,
    pub propagate_limits: Vec<String>,
    pub propagate_limits_except: Vec<String>,
    pub tmp_fs: String,
}

/// Programs as written. `prolog` and `epilog` may be lists or patterns: the server expands them.
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
    pub mail_program: Option<String>,
    pub mail_domain: Option<String>,
    pub prolog_flags: Vec<PrologFlag>,
    pub health_check: Option<String>,
    /// 0: nodes are not checked.
    pub health_check_interval_s: u32,
    /// Empty: as `ANY`.
    pub health_check_states: Vec<HealthCheckState>,
}

impl Default for Globals {
    fn default() -> Self {
        Self {
            ids: JobIds::default(),
            times: Times::default(),
            memory: MemoryDefaults { default: None, max: None, cpus_per_gpu: None },
            scheduling: Scheduling::default(),
            priority: Priority::default(),
            preemption: Preemption::default(),
            accounting: Accounting {
                enforce: Vec::new(),
                store_flags: Vec::new(),
                parameters: Parameters::default(),
                kept_texts: KeptTexts::default(),
                sample_s: None,
            },
            alternate_auth: AlternateAuth::default(),
            launch: LaunchSettings::default(),
            programs: Programs::default(),
            power: PowerPolicy::default(),
            gres_types: Vec::new(),
            licenses: BTreeMap::new(),
            private_data: PrivateData::default(),
            return_to_service: 0,
            disable_root_jobs: false,
            controllers: Vec::new(),
            max_node_count: 0,
        }
    }
}

impl Default for JobIds {
    fn default() -> Self {
        Self {
            first_job_id: 1,
            max_job_id: 0x03ff_0000,
            max_job_count: 10_000,
            max_array_size: 1_001,
            max_step_count: 40_000,
            max_tasks_per_node: 512,
            max_array_tasks: None,
            max_script_bytes: None,
        }
    }
}

impl Default for Times {
    fn default() -> Self {
        Self {
            slurmd_timeout_s: 300,
            kill_wait_s: 30,
            min_job_age_s: 300,
            over_time_limit_min: Some(0),
            prolog_epilog_timeout_s: None,
            resv_over_run_min: Some(0),
            unkillable_step_timeout_s: 60,
            wait_time_s: 0,
        }
    }
}

impl Default for Scheduling {
    fn default() -> Self {
        Self {
            scheduler: SchedulerType::Backfill,
            parameters: Parameters::default(),
            backfill: Backfill::default(),
            select: SelectType::ConsTres,
            select_parameters: vec![SelectParameter::CoreMemory],
            enforce_part_limits: EnforcePartLimits::No,
            dependency_parameters: Parameters::default(),
            topology_plugin: "topology/none".to_owned(),
            topology_parameters: Parameters::default(),
        }
    }
}

impl Default for Priority {
    fn default() -> Self {
        const WEEK_MIN: u32 = 7 * 24 * 60;
        Self {
            kind: PriorityType::Basic,
            flags: Vec::new(),
            favor_small: false,
            calc_period_min: 5,
            decay_half_life_min: Some(WEEK_MIN),
            usage_reset: UsageReset::None,
            max_age_min: WEEK_MIN,
            weight_age: 0,
            weight_assoc: 0,
            weight_fairshare: 0,
            weight_job_size: 0,
            weight_partition: 0,
            weight_qos: 0,
            weight_tres: Vec::new(),
        }
    }
}

impl Default for LaunchSettings {
    fn default() -> Self {
        Self {
            slurmd_parameters: Parameters::default(),
            task_plugins: vec![TaskPlugin::None],
            task_plugin_parameters: Parameters::default(),
            cgroup_plugin: None,
            container_type: None,
            cpu_frequency: CpuFrequencyPolicy::default(),
            job_file_append: false,
            job_requeue: true,
            kill_on_bad_exit: false,
            requeue_exit: Vec::new(),
            requeue_exit_hold: Vec::new(),
            requeue_wait_s: 120,
            propagate_nice: NicePolicy::Daemon,
            propagate_limits: Vec::new(),
            propagate_limits_except: Vec::new(),
            tmp_fs: "/tmp".to_owned(),
        }
    }
}

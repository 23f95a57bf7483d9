//! The options of `sbatch`, `srun` and `salloc`, every value checked and typed.

pub mod conflicts;
mod from_settings;

use std::collections::{BTreeMap, BTreeSet};

use model::amount::Bytes;
use model::array::{ArraySpec, IndexSet};
use model::binding::{CpuBinding, MemBinding};
use model::constraint::Constraint;
use model::container::Container;
use model::cpu_frequency::CpuFrequency;
use model::dependency::Dependency;
use model::gres::GresCount;
use model::mail::MailType;
use model::range::Range;
use model::run::LoginEnvironment;
use model::secret::SecretVariable;
use model::time::{TimeLimit, Timestamp};
use model::volume::VolumeUse;

use super::key::OptionKey;

/// Every option of a submission. `None`, `false` and empty mean that the option was not given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobOptions {
    // Whose job it is, and what it is called.
    pub account: Option<String>,
    pub comment: Option<String>,
    pub gid: Option<u32>,
    pub job_name: Option<String>,
    pub mail_types: Vec<MailType>,
    pub mail_user: Option<String>,
    pub partitions: Vec<String>,
    pub qos: Option<String>,
    pub reservation: Option<String>,
    pub uid: Option<u32>,
    pub wckey: Option<String>,

    // When it runs, and when no longer.
    pub array: Option<ArraySpec>,
    pub begin: Option<Timestamp>,
    pub deadline: Option<Timestamp>,
    pub delay_boot: Option<TimeLimit>,
    pub dependency: Option<Dependency>,
    pub hold: bool,
    /// The seconds within which the job must start, or it is dropped.
    pub immediate_secs: Option<u32>,
    pub kill_on_invalid_dep: Option<bool>,
    pub nice: Option<i32>,
    pub no_kill: bool,
    pub priority: Option<PriorityOption>,
    /// `--requeue` or `--no-requeue`, whichever came last.
    pub requeue: Option<bool>,
    pub signal: Option<SignalOption>,
    pub time: Option<TimeLimit>,
    pub time_min: Option<TimeLimit>,
    pub wait_all_nodes: Option<bool>,

    // What it needs.
    pub constraint: Option<Constraint>,
    pub contiguous: bool,
    pub core_spec: Option<u32>,
    pub cores_per_socket: Option<u32>,
    pub cpus_per_gpu: Option<u32>,
    pub cpus_per_task: Option<u32>,
    pub exclude: Vec<String>,
    pub exclusive: Option<Exclusive>,
    pub gpus: Vec<GresCount>,
    pub gpus_per_node: Vec<GresCount>,
    pub gpus_per_socket: Vec<GresCount>,
    pub gpus_per_task: Vec<GresCount>,
    pub gres: Vec<GresCount>,
    pub gres_flags: Option<GresFlag>,
    pub licenses: Vec<LicenseCount>,
    /// Memory on each node. Zero asks for all of it.
    pub mem: Option<Bytes>,
    pub mem_per_cpu: Option<Bytes>,
    pub mem_per_gpu: Option<Bytes>,
    pub mincpus: Option<u32>,
    pub nodelist: Vec<String>,
    pub nodes: Option<Range<u32>>,
    /// Only these numbers of nodes; empty: any within `nodes`.
    pub node_counts: Vec<u32>,
    pub ntasks: Option<u32>,
    pub ntasks_per_core: Option<u32>,
    pub ntasks_per_gpu: Option<u32>,
    pub ntasks_per_node: Option<u32>,
    pub ntasks_per_socket: Option<u32>,
    pub overcommit: bool,
    pub oversubscribe: bool,
    pub prefer: Option<Constraint>,
    pub segment: Option<u32>,
    pub sockets_per_node: Option<u32>,
    pub spread_job: bool,
    pub switches: Option<SwitchesOption>,
    pub thread_spec: Option<u32>,
    pub threads_per_core: Option<u32>,
    pub tmp: Option<Bytes>,
    /// The part of `--tres-per-task` that is neither CPUs nor GPUs, which have fields of their own.
    pub gres_per_task: Vec<GresCount>,
    pub use_min_nodes: bool,

    // How its processes run.
    pub chdir: Option<String>,
    pub container: Option<Container>,
    /// In the order of the options; a later one for the same variable wins.
    pub secrets: Vec<SecretVariable>,
    pub volumes: Vec<VolumeUse>,
    /// The port that each task of a service listens at.
    pub service: Option<u16>,
    pub cpu_bind: Option<CpuBinding>,
    pub cpu_freq: Option<CpuFrequency>,
    pub distribution: Option<Distribution>,
    pub error: Option<String>,
    pub export: Option<Export>,
    pub export_file: Option<String>,
    pub get_user_env: Option<LoginEnvironment>,
    pub gpu_bind: Option<String>,
    pub hint: Option<String>,
    pub input: Option<String>,
    pub mem_bind: Option<MemBinding>,
    pub open_mode: Option<OpenMode>,
    pub output: Option<String>,
    pub profile: Option<String>,
    pub propagate: Option<Vec<String>>,

    // How the command itself behaves.
    pub bell: Option<bool>,
    pub clusters: Vec<String>,
    pub ignore_pbs: bool,
    /// The signal `salloc` sends to its command when the allocation ends.
    pub kill_command: Option<i32>,
    pub no_shell: bool,
    pub parsable: bool,
    pub quiet: bool,
    pub test_only: bool,
    pub verbose: u32,
    /// `sbatch --wait`.
    pub wait: bool,
    pub wrap: Option<String>,

    pub step: StepOptions,

    /// Options without a field of their own, as they were given. Most have no effect.
    pub untyped: BTreeMap<OptionKey, String>,

    /// Options that were given, by the script or on the command line, and have no meaning here.
    pub without_meaning: BTreeSet<OptionKey>,

    /// The lines with which `-v` shows the options; empty without it.
    pub defined: Vec<String>,
}

impl JobOptions {
    /// `-m arbitrary`: the node list names the host of each task.
    pub fn is_arbitrary(&self) -> bool {
        self.distribution.and_then(|distribution| distribution.nodes)
            == Some(NodeDistribution::Arbitrary)
    }
}

/// The options that only `srun` has.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepOptions {
    /// The path to copy the program to; empty for the default path.
    pub bcast: Option<String>,
    pub disable_status: bool,
    pub epilog: Option<String>,
    pub exact: bool,
    pub het_group: Option<IndexSet>,
    pub job_id: Option<u32>,
    pub kill_on_bad_exit: Option<bool>,
    pub label: bool,
    pub mpi: Option<String>,
    pub multi_prog: bool,
    pub no_allocate: bool,
    pub overlap: bool,
    pub preserve_env: bool,
    pub prolog: Option<String>,
    pub pty: bool,
    pub quit_on_interrupt: bool,
    pub relative: Option<u32>,
    pub slurmd_debug: Option<String>,
    pub task_epilog: Option<String>,
    pub task_prolog: Option<String>,
    pub threads: Option<u32>,
    pub unbuffered: bool,
    /// Seconds to wait for the other tasks once the first has ended; zero waits forever.
    pub wait_secs: Option<u32>,
    pub whole: bool,
    /// `--gres=none`: the step uses none of the job's generic resources.
    pub no_gres: bool,
    /// Options that only the environment set. Inside a job these are the job's own values.
    pub inherited: BTreeSet<OptionKey>,
}

/// `--export`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Export {
    /// The caller's whole environment, and these variables.
    All(Vec<ExportVariable>),
    /// The user's login environment and Slurm's own variables.
    None,
    /// Slurm's own variables only.
    Nil,
    /// Only these variables, and Slurm's own.
    Only(Vec<ExportVariable>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportVariable {
    pub name: String,
    /// The value to set; `None` passes the caller's on.
    pub value: Option<String>,
}

/// `--signal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalOption {
    pub signal: i32,
    /// How long before the end.
    pub before_secs: u32,
    /// Sent to the batch script and not to the steps.
    pub batch_only: bool,
    /// Also sent before a reservation takes the nodes.
    pub for_reservation: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityOption {
    Value(u32),
    /// Before all other jobs.
    Top,
}

/// The jobs that a job does not share its nodes with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exclusive {
    AnyJob,
    OtherUsers,
    OtherLabels,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    Append,
    Truncate,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GresFlag {
    EnforceBinding,
    DisableBinding,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LicenseCount {
    pub name: String,
    pub count: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SwitchesOption {
    pub count: u32,
    pub wait: Option<TimeLimit>,
}

/// `--distribution`, level by level; `None` is the default of the level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Distribution {
    pub nodes: Option<NodeDistribution>,
    pub sockets: Option<LocalDistribution>,
    pub cores: Option<LocalDistribution>,
    /// `Pack` or `NoPack`.
    pub pack: Option<bool>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeDistribution {
    Block,
    Cyclic,
    Arbitrary,
    Plane(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LocalDistribution {
    Block,
    Cyclic,
    Fcyclic,
}

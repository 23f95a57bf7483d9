//! What `sbatch`, `srun` and `salloc` were asked, every value checked and typed.

use std::collections::{BTreeMap, BTreeSet};

use model::amount::Bytes;
use model::array::{ArraySpec, IndexSet};
use model::binding::{CpuBinding, MemBinding};
use model::constraint::Constraint;
use model::dependency::Dependency;
use model::gres::GresCount;
use model::range::Range;
use model::time::{TimeLimit, Timestamp};

use super::key::OptionKey;

/// Every option of a submission. `None`, `false` and empty mean that nothing was said.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct JobOptions {
    // Whose job it is, and what it is called.
    pub account: Option<String>,
    pub comment: Option<String>,
    pub gid: Option<u32>,
    pub job_name: Option<String>,
    pub mail_types: Vec<MailEvent>,
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
    /// Seconds within which it must start, or never.
    pub immediate_secs: Option<u32>,
    pub kill_on_invalid_dep: Option<bool>,
    pub nice: Option<i32>,
    pub no_kill: bool,
    pub priority: Option<PriorityOption>,
    pub reboot: bool,
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
    /// Memory of each node. Zero asks for all of it.
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
    pub switches: Option<Switches>,
    pub thread_spec: Option<u32>,
    pub threads_per_core: Option<u32>,
    pub tmp: Option<Bytes>,
    /// Of `--tres-per-task` what is not CPUs or GPUs, which have options of their own.
    pub gres_per_task: Vec<GresCount>,
    pub use_min_nodes: bool,

    // How its processes run.
    pub chdir: Option<String>,
    pub container: Option<String>,
    pub cpu_bind: Option<CpuBinding>,
    pub distribution: Option<Distribution>,
    pub error: Option<String>,
    pub export: Option<Export>,
    pub export_file: Option<String>,
    pub get_user_env: bool,
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

    /// Options that nothing acts upon yet, as they were given.
    pub kept: BTreeMap<OptionKey, String>,
}

/// What only `srun` knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StepOptions {
    /// Where to copy the program; empty for the default place.
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
    /// Seconds to wait for the other tasks once the first has ended; zero for ever.
    pub wait_secs: Option<u32>,
    pub whole: bool,
    /// `--gres=none`: none of the job's resources.
    pub no_gres: bool,
    /// Options that the environment set, and the command line did not: those of the job around a step.
    pub inherited: BTreeSet<OptionKey>,
}

/// `--export`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Export {
    /// The caller's whole environment, and these.
    All(Vec<ExportVariable>),
    /// The user's login environment and Slurm's own variables.
    None,
    /// Slurm's own variables only.
    Nil,
    /// Only these, and Slurm's own.
    Only(Vec<ExportVariable>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExportVariable {
    pub name: String,
    /// The value to give it; absent to pass the caller's on.
    pub value: Option<String>,
}

/// `--signal`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SignalOption {
    pub signal: i32,
    /// How long before the end.
    pub before_secs: u32,
    /// To the batch script, and not to the steps.
    pub batch_only: bool,
    /// Also before a reservation takes the nodes.
    pub for_reservation: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PriorityOption {
    Value(u32),
    /// Before all others.
    Top,
}

/// With whom a job does not share its nodes.
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
pub struct Switches {
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

/// What mail is sent on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum MailEvent {
    InvalidDepend,
    Begin,
    End,
    Fail,
    Requeue,
    StageOut,
    TimeLimit,
    TimeLimit90,
    TimeLimit80,
    TimeLimit50,
    ArrayTasks,
}

//! Orders from the server to an agent, each signed for one job, attempt, node and user, until a time.

use crate::byte_text::ByteText;
use crate::ssh::InternodeSsh;
use crate::step::StepLaunch;
use crate::volume::{LaunchVolume, VolumeOrder};
use crate::workspace::Workspace;
use model::allocation::NodeShare;
use model::amount::Bytes;
use model::binding::CpuBinding;
use model::container::Container;
use model::id::{AttemptId, CallId, StepId};
use model::run::{ExitStatus, LaunchKind, LoginEnvironment, Rlimits, SignalBefore};
use model::secret::{GitCredentials, RegistryAuth};
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// An order as it travels: the exact bytes that were signed, and the signature over them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignedOrder {
    /// JSON of an `Order`.
    pub body: String,
    /// Ed25519, base64.
    pub signature: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Order {
    pub version: u32,
    /// The server's term; an agent refuses one older than it has seen.
    pub term: u64,
    /// Grows within a term: an order taken once is refused the second time.
    pub serial: u64,
    pub node: String,
    pub attempt: AttemptId,
    pub uid: u32,
    /// The order is refused after this.
    pub expires: Timestamp,
    pub action: Action,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Action {
    Launch(Box<JobLaunch>),
    Step(Box<StepOrder>),
    Signal(SignalOrder),
    /// SIGTERM (and SIGCONT), `grace_s` later SIGKILL, until the group is empty.
    End(EndOrder),
    Suspend,
    Resume,
    /// The job's other nodes are ready: a script that was deferred starts.
    Begin,
    /// A new end of the time limit; none: without limit.
    ExtendTo {
        end: Option<Timestamp>,
    },
    /// No order for this step will come any more: if none came yet, the step is over.
    Disown {
        step: StepId,
    },
    /// The server has the attempt's end on disk: the spool may let go of it.
    Forget,
    /// About no attempt; it comes with a stream of its own, which tells how it went.
    Volume(VolumeOrder),
    /// About no attempt: the machine is to be rebooted by this program.
    Reboot {
        program: String,
        /// When it was decided: an agent that is told again has it done already. None from a server before this was said.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        since: Option<Timestamp>,
    },
}

/// Everything that a node needs to run its part of a job. It knows no dialect:
/// the environment comes ready, but for what only the node can tell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobLaunch {
    pub kind: LaunchKind,
    pub user: UserIds,
    pub share: NodeShare,
    /// This node's place in the allocation; the script runs at 0 (at every node for a task).
    pub node_index: u32,
    /// How many nodes the job has.
    #[serde(default = "one")]
    pub nodes: u32,
    /// The script; none where nothing is started by the launch itself.
    #[serde(default)]
    pub script: Option<ByteText>,
    /// The script waits for `Begin`; that the node is ready for it is said.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub deferred: bool,
    #[serde(default)]
    pub arguments: Vec<String>,
    /// `NAME=value` each; the base environment with the dialect's variables.
    pub environment: Vec<String>,
    /// Files that the node writes for the job.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub files: Vec<LaunchFile>,
    /// How its processes reach the other nodes of its run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub internode_ssh: Option<Box<InternodeSsh>>,
    /// What the owner's own shell has on the node is added, where the environment has no variable of the name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_environment: Option<LoginEnvironment>,
    /// Variables that the node fills in for each process.
    #[serde(default)]
    pub process_variables: Vec<(String, ProcessVariable)>,
    /// Variables of the script that name the folder it starts in, which a container may have elsewhere.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub folder_variables: Vec<String>,
    pub work_dir: String,
    pub stdin: String,
    pub stdout: Output,
    pub stderr: Output,
    pub umask: u32,
    #[serde(default)]
    pub rlimits: Rlimits,
    /// None: that of the node's own daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nice: Option<Niceness>,
    /// Whether processes are bound to CPUs at all.
    #[serde(default)]
    pub bound: bool,
    pub name: String,
    /// When the time limit ends the attempt, and the seconds between SIGTERM and SIGKILL.
    pub end_limit: Option<Timestamp>,
    pub kill_wait_s: u32,
    /// How long after its end the limit is enforced; `u32::MAX`: never.
    #[serde(default)]
    pub over_time_s: u32,
    /// A group that is not empty so long after it was killed holds what cannot be killed; 0: that is never said.
    #[serde(default)]
    pub unkillable_s: u32,
    #[serde(default)]
    pub signal: Option<SignalBefore>,
    /// What `%`-patterns in file names need.
    pub names: FileNames,
    #[serde(default)]
    pub first_step: Option<Box<StepOrder>>,
    /// Lines for the job's error output, in the dialect's words, with `{time}` to fill in.
    pub notices: Notices,
    /// Seconds between two samples of its tasks' usage; none: the site's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_s: Option<u32>,
    /// What the script runs in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Box<Container>>,
    /// The volumes that its processes find at their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<LaunchVolume>,
    /// The size of a private `/dev/shm` of a job without a container; none: the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<Bytes>,
    /// Its container gets a network of its own, as the site's policy has it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub own_network: bool,
    /// The ids of its containers' users on the node.
    #[serde(default, skip_serializing_if = "IdRange::is_of_uid")]
    pub id_range: IdRange,
    /// For the registry of its container's image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_auth: Option<RegistryAuth>,
    /// What is placed on the node before the script runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Box<Workspace>>,
    /// For the workspace's repository.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_credentials: Option<GitCredentials>,
    /// The call that submitted the job, for the lines of the node's log.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
    /// The environment of the site's prolog and epilog.
    #[serde(default, rename = "around")]
    pub prolog_epilog: PrologEpilogEnvironment,
}

/// Which of the ranges of ids is the account's, where the site has them given by its server.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum IdRange {
    /// The one that follows from the account's number: of a job that started before servers gave ranges.
    #[default]
    OfUid,
    Number(u32),
    /// None: all are other accounts'.
    Exhausted,
}

impl IdRange {
    fn is_of_uid(&self) -> bool {
        *self == Self::OfUid
    }
}

/// A file of the job that its node writes; the variable tells its path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaunchFile {
    pub name: String,
    pub variable: String,
    pub text: String,
}

/// The nice value that processes are to run with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Niceness {
    pub value: i32,
    /// At least one more than that of the node's own daemon.
    pub below_daemon: bool,
}

/// The environment of a site's prolog and epilog on a node.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PrologEpilogEnvironment {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// Variables that the node fills in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub variables: Vec<(String, PrologEpilogVariable)>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PrologEpilogVariable {
    /// One word in the prolog, another in the epilog.
    Context { before: String, after: String },
    /// The script's wait status; only in the epilog.
    WaitStatus,
    /// The script's end as `code:signal`; only in the epilog.
    Exit,
    /// Where the job's versions of private folders are kept; before they are shown to it alone.
    PrivateFolder,
}

fn one() -> u32 {
    1
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct UserIds {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
    pub groups: Vec<u32>,
}

/// Where output goes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Output {
    /// A pattern, relative to the working directory, opened as the user.
    File {
        pattern: String,
        append: bool,
    },
    /// The same file as standard output.
    SameAsStdout,
    /// The attempt's log in the node's spool, which `logs` reads.
    Log,
    Discard,
}

/// The parts of file-name patterns that are the same for all processes of the job.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct FileNames {
    pub job_id: u32,
    #[serde(default)]
    pub array_job_id: Option<u32>,
    #[serde(default)]
    pub array_task_id: Option<u32>,
    pub user: String,
    pub job_name: String,
}

/// The lines that the node writes into a job's error output. In each, `{time}`, `{node}`, `{step}` (`12.batch`, `12.0`),
/// `{count}`, `{what}` and `{error}` are filled in where they apply. An empty line is not written, but for the
/// last two, which fall back on plain words.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Notices {
    pub time_limit: String,
    pub out_of_memory: String,
    pub node_failure: String,
    /// As `time_limit`, in the output of a step.
    #[serde(default)]
    pub step_time_limit: String,
    /// The job has used the CPU time that it may; in its own output, and in that of a step.
    #[serde(default)]
    pub cpu_time_limit: String,
    #[serde(default)]
    pub step_cpu_time_limit: String,
    /// A step is ended by its own `srun`.
    #[serde(default)]
    pub step_cancelled: String,
    /// `{what}` could not be executed because of `{error}`.
    #[serde(default)]
    pub exec_failed: String,
    /// The limit `{what}` that was asked for could not be set because of `{error}`.
    #[serde(default)]
    pub limit_refused: String,
    /// The nice value `{what}` could not be had because of `{error}`.
    #[serde(default)]
    pub nice_refused: String,
    /// The frequency of a step's CPUs is not as it was asked for, because of `{error}`.
    #[serde(default)]
    pub cpu_frequency_refused: String,
    /// The working directory `{what}` could not be entered because of `{error}`; the job runs in /tmp.
    #[serde(default)]
    pub work_dir_failed: String,
    /// The site's task prolog ended with `{error}`; then the same for the user's own.
    #[serde(default)]
    pub task_prolog_failed: String,
    #[serde(default)]
    pub own_prolog_failed: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProcessVariable {
    /// The global rank of the task.
    Rank,
    LocalRank,
    Pid,
    /// Global ranks of the tasks on this node, with commas.
    RanksHere,
    /// What the tasks here are bound to: all of it, and its parts. Not set where nothing is bound.
    CpuBind,
    CpuBindVerbose,
    CpuBindType,
    CpuBindList,
    /// The job's folder for what need not outlive it; not set where there is none.
    Scratch,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepOrder {
    pub step: StepId,
    pub launch: StepLaunch,
    /// Global ranks of the tasks to start here.
    pub tasks: Vec<u32>,
    pub node_index: u32,
    /// How many tasks the step has on all its nodes; an older server does not say it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub step_tasks: Option<NonZeroU32>,
    /// Set over the launch's own environment.
    pub environment: Vec<String>,
    pub process_variables: Vec<(String, ProcessVariable)>,
    /// What the step has here; none: all that the job has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub share: Option<NodeShare>,
    /// None: that of the node's own daemon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub nice: Option<Niceness>,
    /// None: tasks are not bound.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_bind: Option<CpuBinding>,
    /// For each task here, a program and variables of its own; empty: those of the launch.
    #[serde(default, rename = "of_tasks", skip_serializing_if = "Vec::is_empty")]
    pub task_orders: Vec<TaskOrder>,
}

/// What one task has for itself. An empty program is the launch's.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct TaskOrder {
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub argv: Vec<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub environment: Vec<String>,
    /// Written to its error output before its program runs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lines: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SignalOrder {
    /// None: every process of the attempt.
    #[serde(default)]
    pub step: Option<StepId>,
    pub signal: i32,
    /// Only the first process (the batch shell).
    #[serde(default)]
    pub leader_only: bool,
    /// Every task of every step, but not the batch script: Slurm's `scancel -s` without more.
    #[serde(default)]
    pub steps_only: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndOrder {
    /// None: the whole attempt.
    #[serde(default)]
    pub step: Option<StepId>,
    /// 0: SIGKILL at once.
    pub grace_s: u32,
    /// A line for the script's error output, with `{time}`; none: say nothing.
    #[serde(default)]
    pub notice: Option<String>,
    /// The same for each step's, with `{step}`.
    #[serde(default)]
    pub step_notice: Option<String>,
    #[serde(default)]
    pub exit: Option<ExitStatus>,
}

impl EndOrder {
    /// SIGKILL at once, to one step or to everything.
    pub fn kill(step: Option<StepId>, step_notice: Option<String>) -> Self {
        Self { step, grace_s: 0, notice: None, step_notice, exit: None }
    }
}

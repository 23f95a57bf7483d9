//! Runs, jobs, het components, array tasks and steps: what they are made of.

pub use super::outcome::{ExitStatus, JobState, Outcome};
pub use super::process_policy::{NicePolicy, RlimitPolicy, Rlimits};
use crate::allocation::NodeShare;
use crate::amount::Bytes;
use crate::container::{Container, NO_CONTAINER};
use crate::cpu_frequency::CpuFrequency;
use crate::cron::Schedule;
use crate::dependency::Dependency;
use crate::fleet::MAIN_PROJECT;
use crate::id::{BlobRef, CallId, JobId, RunId, StepId};
use crate::mail::Mail;
use crate::port_forward::PortForwards;
use crate::principal::Principal;
use crate::request::Request;
use crate::secret::Sealed;
use crate::service::Service;
use crate::time::{TimeLimit, Timestamp};
pub use crate::usage::Usage;
use crate::volume::VolumeUse;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;

/// A job as submitted. Running it changes nothing here, so that all tasks of an array share one.
///
/// Large parts are shared between equal jobs of a user.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobSpec {
    pub name: Arc<str>,
    pub owner: Arc<Principal>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub account: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub qos: Option<String>,
    /// Always one: the other components of a het job are jobs of their own ([`HetComponent`]).
    pub components: Arc<[Component]>,
    pub launch: Arc<Launch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dependency: Option<Box<Dependency>>,
    #[serde(default)]
    pub kill_on_invalid_dependency: bool,
    /// Subtracted from the priority.
    #[serde(default)]
    pub nice: i32,
    /// dstack's 0–100.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub dstack_priority: Option<u8>,
    /// `--requeue`: a node's failure makes a new attempt.
    pub requeue: bool,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry: Option<Box<Retry>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub signal: Option<SignalBefore>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub comment: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wckey: Option<String>,
    /// The submitting command line, as `scontrol show job` and `sacct` print it.
    #[serde(default)]
    pub submit_line: Arc<str>,
    /// The host and session that submitted: `AllocNode:Sid`.
    #[serde(default)]
    pub submit_host: Arc<str>,
    #[serde(default)]
    pub submit_sid: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mail: Option<Box<Mail>>,
    /// dstack's `schedule`: the job is started at each of its times, until somebody ends it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub schedule: Option<Box<Schedule>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub utilization: Option<UtilizationPolicy>,
    /// dstack's `inactivity_duration`: the job is ended when nobody was connected to it by SSH for so many seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inactivity_s: Option<u32>,
    /// The call that submitted it, for the lines of logs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<CallId>,
}

/// dstack's `utilization_policy`: the job is ended when the GPUs of one of its nodes all stayed below this for the window.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UtilizationPolicy {
    pub min_gpu_percent: u32,
    pub window_s: u64,
}

impl JobSpec {
    pub fn request(&self) -> &Request {
        &self.components[0].request
    }

    /// Whether it is a run of dstack on several nodes, also one whose groups are jobs of a node each.
    pub fn is_distributed_run(&self) -> bool {
        let request = self.request();
        self.launch.kind == LaunchKind::Task && (request.one_switch || request.nodes.min > 1)
    }

    /// Which deployment of a service it is; the first is 0, as of what is no service. Where several run, the last is the service as it was
    /// applied: the time of a submit does not tell, for a replica that gave up its place is submitted anew.
    pub fn deployment(&self) -> u32 {
        self.launch.service.as_ref().map_or(0, |service| service.deployment)
    }

    /// The project whose secrets and volumes it may name: the account that it names, else the main one.
    pub fn project(&self) -> &str {
        self.account.as_deref().unwrap_or(MAIN_PROJECT)
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Component {
    pub request: Arc<Request>,
}

/// The environment that a user's own shell has on a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LoginEnvironment {
    /// How long the shell may take.
    pub timeout_s: u32,
    /// The shell reads the files of a login.
    pub login: bool,
}

/// The processes to start on the allocation: script, environment, files.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Launch {
    pub kind: LaunchKind,
    /// The script, by content; `None` for an allocation that a client holds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub script: Option<BlobRef>,
    /// The environment, by content: `NAME=value` ended by NUL each.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub environment: Option<BlobRef>,
    /// The step that `srun` starts with its job, by content, so that it survives a restart of the server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_step: Option<Box<BlobRef>>,
    /// The configuration that the run was made from, in its dialect's own form, by content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Box<BlobRef>>,
    /// Variables of the environment whose values refer to secrets, which are filled in when the job is launched.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_variables: Vec<String>,
    /// Its secrets were checked to be those of its project. Not set on a job of a build in which all were the main one's.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub has_project_secrets: bool,
    /// The credentials for the registry of its image, or of its first step's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_auth: Option<Box<Sealed>>,
    /// The files and the repository that the run brings along, by content.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<Box<BlobRef>>,
    /// What its private repository is cloned with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub git_credentials: Option<Box<Sealed>>,
    /// How long the launch's blobs are.
    #[serde(default, skip_serializing_if = "BlobBytes::is_none")]
    pub blob_bytes: BlobBytes,
    /// What the script runs in; `None` for the node's own file system.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Box<Container>>,
    /// `runtime: process`: it runs on the node's own file system also where the site has an image for runs that name none.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub without_container: bool,
    /// The volumes that its processes find at their paths.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub volumes: Vec<VolumeUse>,
    /// The size of a private `/dev/shm`, of a job without a container; `None` for the node's own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shared_memory: Option<Bytes>,
    /// Which nodes of a task start first.
    #[serde(default, skip_serializing_if = "StartupOrder::is_any")]
    pub startup_order: StartupOrder,
    /// A task on several nodes is done when its first node is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ends_with_first_node: bool,
    /// Seconds after its start at which a task is over, where that is before the end of its time limit, which is in minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit_s: Option<u32>,
    /// Seconds between the signal that stops a task and the kill; none: dstack's own for a stop, else the cluster's `KillWait`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stop_s: Option<u32>,
    /// The environment of the owner's login is added to the script's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub login_environment: Option<LoginEnvironment>,
    /// `salloc --no-shell`: the allocation stays although no client holds it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unattended: bool,
    /// The script's own arguments.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<String>,
    pub work_dir: Arc<str>,
    /// The script's path as submitted (`Command=`); `None` for `--wrap` and standard input.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Arc<str>>,
    /// Patterns of file names; `None` for the dialect's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdin: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stdout: Option<Arc<str>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stderr: Option<Arc<str>>,
    #[serde(default)]
    pub append_output: bool,
    #[serde(default = "default_umask")]
    pub umask: u32,
    /// Soft limits to carry over: (RLIMIT name, value; `u64::MAX` is unlimited).
    #[serde(default, skip_serializing_if = "no_limits")]
    pub rlimits: Arc<[(String, u64)]>,
    /// The user named them (`--propagate`): a limit that cannot be set is reported.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub rlimits_asked: bool,
    /// Seconds between two samples of its tasks' usage; none: the site's default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sample_s: Option<u32>,
    /// The job is a replica of a service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service: Option<Box<Service>>,
    /// The ports that a client which is attached to the run brings to its machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub port_forwards: Option<Box<PortForwards>>,
}

/// Which nodes of a task on several nodes start first. The others start when all of these have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartupOrder {
    #[default]
    Any,
    MasterFirst,
    WorkersFirst,
}

impl StartupOrder {
    fn is_any(&self) -> bool {
        *self == Self::Any
    }

    /// Splits the nodes of a job into those that start first and those that wait for them; a node in neither part does not
    /// wait. The groups of a task are one run, whose master is the first node of the first group.
    pub fn parts<'a, T>(&self, nodes: &'a [T], group: Option<HetComponent>) -> (&'a [T], &'a [T]) {
        let masters = usize::from(group.is_none_or(HetComponent::is_leader)).min(nodes.len());
        let (master, workers) = nodes.split_at(masters);
        match self {
            _ if group.is_none() && nodes.len() < 2 => (&[], &[]),
            Self::Any => (&[], &[]),
            Self::MasterFirst => (master, workers),
            Self::WorkersFirst => (workers, master),
        }
    }
}

/// The lengths of the blobs that a launch names; zero where the build before noted none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct BlobBytes {
    pub script: u32,
    pub environment: u32,
    pub first_step: u32,
    pub configuration: u32,
    pub workspace: u32,
}

impl BlobBytes {
    fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

impl Launch {
    /// The exact length of a task that came with a limit in seconds, where `limit` is the job's time limit. A time limit that
    /// was changed since counts instead.
    pub fn exact_limit(&self, limit: TimeLimit) -> Option<Duration> {
        let exact = self.limit_s.filter(|s| limit == TimeLimit::Minutes(s.div_ceil(60)));
        exact.map(|s| Duration::from_secs(s.into()))
    }

    /// The image that a job with these steps is shown with: its script's, or that of the step which it was made for.
    pub fn shown_image<'a>(&'a self, steps: impl IntoIterator<Item = &'a Step>) -> Option<&'a str> {
        let own = self.container.as_deref().and_then(Container::image_name);
        let of_step = || {
            let first = steps.into_iter().find(|step| step.id == StepId::Number(0))?;
            first.image.as_deref().filter(|image| *image != NO_CONTAINER)
        };
        if self.first_step.is_some() { own.or_else(of_step) } else { own }
    }

    /// The blobs that the launch names, with their lengths.
    pub fn blobs(&self) -> [Option<(BlobRef, u32)>; 5] {
        let BlobBytes { script, environment, first_step, configuration, workspace } =
            self.blob_bytes;
        [
            self.script.map(|blob| (blob, script)),
            self.environment.map(|blob| (blob, environment)),
            self.first_step.as_deref().map(|blob| (*blob, first_step)),
            self.configuration.as_deref().map(|blob| (*blob, configuration)),
            self.workspace.as_deref().map(|blob| (*blob, workspace)),
        ]
    }
}

impl Launch {
    /// A launch of this kind without script, environment, files or limits.
    pub fn empty(kind: LaunchKind) -> Self {
        Self {
            kind,
            script: None,
            environment: None,
            first_step: None,
            configuration: None,
            secret_variables: Vec::new(),
            has_project_secrets: false,
            registry_auth: None,
            workspace: None,
            git_credentials: None,
            blob_bytes: BlobBytes::default(),
            without_container: false,
            volumes: Vec::new(),
            shared_memory: None,
            startup_order: StartupOrder::Any,
            ends_with_first_node: false,
            limit_s: None,
            stop_s: None,
            login_environment: None,
            unattended: false,
            arguments: Vec::new(),
            work_dir: Arc::from(""),
            command: None,
            stdin: None,
            stdout: None,
            stderr: None,
            append_output: false,
            umask: default_umask(),
            rlimits: Arc::default(),
            rlimits_asked: false,
            sample_s: None,
            container: None,
            service: None,
            port_forwards: None,
        }
    }
}

fn no_limits(limits: &Arc<[(String, u64)]>) -> bool {
    limits.is_empty()
}

fn default_umask() -> u32 {
    0o022
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchKind {
    /// `sbatch`: the script on the first node.
    Batch,
    /// `salloc` and `srun`: a client holds the allocation and starts steps.
    Interactive,
    /// A dstack task: the commands on every node of the gang.
    Task,
}

/// dstack's `retry`: which ends make a new attempt, and for how long.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Retry {
    #[serde(default)]
    pub on_no_capacity: bool,
    #[serde(default)]
    pub on_interruption: bool,
    #[serde(default)]
    pub on_error: bool,
    /// How long the run may wait: from its submit for the first start, and from the end of the pause after its last attempt
    /// for the next.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub duration_s: Option<u64>,
    /// The most attempts, with the first counted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempts_max: Option<u32>,
}

impl Retry {
    /// Whether an end of this kind is one that it makes a new attempt after.
    pub fn covers(&self, outcome: Outcome) -> bool {
        match outcome {
            // dstack counts an instance that it lost among the errors; who names interruptions alone means it as well.
            Outcome::NodeFail => self.on_interruption || self.on_error,
            Outcome::Failed | Outcome::OutOfMemory | Outcome::LaunchFailed => self.on_error,
            Outcome::NoCapacity => self.on_no_capacity,
            _ => false,
        }
    }
}

/// `--signal=[RB:]SIG[@seconds]`: sent that long before the time limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SignalBefore {
    pub signal: i32,
    pub before_s: u32,
    /// To the batch shell only.
    pub batch_only: bool,
    /// `R:`: the job may overlap the start of a reservation by its `MaxStartDelay`.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub overlaps: bool,
}

/// An array, a run of many jobs. A run of a single job has no record: the job carries its id.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    pub id: RunId,
    pub name: String,
    pub kind: RunKind,
    pub owner: String,
    /// The job, or the record that holds an array's pending indices.
    pub job: JobId,
    /// All tasks as submitted. Older snapshots hold runs of a single job too, with no tasks.
    #[serde(default)]
    pub tasks: crate::array::IndexSet,
    /// The tasks that were cancelled before they started, and so have no record of their own.
    #[serde(default, skip_serializing_if = "crate::array::IndexSet::is_empty")]
    pub cancelled: crate::array::IndexSet,
    /// How the tasks that have ended did: their records may be purged before the last of them ends.
    #[serde(default, skip_serializing_if = "TaskEnds::is_none")]
    pub ends: TaskEnds,
}

/// How the tasks of an array that have ended did, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct TaskEnds {
    pub count: u64,
    /// The state that all of them ended in; `None` where they differ, or before the first end.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<JobState>,
    pub code_min: i32,
    pub code_max: i32,
    /// One of them failed; a cancelled one did not.
    pub failed: bool,
}

impl TaskEnds {
    pub fn is_none(&self) -> bool {
        self.count == 0
    }

    /// Counts so many tasks that ended alike.
    pub fn add(&mut self, tasks: u64, outcome: Outcome, exit: ExitStatus) {
        let state = Some(outcome.state());
        if self.count == 0 {
            *self = Self { state, code_min: exit.code, code_max: exit.code, ..*self };
        }
        self.count += tasks;
        self.state = self.state.filter(|_| self.state == state);
        self.code_min = self.code_min.min(exit.code);
        self.code_max = self.code_max.max(exit.code);
        self.failed |= !matches!(outcome, Outcome::Completed | Outcome::Cancelled { .. });
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunKind {
    Batch,
    Array,
    Interactive,
    Task,
}

/// Who has put a hold on a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Hold {
    User,
    Admin,
    /// The server, on a replica that has given its place to a newer deployment of its service. The server releases it when that one is
    /// gone; to its owner it is a hold of his own.
    Update,
}

/// A component of a heterogeneous job: its jobs start together or not at all, and their ids follow one another. The groups of
/// a dstack task, where they differ in their resources, are components too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HetComponent {
    pub first: JobId,
    pub offset: u32,
    pub size: u32,
}

impl HetComponent {
    pub fn jobs(self) -> impl Iterator<Item = JobId> {
        (0..self.size).map(move |offset| JobId(self.first.0 + offset))
    }

    pub fn is_leader(self) -> bool {
        self.offset == 0
    }
}

/// Which task of which array a job is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ArrayTask {
    pub array: JobId,
    pub index: u32,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Step {
    pub id: StepId,
    pub name: String,
    pub start: Timestamp,
    pub nodes: Vec<String>,
    pub tasks: u32,
    pub cpus: u32,
    /// Nodes that have not reported the step's end.
    pub waiting: Vec<String>,
    /// Per node, the global ranks of the tasks there; empty for a script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub layout: Vec<(String, Vec<u32>)>,
    /// The step's share of each node; empty for a script.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub shares: Vec<NodeShare>,
    /// `--overlap`: it uses resources of other steps, so its own shares are counted to nobody.
    #[serde(default)]
    pub overlap: bool,
    /// The number by which its `srun` asks for the same step again; 0 for none.
    #[serde(default)]
    pub ticket: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<StepEnd>,
    #[serde(default)]
    pub exit: ExitStatus,
    #[serde(default)]
    pub usage: Usage,
    #[serde(default)]
    pub submit_line: String,
    /// `--cpu-freq`, as it was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_frequency: Option<CpuFrequency>,
    /// As [`Container::image_of_step`] has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepEnd {
    pub time: Timestamp,
    pub outcome: Outcome,
}

/// Where a process runs whose working directory is not there, or not for its user; relative output files are there too.
pub const WORK_DIR_FALLBACK: &str = "/tmp";

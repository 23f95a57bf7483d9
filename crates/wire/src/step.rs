//! The launch of a step, and the frames between its tasks and its `srun`.

use model::binding::{CpuBinding, MemBinding};
use model::container::Container;
use model::cpu_frequency::CpuFrequency;
use model::id::{JobId, StepId};
use model::run::{ExitStatus, Rlimits};
use model::secret::RegistryAuth;
use model::step::StepShape;
use model::time::TimeLimit;
use serde::{Deserialize, Serialize};
use std::num::NonZeroU32;

/// The largest payload of a frame on a step's links. The largest that is sent is `GoAs` with the variables of all
/// components of a heterogeneous job; output and input come in smaller pieces.
pub const STEP_PAYLOAD_MAX: usize = 256 << 10;

/// A step as `srun` asks for it. `srun` listens at `encrypted_listen`; the supervisors dial it, and both prove `key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLaunch {
    pub name: String,
    pub argv: Vec<String>,
    /// `NAME=value`, each ended by NUL.
    pub environment: String,
    /// Variables of the environment whose values refer to secrets, which the server fills in.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub secret_variables: Vec<String>,
    /// For the registry of its container's image. The step that starts with its job has those of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub registry_auth: Option<RegistryAuth>,
    pub work_dir: String,
    #[serde(default)]
    pub tasks: Option<u32>,
    #[serde(default)]
    pub nodes: Option<u32>,
    #[serde(default)]
    pub tasks_per_node: Option<u32>,
    #[serde(default)]
    pub cpus_per_task: Option<u32>,
    #[serde(default)]
    pub node_list: Vec<String>,
    /// Where an `srun` of a build without encryption listens. Nobody dials it: such an `srun` asks for a stream through
    /// the server, and a supervisor of that build finds nothing to dial here and waits for one.
    #[serde(default)]
    pub listen: Vec<String>,
    /// Where `srun` listens for encrypted links (`step_channel.rs`), each `IP:PORT`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub encrypted_listen: Vec<String>,
    /// The network stack in which `srun` listens, as that machine names it: a loopback address is dialled in the same
    /// one alone. `None`: no loopback address is dialled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_stack: Option<String>,
    /// 32 random bytes as hex, for this step alone.
    pub key: String,
    #[serde(default)]
    pub umask: u32,
    #[serde(default)]
    pub stdin: StepInput,
    /// Output to files by pattern instead of to `srun`.
    #[serde(default)]
    pub stdout: Option<String>,
    #[serde(default)]
    pub stderr: Option<String>,
    #[serde(default)]
    pub submit_line: String,
    #[serde(default)]
    pub overcommit: bool,
    /// Its first task has a terminal; the others have neither input nor output.
    #[serde(default)]
    pub pty: bool,
    /// Rows and columns of the terminal that `pty` begins with.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub window: Option<(u16, u16)>,
    #[serde(default)]
    pub shape: StepShape,
    /// The distribution in the dialect's own words, where it is told to the tasks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub distribution: Option<String>,
    /// As `srun` was asked; what it was not told is filled in by the server.
    #[serde(default)]
    pub cpu_bind: CpuBinding,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mem_bind: Option<MemBinding>,
    /// The frequency of its CPUs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_frequency: Option<CpuFrequency>,
    /// Limits that tasks take over from `srun`; none: those of the job.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rlimits: Option<Rlimits>,
    /// `--gpu-bind` in the dialect's own words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gpu_bind: Option<String>,
    /// A program for each rank, instead of `argv` for all; empty: `argv`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub programs: Vec<Vec<String>>,
    /// The user's own programs around each task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_prolog: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task_epilog: Option<String>,
    #[serde(default, skip_serializing_if = "StepStart::is_at_once")]
    pub starts: StepStart,
    /// How long its tasks may run; none: as long as the job does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub time_limit: Option<TimeLimit>,
    /// What its tasks run in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<Box<Container>>,
    /// Its tasks run in the container of the job's script while that runs, beside the script's own processes.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub joins_script: bool,
    /// A program of Sluice's own that the node puts in the place of `argv`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub own_program: Option<OwnProgram>,
    /// Its program is [`OwnProgram::ReceiveFile`]. It is said here and not in `own_program`: a supervisor of a build before
    /// reads no order with a program that it does not know, and of this one it finds that there is nothing to run.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub receives_file: bool,
}

impl StepLaunch {
    /// The program of Sluice's own that its tasks are, if they are one.
    pub fn program_of_ours(&self) -> Option<OwnProgram> {
        self.own_program.or_else(|| self.receives_file.then_some(OwnProgram::ReceiveFile))
    }
}

/// Programs of Sluice's own that run as a step, inside the job.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnProgram {
    /// SFTP on standard input and output.
    Sftp,
    /// TCP connections in the job's network, many on one pair of streams (`forward.rs`).
    Forward,
    /// Writes the file that its standard input brings (`file_copy.rs`).
    ReceiveFile,
}

impl OwnProgram {
    /// The first argument of the program.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Sftp => "in-job-sftp",
            Self::Forward => "in-job-forward",
            Self::ReceiveFile => "in-job-receive-file",
        }
    }
}

/// When the tasks of a step start. An `srun` that does not know of it never says `Go`, so nobody waits for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepStart {
    /// Once their `srun` is reached.
    #[default]
    AtOnce,
    /// On `Go` where the site has a program for `srun` to run first, else at once; the server settles which.
    AsSite,
    /// When their `srun` says `Go`.
    OnGo,
}

impl StepStart {
    pub fn is_at_once(&self) -> bool {
        *self == Self::AtOnce
    }

    pub fn settled(self, site_has_prolog: bool) -> Self {
        match self {
            Self::AsSite if site_has_prolog => Self::OnGo,
            Self::AsSite => Self::AtOnce,
            said => said,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepInput {
    /// Broadcast to every task.
    #[default]
    All,
    None,
    Task(u32),
}

/// Where the tasks of a step are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLayout {
    pub job: JobId,
    pub step: StepId,
    pub attempt: u32,
    /// Per node, in order: its name and the global ranks of its tasks.
    pub nodes: Vec<StepNode>,
    pub cpus_per_task: u32,
    #[serde(default, rename = "programs", skip_serializing_if = "SrunPrologEpilog::is_none")]
    pub srun_prolog_epilog: SrunPrologEpilog,
}

/// `SrunProlog` and `SrunEpilog`: `srun` runs them around its step, on its own machine and as its user. And what else the
/// site has for every `srun`.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct SrunPrologEpilog {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prolog: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epilog: Option<String>,
    /// `MpiDefault`, where it would connect ranks.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mpi: Option<String>,
}

impl SrunPrologEpilog {
    pub fn is_none(&self) -> bool {
        *self == Self::default()
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepNode {
    pub node: String,
    pub tasks: Vec<u32>,
    pub cpus: u32,
}

/// The kinds of frames on the connection between a supervisor and `srun` (`frame.rs` carries them).
/// A supervisor opens with `Hello`; everything else follows.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StepMessage {
    Hello {
        /// Empty: an encrypted link has proven the key, and a stream was opened with it.
        key: String,
        node: String,
        node_index: u32,
        /// The tasks start on `Go`. An older supervisor does not say this, and is not sent `Go`.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waits: bool,
        /// How many tasks the step has on all its nodes; an older supervisor does not say it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        step_tasks: Option<NonZeroU32>,
    },
    Started {
        task: u32,
        pid: u32,
    },
    /// The task could not be started: errno and what was tried.
    Failed {
        task: u32,
        errno: i32,
        what: String,
    },
    Exited {
        task: u32,
        exit: ExitStatus,
        oom: bool,
    },
    /// Nothing of the step is left on this node, but for the first process of a container, which is dying.
    Gone,
    /// On a stream: how many bytes of frames the sender of this has had in all (`resume.rs`).
    Received {
        bytes: u64,
    },
    /// Instead of a hello: this end cannot be had. `again`: it may come about yet.
    Refused {
        why: String,
        again: bool,
    },
    /// So much more input may be sent.
    InputCredit {
        bytes: u32,
    },
    /// An attached client read too slowly, and missed so many bytes.
    Skipped {
        bytes: u64,
    },
    /// To the tasks.
    Signal {
        signal: i32,
    },
    /// The step is to end: killed now, or asked first and killed after the grace.
    End {
        at_once: bool,
    },
    /// The step is being ended before its own end; whoever waits for it need not wait longer than this.
    Ending {
        wait_s: u32,
    },
    InputEnd,
    /// What `srun` runs before the tasks is done: those that wait for it start.
    Go,
    /// As `Go`, for a step that is a part of what one `srun` runs over several: its tasks call themselves by ranks that
    /// count from here, and have these variables over their own. Here and on the way they keep the step's ranks.
    GoAs {
        first_rank: u32,
        environment: Vec<String>,
    },
    Resize {
        rows: u16,
        columns: u16,
    },
}

/// Channel numbers of raw byte frames: 0 is control (JSON `StepMessage`).
pub mod channel {
    pub const CONTROL: u8 = 0;
    pub const STDIN: u8 = 1;
    /// Payload starts with the task's global rank, 4 bytes little-endian.
    pub const STDOUT: u8 = 2;
    pub const STDERR: u8 = 3;
    /// Input for one task: its rank, then the bytes.
    pub const STDIN_OF: u8 = 4;
}

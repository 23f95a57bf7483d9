//! A step's launch, and the bytes between its tasks and the `srun` that waits for them.

use model::id::{JobId, StepId};
use model::run::ExitStatus;
use serde::{Deserialize, Serialize};

/// What `srun` wants started. It listens at `listen`; the supervisors dial it under `key`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StepLaunch {
    pub name: String,
    pub argv: Vec<String>,
    /// `NAME=value`, each ended by NUL.
    pub environment: String,
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
    /// Addresses to try in turn, `host:port`.
    pub listen: Vec<String>,
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
    #[serde(default)]
    pub pty: bool,
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
        key: String,
        node: String,
        node_index: u32,
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
    /// Nothing of the step is left on this node.
    Gone,
    /// To the tasks.
    Signal {
        signal: i32,
    },
    InputEnd,
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
}

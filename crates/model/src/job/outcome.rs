//! How attempts, steps and jobs end, and the states of jobs.

use serde::{Deserialize, Serialize};

/// How an attempt, a step or a job ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    Completed,
    Failed,
    Cancelled {
        by: u32,
    },
    Timeout,
    OutOfMemory,
    NodeFail,
    Preempted,
    Requeued,
    Deadline,
    /// The node could not start it: Slurm's `JobLaunchFailure`, 0:53.
    LaunchFailed,
    /// The request's wait policy ran out before it could start.
    NoCapacity,
}

impl Outcome {
    pub fn state(self) -> JobState {
        match self {
            Self::Completed => JobState::Completed,
            Self::Failed | Self::LaunchFailed | Self::NoCapacity => JobState::Failed,
            Self::Cancelled { .. } => JobState::Cancelled,
            Self::Timeout => JobState::Timeout,
            Self::OutOfMemory => JobState::OutOfMemory,
            Self::NodeFail => JobState::NodeFail,
            Self::Preempted => JobState::Preempted,
            Self::Requeued => JobState::Requeued,
            Self::Deadline => JobState::Deadline,
        }
    }
}

/// Slurm's pair `code:signal`.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct ExitStatus {
    pub code: i32,
    pub signal: i32,
}

impl ExitStatus {
    /// Slurm's pair for a job that was never started; no process exits with it.
    pub const NOT_LAUNCHED: Self = Self { code: 0, signal: 53 };

    /// Slurm's pair for a process that the kernel killed for its memory, whatever status it had.
    pub const OUT_OF_MEMORY: Self = Self { code: 0, signal: 125 };

    pub fn is_success(self) -> bool {
        self.code == 0 && self.signal == 0
    }
}

impl std::fmt::Display for ExitStatus {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.code, self.signal)
    }
}

/// The state of a job as Slurm names it; both dialects render from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobState {
    Pending,
    /// Requeued and held after an exit that somebody should look at.
    SpecialExit,
    /// Held, because the reservation that it asked for is gone.
    ReservationGone,
    Configuring,
    Running,
    Suspended,
    Completing,
    Completed,
    Cancelled,
    Failed,
    Timeout,
    NodeFail,
    Preempted,
    BootFail,
    Deadline,
    OutOfMemory,
    Requeued,
}

impl JobState {
    pub fn is_ended(self) -> bool {
        self >= Self::Completed
    }

    pub fn is_waiting(self) -> bool {
        matches!(self, Self::Pending | Self::SpecialExit | Self::ReservationGone)
    }
}

//! A source of machines. Each call may be made again: the same token is the same machine.

pub use cluster::machine_reconcile::SourceMachine;
use model::machine::{FailureKind, Offer};
use model::pod::PodTemplate;
use wire::link::JoinFile;

/// Calls block; they are made off the runtime's threads.
pub trait MachineSource: Send + Sync {
    /// What kinds of machines can be made.
    fn offers(&self) -> Result<Vec<Offer>, SourceError>;

    /// Makes the machine of this token, or finds it made.
    fn create(&self, order: &CreateOrder) -> Result<SourceMachine, SourceError>;

    /// Every machine with this cluster's tag. A machine that was made a moment ago may not be among them.
    fn describe(&self) -> Result<Vec<SourceMachine>, SourceError>;

    /// Deletes the machine of this token. Where there is none it says so, or that it has done it.
    fn delete(&self, order: &DeleteOrder) -> Result<(), SourceError>;

    /// Waits a while for machines that will not serve, or serve no more. `None` from a source that tells nothing by itself: it
    /// is asked by `describe` alone.
    fn failures(&self) -> Result<Option<Vec<FailedMachine>>, SourceError> {
        Ok(None)
    }
}

/// A machine of which its source says that it will not serve, or serves no more, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedMachine {
    pub token: String,
    pub kind: FailureKind,
    pub text: String,
}

/// Which machine to delete.
#[derive(Debug, Clone)]
pub struct DeleteOrder {
    pub token: String,
    /// The source's own name of it, where an answer has told it.
    pub id: Option<String>,
    /// The name of its offer, and where that was.
    pub offer: String,
    pub region: String,
}

/// All that a machine needs to become a node.
#[derive(Debug, Clone)]
pub struct CreateOrder {
    pub token: String,
    pub offer: Offer,
    pub node: String,
    /// For `sluice agent --dynamic --conf`; empty for a node of slurm.conf, whose agent is started without both.
    pub conf: String,
    pub join: JoinFile,
    /// What it is made with, where it is a pod.
    pub pod: Option<Box<PodTemplate>>,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{kind}: {text}")]
pub struct SourceError {
    pub kind: FailureKind,
    pub text: String,
}

impl SourceError {
    /// The source will not do it, now and later.
    pub fn refused(text: impl Into<String>) -> Self {
        Self { kind: FailureKind::Refused, text: text.into() }
    }

    /// It is not known what the call has done.
    pub fn unknown(text: impl Into<String>) -> Self {
        Self { kind: FailureKind::Unknown, text: text.into() }
    }

    /// The same with what was called.
    pub fn of(self, what: &str) -> Self {
        Self { text: format!("{what}: {}", self.text), ..self }
    }
}

//! A source of machines. Each call may be made again: the same token is the same machine.

pub use cluster::command::DiskMade;
pub use cluster::machine_reconcile::SourceMachine;
pub use cluster::volume_reconcile::SourceDisk;
use model::cloud_fleet::InstanceOptions;
use model::cloud_volume::CloudPlace;
use model::machine::{FailureKind, Offer};
use model::pod::PodTemplate;
use model::secret::RegistryAuth;
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

    /// The disks that it makes for volumes; `None` where it makes none.
    fn disks(&self) -> Option<&dyn DiskSource> {
        None
    }
}

/// A machine of which its source says that it will not serve, or serves no more, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailedMachine {
    pub token: String,
    pub kind: FailureKind,
    pub text: String,
}

/// Disks for volumes. Each call may be made again: the same token is the same disk.
pub trait DiskSource {
    /// Makes the disk of this token, or finds it made. One that was there before is found by its name.
    fn create_disk(&self, order: &DiskOrder) -> Result<DiskMade, SourceError>;

    /// Attaches the disk to a machine, or finds it attached. Returns the device files at which the machine may have it, the
    /// likeliest first.
    fn attach_disk(&self, order: &AttachOrder) -> Result<Vec<String>, SourceError>;

    /// Detaches the disk from a machine. Where it is not attached it says so, or that it has done it.
    fn detach_disk(&self, order: &AttachOrder) -> Result<(), SourceError>;

    /// Deletes the disk of this token. Where there is none it says so, or that it has done it.
    fn delete_disk(&self, order: &DiskOrder) -> Result<(), SourceError>;

    /// Every disk for a volume with this cluster's tag.
    fn describe_disks(&self) -> Result<Vec<SourceDisk>, SourceError>;
}

/// Which disk a call is about.
#[derive(Debug, Clone, Default)]
pub struct DiskOrder {
    pub token: String,
    /// As its user calls it, and the project that it is of.
    pub name: String,
    pub project: String,
    pub place: CloudPlace,
    /// Whole gibibytes, rounded up; 0 for a disk that was there before.
    pub size_gb: u64,
    /// The cloud's own name of it, where an answer has told it.
    pub id: Option<String>,
}

/// The tag of a disk that was there before: the project that may register it as a volume. Whoever owns the account sets it; without
/// it every member of every project could have every disk of the account.
pub const PROJECT_TAG: &str = "sluice-project";

impl DiskOrder {
    /// Refuses a disk that was there before and is not tagged for the project.
    pub fn check_tag(&self, id: &str, is_tagged: bool) -> Result<(), SourceError> {
        if is_tagged {
            return Ok(());
        }
        let project = &self.project;
        Err(SourceError::refused(format!(
            "disk {id} has no tag {PROJECT_TAG}={project}, by which the owner of the account lets the project have it"
        )))
    }
}

/// A disk, and the machine that it goes to, by the cloud's own name of that.
#[derive(Debug, Clone, Default)]
pub struct AttachOrder {
    pub disk: DiskOrder,
    pub machine: String,
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
    /// With what the image of a pod is pulled, where its job brings that.
    pub registry_auth: Option<RegistryAuth>,
    /// The zone that it must be in, where the offer is of a whole region.
    pub zone: Option<String>,
    /// What its fleet says of its instances.
    pub options: InstanceOptions,
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

    /// The source knows no such thing.
    pub fn not_found(text: impl Into<String>) -> Self {
        Self { kind: FailureKind::NotFound, text: text.into() }
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

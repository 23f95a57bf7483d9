//! Why a job waits, and why a command is refused: typed, with parameters. The dialects hold the words.

use crate::id::JobId;
use crate::node::Architecture;
use crate::price::Price;
use crate::reservation_request::ReservationRefusal;
use crate::step::StepRefusal;
use crate::tres::TresKind;
use serde::{Deserialize, Serialize};

/// Why a job waits (or how it came to end).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    #[default]
    None,
    /// The job is first in the queue and its resources are not free.
    Resources,
    /// Jobs of a higher priority wait for the same resources.
    Priority,
    Dependency,
    DependencyNeverSatisfied,
    BeginTime,
    HeldByUser,
    HeldByAdmin,
    ArrayTaskLimit,
    PartitionNodeLimit,
    PartitionTimeLimit,
    PartitionDown,
    PartitionInactive,
    /// Nodes named by the job are not available.
    RequiredNodesUnavailable {
        nodes: Vec<String>,
    },
    /// Every node that could run the job is down, drained or reserved for a higher tier.
    NodesDown,
    Licenses,
    /// The requested reservation has not begun, or does not admit the job.
    Reservation,
    /// The requested reservation of this name was removed.
    ReservationGone(Box<str>),
    /// Nodes that the job needs are reserved for others.
    NodesReserved,
    BadConstraints,
    InvalidAccount,
    InvalidQos,
    /// The partition does not take jobs of this account.
    AccountNotAllowed(Box<PartitionDenial>),
    /// The partition does not take jobs of this QOS.
    QosNotAllowed(Box<PartitionDenial>),
    /// The fair share is below what the QOS asks for.
    UsageThreshold,
    /// Boxed: a long queue holds one reason for each of its jobs.
    Limit(Box<Limit>),
    /// The launch failed on a node; the job is held after a requeue.
    LaunchFailed,
    /// A node could not start the job, which is held until somebody releases it.
    LaunchFailedHeld,
    /// A node could not start the job. Slurm's word is the one of `LaunchFailed`.
    NotLaunched(Box<LaunchFailure>),
    /// A node refuses to run processes of the job's owner.
    UserRefused(UserFault),
    /// Somebody cancelled the job and had it killed at once.
    Aborted,
    /// The GPUs did less than the `utilization_policy` asks for.
    GpusUnderused,
    /// Nobody was connected to it for its `inactivity_duration`.
    Inactive,
    NonZeroExit,
    TimeLimit,
    OutOfMemory,
    NodeFail,
    Deadline,
    NoCapacity,
    /// No plan has considered the job yet.
    NotPlanned,
    /// The job was requeued and held by request.
    RequeuedHeld,
    /// The attempt was requeued by the user of this number.
    RequeuedBy(u32),
    /// The job was preempted.
    Preempted,
    /// The job has its nodes, and their prologs run.
    Prolog,
    /// The job has its nodes, and they get its image.
    ImagePull,
    /// The cluster was restored from a backup: the job may have started since, on a node that has not connected.
    RestoredNodesAwaited,
}

impl Reason {
    pub fn is_none(&self) -> bool {
        *self == Self::None
    }
}

/// Why a node runs no processes of a job's owner, by the node's own user database when the job starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UserFault {
    /// Nobody has the user id there.
    Unknown,
    /// The user id belongs to another name there.
    Renamed,
    /// The account's expiry date has passed.
    Expired,
    /// The account's password is locked.
    Locked,
}

/// The part of a launch that failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LaunchFault {
    /// Anything that no other member names: an output file, the run's files, the node itself.
    #[default]
    Other,
    /// The image, or the container made from it.
    Container,
    /// A volume, or a folder of the node that the container is to show.
    Volume,
    /// The ports of the node that lead to the container.
    Ports,
}

impl LaunchFault {
    pub fn is_other(&self) -> bool {
        *self == Self::Other
    }
}

/// Why a node could not start a job: the part that failed, and the node's words.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(from = "StoredLaunchFailure", into = "StoredLaunchFailure")]
pub struct LaunchFailure {
    pub fault: LaunchFault,
    pub what: Box<str>,
}

impl LaunchFailure {
    pub fn new(fault: LaunchFault, what: impl Into<Box<str>>) -> Self {
        Self { fault, what: what.into() }
    }
}

impl From<String> for LaunchFailure {
    fn from(what: String) -> Self {
        Self::new(LaunchFault::Other, what)
    }
}

/// [`LaunchFailure`] as journals, books and views hold it: the words alone where no part is named.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum StoredLaunchFailure {
    Words(Box<str>),
    OfPart { fault: LaunchFault, what: Box<str> },
}

impl From<LaunchFailure> for StoredLaunchFailure {
    fn from(failure: LaunchFailure) -> Self {
        let LaunchFailure { fault, what } = failure;
        if fault.is_other() { Self::Words(what) } else { Self::OfPart { fault, what } }
    }
}

impl From<StoredLaunchFailure> for LaunchFailure {
    fn from(stored: StoredLaunchFailure) -> Self {
        match stored {
            StoredLaunchFailure::Words(what) => Self::new(LaunchFault::Other, what),
            StoredLaunchFailure::OfPart { fault, what } => Self { fault, what },
        }
    }
}

/// A partition's list of accounts or QOS that excludes a job.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartitionDenial {
    pub partition: String,
    pub list: Vec<String>,
    /// The list names who may not use the partition.
    pub denies: bool,
    pub name: String,
}

/// A limit that holds a job back.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Limit {
    pub scope: LimitScope,
    pub kind: LimitKind,
    /// The QOS or association that carries the limit.
    pub holder: String,
    pub limit: u64,
    pub in_use: u64,
    pub asked: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    QosPerUser,
    QosPerJob,
    QosPerNode,
    QosPerAccount,
    QosGroup,
    /// A minimum that each job must ask for.
    QosLeast,
    AssociationPerJob,
    AssociationPerNode,
    AssociationGroup,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitKind {
    Tres(TresKind),
    /// Minutes of it that were used.
    TresMinutes(TresKind),
    /// Minutes of it that running jobs may still use.
    TresRunMinutes(TresKind),
    Jobs,
    SubmitJobs,
    Wall,
}

/// Why a command changed nothing.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Refusal {
    #[error("partition {0} does not exist")]
    UnknownPartition(String),
    #[error("no default partition is configured")]
    NoDefaultPartition,
    #[error("partition {0} takes no jobs")]
    PartitionNotAvailable(String),
    #[error("user or group may not use partition {0}")]
    PartitionAccess(String),
    #[error("partition {0} takes no jobs of root")]
    RootJobsDisabled(String),
    #[error("partition {0} takes jobs in reservations alone")]
    ReservationRequired(String),
    #[error("node {0} does not exist")]
    UnknownNode(String),
    #[error("no node can ever satisfy the request: {0}")]
    NodeConfiguration(UnmetConstraint),
    #[error("feature {0} is on no node")]
    UnknownFeature(String),
    #[error("feature {0}, which is wished for, is on no node")]
    UnknownPreference(String),
    #[error("generic resource {0} is not configured")]
    UnknownGres(String),
    #[error("{}", unusable_account(.0.as_deref()))]
    InvalidAccount(Option<String>),
    #[error("QOS {0} cannot be used")]
    InvalidQos(String),
    #[error("reservation {0} cannot be used")]
    InvalidReservation(String),
    #[error("reservation: {0}")]
    Reservation(ReservationRefusal),
    #[error("the dependency cannot be read or names itself")]
    InvalidDependency,
    #[error("the array specification cannot be used")]
    InvalidArray,
    #[error("the highest index of an array is {most}; {asked} asked")]
    ArrayIndex { most: u32, asked: u32 },
    #[error("an array has at most {most} tasks; {asked} asked")]
    ArrayTasks { most: u32, asked: u64 },
    #[error("the time limit is beyond the partition's")]
    TimeLimit(Option<PartitionBound>),
    #[error("more nodes than the partition gives to one job")]
    NodeCount(Option<PartitionBound>),
    #[error("job {0} does not exist")]
    UnknownJob(String),
    #[error("job {0} has ended")]
    JobEnded(JobId),
    #[error("job {0} is not pending")]
    JobNotPending(JobId),
    #[error("job {0} is not running")]
    JobNotRunning(JobId),
    #[error("step {0} does not exist")]
    UnknownStep(String),
    #[error("the step cannot be had: {0}")]
    Step(StepRefusal),
    #[error("job {0} cannot be requeued")]
    NotRequeueable(JobId),
    #[error("job {0} was submitted so that it is not requeued")]
    RequeueDisabled(JobId),
    #[error("job {0} is not suspended")]
    JobNotSuspended(JobId),
    #[error("job {0} has not started")]
    JobNotStarted(JobId),
    /// As `JobEnded`, for a change that only jobs which have not ended accept.
    #[error("job {0} has finished")]
    JobFinished(JobId),
    #[error("job {0} is held")]
    JobHeld(JobId),
    /// A pending component of a het job is not changed alone.
    #[error("job {0} is one of several that start together: what waits is changed as a whole")]
    #[serde(rename = "only_together")]
    HetPendingComponent(JobId),
    /// A het job is requeued by its leader alone.
    #[error("job {0} is one of several that start together: the first of them stands for all")]
    #[serde(rename = "not_first_together")]
    NotHetLeader(JobId),
    /// Operators alone may change this, even on their own jobs.
    #[error("only operators may change this")]
    OperatorsOnly,
    #[error("a priority that is worked out cannot be set; nice can")]
    PriorityNotKept,
    #[error("jobs would wait for each other in a circle")]
    CircularDependency,
    #[error("the least time is beyond the time limit")]
    TimeMin,
    #[error("only operators may put a job before others")]
    Nice,
    #[error("that time has passed")]
    TimePassed,
    #[error("licence {0} does not exist")]
    UnknownLicense(String),
    #[error("{0} cannot be had here")]
    NotSupported(String),
    #[error("more CPUs than there are")]
    CpuCount,
    #[error("no task at all")]
    TaskCount,
    #[error("access denied")]
    AccessDenied,
    #[error("{key} cannot be updated")]
    UpdateNotSupported { key: String },
    #[error("{what}: {value:?} is not valid: {expected}")]
    InvalidValue { what: String, value: String, expected: String },
    #[error("the limit of {limit} jobs is reached")]
    TooManyJobs { limit: u64 },
    #[error("a submit limit is reached")]
    SubmitLimit(Limit),
    #[error("begin or deadline lies in the past")]
    DeadlineImpossible,
    #[error("resources are not available now")]
    NoCapacityNow,
    #[error("the server's disk is full: {0}")]
    DiskFull(String),
    #[error("the server's user may not read {0}")]
    ConfigurationUnreadable(String),
    /// Several names are parted by commas, and `what` is plural then.
    #[error("{what} {name} {} not exist", do_or_does(.name))]
    UnknownThing { what: String, name: String },
    /// Each job with its account and user.
    #[error("jobs are active, cancel them first")]
    JobsActive(Vec<(JobId, String, String)>),
    #[error("{what} {name} exists already")]
    AlreadyExists { what: String, name: String },
    #[error("{0}")]
    Other(String),
}

fn do_or_does(names: &str) -> &'static str {
    if names.contains(", ") { "do" } else { "does" }
}

/// Both name the command with which somebody goes on: a user learns the reason by these words alone, in every dialect.
fn unusable_account(named: Option<&str>) -> String {
    match named {
        None => "your user has no account here: an administrator gives one with \
                 `sacctmgr add user NAME account=ACCOUNT`"
            .to_owned(),
        Some(account) => format!(
            "account {account} does not have your user, or the partition does not take it; \
             `sacctmgr show assoc user=NAME` lists the accounts of a user"
        ),
    }
}

/// A partition's limit that a job exceeds; a time limit is in minutes.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PartitionBound {
    pub partition: String,
    pub most: u64,
    pub asked: u64,
}

/// A constraint that no node of a partition meets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[error("{why}")]
pub struct UnmetConstraint {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partition: Option<String>,
    pub why: NeverFits,
    /// Sources of machines for these partitions that have told no offers: one of theirs might meet it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub silent_sources: Vec<String>,
}

impl UnmetConstraint {
    /// What is said of the sources that have told no offers.
    pub fn silence(&self) -> Option<String> {
        let (noun, verb) = match self.silent_sources.len() {
            0 => return None,
            1 => ("source", "has"),
            _ => ("sources", "have"),
        };
        Some(format!("{noun} {} {verb} told no offers yet", self.silent_sources.join(", ")))
    }
}

impl From<NeverFits> for UnmetConstraint {
    fn from(why: NeverFits) -> Self {
        Self { partition: None, why, silent_sources: Vec::new() }
    }
}

/// The constraint which no node of the partition meets.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum NeverFits {
    #[error("{asked} CPUs on one node, the largest has {most}")]
    Cpus { asked: u64, most: u64 },
    #[error("{asked_mib} MiB of memory on one node, the largest has {most_mib}")]
    Memory { asked_mib: u64, most_mib: u64 },
    /// `larger_memory`: devices are there that would serve, had they not more memory each than the request allows. `kinds_there`: the
    /// first few kinds that there are, where none of them was asked for.
    #[error("{asked} of {name} on one node, the largest has {most}")]
    Gres {
        name: String,
        asked: u64,
        most: u64,
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        larger_memory: bool,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        kinds_there: Vec<String>,
    },
    #[error("{asked} nodes, the partition has {most} that fit")]
    Nodes { asked: u64, most: u64 },
    /// All nodes of a run must be below one switch.
    #[error("{asked} nodes below one switch, the largest has {most} that fit")]
    Switch { asked: u64, most: u64 },
    #[error("the features {0} are on no node")]
    Features(String),
    #[error("{asked_mib} MiB of local disk, the largest node has {most_mib} (its TmpDisk)")]
    Disk { asked_mib: u64, most_mib: u64 },
    #[error("no node has {0} processors")]
    Architecture(Architecture),
    #[error("no node costs {most} an hour or less")]
    Price { most: Price },
    /// No node, and no machine that could be made, is of the backends, regions and types that the run asks for, or as it
    /// wants spot.
    #[error(
        "no node is of the backends, regions, instance types and spot policy that are asked for"
    )]
    Machines,
    /// Every node that could is a machine of another project's backend.
    #[error("no node is for jobs of this project: a backend's machines are for its own")]
    OtherProject,
    /// Sockets, cores per socket and threads per core.
    #[error("no node is built of {0}")]
    Layout(String),
    #[error("the nodes named cannot hold it")]
    NamedNodes,
    /// These of the nodes that the job names are in other partitions alone.
    #[error("its partition does not have {0}, which the job names")]
    NamedElsewhere(String),
    #[error("as things stand it would wait for good")]
    Waits(Box<Reason>),
    /// Nodes are private: what there is, is not said.
    #[error("what the nodes have is not shown here")]
    NotShown,
    /// `named`: counted over the nodes that the job names.
    #[error("reservation {name} has {most} of the {asked} nodes")]
    Reservation { name: String, asked: u64, most: u64, named: bool },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failed_launch_is_stored_as_its_words_unless_a_part_is_named() {
        let table = [
            (LaunchFault::Other, r#"{"not_launched":"no"}"#),
            (LaunchFault::Container, r#"{"not_launched":{"fault":"container","what":"no"}}"#),
            (LaunchFault::Volume, r#"{"not_launched":{"fault":"volume","what":"no"}}"#),
            (LaunchFault::Ports, r#"{"not_launched":{"fault":"ports","what":"no"}}"#),
        ];
        for (fault, stored) in table {
            let reason = Reason::NotLaunched(Box::new(LaunchFailure::new(fault, "no")));
            assert_eq!(serde_json::to_string(&reason).unwrap(), stored);
            assert_eq!(serde_json::from_str::<Reason>(stored).unwrap(), reason);
        }
    }

    #[test]
    fn account_that_cannot_be_used_is_refused_with_the_command_that_helps() {
        let none = Refusal::InvalidAccount(None).to_string();
        assert!(none.starts_with("your user has no account here: "), "{none}");
        assert!(none.ends_with("`sacctmgr add user NAME account=ACCOUNT`"), "{none}");
        let named = Refusal::InvalidAccount(Some("physics".into())).to_string();
        assert!(named.starts_with("account physics does not have your user"), "{named}");
    }
}

//! Changes of jobs, and filters that select jobs, for `scontrol`, `scancel` and `squeue`.

use crate::amount::Bytes;
use crate::array::IndexSet;
use crate::constraint::Constraint;
use crate::dependency::Dependency;
use crate::id::JobId;
use crate::mail::MailType;
use crate::partition::{Access, PartitionState};
use crate::power::PowerRequest;
use crate::range::Range;
use crate::request::{GresRequest, Sharing, Switches};
use crate::run::{HetComponent, Hold, JobState};
use crate::time::{TimeLimit, Timestamp};
use serde::{Deserialize, Serialize};
use std::collections::HashMap;

/// `12`, `12_3`, `12_[1-5]`, `12+1`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct JobRef {
    pub id: JobId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tasks: Option<IndexSet>,
    /// `12+1` is the job 13, but only where 13 is a component of 12.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub component_of: Option<JobId>,
}

/// The highest index that an array task may have.
const TASK_MAX: u32 = u32::MAX - 2;

impl JobRef {
    /// `None` for a text that names no job.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, tasks) = match text.split_once('_') {
            Some((id, "*")) => (id, Some(IndexSet::from_range(0, TASK_MAX))),
            Some((id, tasks)) => (id, Some(IndexSet::parse(tasks, TASK_MAX).ok()?)),
            None => (text, None),
        };
        // The id of a het component is the leader's plus its offset.
        let (id, offset) = match id.split_once('+') {
            Some((id, offset)) if tasks.is_none() => (id, offset.parse::<u32>().ok()?),
            _ => (id, 0),
        };
        let first: u32 = id.parse().ok().filter(|id| *id > 0)?;
        let id = JobId(first.checked_add(offset)?);
        let component_of = (offset > 0).then_some(JobId(first));
        Some(Self { id, tasks, component_of })
    }

    pub fn whole(id: JobId) -> Self {
        Self { id, tasks: None, component_of: None }
    }

    pub fn tasks(id: JobId, tasks: IndexSet) -> Self {
        Self { id, tasks: Some(tasks), component_of: None }
    }

    /// The references without repetition, in the order of their first mention. Several to tasks of one array become one, so
    /// that a long list costs no more than what it names.
    pub fn distinct(refs: &[Self]) -> Vec<Self> {
        let mut places: HashMap<(JobId, Option<JobId>, bool), usize> = HashMap::new();
        let mut distinct: Vec<Self> = Vec::new();
        for one in refs {
            // Tasks are of an array, which is no component.
            let component_of = one.component_of.filter(|_| one.tasks.is_none());
            let key = (one.id, component_of, one.tasks.is_some());
            match places.get(&key).map(|at| &mut distinct[*at].tasks) {
                None => {
                    places.insert(key, distinct.len());
                    distinct.push(Self { component_of, ..one.clone() });
                }
                Some(known) => {
                    if let (Some(known), Some(more)) = (known, &one.tasks) {
                        more.ranges().for_each(|(first, last)| known.insert_range(first, last));
                    }
                }
            }
        }
        distinct
    }

    /// Whether the reference can name a job with this place in a het job.
    pub fn admits(&self, het: Option<HetComponent>) -> bool {
        self.component_of.is_none_or(|first| het.is_some_and(|of| of.first == first))
    }

    /// The id as it was written, without tasks.
    pub fn shown_id(&self) -> String {
        match self.component_of {
            Some(first) => format!("{first}+{}", self.id.0.saturating_sub(first.0)),
            None => self.id.to_string(),
        }
    }
}

/// Empty lists do not filter.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobFilter {
    pub jobs: Vec<JobRef>,
    pub users: Vec<String>,
    pub accounts: Vec<String>,
    pub partitions: Vec<String>,
    pub names: Vec<String>,
    pub qos: Vec<String>,
    pub nodes: Vec<String>,
    /// Reservations that the jobs run in or ask for.
    pub reservations: Vec<String>,
    /// Empty: all jobs that have not ended, or with `all_states` all jobs.
    pub states: Vec<JobState>,
    pub all_states: bool,
    /// Runs that were deleted are left out.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub without_deleted: bool,
}

/// A change that `scontrol` makes to a job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobChange {
    Hold {
        by: Hold,
    },
    Release,
    Requeue(Requeue),
    Suspend,
    Resume,
    /// Before all others of the same user, partition, account, QOS and dstack `priority`.
    Top,
    Fields(Vec<JobField>),
}

/// How a job is to run again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Requeue {
    /// The job is held after the requeue.
    pub hold: bool,
    /// The job waits in Slurm's state SPECIAL_EXIT.
    pub special_exit: bool,
    /// A job that has ended is left alone.
    pub incomplete: bool,
    /// The hold is the server's own, [`Hold::Update`], unless somebody held the job before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub for_update: bool,
}

impl Requeue {
    pub const PLAIN: Self =
        Self { hold: false, special_exit: false, incomplete: false, for_update: false };
    pub const HELD: Self = Self { hold: true, ..Self::PLAIN };
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum JobField {
    TimeLimit(TimeLimit),
    Name(String),
    Partition(Vec<String>),
    Qos(String),
    Account(String),
    Priority(u64),
    Nice(i32),
    /// Added to the priority as it is.
    SiteFactor(i32),
    /// dstack's `priority`, from 0 to 100.
    RunPriority(u8),
    /// dstack's `inactivity_duration` in seconds; `None` for off.
    RunInactivity(Option<u32>),
    Comment(String),
    Begin(Timestamp),
    Deadline(Timestamp),
    Dependency(Option<Dependency>),
    Nodes(Range<u32>),
    Tasks(u32),
    CpusPerTask(u32),
    MemoryPerNode(Bytes),
    MemoryPerCpu(Bytes),
    Gres(Vec<GresRequest>),
    Features(Option<Constraint>),
    NodeList(Vec<String>),
    Exclude(Vec<String>),
    ArrayThrottle(Option<u32>),
    Requeue(bool),
    WorkDir(String),
    Stdout(String),
    Stderr(String),
    Wckey(String),
    /// Names separated by commas; `None` for no reservation.
    Reservation(Option<String>),
    AdminComment(String),
    TimeMin(TimeLimit),
    /// The end of a job that runs.
    EndTime(Timestamp),
    /// CPUs in all, as one task would have them.
    Cpus(u32),
    CpusPerNode(u32),
    TasksPerNode(u32),
    SocketsPerNode(u32),
    CoresPerSocket(u32),
    ThreadsPerCore(u32),
    Disk(Bytes),
    Sharing(Sharing),
    Contiguous(bool),
    Prefer(Option<Constraint>),
    Licenses(Vec<(String, u32)>),
    Switches(Option<Switches>),
    SwitchWait(u32),
    MailUser(String),
    MailTypes(#[serde(deserialize_with = "crate::mail::known_types")] Vec<MailType>),
    Stdin(String),
    /// The age factor counts from now.
    ResetAccrueTime,
    /// Accepted as in Slurm, without effect.
    WithoutEffect(String),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeChange {
    Drain { reason: String },
    Undrain,
    Down { reason: String },
    Fail { reason: String },
    Resume,
    Reason(String),
    Weight(u32),
    Features(Vec<String>),
    Power(PowerRequest),
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PartitionChange {
    State(PartitionState),
    MaxTime(TimeLimit),
    Default(bool),
    /// `None` for the partition's longest.
    DefaultTime(Option<TimeLimit>),
    /// `None` for as many as there are.
    MaxNodes(Option<u32>),
    MinNodes(u32),
    MaxCpusPerNode(Option<u32>),
    PriorityTier(u32),
    PriorityJobFactor(u32),
    AllowAccounts(Access),
    AllowQos(Access),
    GraceTime(u32),
    Hidden(bool),
    RootOnly(bool),
    DisableRootJobs(bool),
    RequireReservation(bool),
    LeastLoaded(bool),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_references_become_one() {
        let task = |index| JobRef::tasks(JobId(5), IndexSet::from_range(index, index));
        let component = JobRef { component_of: Some(JobId(5)), ..JobRef::whole(JobId(6)) };
        let refs = [
            task(1),
            JobRef::whole(JobId(7)),
            task(2),
            JobRef::whole(JobId(5)),
            component.clone(),
            JobRef::whole(JobId(7)),
            JobRef::whole(JobId(6)),
            JobRef { component_of: Some(JobId(4)), ..task(2) },
        ];
        let expected = [
            JobRef::tasks(JobId(5), IndexSet::from_range(1, 2)),
            JobRef::whole(JobId(7)),
            JobRef::whole(JobId(5)),
            component,
            JobRef::whole(JobId(6)),
        ];
        assert_eq!(JobRef::distinct(&refs), expected);
    }
}

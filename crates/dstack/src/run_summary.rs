//! Any job of the cluster as a run of dstack: its status, how it ended, its line of `ps`.

use crate::node_offer;
use crate::offer::Offer;
use crate::status::{self, JobEnd, JobStatus, RunStatus};
use crate::table::PsRow;
use model::amount::Bytes;
use model::array::format_pending;
use model::node::NodeConfig;
use model::printable::printable;
use model::reason::Reason;
use model::record::{JobRecord, RecordState};
use model::run::{ExitStatus, JobState, Outcome};
use model::tres::TresKind;
use std::collections::BTreeMap;
use wire::view::JobView;

/// The nodes of the cluster by their names, for what an allocation does not say of them.
pub type Nodes = BTreeMap<String, NodeConfig>;

/// A shell's exit code for a command that a signal ended is this plus the signal's number.
const SIGNAL_BASE: i32 = 128;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    pub status: RunStatus,
    pub end: Option<JobEnd>,
    /// The exit code of the commands, where they ended by themselves.
    pub exit: Option<i32>,
    /// The STATUS column.
    pub message: String,
    /// The ERROR column.
    pub error: String,
}

/// The facts that a summary is made from.
struct JobFacts<'a> {
    state: JobState,
    reason: &'a Reason,
    restarts: u32,
    exit: ExitStatus,
}

impl RunSummary {
    pub fn of_job(job: &JobView) -> Self {
        let (state, mut reason, mut restarts) = (job.state, &job.reason, job.restarts);
        // Waiting for the next time of a schedule is neither a retry nor about to end.
        if is_waiting_for_schedule(job) {
            (reason, restarts) = (&Reason::BeginTime, 0);
        }
        Self::of(&JobFacts { state, reason, restarts, exit: job.exit })
    }

    pub fn of_record(record: &JobRecord) -> Self {
        let (state, reason) = match record.state {
            RecordState::Pending => (JobState::Pending, Reason::NotPlanned),
            RecordState::Running => (JobState::Running, Reason::None),
            RecordState::Suspended => (JobState::Suspended, Reason::None),
            RecordState::Ended(Outcome::NoCapacity) => (JobState::Failed, Reason::NoCapacity),
            RecordState::Ended(Outcome::LaunchFailed) => {
                let said = matches!(record.reason, Reason::NotLaunched(_));
                let reason = if said { record.reason.clone() } else { Reason::LaunchFailed };
                (JobState::Failed, reason)
            }
            RecordState::Ended(outcome @ Outcome::Cancelled { .. }) => {
                (outcome.state(), record.reason.clone())
            }
            RecordState::Ended(outcome) => (outcome.state(), Reason::None),
        };
        Self::of(&JobFacts { state, reason: &reason, restarts: record.restarts, exit: record.exit })
    }

    /// A run that was refused because nothing is free for it.
    pub fn without_capacity() -> Self {
        let (state, reason) = (JobState::Failed, &Reason::NoCapacity);
        Self::of(&JobFacts { state, reason, restarts: 0, exit: ExitStatus::default() })
    }

    fn of(facts: &JobFacts<'_>) -> Self {
        let (job, end) = job_status(facts);
        let exit = end.filter(|end| ended_by_itself(*end)).map(|_| exit_code(facts.exit));
        let said = status::job_message(job, end, exit);
        let run = run_status(facts, job);
        let error = match (facts.state, facts.reason) {
            (JobState::OutOfMemory, _) => "out of memory".to_owned(),
            (_, Reason::NotLaunched(why)) => format!("executor error: {}", printable(why)),
            _ => end.and_then(JobEnd::error).unwrap_or_default(),
        };
        let message = status::run_message(run, facts.restarts, Some(&said));
        Self { status: run, end, exit, message, error }
    }

    pub fn is_success(&self) -> bool {
        self.status == RunStatus::Done
    }
}

/// The status of a run that has ended so.
pub fn status_of(outcome: Outcome) -> RunStatus {
    let (state, reason) = (outcome.state(), &Reason::None);
    let exit = ExitStatus::default();
    RunSummary::of(&JobFacts { state, reason, restarts: 0, exit }).status
}

/// Whether the run waits, and is started by its schedule.
pub fn is_waiting_for_schedule(job: &JobView) -> bool {
    job.spec.schedule.is_some() && job.state == JobState::Pending
}

fn ended_by_itself(end: JobEnd) -> bool {
    matches!(end, JobEnd::DoneByRunner | JobEnd::ContainerExitedWithError)
}

fn exit_code(exit: ExitStatus) -> i32 {
    if exit.signal == 0 { exit.code } else { SIGNAL_BASE + exit.signal }
}

fn job_status(facts: &JobFacts<'_>) -> (JobStatus, Option<JobEnd>) {
    let end = match (facts.state, facts.reason) {
        (
            JobState::Pending
            | JobState::SpecialExit
            | JobState::ReservationGone
            | JobState::Requeued,
            _,
        ) => return (JobStatus::Submitted, None),
        (JobState::Configuring, _) => return (JobStatus::Provisioning, None),
        (JobState::Running, Reason::ImagePull) => return (JobStatus::Pulling, None),
        (JobState::Running | JobState::Suspended, _) => return (JobStatus::Running, None),
        (JobState::Completing, _) => return (JobStatus::Terminating, None),
        (JobState::Completed, _) => JobEnd::DoneByRunner,
        (JobState::Cancelled, Reason::GpusUnderused) => JobEnd::TerminatedDueToUtilizationPolicy,
        (JobState::Cancelled, Reason::Inactive) => JobEnd::InactivityDurationExceeded,
        (JobState::Cancelled, Reason::Aborted) => JobEnd::AbortedByUser,
        (JobState::Cancelled, _) => JobEnd::TerminatedByUser,
        (JobState::Failed, Reason::NoCapacity) => JobEnd::FailedToStartDueToNoCapacity,
        (
            JobState::Failed,
            Reason::LaunchFailed | Reason::NotLaunched(_) | Reason::UserRefused(_),
        ) => JobEnd::ExecutorError,
        (JobState::Failed | JobState::OutOfMemory, _) => JobEnd::ContainerExitedWithError,
        (JobState::Timeout, _) => JobEnd::MaxDurationExceeded,
        (JobState::Deadline, _) => JobEnd::TerminatedByServer,
        (JobState::NodeFail | JobState::BootFail, _) => JobEnd::InstanceUnreachable,
        (JobState::Preempted, _) => JobEnd::InterruptedByNoCapacity,
    };
    (end.status(), Some(end))
}

fn run_status(facts: &JobFacts<'_>, job: JobStatus) -> RunStatus {
    let just_in = matches!(facts.reason, Reason::None | Reason::NotPlanned) && facts.restarts == 0;
    match job {
        JobStatus::Submitted if just_in => RunStatus::Submitted,
        JobStatus::Submitted => RunStatus::Pending,
        JobStatus::Provisioning | JobStatus::Pulling => RunStatus::Provisioning,
        JobStatus::Running => RunStatus::Running,
        JobStatus::Terminating => RunStatus::Terminating,
        JobStatus::Terminated | JobStatus::Aborted => RunStatus::Terminated,
        JobStatus::Failed => RunStatus::Failed,
        JobStatus::Done => RunStatus::Done,
    }
}

/// The lines of one job: one, and one more for each node of a gang.
pub fn rows(job: &JobView, nodes: &Nodes, submitted: &str) -> Vec<PsRow> {
    let summary = RunSummary::of_job(job);
    let run = PsRow {
        name: shown_name(job),
        status: summary.message,
        submitted: submitted.to_owned(),
        error: summary.error,
        job: shown_id(job),
        user: job.spec.owner.name.clone(),
        ..PsRow::default()
    };
    let shares = job.allocation.as_ref().map_or(&[][..], |allocation| &allocation.nodes);
    let offers: Vec<Offer> =
        shares.iter().map(|share| node_offer::granted(share, nodes.get(&share.node))).collect();
    match &offers[..] {
        [] => vec![run],
        [only] => vec![with_offer(run, only)],
        several => {
            let of_node = several.iter().enumerate().map(|(rank, offer)| {
                let (job, user) = (String::new(), String::new());
                let name = format!("    job={rank}");
                with_offer(PsRow { name, job, user, ..run.clone() }, offer)
            });
            std::iter::once(run.clone()).chain(of_node).collect()
        }
    }
}

fn with_offer(row: PsRow, offer: &Offer) -> PsRow {
    let resources = &offer.resources;
    PsRow {
        backend: offer.backend.clone(),
        gpu: resources.gpu.as_ref().map(ToString::to_string).unwrap_or_default(),
        resources: resources.to_string(),
        instance_type: offer.instance_text(),
        price: offer.price_text(),
        ..row
    }
}

/// The job's name, with the task for one of an array.
fn shown_name(job: &JobView) -> String {
    let name = &job.name;
    let Some(array) = &job.array else { return name.to_string() };
    match (array.index, &array.pending) {
        (Some(index), _) => format!("{name} task={index}"),
        (None, Some(pending)) => {
            format!("{name} task=[{}]", format_pending(pending, array.throttle))
        }
        (None, None) => name.to_string(),
    }
}

/// `12`, `12_3`, `12_[4-7]`
fn shown_id(job: &JobView) -> String {
    match &job.array {
        None => job.id.to_string(),
        Some(array) => match (array.index, &array.pending) {
            (Some(task), _) => format!("{}_{task}", array.array),
            (None, Some(pending)) => format!("{}_[{pending}]", array.array),
            (None, None) => array.array.to_string(),
        },
    }
}

/// The line of a job that is only in the books.
pub fn record_row(record: &JobRecord, submitted: &str) -> PsRow {
    let summary = RunSummary::of_record(record);
    let tres = &record.alloc_tres;
    let started = record.start.is_some();
    let gpus = tres.amount(&TresKind::gpu());
    let text = |text: String| if started { text } else { String::new() };
    let gpu = if gpus > 0 { format!("gpu={gpus}") } else { String::new() };
    let memory = crate::offer::size(Bytes::from_mib(tres.amount(&TresKind::Mem)));
    let task = record.array_task.map(|task| format!(" task={task}")).unwrap_or_default();
    PsRow {
        name: format!("{}{task}", record.name),
        backend: text(node_offer::BACKEND.to_owned()),
        resources: text(format!("cpu={} mem={memory} {gpu}", record.cpus).trim_end().to_owned()),
        gpu,
        instance_type: text(model::hostlist::compress(&record.nodes)),
        price: text(crate::offer::price(0.0)),
        status: summary.message,
        submitted: submitted.to_owned(),
        error: summary.error,
        job: match (record.array_job, record.array_task) {
            (Some(array), Some(task)) => format!("{array}_{task}"),
            _ => record.job.to_string(),
        },
        user: record.user.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(state: JobState, reason: Reason, restarts: u32, exit: (i32, i32)) -> RunSummary {
        let exit = ExitStatus { code: exit.0, signal: exit.1 };
        RunSummary::of(&JobFacts { state, reason: &reason, restarts, exit })
    }

    #[test]
    fn every_state_of_a_job_has_dstacks_words() {
        use RunStatus::*;
        let ok = (0, 0);
        let table = [
            (JobState::Pending, Reason::NotPlanned, 0, ok, Submitted, "submitted", ""),
            (JobState::Pending, Reason::Resources, 0, ok, Pending, "pending", ""),
            (JobState::Pending, Reason::None, 2, ok, Pending, "retrying", ""),
            (JobState::Configuring, Reason::None, 0, ok, Provisioning, "provisioning", ""),
            (JobState::Running, Reason::ImagePull, 0, ok, Provisioning, "pulling", ""),
            (JobState::Running, Reason::None, 0, ok, Running, "running", ""),
            (JobState::Suspended, Reason::None, 0, ok, Running, "running", ""),
            (JobState::Completing, Reason::None, 0, ok, Terminating, "terminating", ""),
            (JobState::Completed, Reason::None, 0, ok, Done, "exited (0)", ""),
            (JobState::Failed, Reason::NonZeroExit, 0, (3, 0), Failed, "exited (3)", ""),
            (JobState::Failed, Reason::NonZeroExit, 0, (0, 11), Failed, "exited (139)", ""),
            (JobState::Failed, Reason::NoCapacity, 0, ok, Failed, "no capacity", ""),
            (JobState::Failed, Reason::LaunchFailed, 0, ok, Failed, "failed", "executor error"),
            (JobState::Cancelled, Reason::None, 0, ok, Terminated, "stopped", ""),
            (JobState::Cancelled, Reason::Aborted, 0, ok, Terminated, "aborted", ""),
            (
                JobState::Cancelled,
                Reason::GpusUnderused,
                0,
                ok,
                Terminated,
                "terminated",
                "terminated due to utilization policy",
            ),
            (
                JobState::Timeout,
                Reason::TimeLimit,
                0,
                ok,
                Terminated,
                "terminated",
                "max duration exceeded",
            ),
            (
                JobState::OutOfMemory,
                Reason::OutOfMemory,
                0,
                (0, 9),
                Failed,
                "exited (137)",
                "out of memory",
            ),
            (JobState::NodeFail, Reason::NodeFail, 0, ok, Failed, "failed", "instance unreachable"),
            (JobState::Preempted, Reason::None, 0, ok, Failed, "interrupted", ""),
        ];
        for (state, reason, restarts, exit, status, message, error) in table {
            let found = summary(state, reason, restarts, exit);
            assert_eq!(found.status, status, "{state:?}");
            assert_eq!(found.message, message, "{state:?}");
            assert_eq!(found.error, error, "{state:?}");
            assert_eq!(found.is_success(), state == JobState::Completed);
            assert_eq!(found.status.is_finished(), state.is_ended(), "{state:?}");
        }
    }
}

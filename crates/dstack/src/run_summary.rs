//! Any job of the cluster as a run of dstack: its status, how it ended, its line of `ps`.

use crate::node_offer;
use crate::offer::Offer;
use crate::status::{self, JobEnd, JobStatus, RunEnd, RunStatus};
use crate::table::PsRow;
use model::amount::Bytes;
use model::array::format_pending;
use model::node::NodeConfig;
use model::price::{Cost, Price};
use model::printable::printable;
use model::reason::{LaunchFault, Reason};
use model::record::{JobRecord, RecordState};
use model::run::{ExitStatus, JobState, Outcome, Retry};
use model::service::ProbeProgress;
use model::time::Timestamp;
use model::tres::TresKind;
use std::collections::BTreeMap;
use std::time::Duration;
use wire::view::JobView;

/// The nodes of the cluster by their names, for what an allocation does not say of them.
pub type Nodes = BTreeMap<String, NodeConfig>;

/// A shell's exit code for a command that a signal ended is this plus the signal's number.
const SIGNAL_BASE: i32 = 128;
const SIGKILL: i32 = 9;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    pub status: RunStatus,
    /// The status of each of its jobs.
    pub job: JobStatus,
    pub end: Option<JobEnd>,
    pub run_end: Option<RunEnd>,
    /// The exit code of the commands, where they ended by themselves.
    pub exit: Option<i32>,
    /// The STATUS column.
    pub message: String,
    /// The error of its job.
    pub error: String,
}

/// The facts that a summary is made from.
struct JobFacts<'a> {
    state: JobState,
    reason: &'a Reason,
    restarts: u32,
    exit: ExitStatus,
    /// Its `retry`.
    retry: Option<&'a Retry>,
}

impl RunSummary {
    pub fn of_job(job: &JobView) -> Self {
        let (state, mut reason, mut restarts) = (job.state, &job.reason, job.restarts);
        // Waiting for the next time of a schedule is neither a retry nor about to end.
        if is_waiting_for_schedule(job) {
            (reason, restarts) = (&Reason::BeginTime, 0);
        }
        // A run whose machine is being made is where dstack has it while it provisions.
        let is_provisioning = job.extras.as_ref().is_some_and(|extras| extras.provisioning);
        let state = if is_provisioning { JobState::Configuring } else { state };
        let retry = job.spec.retry.as_deref();
        Self::of(&JobFacts { state, reason, restarts, exit: job.exit, retry })
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
        let (restarts, exit, retry) = (record.restarts, record.exit, record.retry.as_ref());
        Self::of(&JobFacts { state, reason: &reason, restarts, exit, retry })
    }

    /// A run that was refused because nothing is free for it.
    pub fn without_capacity() -> Self {
        let (state, reason) = (JobState::Failed, &Reason::NoCapacity);
        let exit = ExitStatus::default();
        Self::of(&JobFacts { state, reason, restarts: 0, exit, retry: None })
    }

    fn of(facts: &JobFacts<'_>) -> Self {
        let (job, end) = job_status(facts);
        let exit = end.filter(|end| ended_by_itself(*end)).map(|_| exit_code(facts.exit));
        let said = status::job_message(job, end, exit);
        let run = run_status(facts, job);
        let error = match (facts.state, facts.reason) {
            (JobState::OutOfMemory, _) => "out of memory".to_owned(),
            (_, reason) => {
                let error = end.and_then(JobEnd::error).unwrap_or_default();
                match reason {
                    Reason::NotLaunched(failure) => {
                        format!("{error}: {}", printable(&failure.what))
                    }
                    _ => error,
                }
            }
        };
        // One that is held, as a replica that its service does not need, is no attempt on its way.
        let is_held =
            matches!(facts.reason, Reason::HeldByUser | Reason::HeldByAdmin | Reason::RequeuedHeld);
        let attempts = if is_held { 0 } else { facts.restarts };
        let message = status::run_message(run, attempts, Some(&said));
        let run_end = end.map(|end| run_end(end, facts));
        Self { status: run, job, end, run_end, exit, message, error }
    }

    /// The ERROR column: the run's own error, and its job's.
    pub fn run_error(&self) -> String {
        match self.run_end.and_then(RunEnd::error) {
            Some(of_run) if self.error.is_empty() => of_run,
            Some(of_run) => format!("{of_run}; {}", self.error),
            None => self.error.clone(),
        }
    }

    pub fn is_success(&self) -> bool {
        self.status == RunStatus::Done
    }
}

/// The status of a run that has ended so.
pub fn status_of(outcome: Outcome) -> RunStatus {
    let (state, reason) = (outcome.state(), &Reason::None);
    let exit = ExitStatus::default();
    RunSummary::of(&JobFacts { state, reason, restarts: 0, exit, retry: None }).status
}

/// How the run of a job that ended so has ended. What `retry` covers would have been followed by a new attempt, had there been
/// one left, or time for it.
fn run_end(end: JobEnd, facts: &JobFacts<'_>) -> RunEnd {
    let covers = |retry: &Retry| match end {
        JobEnd::FailedToStartDueToNoCapacity => {
            facts.restarts > 0 || retry.covers(Outcome::NoCapacity)
        }
        JobEnd::InstanceUnreachable => retry.covers(Outcome::NodeFail),
        JobEnd::ContainerExitedWithError => retry.covers(Outcome::Failed),
        JobEnd::ExecutorError
        | JobEnd::CreatingContainerError
        | JobEnd::VolumeError
        | JobEnd::PortsBindingFailed => retry.covers(Outcome::LaunchFailed),
        _ => false,
    };
    match end {
        JobEnd::DoneByRunner => RunEnd::AllJobsDone,
        JobEnd::TerminatedByUser => RunEnd::StoppedByUser,
        JobEnd::AbortedByUser => RunEnd::AbortedByUser,
        _ if facts.retry.is_some_and(covers) => RunEnd::RetryLimitExceeded,
        _ => RunEnd::JobFailed,
    }
}

/// Whether the run waits, and is started by its schedule.
pub fn is_waiting_for_schedule(job: &JobView) -> bool {
    job.spec.schedule.is_some() && job.state == JobState::Pending
}

fn ended_by_itself(end: JobEnd) -> bool {
    matches!(end, JobEnd::DoneByRunner | JobEnd::ContainerExitedWithError)
}

fn exit_code(exit: ExitStatus) -> i32 {
    match exit {
        // Slurm's pair names no signal: it is the one that the kernel sends.
        ExitStatus::OUT_OF_MEMORY => SIGNAL_BASE + SIGKILL,
        ExitStatus { code, signal: 0 } => code,
        ExitStatus { signal, .. } => SIGNAL_BASE + signal,
    }
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
        (JobState::Failed, Reason::NotLaunched(failure)) => match failure.fault {
            LaunchFault::Other => JobEnd::ExecutorError,
            LaunchFault::Container => JobEnd::CreatingContainerError,
            LaunchFault::Volume => JobEnd::VolumeError,
            LaunchFault::Ports => JobEnd::PortsBindingFailed,
        },
        (JobState::Failed, Reason::LaunchFailed | Reason::UserRefused(_)) => JobEnd::ExecutorError,
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
        error: summary.run_error(),
        status: summary.message,
        probes: probe_signs(job),
        submitted: submitted.to_owned(),
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

/// The PROBES column, in the signs of dstack's client.
fn probe_signs(job: &JobView) -> String {
    let probes = job.extras.iter().flat_map(|extras| &extras.probes);
    let sign = |probe: &ProbeProgress| match probe {
        ProbeProgress::Ready => '✓',
        ProbeProgress::Succeeding => '~',
        ProbeProgress::Failing => '×',
    };
    probes.map(sign).collect()
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
pub fn record_row(record: &JobRecord, nodes: &Nodes, submitted: &str) -> PsRow {
    let summary = RunSummary::of_record(record);
    let tres = &record.alloc_tres;
    let started = record.start.is_some();
    let gpus = tres.amount(&TresKind::gpu());
    let text = |text: String| if started { text } else { String::new() };
    let gpu = if gpus > 0 { format!("gpu={gpus}") } else { String::new() };
    let memory = crate::offer::size(Bytes::from_mib(tres.amount(&TresKind::Mem)));
    let task = record.array_task.map(|task| format!(" task={task}")).unwrap_or_default();
    let first = record.nodes.first().and_then(|node| nodes.get(node));
    // A machine on demand that is gone is no node any more: what the job paid for is in its record.
    let paid = || Price::from_units(tres.amount(&TresKind::Cost)).dollars();
    let price = first.map_or_else(paid, node_offer::dollars_per_hour);
    PsRow {
        name: format!("{}{task}", record.name),
        backend: text(node_offer::BACKEND.to_owned()),
        resources: text(format!("cpu={} mem={memory} {gpu}", record.cpus).trim_end().to_owned()),
        gpu,
        instance_type: text(model::hostlist::compress(&record.nodes)),
        price: text(crate::offer::price(price)),
        error: summary.run_error(),
        status: summary.message,
        probes: String::new(),
        submitted: submitted.to_owned(),
        job: match (record.array_job, record.array_task) {
            (Some(array), Some(task)) => format!("{array}_{task}"),
            _ => record.job.to_string(),
        },
        user: record.user.clone(),
        cost: String::new(),
        url: String::new(),
    }
}

/// What the job's time on its shares of nodes has cost, without the time that it was suspended; `None` where no node has a price.
pub fn job_cost(job: &JobView, now: Timestamp) -> Option<Cost> {
    let allocation = job.allocation.as_ref()?;
    let is_priced = allocation.nodes.iter().any(|share| share.price.is_some());
    let ran = Duration::from_secs(job.elapsed_s(now));
    is_priced.then(|| allocation.price().for_time(ran))
}

/// The same of a job that is only in the books.
pub fn record_cost(record: &JobRecord, now: Timestamp) -> Option<Cost> {
    let price = record.alloc_tres.get(&TresKind::Cost).map(Price::from_units)?;
    let ran = record.end.unwrap_or(now).since(record.start?);
    Some(price.for_time(ran.saturating_sub(Duration::from_secs(record.suspended_s))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::reason::LaunchFailure;

    fn summary(state: JobState, reason: Reason, restarts: u32, exit: (i32, i32)) -> RunSummary {
        let exit = ExitStatus { code: exit.0, signal: exit.1 };
        RunSummary::of(&JobFacts { state, reason: &reason, restarts, exit, retry: None })
    }

    #[test]
    fn job_of_a_run_that_prepares_says_what_it_does() {
        let job = |state, reason| summary(state, reason, 0, (0, 0)).job;
        assert_eq!(job(JobState::Configuring, Reason::None), JobStatus::Provisioning);
        assert_eq!(job(JobState::Running, Reason::ImagePull), JobStatus::Pulling);
        assert_eq!(job(JobState::Running, Reason::None), JobStatus::Running);
    }

    #[test]
    fn every_state_of_a_job_has_dstacks_words() {
        use RunStatus::*;
        let ok = (0, 0);
        let table = [
            (JobState::Pending, Reason::NotPlanned, 0, ok, Submitted, "submitted", ""),
            (JobState::Pending, Reason::Resources, 0, ok, Pending, "pending", ""),
            (JobState::Pending, Reason::None, 2, ok, Pending, "retrying", ""),
            (JobState::Pending, Reason::HeldByUser, 2, ok, Pending, "pending", ""),
            (JobState::Pending, Reason::RequeuedHeld, 2, ok, Pending, "pending", ""),
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
                (0, 125),
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

    #[test]
    fn every_part_of_a_launch_that_fails_has_its_reason() {
        let table = [
            (LaunchFault::Other, "executor_error", "executor error: no"),
            (LaunchFault::Container, "creating_container_error", "creating container error: no"),
            (LaunchFault::Volume, "volume_error", "volume error: no"),
            (LaunchFault::Ports, "ports_binding_failed", "ports binding failed: no"),
        ];
        for (fault, word, error) in table {
            let reason = Reason::NotLaunched(Box::new(LaunchFailure::new(fault, "no")));
            let found = summary(JobState::Failed, reason, 0, (0, 53));
            assert_eq!(found.end.map(JobEnd::word), Some(word));
            assert_eq!((found.message.as_str(), found.error.as_str()), ("failed", error));
            assert_eq!((found.exit, found.run_end), (None, Some(RunEnd::JobFailed)));
        }
    }

    #[test]
    fn retry_that_covers_the_end_and_has_no_attempt_left_is_exceeded() {
        let all = Retry {
            on_no_capacity: true,
            on_interruption: true,
            on_error: true,
            duration_s: None,
            attempts_max: Some(2),
        };
        let errors = Retry { on_no_capacity: false, on_interruption: false, ..all.clone() };
        let launch = || Reason::NotLaunched(Box::new(String::from("no").into()));
        let (limit, failed) = (RunEnd::RetryLimitExceeded, RunEnd::JobFailed);
        let table = [
            (&all, JobState::Failed, Reason::NonZeroExit, 1, limit),
            (&all, JobState::Failed, Reason::NoCapacity, 0, limit),
            (&errors, JobState::Failed, Reason::NoCapacity, 0, failed),
            // It waited for the attempt that its retry makes.
            (&errors, JobState::Failed, Reason::NoCapacity, 1, limit),
            (&errors, JobState::OutOfMemory, Reason::OutOfMemory, 1, limit),
            (&errors, JobState::Failed, launch(), 1, limit),
            (&errors, JobState::NodeFail, Reason::NodeFail, 1, limit),
            (&all, JobState::Timeout, Reason::TimeLimit, 1, failed),
            (&all, JobState::Cancelled, Reason::None, 1, RunEnd::StoppedByUser),
            (&all, JobState::Completed, Reason::None, 1, RunEnd::AllJobsDone),
        ];
        for (retry, state, reason, restarts, expected) in table {
            let (exit, retry) = (ExitStatus::default(), Some(retry));
            let facts = JobFacts { state, reason: &reason, restarts, exit, retry };
            let found = RunSummary::of(&facts);
            assert_eq!(found.run_end, Some(expected), "{state:?} {reason:?}");
            let said = found.run_error().starts_with("retry limit exceeded");
            assert_eq!(said, expected == limit, "{}", found.error);
        }
    }
}

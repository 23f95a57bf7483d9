//! Why a job ended as it did, by the books: the cause, what it used beside what it asked for, and what to try.

use super::lost_nodes::LostNodes;
use model::amount::Bytes;
use model::dependency::Dependency;
use model::hostlist;
use model::reason::{LaunchFault, Reason};
use model::record::{JobRecord, RecordState, StepRecord};
use model::run::{ExitStatus, JobState, LaunchKind, Outcome};
use model::time::{TimeLimit, Timestamp, format_elapsed_full, format_limit_full};
use nix::sys::signal::Signal;
use nix::unistd::{Uid, User};
use slurm::output::Moment;
use slurm::words::job as state;
use std::borrow::Cow;

/// Exit codes with which a shell says that it could not run a command, and that there is none of that name.
const NOT_EXECUTABLE: i32 = 126;
const NOT_FOUND: i32 = 127;
/// Shells report a child that a signal ended with this added to the signal's number.
const SIGNAL_BASE: i32 = 128;

const MIB: u64 = 1 << 20;

/// How many earlier attempts, and failed steps, are told of.
const TOLD_MAX: usize = 5;

/// The state of a record as it is shown: a requeued attempt has one that no job has.
pub fn state_word(record: &JobRecord) -> &'static str {
    match record.state {
        RecordState::Ended(Outcome::Requeued) => "REQUEUED",
        RecordState::Ended(outcome) => state::long(outcome.state()),
        RecordState::Pending => state::long(JobState::Pending),
        RecordState::Running => state::long(JobState::Running),
        RecordState::Suspended => state::long(JobState::Suspended),
    }
}

/// `has ended: TIMEOUT at … after 01:00:02 on n1.`
pub fn headline(record: &JobRecord, moment: Moment<'_>) -> String {
    let time = |time: Option<Timestamp>| time.map_or_else(|| "?".into(), |time| moment.iso(time));
    let mut text = format!("has ended: {} at {}", state_word(record), time(record.end));
    match elapsed_s(record) {
        Some(secs) => {
            let nodes = hostlist::compress(&record.nodes);
            text += &format!(", after {} on {nodes}.", format_elapsed_full(secs));
        }
        // The record of a job that waited for its next attempt has the number of that.
        None if record.attempt > 1 => {
            text += &format!("; it was not started again after attempt {}.", record.attempt - 1);
        }
        None => text += "; it never started.",
    }
    text
}

/// The lines below the headline.
pub fn lines(record: &JobRecord, lost: &LostNodes, moment: Moment<'_>) -> Vec<String> {
    let mut lines = causes(record, lost, moment);
    if !lines.is_empty() {
        lines.extend(used_line(record));
    }
    lines.extend(advice(record));
    lines
}

/// The cause, and the steps that failed; nothing of a job that has not ended.
pub fn causes(record: &JobRecord, lost: &LostNodes, moment: Moment<'_>) -> Vec<String> {
    let RecordState::Ended(outcome) = record.state else { return Vec::new() };
    let mut lines = vec![cause(record, outcome, lost, moment)];
    let failed = |step: &&StepRecord| {
        matches!(step.id, model::id::StepId::Number(_)) && !step.exit.is_success()
    };
    let failed: Vec<&StepRecord> = record.steps.iter().filter(failed).collect();
    for step in failed.iter().take(TOLD_MAX) {
        let end = end_text(step.exit);
        lines.push(format!("Step {}.{} ({}) {end}.", record.job, step.id, step.name));
    }
    if failed.len() > TOLD_MAX {
        lines.push(format!("{} more steps failed.", failed.len() - TOLD_MAX));
    }
    lines
}

/// One line for each attempt before the last.
pub fn earlier(attempts: &[JobRecord], lost: &LostNodes, moment: Moment<'_>) -> Vec<String> {
    let before = attempts.split_last().map_or(&[][..], |(_, before)| before);
    let skipped = before.len().saturating_sub(TOLD_MAX);
    let line = |record: &JobRecord| {
        let outcome = match record.state {
            RecordState::Ended(outcome) => cause(record, outcome, lost, moment),
            _ => String::new(),
        };
        let end = record.end.map_or_else(|| "?".to_owned(), |end| moment.iso(end));
        format!("Attempt {}: {} at {end}. {outcome}", record.attempt, state_word(record))
    };
    before.iter().skip(skipped).map(line).collect()
}

fn cause(record: &JobRecord, outcome: Outcome, lost: &LostNodes, moment: Moment<'_>) -> String {
    let nodes = || hostlist::compress(&record.nodes);
    match outcome {
        Outcome::Completed => "It completed.".to_owned(),
        Outcome::Failed => format!("It {}{}.", end_text(record.exit), failed_first(record)),
        Outcome::Cancelled { .. } if record.reason == Reason::GpusUnderused => {
            "Its GPUs did less than its utilization_policy asks for.".to_owned()
        }
        Outcome::Cancelled { .. } if record.reason == Reason::Inactive => {
            "Nobody was connected to it for its inactivity_duration.".to_owned()
        }
        Outcome::Cancelled { by } => match record.reason {
            Reason::DependencyNeverSatisfied => {
                "It was cancelled, because its dependency could not be met any more.".to_owned()
            }
            _ => format!("It was cancelled by {}.", user_name(by)),
        },
        Outcome::Timeout if has_cpu_time_left(record) => {
            format!("It reached its time limit of {}.", format_limit_full(record.time_limit))
        }
        Outcome::Timeout => "It used up the CPU time that its limit allows.".to_owned(),
        Outcome::OutOfMemory => {
            let limit =
                memory_limit(record).map_or_else(String::new, |limit| format!(" of {limit}"));
            let peak = record.usage.memory_peak_bytes;
            let peak =
                if peak > 0 { format!(", at a peak of {}", shown(peak)) } else { String::new() };
            let granted = record.memory_limit.and_then(|_| granted_memory(record));
            let granted = granted.map_or_else(String::new, |granted| {
                format!(" ({granted} was granted; cgroup.conf sets the limit)")
            });
            format!(
                "The kernel killed a process of it at its memory limit{limit} on a node{granted}{peak}{}.",
                failed_first(record)
            )
        }
        Outcome::Requeued | Outcome::NodeFail if failure(record).is_some() => {
            let why = failure(record).unwrap_or_default();
            format!("It could not be started on {}: {why}; it was put back.", nodes())
        }
        Outcome::NodeFail => match lost.of_attempt(record) {
            [] => format!("A node was lost under it ({}).", nodes()),
            [one] => format!("Node {one} was lost under it; it ran on {}.", nodes()),
            several => {
                let several = hostlist::compress(several);
                format!("Nodes {several} were lost under it; it ran on {}.", nodes())
            }
        },
        Outcome::Preempted => "A job that may take its place took it (preemption).".to_owned(),
        Outcome::Requeued => match record.reason {
            Reason::RequeuedBy(by) => {
                format!("It was put back into the queue by {}.", user_name(by))
            }
            _ if record.exit.is_success() => "It was put back into the queue.".to_owned(),
            _ => format!("It {}, and was put back into the queue.", end_text(record.exit)),
        },
        Outcome::Deadline => "It could not end before its deadline any more.".to_owned(),
        Outcome::LaunchFailed => match &record.reason {
            Reason::NotLaunched(_) => {
                let why = failure(record).unwrap_or_default();
                format!("It could not be started on {}: {why}.", nodes())
            }
            Reason::UserRefused(_) => format!(
                "It could not be started on {}: {}.",
                nodes(),
                slurm::words::reason::text(&record.reason)
            ),
            _ => format!("It could not be started on {}.", nodes()),
        },
        Outcome::NoCapacity => {
            let since = moment.iso(record.submit);
            format!("Nothing was free for it within the time that it would wait (since {since}).")
        }
    }
}

/// The node that decided the end of a run on several, each of which runs its commands. That of a batch job is its first.
fn failed_first(record: &JobRecord) -> String {
    let node = record.failed_node.as_ref().filter(|_| record.kind == LaunchKind::Task);
    node.map_or_else(String::new, |node| format!("; the first of its nodes to fail was {node}"))
}

/// `ended with exit code 3`; of a pair that no process exits with, what it stands for.
fn end_text(exit: ExitStatus) -> String {
    match exit {
        ExitStatus::OUT_OF_MEMORY => {
            "ran out of memory: the kernel killed a process of it at its memory limit".to_owned()
        }
        ExitStatus::NOT_LAUNCHED => "was not started".to_owned(),
        exit => format!("ended with {}", exit_text(exit)),
    }
}

/// `exit code 3`, `signal 9 (SIGKILL)`, `exit code 127: …`
fn exit_text(exit: ExitStatus) -> String {
    let name = |number: i32| Signal::try_from(number).map_or_else(|_| "unknown", Signal::as_str);
    if exit.signal != 0 {
        return format!("signal {} ({})", exit.signal, name(exit.signal));
    }
    let meaning = match exit.code {
        NOT_EXECUTABLE => ", a shell's for what it cannot execute".to_owned(),
        NOT_FOUND => ", a shell's for a command that it does not find".to_owned(),
        // Programs have codes of that size for causes of their own.
        code if Signal::try_from(code - SIGNAL_BASE).is_ok() => {
            let signal = code - SIGNAL_BASE;
            format!(", a shell's for signal {signal} ({}) or the program's own", name(signal))
        }
        _ => String::new(),
    };
    format!("exit code {}{meaning}", exit.code)
}

/// What a job uses up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsedKind {
    CpuTime,
    Memory,
    Time,
}

impl UsedKind {
    /// As a heading has it.
    pub fn title(self) -> &'static str {
        match self {
            Self::CpuTime => "CPU time",
            Self::Memory => "Peak of memory",
            Self::Time => "Time",
        }
    }

    /// Behind the amounts in a line.
    fn unit(self) -> &'static str {
        match self {
            Self::CpuTime => "CPU time",
            Self::Memory => "memory",
            Self::Time => "of time",
        }
    }
}

/// An amount that it used, beside what it had of it.
pub struct UsedAmount {
    pub what: UsedKind,
    pub used: String,
    /// `None` where nothing bounded it.
    pub of: Option<String>,
    /// ` (25 %)`, ` on its fullest node`; or empty.
    pub note: String,
}

/// CPU time, memory and time, each beside what was allocated; empty for a job that did not run.
pub fn used(record: &JobRecord) -> Vec<UsedAmount> {
    let Some(elapsed) = elapsed_s(record) else { return Vec::new() };
    let cpu_s = (record.usage.cpu_user_us + record.usage.cpu_system_us) / 1_000_000;
    let allocated = elapsed * u64::from(record.cpus);
    let part = (cpu_s * 100).checked_div(allocated);
    let mut amounts = vec![UsedAmount {
        what: UsedKind::CpuTime,
        used: format_elapsed_full(cpu_s),
        of: Some(format_elapsed_full(allocated)),
        note: part.map_or_else(String::new, |percent| format!(" ({percent} %)")),
    }];
    let peak = record.usage.memory_peak_bytes;
    if peak > 0 {
        let several = record.node_count > 1;
        amounts.push(UsedAmount {
            what: UsedKind::Memory,
            used: shown(peak).to_string(),
            of: memory_limit(record).map(|limit| limit.to_string()),
            note: if several { " on its fullest node".to_owned() } else { String::new() },
        });
    }
    amounts.push(UsedAmount {
        what: UsedKind::Time,
        used: format_elapsed_full(elapsed),
        of: (record.time_limit != TimeLimit::Unlimited)
            .then(|| format_limit_full(record.time_limit)),
        note: String::new(),
    });
    amounts
}

/// The same as a line.
fn used_line(record: &JobRecord) -> Option<String> {
    let part = |amount: UsedAmount| {
        let UsedAmount { what, used, of, note } = amount;
        let of = of.map_or_else(String::new, |of| format!(" of {of}"));
        format!("{used}{of} {}{note}", what.unit())
    };
    let parts: Vec<String> = used(record).into_iter().map(part).collect();
    (!parts.is_empty()).then(|| format!("Used: {}.", parts.join("; ")))
}

/// `It depended on afterok:11; …`, for a job that was cancelled because that cannot come about any more. `known`: what the server
/// has of it, where the record has none.
pub fn depended_on(record: &JobRecord, known: Option<&Dependency>) -> Option<String> {
    if record.reason != Reason::DependencyNeverSatisfied {
        return None;
    }
    let recorded = || Dependency::parse(record.dependency.as_deref()?).ok();
    let dependency = known.cloned().or_else(recorded)?;
    let named = dependency.terms.iter().find_map(|term| term.job);
    let how = named.map(|job| format!("; `sluice explain {}` says how that job ended", job.id));
    Some(format!("It depended on {dependency}{}.", how.unwrap_or_default()))
}

/// What a job asks for by its language's own words.
struct AskingWords {
    memory: &'static str,
    time: &'static str,
    requeue: &'static str,
}

const OF_OPTIONS: AskingWords =
    AskingWords { memory: "--mem", time: "--time", requeue: "--requeue" };
const OF_CONFIGURATION: AskingWords = AskingWords {
    memory: "`memory` of `resources`",
    time: "`max_duration`",
    requeue: "`retry: {on_events: [interruption]}`",
};

/// What to try.
pub fn advice(record: &JobRecord) -> Option<String> {
    let RecordState::Ended(outcome) = record.state else { return None };
    let words = if record.kind == LaunchKind::Task { OF_CONFIGURATION } else { OF_OPTIONS };
    let AskingWords { memory, time, requeue } = words;
    let text = match outcome {
        Outcome::OutOfMemory => match memory_limit(record) {
            Some(limit) => {
                format!("To try: more memory, as with {memory} (it had {limit} on each node).")
            }
            None => format!("To try: more memory, as with {memory}."),
        },
        Outcome::Timeout if has_cpu_time_left(record) => {
            format!("To try: a longer limit ({time}), or checkpoints and {requeue}.")
        }
        Outcome::Timeout => "To try: fewer CPU seconds, or more of them: `ulimit -t` where it is submitted, MaxCPUTime of cgroup.conf.".to_owned(),
        Outcome::Deadline => "To try: a later --deadline, or a shorter --time.".to_owned(),
        Outcome::LaunchFailed => launch_advice(record).to_owned(),
        Outcome::NodeFail if record.restarts == 0 => {
            format!("To try: submit it again; with {requeue} it goes back by itself.")
        }
        Outcome::Preempted => format!("To try: {requeue}, or a QOS that is not preempted."),
        // Whatever the script made of it.
        Outcome::Failed | Outcome::Completed if has_step_out_of_memory(record) => {
            let had = memory_limit(record)
                .map_or_else(String::new, |limit| format!(" (the job had {limit} on each node)"));
            format!("To try: more memory for the step, as with --mem{had}.")
        }
        Outcome::Failed if record.exit.code == NOT_FOUND => {
            "To try: `module load` or the full path of the program; see the last lines of its output.".to_owned()
        }
        Outcome::Failed if record.exit.code == NOT_EXECUTABLE => {
            "To try: `chmod +x` the program, and see whether the interpreter of its first line is on the node.".to_owned()
        }
        Outcome::Failed if record.exit.signal == Signal::SIGKILL as i32 => {
            "To try: look for memory or a limit of its own; it was not this cluster's limit that ended it.".to_owned()
        }
        _ => return None,
    };
    Some(text)
}

fn has_step_out_of_memory(record: &JobRecord) -> bool {
    record.steps.iter().any(|step| step.exit == ExitStatus::OUT_OF_MEMORY)
}

/// What may be done about a job that a node could not start, by the part that failed.
fn launch_advice(record: &JobRecord) -> &'static str {
    match &record.reason {
        Reason::UserRefused(_) => {
            "To try: have the account made the same on that node, or leave the node out (--exclude)."
        }
        Reason::NotLaunched(failure) => match failure.fault {
            LaunchFault::Container => {
                "To try: mend what the line above names; `srun --container-image=IMAGE true` shows whether a node gets the image."
            }
            LaunchFault::Volume => {
                "To try: `sluice volume list`, and whether the folder is on that node."
            }
            LaunchFault::Ports => "To try: another port of the node, or any that is free.",
            // The files of its output are the server's.
            LaunchFault::Other if record.kind == LaunchKind::Task => {
                "To try: mend what the line above names, on that node or in the configuration, and apply it again."
            }
            LaunchFault::Other => {
                "To try: make what is missing there, or name another place (--output, --error, --chdir), and submit it again."
            }
        },
        _ => "To try: submit it again; the server's log says what the node reported.",
    }
}

/// The memory that the job may use on each node; `None` without a limit.
fn memory_limit(record: &JobRecord) -> Option<Bytes> {
    record.memory_limit.or_else(|| granted_memory(record))
}

fn granted_memory(record: &JobRecord) -> Option<Bytes> {
    let total = record.alloc_tres.get(&model::tres::TresKind::Mem)?;
    let each = total / u64::from(record.node_count.max(1));
    (each > 0).then(|| Bytes::from_mib(each))
}

/// In whole MiB, so that it stands beside a limit.
fn shown(bytes: u64) -> Bytes {
    Bytes::from_mib(bytes.div_ceil(MIB))
}

/// Why a node could not start it.
fn failure(record: &JobRecord) -> Option<Cow<'_, str>> {
    slurm::words::reason::failure_cause(&record.reason)
}

/// Whether it ran for as long as its time limit: one that ended before it was ended by a limit of CPU time.
fn has_cpu_time_left(record: &JobRecord) -> bool {
    match (record.time_limit.secs(), elapsed_s(record)) {
        (Some(limit), Some(elapsed)) => elapsed >= limit,
        _ => false,
    }
}

fn elapsed_s(record: &JobRecord) -> Option<u64> {
    let (start, end) = (record.start?, record.end?);
    Some(((end.secs() - start.secs()).max(0) as u64).saturating_sub(record.suspended_s))
}

fn user_name(uid: u32) -> String {
    match User::from_uid(Uid::from_raw(uid)) {
        Ok(Some(user)) => user.name,
        _ => format!("user {uid}"),
    }
}

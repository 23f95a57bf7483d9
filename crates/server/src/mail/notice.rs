//! From events to mails.

use crate::shared::mail_queue::MailNotice;
use cluster::{EndRecord, Event, Job, State};
use model::array::IndexSet;
use model::id::JobId;
use model::mail::{Mail, MailType};
use model::reason::Reason;
use model::run::{Outcome, TaskEnds};
use model::time::{Timestamp, format_elapsed_full};
use slurm::words;
use slurm::words::mail::{MailEvent, MailJob, subject};

/// The mails that an event brings, just after the state took it.
pub fn of_event(state: &State, event: &Event) -> Vec<MailNotice> {
    let asked = |id: &JobId| state.jobs.get(id).filter(|job| job.spec.mail.is_some());
    match event {
        Event::Started(started) => asked(&started.attempt.job)
            .and_then(|job| began(state, job, started.at))
            .into_iter()
            .collect(),
        Event::Ended { job, ended } => {
            asked(job).map(|job| ended_mails(state, job, ended)).unwrap_or_default()
        }
        Event::TasksCancelled { array, ended, indices } => {
            asked(array).map(|job| tasks_cancelled(state, job, ended, indices)).unwrap_or_default()
        }
        Event::Requeued { job, ended, .. } => {
            asked(job).and_then(|job| requeued(state, job, run_s(ended))).into_iter().collect()
        }
        Event::EndedJobRequeued { job, .. } => {
            asked(job).and_then(|job| requeued(state, job, 0)).into_iter().collect()
        }
        _ => Vec::new(),
    }
}

/// The job that is to be watched from this event on, because of its types of mail.
pub fn watched_job(state: &State, event: &Event) -> Option<JobId> {
    let id = match event {
        Event::Submitted(submitted) => submitted.job,
        Event::Started(started) => started.attempt.job,
        Event::Changed { job, .. }
        | Event::Requeued { job, .. }
        | Event::Suspended { job, .. }
        | Event::Resumed { job, .. } => *job,
        Event::TaskSplit { job, .. } => *job,
        _ => return None,
    };
    is_watched(state.jobs.get(&id)?).then_some(id)
}

/// The job, or the array of the task, whose end may decide what others wait for.
pub fn ended_job(state: &State, event: &Event) -> Option<JobId> {
    let id = match event {
        Event::Ended { job, .. } | Event::Requeued { job, .. } => *job,
        Event::TasksCancelled { array, .. } => *array,
        _ => return None,
    };
    let task = state.jobs.get(&id).and_then(|job| job.task);
    Some(task.map_or(id, |task| task.array))
}

/// Whether time, and no event of its own, may bring a mail about the job.
pub fn is_watched(job: &Job) -> bool {
    let Some(mail) = &job.spec.mail else { return false };
    let near_limit = mail.types.iter().any(|kind| kind.time_limit_percent().is_some());
    let depends = mail.has(MailType::InvalidDepend) && job.spec.dependency.is_some();
    !job.has_ended() && (near_limit || depends)
}

/// A mail about one job, whatever array it is a task of.
pub fn about_job(state: &State, job: &Job, kind: MailType, event: MailEvent) -> Option<MailNotice> {
    let about = match job.task {
        Some(task) => MailJob::Task { array: task.array, index: task.index, job: job.id },
        None if job.pending.is_some() => MailJob::Array(job.id),
        None => MailJob::Job(job.id),
    };
    notice(state, job, kind, about, event)
}

fn notice(
    state: &State,
    job: &Job,
    kind: MailType,
    about: MailJob,
    event: MailEvent,
) -> Option<MailNotice> {
    let mail = job.spec.mail.as_deref()?;
    // One component of a het job stands for all.
    if !mail.has(kind) || job.het.is_some_and(|het| het.offset > 0) {
        return None;
    }
    let array = if let MailJob::Array(array) = about { Some(array) } else { None };
    Some(MailNotice {
        kind,
        job: job.id,
        owner: job.spec.owner.uid,
        array,
        to: address(state, mail, &job.spec.owner.name),
        subject: subject(about, &job.spec.name, event),
        variables: variables(job, kind, event),
    })
}

fn address(state: &State, mail: &Mail, owner: &str) -> String {
    match (&mail.user, &state.config.site.mail_domain) {
        (Some(user), _) => user.clone(),
        (None, Some(domain)) => format!("{owner}@{domain}"),
        (None, None) => owner.to_owned(),
    }
}

fn variables(job: &Job, kind: MailType, event: MailEvent) -> Vec<(&'static str, String)> {
    let mut variables = vec![
        ("SLURM_JOB_MAIL_TYPE", kind.name().to_owned()),
        ("SLURM_JOB_STATE", words::job::long(job.state()).to_owned()),
    ];
    let run = |s| ("SLURM_JOB_RUN_TIME", format_elapsed_full(s));
    match event {
        MailEvent::Began { queued_s } => {
            variables.push(("SLURM_JOB_QUEUED_TIME", format_elapsed_full(queued_s)));
        }
        MailEvent::Ended { run_s, exit, .. } => variables.extend([
            run(run_s),
            ("SLURM_JOB_EXIT_CODE_MAX", exit.code.to_string()),
            ("SLURM_JOB_EXIT_CODE_MIN", exit.code.to_string()),
            ("SLURM_JOB_TERM_SIGNAL_MAX", exit.signal.to_string()),
        ]),
        MailEvent::ArrayEnded { code_min, code_max, .. } => variables.extend([
            ("SLURM_JOB_EXIT_CODE_MAX", code_max.to_string()),
            ("SLURM_JOB_EXIT_CODE_MIN", code_min.to_string()),
        ]),
        MailEvent::Requeued { run_s } => variables.push(run(run_s)),
        _ => {}
    }
    variables
}

/// The array that the job's mails are about as a whole; `None` where each task has its own.
fn whole_array(job: &Job) -> Option<JobId> {
    let each = job.spec.mail.as_ref().is_some_and(|mail| mail.has(MailType::ArrayTasks));
    let array = job.task.map(|task| task.array).or(job.pending.as_ref().map(|_| job.id));
    array.filter(|_| !each)
}

fn began(state: &State, job: &Job, at: Timestamp) -> Option<MailNotice> {
    let since = job.begin.map_or(job.shown_submit(), |begin| begin.max(job.shown_submit()));
    let event = MailEvent::Began { queued_s: at.since(since).as_secs() };
    let Some(array) = whole_array(job) else {
        return about_job(state, job, MailType::Begin, event);
    };
    // A task whose record was purged had started.
    let started = |id: &JobId| state.jobs.get(id).is_none_or(|task| task.attempts > 0);
    let mut others = state.arrays.get(&array)?.values().filter(|id| **id != job.id);
    let is_first = job.attempts == 1 && !others.any(started);
    is_first.then(|| notice(state, job, MailType::Begin, MailJob::Array(array), event))?
}

fn ended_mails(state: &State, job: &Job, ended: &EndRecord) -> Vec<MailNotice> {
    let mut mails = Vec::new();
    if ended.outcome == Outcome::Timeout {
        let event = MailEvent::TimeLimitReached;
        mails.extend(about_job(state, job, MailType::TimeLimit, event));
    }
    if ended.reason == Reason::DependencyNeverSatisfied {
        let event = MailEvent::InvalidDependency;
        mails.extend(about_job(state, job, MailType::InvalidDepend, event));
    }
    match whole_array(job) {
        Some(array) => mails.extend(array_ended(state, job, array)),
        None => {
            let failed = is_failure(ended.outcome);
            let (state_word, exit) = (ended.outcome.state(), ended.exit);
            let end =
                |failed| MailEvent::Ended { failed, run_s: run_s(ended), state: state_word, exit };
            mails.extend(end_mail(job, failed, |kind, failed| {
                about_job(state, job, kind, end(failed))
            }));
        }
    }
    mails
}

fn tasks_cancelled(
    state: &State,
    job: &Job,
    ended: &EndRecord,
    indices: &IndexSet,
) -> Vec<MailNotice> {
    let mut mails = Vec::new();
    if ended.reason == Reason::DependencyNeverSatisfied && !indices.is_empty() {
        let event = MailEvent::InvalidDependency;
        mails.extend(about_job(state, job, MailType::InvalidDepend, event));
    }
    mails.extend(array_ended(state, job, whole_array(job).unwrap_or(job.id)));
    mails
}

/// The mail about the array's end, if no task of it waits or runs any more.
fn array_ended(state: &State, job: &Job, array: JobId) -> Option<MailNotice> {
    let waits = state.jobs.get(&array).is_some_and(|whole| !whole.has_ended());
    let runs = |id: &JobId| state.jobs.get(id).is_some_and(|task| !task.has_ended());
    // The last tasks end last: they are asked first.
    let mut tasks = state.arrays.get(&array).into_iter().flat_map(|tasks| tasks.values().rev());
    if waits || tasks.any(runs) {
        return None;
    }
    let TaskEnds { state: word, code_min, code_max, failed, .. } = state.runs.get(&job.run)?.ends;
    let end = |failed| MailEvent::ArrayEnded { failed, state: word, code_min, code_max };
    end_mail(job, failed, |kind, failed| {
        notice(state, job, kind, MailJob::Array(array), end(failed))
    })
}

/// One mail: as a failure where failures are asked for, else as an end.
fn end_mail(
    job: &Job,
    failed: bool,
    mail: impl Fn(MailType, bool) -> Option<MailNotice>,
) -> Option<MailNotice> {
    let asked = job.spec.mail.as_deref()?;
    if failed && asked.has(MailType::Fail) {
        return mail(MailType::Fail, true);
    }
    mail(MailType::End, false)
}

fn requeued(state: &State, job: &Job, run_s: u64) -> Option<MailNotice> {
    let event = MailEvent::Requeued { run_s };
    match whole_array(job) {
        Some(array) => notice(state, job, MailType::Requeue, MailJob::Array(array), event),
        None => about_job(state, job, MailType::Requeue, event),
    }
}

/// A job that somebody cancelled has not failed.
fn is_failure(outcome: Outcome) -> bool {
    !matches!(outcome, Outcome::Completed | Outcome::Cancelled { .. })
}

fn run_s(ended: &EndRecord) -> u64 {
    let ran = ended.start.map_or(0, |start| ended.end.since(start).as_millis() as u64);
    ran.saturating_sub(ended.suspended_ms) / 1000
}

//! Whether a job's dependency is met, by the records of the jobs that it names.

use crate::state::State;
use crate::state::job::{Job, Phase};
use crate::visibility::Viewer;
use model::array::IndexSet;
use model::dependency::{DependencyKind, DependencyState, DependencyTask, DependencyTerm, Join};
use model::id::JobId;
use model::private_data::PrivateKind;
use model::run::{LaunchKind, Outcome};
use model::time::Timestamp;
use sched::view::AwaitedEvent;
use std::sync::Arc;
use std::time::Duration;

/// The state of the job's whole dependency. An array with `aftercorr` is ready as soon as one of its tasks is.
pub fn state_of(state: &State, job: &Job, now: Timestamp) -> DependencyState {
    match &job.spec.dependency {
        None => DependencyState::Fulfilled,
        Some(dependency) => dependency.state(|term| term_state(state, job, term, now)),
    }
}

/// Whether task `index` of the array may start: `aftercorr` waits for the task of the same index.
pub fn task_ready(state: &State, job: &Job, index: u32, now: Timestamp) -> bool {
    let Some(dependency) = &job.spec.dependency else { return true };
    let current = dependency.state(|term| match term.kind {
        DependencyKind::AfterCorr => match term.job {
            Some(target) if !shows_target(state, job, JobId(target.id)) => {
                DependencyState::Fulfilled
            }
            _ => corresponding(state, term, index),
        },
        _ => term_state(state, job, term, now),
    });
    current == DependencyState::Fulfilled
}

/// How many of the array's pending tasks the dependency lets start.
pub fn tasks_ready(state: &State, job: &Job, pending: &IndexSet, now: Timestamp) -> u64 {
    let terms = job.spec.dependency.iter().flat_map(|d| &d.terms);
    if terms.into_iter().all(|t| t.kind != DependencyKind::AfterCorr) {
        return pending.len();
    }
    pending.iter().filter(|index| task_ready(state, job, *index, now)).count() as u64
}

/// squeue's `%E`: the terms that are not met.
pub fn shown(state: &State, job: &Job, now: Timestamp) -> Option<String> {
    let dependency = job.spec.dependency.as_ref().filter(|_| job.is_waiting())?;
    let mut dependency = dependency.clone();
    for target in dependency.terms.iter_mut().filter_map(|term| term.job.as_mut()) {
        // An array is shown as all of its tasks.
        let id = JobId(target.id);
        let is_array = of_array(state, id).is_some() && shows_target(state, job, id);
        if target.task == DependencyTask::Whole && is_array {
            target.task = DependencyTask::All;
        }
    }
    let text = dependency.display_with(|term| term_state(state, job, term, now));
    (!text.is_empty()).then_some(text)
}

/// Whether the owner of a job is shown the job or array that it depends on. One that is hidden counts as if there were none,
/// so that what becomes of the dependency tells nothing of it.
pub fn shows_target(state: &State, job: &Job, id: JobId) -> bool {
    let viewer = Viewer::new(state, &job.spec.owner);
    if !viewer.is_denied(PrivateKind::Jobs) {
        return true;
    }
    let tasks = state.arrays.get(&id).into_iter().flat_map(|tasks| tasks.values());
    let records = tasks.chain([&id]).filter_map(|id| state.job(*id));
    records.into_iter().all(|record| viewer.job(record))
}

fn term_state(state: &State, job: &Job, term: &DependencyTerm, now: Timestamp) -> DependencyState {
    let Some(target) = term.job else { return singleton(state, job) };
    if !shows_target(state, job, JobId(target.id)) {
        return DependencyState::Fulfilled;
    }
    if term.kind == DependencyKind::AfterCorr {
        return match (&job.pending, job.task) {
            (Some(pending), _) => corresponding_any(state, term, pending.indices.iter()),
            (None, Some(task)) => corresponding(state, term, task.index),
            (None, None) => all_of(state, target.id, target.task, |j| ended_as(j, is_success)),
        };
    }
    if term.kind == DependencyKind::AfterOk && was_cancelled(state, target.id, target.task) {
        return DependencyState::Failed;
    }
    let id = JobId(target.id);
    if term.kind == DependencyKind::AfterNotOk && groups_of_task(state, id).next().is_some() {
        let has_ended = |j: &Job| ended_as(j, |_| true);
        return match all_of(state, target.id, target.task, |j| ended_as(j, is_success)) {
            DependencyState::Fulfilled => DependencyState::Failed,
            // One group has failed: so has the run, once all have ended.
            DependencyState::Failed => all_of(state, target.id, target.task, has_ended),
            DependencyState::Unfulfilled => DependencyState::Unfulfilled,
        };
    }
    let wanted = |j: &Job| match term.kind {
        DependencyKind::After { minutes } => started_before(j, now, minutes),
        DependencyKind::AfterAny | DependencyKind::AfterBurstBuffer => ended_as(j, |_| true),
        DependencyKind::AfterOk | DependencyKind::AfterCorr => ended_as(j, is_success),
        DependencyKind::AfterNotOk => ended_as(j, |o| !is_success(o)),
        DependencyKind::Singleton => DependencyState::Fulfilled,
    };
    all_of(state, target.id, target.task, wanted)
}

/// The worst state over every record of the job or array. A job without a record counts as fulfilled, as in Slurm.
fn all_of(
    state: &State,
    id: u32,
    task: DependencyTask,
    mut wanted: impl FnMut(&Job) -> DependencyState,
) -> DependencyState {
    let mut worst = DependencyState::Fulfilled;
    for job in records(state, id, task) {
        match wanted(job) {
            DependencyState::Failed => return DependencyState::Failed,
            DependencyState::Unfulfilled => worst = DependencyState::Unfulfilled,
            DependencyState::Fulfilled => {}
        }
    }
    worst
}

fn records(state: &State, id: u32, task: DependencyTask) -> Vec<&Job> {
    let id = JobId(id);
    match task {
        DependencyTask::Task(index) => match state.task_job(id, index) {
            Some(job) => vec![job],
            // The task has no record of its own: it is in the array's, pending or cancelled.
            None => state.job(id).filter(|j| has_pending_task(j, index)).into_iter().collect(),
        },
        DependencyTask::Whole | DependencyTask::All => {
            let of_array = state.array_jobs(id);
            let alone = state.jobs.get(&id).filter(|_| of_array.is_empty());
            let named = of_array.into_iter().chain(alone).map(Arc::as_ref);
            named.chain(groups_of_task(state, id)).collect()
        }
    }
}

/// The other groups of the task whose first is this job: all of them are the run that it names.
fn groups_of_task(state: &State, first: JobId) -> impl Iterator<Item = &Job> {
    let task = state.job(first).filter(|job| job.spec.launch.kind == LaunchKind::Task);
    let het = task.and_then(|job| job.het).filter(|het| het.is_leader());
    let others = het.into_iter().flat_map(|het| het.jobs().skip(1));
    others.filter_map(|id| state.job(id))
}

/// A record of the array with this id; `None` if the id is no array's.
fn of_array(state: &State, id: JobId) -> Option<&Job> {
    let task = || state.arrays.get(&id)?.values().next().and_then(|task| state.job(*task));
    state.job(id).filter(|job| job.pending.is_some()).or_else(task)
}

/// Whether the task, or one of the array's, was cancelled before it had a record of its own.
fn was_cancelled(state: &State, id: u32, task: DependencyTask) -> bool {
    let known = of_array(state, JobId(id));
    let Some(run) = known.and_then(|job| state.runs.get(&job.run)) else { return false };
    match task {
        DependencyTask::Task(index) => run.cancelled.contains(index),
        DependencyTask::Whole | DependencyTask::All => !run.cancelled.is_empty(),
    }
}

fn has_pending_task(job: &Job, index: u32) -> bool {
    job.pending.as_ref().is_some_and(|p| p.indices.contains(index))
}

fn corresponding(state: &State, term: &DependencyTerm, index: u32) -> DependencyState {
    let Some(target) = term.job else { return DependencyState::Fulfilled };
    let array = JobId(target.id);
    if !state.arrays.contains_key(&array) && !state.jobs.contains_key(&array) {
        return DependencyState::Fulfilled;
    }
    if was_cancelled(state, target.id, DependencyTask::Task(index)) {
        return DependencyState::Failed;
    }
    all_of(state, target.id, DependencyTask::Task(index), |j| ended_as(j, is_success))
}

fn corresponding_any(
    state: &State,
    term: &DependencyTerm,
    indices: impl Iterator<Item = u32>,
) -> DependencyState {
    let mut all_failed = true;
    for index in indices {
        match corresponding(state, term, index) {
            DependencyState::Fulfilled => return DependencyState::Fulfilled,
            DependencyState::Unfulfilled => all_failed = false,
            DependencyState::Failed => {}
        }
    }
    if all_failed { DependencyState::Failed } else { DependencyState::Unfulfilled }
}

fn singleton(state: &State, job: &Job) -> DependencyState {
    let busy = namesakes(state, job).next().is_some();
    if busy { DependencyState::Unfulfilled } else { DependencyState::Fulfilled }
}

/// The owner's earlier jobs of the same name that have not ended.
fn namesakes<'a>(state: &'a State, job: &'a Job) -> impl Iterator<Item = &'a Job> {
    // A task is as old as its array, whatever its own id.
    let array = job.task.map_or(job.id, |t| t.array);
    let first = job.het.map(|of| of.first);
    state.jobs.values().map(|other| &**other).filter(move |other| {
        let apart = other.het.is_none() || other.het.map(|of| of.first) != first;
        !other.has_ended()
            && apart
            && other.task.map_or(other.id, |t| t.array) < array
            && other.spec.name == job.spec.name
            && other.spec.owner.uid == job.spec.owner.uid
    })
}

/// A term that is not met, with the records of the jobs that it names.
pub struct UnmetTerm<'a> {
    pub term: DependencyTerm,
    pub state: DependencyState,
    /// Empty if no such job is known.
    pub jobs: Vec<&'a Job>,
}

/// The terms of the job's dependency that are not met.
pub fn unmet_terms<'a>(state: &'a State, job: &'a Job, now: Timestamp) -> Vec<UnmetTerm<'a>> {
    let terms = job.spec.dependency.iter().flat_map(|dependency| &dependency.terms);
    let open = terms.filter_map(|term| {
        let current = term_state(state, job, term, now);
        let jobs = || match term.job {
            Some(target) => records(state, target.id, target.task),
            None => namesakes(state, job).collect(),
        };
        (current != DependencyState::Fulfilled).then(|| UnmetTerm {
            term: *term,
            state: current,
            jobs: jobs(),
        })
    });
    open.collect()
}

/// The most jobs that are considered for the estimate of one that depends on them.
const AWAITED_MAX: usize = 1_000;

/// The events that must happen before the dependency is met, if no job fails; and whether one of them is enough. Empty if
/// the dependency waits for a failure.
pub fn awaited_events(state: &State, job: &Job, now: Timestamp) -> (Vec<AwaitedEvent>, bool) {
    let any = job.spec.dependency.as_ref().is_some_and(|d| d.join == Join::Any);
    let mut awaits = Vec::new();
    for open in unmet_terms(state, job, now) {
        let alive = open.jobs.iter().filter(|job| !job.has_ended()).map(|job| job.id);
        match open.term.kind {
            _ if open.state == DependencyState::Failed => {}
            // A failure cannot be predicted.
            DependencyKind::AfterNotOk if any => {}
            DependencyKind::AfterNotOk => return (Vec::new(), false),
            DependencyKind::After { minutes } => {
                let started = open.jobs.iter().map(|job| job.id);
                awaits.extend(started.map(|job| AwaitedEvent::StartOf { job, minutes }));
            }
            _ => awaits.extend(alive.map(AwaitedEvent::EndOf)),
        }
        if awaits.len() > AWAITED_MAX {
            return (Vec::new(), false);
        }
    }
    (awaits, any)
}

/// The ends of the array's running tasks: one must end before a throttled task starts.
pub fn own_tasks(state: &State, job: &Job) -> Vec<AwaitedEvent> {
    let tasks = state.arrays.get(&job.id).into_iter().flat_map(|tasks| tasks.values());
    let active = tasks.filter(|id| state.active.contains(id));
    active.take(AWAITED_MAX).map(|id| AwaitedEvent::EndOf(*id)).collect()
}

fn is_success(outcome: Outcome) -> bool {
    outcome == Outcome::Completed
}

fn ended_as(job: &Job, good: impl Fn(Outcome) -> bool) -> DependencyState {
    match &job.phase {
        Phase::Ended(ended) if good(ended.outcome) => DependencyState::Fulfilled,
        Phase::Ended(_) => DependencyState::Failed,
        _ => DependencyState::Unfulfilled,
    }
}

fn started_before(job: &Job, now: Timestamp, minutes: u32) -> DependencyState {
    let start = match &job.phase {
        Phase::Waiting => None,
        Phase::Active(attempt) => Some(attempt.start),
        Phase::Ended(ended) => Some(ended.start.unwrap_or(ended.end)),
    };
    let wait = Duration::from_secs(60 * u64::from(minutes));
    match start {
        Some(start) if start + wait <= now => DependencyState::Fulfilled,
        _ => DependencyState::Unfulfilled,
    }
}

/// Jobs that a waiting job depends on: their records must not be purged yet.
pub fn awaited(state: &State) -> std::collections::BTreeSet<JobId> {
    let waiting = state.jobs.values().filter(|j| j.is_waiting());
    let terms = waiting.filter_map(|j| j.spec.dependency.as_ref()).flat_map(|d| &d.terms);
    terms.filter_map(|t| t.job.map(|j| JobId(j.id))).collect()
}

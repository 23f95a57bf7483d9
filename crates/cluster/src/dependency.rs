//! How a job's dependency stands, from the records of the jobs that it names.

use crate::job::{Job, Phase};
use crate::state::State;
use model::array::IndexSet;
use model::dependency::{DependencyKind, DependencyState, DependencyTerm, TaskRef};
use model::id::JobId;
use model::run::{JobState, Outcome};
use model::time::Timestamp;
use std::time::Duration;

/// How the whole dependency of `job` stands. For `aftercorr`, `index` is the task that asks;
/// an array's record is ready as soon as one of its tasks is.
pub fn state_of(state: &State, job: &Job, now: Timestamp) -> DependencyState {
    match &job.spec.dependency {
        None => DependencyState::Fulfilled,
        Some(dependency) => dependency.state(|term| term_state(state, job, term, now)),
    }
}

/// Whether task `index` of the array record may start: `aftercorr` asks for its own counterpart.
pub fn task_ready(state: &State, job: &Job, index: u32, now: Timestamp) -> bool {
    let Some(dependency) = &job.spec.dependency else { return true };
    let standing = dependency.state(|term| match term.kind {
        DependencyKind::AfterCorr => corresponding(state, term, index),
        _ => term_state(state, job, term, now),
    });
    standing == DependencyState::Fulfilled
}

/// How many of the array's pending tasks may start as far as the dependency goes.
pub fn tasks_ready(state: &State, job: &Job, pending: &IndexSet, now: Timestamp) -> u64 {
    let terms = job.spec.dependency.iter().flat_map(|d| &d.terms);
    if terms.into_iter().all(|t| t.kind != DependencyKind::AfterCorr) {
        return pending.len();
    }
    pending.iter().filter(|index| task_ready(state, job, *index, now)).count() as u64
}

/// squeue's `%E`: the terms not yet met.
pub fn shown(state: &State, job: &Job, now: Timestamp) -> Option<String> {
    let dependency = job.spec.dependency.as_ref().filter(|_| job.is_waiting())?;
    let text = dependency.display_with(|term| term_state(state, job, term, now));
    (!text.is_empty()).then_some(text)
}

fn term_state(state: &State, job: &Job, term: &DependencyTerm, now: Timestamp) -> DependencyState {
    let Some(target) = term.job else { return singleton(state, job) };
    if term.kind == DependencyKind::AfterCorr {
        return match (&job.pending, job.task) {
            (Some(pending), _) => corresponding_any(state, term, pending.indices.iter()),
            (None, Some(task)) => corresponding(state, term, task.index),
            (None, None) => all_of(state, target.id, target.task, |j| ended_as(j, is_success)),
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

/// Over every record of the job or array: failed if one failed, open if one is open.
/// A job that nobody knows any more is as good as done, as in Slurm.
fn all_of(
    state: &State,
    id: u32,
    task: TaskRef,
    mut wanted: impl FnMut(&Job) -> DependencyState,
) -> DependencyState {
    let id = JobId(id);
    let records: Vec<&Job> = match task {
        TaskRef::Task(index) => match state.task_job(id, index) {
            Some(job) => vec![job],
            // Still pending with the others, or cancelled with them.
            None => state.job(id).filter(|j| stands_for(j, index)).into_iter().collect(),
        },
        TaskRef::Whole | TaskRef::All => {
            let of_array = state.array_jobs(id);
            if of_array.is_empty() { state.job(id).into_iter().collect() } else { of_array }
        }
    };
    let mut worst = DependencyState::Fulfilled;
    for job in records {
        match wanted(job) {
            DependencyState::Failed => return DependencyState::Failed,
            DependencyState::Unfulfilled => worst = DependencyState::Unfulfilled,
            DependencyState::Fulfilled => {}
        }
    }
    worst
}

fn stands_for(job: &Job, index: u32) -> bool {
    job.pending.as_ref().is_some_and(|p| p.indices.contains(index))
}

fn corresponding(state: &State, term: &DependencyTerm, index: u32) -> DependencyState {
    let Some(target) = term.job else { return DependencyState::Fulfilled };
    let array = JobId(target.id);
    if !state.arrays.contains_key(&array) && !state.jobs.contains_key(&array) {
        return DependencyState::Fulfilled;
    }
    all_of(state, target.id, TaskRef::Task(index), |j| ended_as(j, is_success))
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
    let array = job.task.map_or(job.id, |t| t.array);
    // A task is as old as its array, whatever its own number.
    let busy = state.jobs.values().filter(|other| !other.has_ended()).any(|other| {
        other.task.map_or(other.id, |t| t.array) < array
            && other.spec.name == job.spec.name
            && other.spec.owner.uid == job.spec.owner.uid
    });
    if busy { DependencyState::Unfulfilled } else { DependencyState::Fulfilled }
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

/// Ids that some waiting job still depends on: their records must not be forgotten yet.
pub fn awaited(state: &State) -> std::collections::BTreeSet<JobId> {
    let waiting = state.jobs.values().filter(|j| j.state() == JobState::Pending);
    let terms = waiting.filter_map(|j| j.spec.dependency.as_ref()).flat_map(|d| &d.terms);
    terms.filter_map(|t| t.job.map(|j| JobId(j.id))).collect()
}

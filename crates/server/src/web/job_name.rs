//! How an address names a job: `12`, a task of an array by `12_3`, a component by `12+1`.
//!
//! A number alone is that of one record, as lists have it, and the last task of an array has the array's own. Commands take that
//! number for the whole array, which is `12_*` here.

use crate::shared::Shared;
use crate::web::answer::WebRefusal;
use cluster::visibility::Viewer;
use model::array::IndexSet;
use model::change::JobRef;
use model::id::JobId;
use model::principal::Principal;
use model::reason::Refusal;

/// How much of a name is repeated where it names no job.
const SHOWN_MAX: usize = 40;

pub fn read(text: &str) -> Result<JobRef, WebRefusal> {
    JobRef::parse(text).ok_or_else(|| {
        let shown: String = text.chars().take(SHOWN_MAX).collect();
        let right = "right is a number like 12, 12_3 for a task of an array, or 12+1";
        WebRefusal::bad(format!("{shown:?} names no job: {right}"))
    })
}

/// What a number is in a call that changes something, which would take it for a whole array: where it is that of one task, this task.
pub fn of_task(shared: &Shared, by: &Principal, wanted: JobRef) -> JobRef {
    match record_of(shared, by, &wanted) {
        Some((array, Tasks::One(index))) => {
            JobRef::tasks(array, IndexSet::from_range(index, index))
        }
        _ => wanted,
    }
}

/// What a number is in a call that looks, which would take it for all records of an array: that of one record alone.
pub fn of_record(shared: &Shared, by: &Principal, wanted: &JobRef) -> JobRef {
    match record_of(shared, by, wanted) {
        Some((array, Tasks::One(index))) => {
            JobRef::tasks(array, IndexSet::from_range(index, index))
        }
        Some((array, Tasks::Waiting(indices))) => JobRef::tasks(array, indices),
        None => wanted.clone(),
    }
}

/// The tasks of an array that a record is of.
enum Tasks {
    One(u32),
    Waiting(IndexSet),
}

/// The array and the tasks of the record with this number; `None` for one of no array, and for names that are no number.
fn record_of(shared: &Shared, by: &Principal, wanted: &JobRef) -> Option<(JobId, Tasks)> {
    if wanted.tasks.is_some() || wanted.component_of.is_some() {
        return None;
    }
    let state = shared.read();
    let job = state.jobs.get(&wanted.id)?;
    if !Viewer::new(&state, by).job(job) {
        return None;
    }
    match (&job.task, &job.pending) {
        (Some(task), _) => Some((task.array, Tasks::One(task.index))),
        (None, Some(pending)) => Some((job.id, Tasks::Waiting(pending.indices.clone()))),
        (None, None) => None,
    }
}

/// The number of the record that is named: of a task that still waits, that of its array's. `12+1` is refused where 13 is no component
/// of 12.
pub fn number(shared: &Shared, by: &Principal, wanted: &JobRef) -> Result<JobId, Refusal> {
    if wanted.tasks.is_none() && wanted.component_of.is_none() {
        return Ok(wanted.id);
    }
    let state = shared.read();
    let found = Viewer::new(&state, by).resolve(wanted);
    let first = found.first().map(|chosen| chosen.job.id);
    first.ok_or_else(|| Refusal::UnknownJob(shown(wanted)))
}

pub fn shown(wanted: &JobRef) -> String {
    match &wanted.tasks {
        Some(tasks) => format!("{}_{tasks}", wanted.id),
        None => wanted.shown_id(),
    }
}

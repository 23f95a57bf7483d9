//! `sacct`: the records of the books, and those of jobs that are not in them yet.

use crate::clock;
use crate::shared::Shared;
use cluster::visibility::Viewer;
use cluster::{Job, books};
use model::id::JobId;
use model::principal::Principal;
use model::private_data::PrivateKind;
use model::reason::Refusal;
use model::record::{HistoryOrder, JobRecord, RecordState};
use std::collections::{HashMap, HashSet};
use store::books::{ANSWER_BYTES_MAX, BooksError, RecordTest};
use wire::client::HistoryFilter;

/// The most records that one `sacct` gets.
pub const HISTORY_MAX: u32 = 1_000_000;

/// The records that are read at once: others read the books in between.
const PAGE: usize = 2_000;

/// The jobs whose records are made at once: nobody waits longer for the state.
pub const JOBS_AT_ONCE: usize = 200;

/// Records of the books, and of jobs in the state that the books do not have: each attempt once.
pub fn history(
    shared: &Shared,
    by: &Principal,
    filter: &HistoryFilter,
) -> Result<Vec<JobRecord>, Refusal> {
    let limit = filter.limit.unwrap_or(HISTORY_MAX).min(HISTORY_MAX);
    let Some(wanted) = narrowed(shared, by, filter, limit) else { return Ok(Vec::new()) };
    let mut records = query(shared, &wanted)?;
    let booked: HashSet<_> = records.iter().map(attempt_of).collect();
    let alive = alive(shared, by, &wanted, &booked);
    keep_visible(shared, by, &mut records);
    records.extend(alive);
    records.sort_by_key(|r| (r.array_job.unwrap_or(r.job), r.array_task, r.job, r.attempt));
    if !filter.duplicates {
        // The last attempt stands for its job.
        let mut last = HashMap::new();
        for (at, record) in records.iter().enumerate() {
            last.insert((record.job, record.array_pending.clone()), at);
        }
        let keep: HashSet<usize> = last.into_values().collect();
        let mut at = 0;
        records.retain(|_| {
            at += 1;
            keep.contains(&(at - 1))
        });
    }
    keep_newest(&mut records, limit);
    Ok(records)
}

/// What is one entry of the books: a job's attempt, or the tasks of an array that wait.
fn attempt_of(record: &JobRecord) -> (JobId, u32, Option<String>) {
    (record.job, record.attempt, record.array_pending.clone())
}

/// Records of jobs in the state that this principal may be shown and that the books do not have.
fn alive(
    shared: &Shared,
    by: &Principal,
    wanted: &HistoryFilter,
    booked: &HashSet<(JobId, u32, Option<String>)>,
) -> Vec<JobRecord> {
    let ids: Vec<JobId> = shared.read().jobs.keys().copied().collect();
    let (now, test) = (clock::now(), RecordTest::new(wanted));
    let mut records = Vec::new();
    for page in ids.chunks(JOBS_AT_ONCE) {
        let state = shared.read();
        let viewer = Viewer::new(&state, by);
        let jobs = page.iter().filter_map(|id| state.jobs.get(id));
        let jobs = jobs.filter(|job| !wanted.ended || job.has_ended());
        let jobs = jobs.filter(|job| !(wanted.without_deleted && job.deleted));
        let jobs = jobs.filter(|job| viewer.job_of(job.spec.owner.uid, &job.account));
        // Most jobs that have ended are in the books: nothing is made for these.
        let is_booked = |job: &Job| {
            let attempt = (job.id, books::attempt(job), None);
            job.has_ended() && booked.contains(&attempt)
        };
        let jobs = jobs.filter(|job| !is_booked(job));
        let made = jobs.map(|job| books::record_at(&state, job.id, now));
        records.extend(made.filter(|r| !booked.contains(&attempt_of(r)) && test.matches(r)));
    }
    records
}

fn keep_visible(shared: &Shared, by: &Principal, records: &mut Vec<JobRecord>) {
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    records.retain(|record| viewer.job_of(record.uid, &record.account));
}

/// Records of the books alone, the last attempt of each job unless the filter wants all: for jobs that are not in the state.
pub fn booked(
    shared: &Shared,
    by: &Principal,
    filter: &HistoryFilter,
) -> Result<Vec<JobRecord>, Refusal> {
    let limit = filter.limit.unwrap_or(HISTORY_MAX).min(HISTORY_MAX);
    let Some(wanted) = narrowed(shared, by, filter, limit) else { return Ok(Vec::new()) };
    let mut records = query(shared, &wanted)?;
    keep_visible(shared, by, &mut records);
    if filter.order == HistoryOrder::FirstSubmitted {
        records.truncate(limit as usize);
    } else {
        keep_newest(&mut records, limit);
    }
    Ok(records)
}

fn query(shared: &Shared, wanted: &HistoryFilter) -> Result<Vec<JobRecord>, Refusal> {
    let failed = |error: BooksError| Refusal::Other(error.to_string());
    let reader = || shared.books.reader.lock().expect("no panic with the reader held");
    let limit = wanted.limit.unwrap_or(HISTORY_MAX) as usize;
    if limit <= PAGE {
        return reader().query(wanted).map_err(failed);
    }
    let entries = reader().entries(wanted).map_err(failed)?;
    let mut records = Vec::new();
    let mut bytes_left = ANSWER_BYTES_MAX;
    for page in entries.chunks(PAGE) {
        if records.len() >= limit {
            break;
        }
        records.extend(reader().records(wanted, page, &mut bytes_left).map_err(failed)?);
    }
    // The entries are in the order of which a limit leaves the first.
    records.truncate(limit);
    if wanted.order != HistoryOrder::FirstSubmitted {
        records.reverse();
    }
    Ok(records)
}

/// Leaves out records beyond the limit, first those of jobs that have ended: a task of an array may run longer than many of higher
/// indices.
fn keep_newest(records: &mut Vec<JobRecord>, limit: u32) {
    let mut beyond = records.len().saturating_sub(limit as usize);
    records.retain(|record| {
        let is_cut = beyond > 0 && matches!(record.state, RecordState::Ended(_));
        beyond -= usize::from(is_cut);
        !is_cut
    });
    records.drain(..beyond);
}

/// The filter with which the books are asked for records that this principal may be shown. Whoever is shown his own jobs
/// alone has the books search for these, so that records of others do not fill the answer; `None` if he asks
/// for others only. The limit of a coordinator applies once the records are chosen.
fn narrowed(
    shared: &Shared,
    by: &Principal,
    filter: &HistoryFilter,
    limit: u32,
) -> Option<HistoryFilter> {
    let state = shared.read();
    let viewer = Viewer::new(&state, by);
    let wanted = HistoryFilter { limit: Some(limit), ..filter.clone() };
    if viewer.sees_own_jobs_only() {
        let asks = filter.users.is_empty() || filter.users.contains(&by.name);
        return asks.then(|| HistoryFilter { users: vec![by.name.clone()], ..wanted });
    }
    let limit = if viewer.is_denied(PrivateKind::Jobs) { HISTORY_MAX } else { limit };
    Some(HistoryFilter { limit: Some(limit), ..wanted })
}

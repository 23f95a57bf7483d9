//! `sacct`: the records of the books, and those of jobs that are not in them yet.

use crate::clock;
use crate::shared::Shared;
use cluster::books;
use model::reason::Refusal;
use model::record::JobRecord;
use std::collections::{HashMap, HashSet};
use store::books::RecordTest;
use wire::client::HistoryFilter;

/// The most records that one `sacct` gets.
const HISTORY_MAX: u32 = 1_000_000;

/// Records of the books, and of jobs in the state that the books do not have: each attempt once.
pub fn history(shared: &Shared, filter: &HistoryFilter) -> Result<Vec<JobRecord>, Refusal> {
    let limit = filter.limit.unwrap_or(HISTORY_MAX).min(HISTORY_MAX);
    let wanted = HistoryFilter { limit: Some(limit), ..filter.clone() };
    let mut records = {
        let reader = shared.books.reader.lock().expect("no panic with the reader held");
        reader.query(&wanted).map_err(|e| Refusal::Other(e.to_string()))?
    };
    let key = |r: &JobRecord| (r.job, r.attempt, r.array_pending.clone());
    let booked: HashSet<_> = records.iter().map(key).collect();
    let state = shared.read();
    let now = clock::now();
    let alive = state.jobs.values().map(|job| books::record_at(&state, job.id, now));
    let alive = alive.filter(|r| !booked.contains(&key(r)));
    let test = RecordTest::new(&wanted);
    records.extend(alive.filter(|r| test.matches(r)));
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
    let beyond = records.len().saturating_sub(limit as usize);
    records.drain(..beyond);
    Ok(records)
}

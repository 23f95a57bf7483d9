//! Which log is asked for: from a job, one of its attempts and a node's place in it, to the log's key.

use crate::shared::Shared;
use dstack::node_groups::group_of;
use model::change::JobRef;
use model::id::{AttemptId, JobId};
use model::reason::Refusal;
use model::record::{HistoryFilter, JobRecord};
use store::LogKey;

/// The log of one attempt, the last if none is named, on the node of this rank: for a task in groups, by the number of its
/// first, of all their nodes.
pub fn log_key(
    shared: &Shared,
    id: JobId,
    attempt: Option<u32>,
    rank: usize,
) -> Result<LogKey, Refusal> {
    let mut left = rank;
    for group in groups(shared, id) {
        let (attempt, owner, nodes) = attempt_nodes(shared, group, attempt)?;
        match nodes.get(left) {
            Some(node) => return Ok(LogKey { attempt, owner, node: node.clone() }),
            None => left -= nodes.len(),
        }
    }
    Err(Refusal::UnknownNode(rank.to_string()))
}

/// The groups of a task, whose first has this number; the job itself, where there are none.
fn groups(shared: &Shared, id: JobId) -> Vec<JobId> {
    let known = shared.read().jobs.get(&id).map(|job| group_of(job.spec.launch.kind, job.het));
    let of_books = || {
        let records = booked(shared, id).unwrap_or_default();
        records.last().and_then(|record| group_of(record.kind, record.het))
    };
    match known.unwrap_or_else(of_books).filter(|het| het.is_leader()) {
        Some(het) => het.jobs().collect(),
        None => vec![id],
    }
}

/// One attempt of a job, the last if none is named, its owner and its nodes. Each attempt has had its own nodes: those of
/// earlier ones are in the books.
fn attempt_nodes(
    shared: &Shared,
    id: JobId,
    attempt: Option<u32>,
) -> Result<(AttemptId, u32, Vec<String>), Refusal> {
    let known = {
        let state = shared.read();
        state.jobs.get(&id).map(|job| {
            let last = attempt.is_none_or(|number| number == job.attempts);
            let granted = job.allocation().filter(|_| last);
            let nodes = granted.map(|granted| granted.node_names().map(str::to_owned).collect());
            (job.attempts, job.spec.owner.uid, nodes)
        })
    };
    let (attempts, owner, granted) = match known {
        Some(known) => known,
        None => {
            let records = booked(shared, id)?;
            let last = records.last().ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
            let attempts = records.iter().filter(|record| record.start.is_some());
            (attempts.map(|record| record.attempt).max().unwrap_or(0), last.uid, None)
        }
    };
    if attempts == 0 {
        return Err(Refusal::JobNotRunning(id));
    }
    let number = attempt.unwrap_or(attempts);
    if number == 0 || number > attempts {
        return Err(Refusal::InvalidValue {
            what: "attempt".into(),
            value: number.to_string(),
            expected: format!("1 to {attempts}"),
        });
    }
    let nodes: Vec<String> = match granted {
        Some(nodes) => nodes,
        None => {
            let mut records = booked(shared, id)?.into_iter();
            let record = records.find(|record| record.attempt == number);
            record.map(|record| record.nodes).unwrap_or_default()
        }
    };
    Ok((AttemptId { job: id, number }, owner, nodes))
}

/// The owner of a job that only the books have.
pub fn booked_owner(shared: &Shared, id: JobId) -> Result<u32, Refusal> {
    let records = booked(shared, id)?;
    records.last().map(|last| last.uid).ok_or_else(|| Refusal::UnknownJob(id.to_string()))
}

/// The last attempt of a job that only the books have.
pub fn booked_job(shared: &Shared, id: JobId) -> Option<JobRecord> {
    booked(shared, id).ok()?.pop()
}

/// One attempt of a job that only the books have.
pub fn booked_attempt(shared: &Shared, attempt: AttemptId) -> Result<Option<JobRecord>, Refusal> {
    let mut records = booked(shared, attempt.job)?.into_iter();
    Ok(records.find(|record| record.attempt == attempt.number))
}

/// The records of all attempts of a job.
fn booked(shared: &Shared, id: JobId) -> Result<Vec<JobRecord>, Refusal> {
    let jobs = vec![JobRef::whole(id)];
    let filter = HistoryFilter { jobs, duplicates: true, ..HistoryFilter::default() };
    let reader = shared.books.reader.lock().expect("no panic with the reader held");
    let mut records = reader.query(&filter).map_err(|e| Refusal::Other(e.to_string()))?;
    records.retain(|record| record.job == id);
    Ok(records)
}

//! Which log is asked for: from a job, one of its attempts and a node's place in it, to the log's key.

use crate::shared::Shared;
use model::change::JobRef;
use model::id::{AttemptId, JobId};
use model::reason::Refusal;
use model::record::HistoryFilter;
use store::LogKey;

/// The log of one attempt, the last if none is named, on the node of this rank. Each attempt has had its own nodes: those of
/// earlier ones are in the books.
pub fn log_key(
    shared: &Shared,
    id: JobId,
    attempt: Option<u32>,
    rank: usize,
) -> Result<LogKey, Refusal> {
    let (number, owner, granted) = {
        let state = shared.read();
        let job = state.jobs.get(&id).ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
        let number = attempt.unwrap_or(job.attempts);
        if job.attempts == 0 {
            return Err(Refusal::JobNotRunning(id));
        }
        if number == 0 || number > job.attempts {
            return Err(Refusal::InvalidValue {
                what: "attempt".into(),
                value: number.to_string(),
                expected: format!("1 to {}", job.attempts),
            });
        }
        let granted = job.allocation().filter(|_| number == job.attempts);
        let nodes = granted.map(|granted| granted.node_names().map(str::to_owned).collect());
        (number, job.spec.owner.uid, nodes)
    };
    let nodes: Vec<String> = match granted {
        Some(nodes) => nodes,
        None => booked_nodes(shared, id, number)?,
    };
    let node = nodes.into_iter().nth(rank);
    let node = node.ok_or_else(|| Refusal::UnknownNode(rank.to_string()))?;
    Ok(LogKey { attempt: AttemptId { job: id, number }, owner, node })
}

fn booked_nodes(shared: &Shared, id: JobId, number: u32) -> Result<Vec<String>, Refusal> {
    let jobs = vec![JobRef::whole(id)];
    let filter = HistoryFilter { jobs, duplicates: true, ..HistoryFilter::default() };
    let reader = shared.books.reader.lock().expect("no panic with the reader held");
    let records = reader.query(&filter).map_err(|e| Refusal::Other(e.to_string()))?;
    let record = records.into_iter().find(|record| record.attempt == number && record.job == id);
    Ok(record.map(|record| record.nodes).unwrap_or_default())
}

//! What follows a return to an earlier state, from a backup or from a dump of the database: one event is added, by which the restored
//! server's term is beyond every one that an agent has seen, and ids that may have been given out since are not given out again.

use crate::clock;
use crate::error::ServerError;
use crate::writer::recover::Recovered;
use cluster::Event;
use wire::term;

/// What the administrator decides about a restore.
#[derive(Debug, Clone, Copy)]
pub struct RestoreOptions {
    /// How many ids are left out.
    pub skip_ids: u32,
    /// Jobs of the backup start before the nodes have said what they run.
    pub start_at_once: bool,
}

/// With what the restored server begins.
#[derive(Debug)]
pub struct NewEpoch {
    /// Jobs in memory, which are those that wait or run, and those that ended lately.
    pub jobs: usize,
    /// The seq before the event that began the epoch: where the restored history ended.
    pub restored_seq: u64,
    /// The first id that the restored server gives out.
    pub next_job: u32,
    /// Nodes that jobs of the backup wait for.
    pub awaited_nodes: usize,
}

/// Adds the event that begins a new epoch of terms and leaves out ids that may have been given out.
pub fn begin(recovered: Recovered, options: RestoreOptions) -> Result<NewEpoch, ServerError> {
    let RestoreOptions { skip_ids, start_at_once } = options;
    let Recovered { mut state, mut journal, .. } = recovered;
    let at = clock::now();
    // Ids are given out below the mark, in blocks.
    let leased = u32::try_from(journal.high_water().leased_ids).unwrap_or(u32::MAX);
    let given = state.next_job.max(leased);
    let max = state.config.parameters.max_job_id;
    let next_job = given.checked_add(skip_ids).filter(|next| *next <= max).ok_or_else(|| {
        ServerError::Other(format!(
            "{skip_ids} ids cannot be left out: ids go on after {given}, and MaxJobId is {max}; \
             --skip-ids takes a smaller number"
        ))
    })?;
    let term = term::of_restored(journal.term().max(state.term), at);
    let event = Event::Restored { term, next_job, at, start_at_once };
    let bytes = serde_json::to_vec(&event).map_err(|e| ServerError::Other(e.to_string()))?;
    state.apply(&event);
    let restored_seq = journal.last_seq();
    journal.append(term, restored_seq, &[&bytes])?;
    // The lease also settles where the history ends now.
    journal.lease(u64::from(next_job))?;
    let awaited_nodes = state.restore_wait.as_ref().map_or(0, |wait| wait.nodes.len());
    Ok(NewEpoch { jobs: state.jobs.len(), restored_seq, next_job, awaited_nodes })
}

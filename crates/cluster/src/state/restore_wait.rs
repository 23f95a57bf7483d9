//! The wait after a restore from a backup, or after the loss of the journal's end. A job that waited then may have started since,
//! on a node that still runs it. It is started only when every node that may run something has connected and has ended what is not
//! known here, or counts as lost. A node that was down then may have come back since: it is waited for as well.

use super::State;
use super::job::Job;
use model::id::JobId;
use model::time::Timestamp;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestoreWait {
    /// Nodes that have not said what they run, or still end some of it.
    pub nodes: BTreeSet<String>,
    /// Jobs below this id may have started in the part of the history that is not known.
    pub below: JobId,
    /// The start of the server, from which nodes have `SlurmdTimeout` to connect. Absent in snapshots of before it was kept, until
    /// the next start.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub since: Option<Timestamp>,
}

impl State {
    /// Whether a node may run this job, though the state has it waiting.
    pub fn may_run_unknown(&self, job: &Job) -> bool {
        // A task that was parted from its array since has an id of its own, and is as old as the array.
        let submitted = job.task.map_or(job.id, |task| task.array);
        self.restore_wait.as_ref().is_some_and(|wait| submitted < wait.below)
    }
}

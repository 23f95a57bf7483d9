//! Asks the nodes' agents what running jobs use, for the next scrape.

use crate::shared::Shared;
use crate::shared::live_loads::Loads;
use futures_util::future::join_all;
use model::id::AttemptId;

/// Parts of jobs that are asked for: those of the newest jobs. A part that does not answer in time has no samples.
const PARTS_MAX: usize = 1024;

pub async fn ask(shared: &Shared) -> Loads {
    let parts: Vec<(AttemptId, String)> = {
        let state = shared.read();
        let active = state.active.iter().rev().filter_map(|id| state.jobs.get(id));
        let parts = active.filter_map(|job| Some((job.attempt_id()?, job.attempt()?)));
        let of_nodes = parts.flat_map(|(id, attempt)| {
            attempt.held_nodes.iter().map(move |node| (id, node.clone()))
        });
        of_nodes.take(PARTS_MAX).collect()
    };
    let asked = parts.into_iter().map(|(attempt, node)| async move {
        let used = shared.agents.usage(&node, attempt).await;
        ((attempt.job, node), used.load)
    });
    join_all(asked).await.into_iter().collect()
}

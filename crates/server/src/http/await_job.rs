//! Calls that wait: for a job to start or to end, or for anything to change.

use crate::clock;
use crate::shared::Shared;
use crate::show::job_view::{JobViews, ShownSteps};
use crate::task_groups;
use cluster::authorise::{Act, authorise};
use cluster::visibility::Viewer;
use model::change::JobRef;
use model::id::JobId;
use model::principal::Principal;
use model::reason::{Reason, Refusal};
use model::run::{ExitStatus, Outcome};
use std::cell::RefCell;
use std::sync::Arc;
use std::time::Duration;
use wire::client::{Answer, Detail};

/// The longest that one call waits for a job; the client asks again.
const WAIT_MAX: Duration = Duration::from_secs(60);

pub async fn await_start(
    shared: &Arc<Shared>,
    by: &Principal,
    job: JobId,
    timeout_ms: u64,
    ready: bool,
) -> Result<Answer, Refusal> {
    let mut commits = shared.commits.subscribe();
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(timeout_ms));
    loop {
        {
            let state = shared.read();
            let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
            authorise(&state, by, Act::ManageJob(found))?;
            let runs = found.attempt().is_some_and(|active| active.ending.is_none());
            let prepares = || runs && task_groups::is_preparing(&state, found);
            let waiting = found.is_waiting() || (ready && prepares());
            if !waiting || tokio::time::Instant::now() >= deadline {
                let cache = RefCell::default();
                let views = JobViews::new(shared, &state, clock::now(), Detail::Full, &cache);
                let view = views.with_steps(ShownSteps::First).job(found, None);
                return Ok(Answer::Start {
                    state: view.state,
                    reason: view.reason.clone(),
                    allocation: found.attempt().map(|a| a.allocation.clone()),
                    view: Box::new(view),
                });
            }
        }
        let _ = tokio::time::timeout_at(deadline, commits.changed()).await;
    }
}

pub async fn await_end(
    shared: &Arc<Shared>,
    by: &Principal,
    job: JobId,
    timeout_ms: u64,
) -> Result<Answer, Refusal> {
    let mut commits = shared.commits.subscribe();
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(timeout_ms));
    loop {
        if let Some(end) = ended(shared, by, job)? {
            return Ok(end);
        }
        if tokio::time::Instant::now() >= deadline {
            let (exit, reason) = (ExitStatus::default(), Reason::None);
            return Ok(Answer::End { ended: false, exit, outcome: None, reason });
        }
        let _ = tokio::time::timeout_at(deadline, commits.changed()).await;
    }
}

/// The number of commits, once it is another than `seen`, or the time has passed.
pub async fn await_commit(shared: &Shared, seen: Option<u64>, timeout_ms: u64) -> Answer {
    let mut commits = shared.commits.subscribe();
    let deadline = tokio::time::Instant::now() + WAIT_MAX.min(Duration::from_millis(timeout_ms));
    // The sender lives as long as the server: only the time can end this wait otherwise.
    let _ = tokio::time::timeout_at(deadline, commits.wait_for(|count| Some(*count) != seen)).await;
    let count = *commits.borrow();
    Answer::Commits { count }
}

/// The end of a job, or of every task of an array: the highest exit status of them.
fn ended(shared: &Shared, by: &Principal, job: JobId) -> Result<Option<Answer>, Refusal> {
    let state = shared.read();
    let records = Viewer::new(&state, by).resolve(&JobRef::whole(job));
    if records.is_empty() {
        return Err(Refusal::UnknownJob(job.to_string()));
    }
    if records.iter().any(|c| !c.job.has_ended()) {
        return Ok(None);
    }
    let ends: Vec<_> = records.iter().filter_map(|c| c.job.ended()).collect();
    let exit = ends.iter().map(|e| e.exit).max().unwrap_or_default();
    let failed = ends.iter().find(|e| e.outcome != Outcome::Completed);
    let outcome = Some(failed.map_or(Outcome::Completed, |e| e.outcome));
    let reason = failed.map_or(Reason::None, |e| e.reason.clone());
    Ok(Some(Answer::End { ended: true, exit, outcome, reason }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestServer;

    #[tokio::test]
    async fn whoever_has_seen_every_commit_waits_for_the_next() {
        let server = TestServer::start().await;
        let count =
            async |seen, timeout_ms| match await_commit(&server.shared, seen, timeout_ms).await {
                Answer::Commits { count } => count,
                other => panic!("{other:?}"),
            };
        let before = count(None, 60_000).await;
        let later = async {
            server.submit("name: one").await.expect("a job");
        };
        let (after, ()) = tokio::join!(count(Some(before), 60_000), later);
        assert!(after > before, "{before}, {after}");
        assert_ne!(count(Some(before), 60_000).await, before, "it has moved already");
    }
}

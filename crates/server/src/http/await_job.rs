//! Calls that wait for a job to start or to end.

use crate::clock;
use crate::shared::Shared;
use crate::show::job_view::JobViews;
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
                let view = views.job(found, None);
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

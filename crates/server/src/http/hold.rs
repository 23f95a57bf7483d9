//! `GET /api/v1/hold`: an interactive allocation lives for as long as a client holds this connection.

use crate::http::answer::answer_json;
use crate::shared::Shared;
use axum::body::{Body, Bytes};
use axum::extract::{Query, State};
use axum::response::Response;
use cluster::Command;
use cluster::authorise::{Act, authorise};
use model::id::JobId;
use model::principal::Principal;
use model::reason::Refusal;
use model::run::{JobState, LaunchKind};
use serde::Deserialize;
use std::sync::Arc;
use std::time::Duration;
use wire::client::Answer;

/// A line is sent this often, so that both sides notice a connection that is gone.
const KEEP_ALIVE: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
pub struct HoldQuery {
    job: u32,
}

/// Holds an allocation for as long as the connection is open; its end gives the allocation back.
pub async fn hold(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    Query(query): Query<HoldQuery>,
) -> Response {
    let job = JobId(query.job);
    if let Err(why) = may_hold(&shared, &by, job) {
        return answer_json(&Answer::Refused(why));
    }
    let guard = HolderGuard::new(shared, job);
    let stream = futures_util::stream::unfold(guard, |guard| async move {
        tokio::time::sleep(KEEP_ALIVE).await;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from_static(b"\n")), guard))
    });
    Response::new(Body::from_stream(stream))
}

/// Counts as one holder of the job until it is dropped.
struct HolderGuard {
    shared: Arc<Shared>,
    job: JobId,
}

impl HolderGuard {
    fn new(shared: Arc<Shared>, job: JobId) -> Self {
        let mut holders = shared.volatile.holders.lock().expect("no panic with it held");
        *holders.entry(job).or_default() += 1;
        drop(holders);
        Self { shared, job }
    }
}

impl Drop for HolderGuard {
    fn drop(&mut self) {
        let mut holders = self.shared.volatile.holders.lock().expect("no panic with it held");
        let left = holders.get_mut(&self.job).map_or(0, |n| {
            *n -= 1;
            *n
        });
        if left == 0 {
            holders.remove(&self.job);
            self.shared.writer.enqueue_or_drop(Command::ClientLost { job: self.job });
        }
    }
}

/// Whether the job is an allocation that this principal may hold.
fn may_hold(shared: &Shared, by: &Principal, job: JobId) -> Result<(), Refusal> {
    let state = shared.read();
    let found = state.jobs.get(&job).ok_or_else(|| Refusal::UnknownJob(job.to_string()))?;
    authorise(&state, by, Act::ActAsOwner(found))?;
    match (found.spec.launch.kind, found.state()) {
        (LaunchKind::Interactive, s) if s != JobState::Completing && !s.is_ended() => Ok(()),
        _ => Err(Refusal::JobEnded(job)),
    }
}

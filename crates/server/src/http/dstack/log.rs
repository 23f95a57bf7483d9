//! The logs of runs, as the server keeps them.

use super::answer::{ApiResult, Json, Refused};
use super::run_body::submission_id;
use super::{check_project, run};
use crate::shared::Shared;
use axum::Extension;
use axum::extract::{Path, State};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::authorise::{Act, authorise};
use dstack::api::error::ApiError;
use dstack::api::stored::{LogEvent, Logs, PollLogs};
use model::id::AttemptId;
use model::principal::Principal;
use model::reason::Refusal;
use model::time::Timestamp;
use std::sync::Arc;
use store::{LogChunk, LogKey};
use tokio::task::block_in_place;
use wire::view::JobView;

/// The most lines of an answer from the end backwards.
const LINES_MAX: usize = 1000;

/// About how much one answer reads.
const PAGE_BYTES: usize = 1 << 20;

pub async fn poll(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<PollLogs>,
) -> ApiResult<Logs> {
    check_project(&project)?;
    let job = run::by_name(&shared, &by, &wanted.run_name)?;
    let job = job.ok_or_else(|| Refused::not_found("Run not found"))?;
    {
        let state = shared.read();
        let known = state.jobs.get(&job.id);
        let known = known.ok_or_else(|| Refusal::UnknownJob(job.id.to_string()))?;
        authorise(&state, &by, Act::ActAsOwner(known))?;
    }
    let Some(key) = log_of(&job, &wanted.job_submission_id) else {
        return Ok(Json(Logs::default()));
    };
    let place = match &wanted.next_token {
        Some(token) => token.parse().map_err(|_| {
            let text = format!("{token:?}: expected the token of an earlier answer");
            ApiError::invalid_body(&["next_token"], text)
        })?,
        None => {
            shared.logs.pull(key.clone()).await;
            0
        }
    };
    let failed =
        |error: std::io::Error| Refused::because(format!("the log cannot be read: {error}"));
    let store = &shared.logs.store;
    let page = block_in_place(|| store.read(&key, place, PAGE_BYTES)).map_err(failed)?;
    let more = block_in_place(|| store.read(&key, page.next, 1)).map_err(failed)?;
    let since = wanted.start_time.map(Timestamp::from);
    let until = wanted.end_time.map(Timestamp::from);
    let within = |chunk: &&LogChunk| {
        since.is_none_or(|since| chunk.at > since) && until.is_none_or(|until| chunk.at <= until)
    };
    let mut logs: Vec<LogEvent> = page.chunks.iter().filter(within).flat_map(lines).collect();
    if wanted.descending {
        logs.reverse();
        logs.truncate(wanted.limit.map_or(LINES_MAX, |limit| limit as usize).min(LINES_MAX));
    }
    let goes_on = !more.chunks.is_empty() && !wanted.descending;
    let next_token = goes_on.then(|| page.next.to_string());
    Ok(Json(Logs { logs, external_url: None, next_token }))
}

/// The log of one node's part of one attempt, by the id that the client was given for it.
fn log_of(job: &JobView, submission: &str) -> Option<LogKey> {
    let run = job.run?.to_string();
    let nodes = &job.allocation.as_ref()?.nodes;
    (0..=job.restarts).find_map(|restarts| {
        let mut ranks = (0..).zip(nodes);
        let (_, share) =
            ranks.find(|(rank, _)| submission_id(&run, restarts, *rank) == submission)?;
        let attempt = AttemptId { job: job.id, number: restarts + 1 };
        Some(LogKey { attempt, node: share.node.clone() })
    })
}

/// An event for each line of a chunk; a line that goes on in the next chunk is two events.
fn lines(chunk: &LogChunk) -> Vec<LogEvent> {
    let line = |line: &[u8]| LogEvent {
        timestamp: chunk.at.into(),
        log_source: "stdout".to_owned(),
        message: STANDARD.encode(line),
    };
    chunk.bytes.split_inclusive(|byte| *byte == b'\n').map(line).collect()
}

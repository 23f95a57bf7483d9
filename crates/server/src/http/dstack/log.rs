//! The logs of runs, as the server keeps them.

use super::error::{ApiError, ApiResult};
use super::run_body::submission_id;
use super::{check_project, run, time};
use crate::shared::Shared;
use axum::extract::{Path, State};
use axum::{Extension, Json};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::authorise::{Act, authorise};
use model::id::AttemptId;
use model::principal::Principal;
use model::reason::Refusal;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use store::{LogChunk, LogKey};
use tokio::task::block_in_place;

/// The lines of one answer where the client names no number, and the most.
const LINES_MAX: usize = 1000;

/// About how much one answer reads.
const PAGE_BYTES: usize = 1 << 20;

#[derive(Deserialize)]
pub struct PollRequest {
    run_name: String,
    job_submission_id: String,
    /// RFC 3339: only what came after it.
    #[serde(default)]
    start_time: Option<String>,
    #[serde(default)]
    end_time: Option<String>,
    #[serde(default)]
    next_token: Option<String>,
    #[serde(default)]
    limit: Option<usize>,
    #[serde(default)]
    descending: bool,
}

pub async fn poll(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(project): Path<String>,
    Json(wanted): Json<PollRequest>,
) -> ApiResult {
    check_project(&project)?;
    let job = run::by_name(&shared, &by, &wanted.run_name).await?;
    let job = job.ok_or_else(|| ApiError::missing("Run not found"))?;
    {
        let state = shared.read();
        let known = state.jobs.get(&job.id);
        let known = known.ok_or_else(|| Refusal::UnknownJob(job.id.to_string()))?;
        authorise(&state, &by, Act::ActAsOwner(known))?;
    }
    let run = job.run.map(|id| id.to_string()).unwrap_or_default();
    let nodes = job.allocation.as_ref().map_or(&[][..], |all| &all.nodes);
    let asked = (0..=job.restarts).flat_map(|restarts| {
        let run = &run;
        nodes.iter().enumerate().map(move |(rank, share)| {
            (submission_id(run, restarts, rank as u32), restarts, share.node.clone())
        })
    });
    let Some((_, restarts, node)) = asked.into_iter().find(|(id, ..)| *id == wanted.job_submission_id)
    else {
        return Ok(Json(json!({"logs": [], "external_url": null, "next_token": null})));
    };
    let attempt = AttemptId { job: job.id, number: restarts + 1 };
    let key = LogKey { attempt, node };
    let place = match &wanted.next_token {
        Some(token) => token.parse::<u64>().map_err(|_| ApiError::Invalid {
            place: ["body", "next_token"].map(str::to_owned).into(),
            text: format!("{token:?}: expected the token of an earlier answer"),
        })?,
        None => 0,
    };
    if wanted.next_token.is_none() {
        shared.logs.pull(key.clone()).await;
    }
    let failed = |error: std::io::Error| ApiError::refused(format!("the log cannot be read: {error}"));
    let store = &shared.logs.store;
    let page = block_in_place(|| store.read(&key, place, PAGE_BYTES)).map_err(failed)?;
    let more = block_in_place(|| store.read(&key, page.next, 1)).map_err(failed)?;
    let since = instant(wanted.start_time.as_deref())?;
    let until = instant(wanted.end_time.as_deref())?;
    let within = |chunk: &&LogChunk| {
        since.is_none_or(|since| chunk.at.millis() > since)
            && until.is_none_or(|until| chunk.at.millis() <= until)
    };
    let mut lines: Vec<Value> = page.chunks.iter().filter(within).flat_map(lines).collect();
    if wanted.descending {
        lines.reverse();
        lines.truncate(wanted.limit.unwrap_or(LINES_MAX).min(LINES_MAX));
    }
    let next = (!more.chunks.is_empty() && !wanted.descending).then(|| page.next.to_string());
    Ok(Json(json!({"logs": lines, "external_url": null, "next_token": next})))
}

/// An event for each line of a chunk; a line that goes on in the next chunk is two events.
fn lines(chunk: &LogChunk) -> Vec<Value> {
    let at = time(chunk.at);
    let line = |line: &[u8]| {
        json!({"timestamp": at, "log_source": "stdout", "message": STANDARD.encode(line)})
    };
    chunk.bytes.split_inclusive(|byte| *byte == b'\n').map(line).collect()
}

fn instant(text: Option<&str>) -> Result<Option<i64>, ApiError> {
    let Some(text) = text else { return Ok(None) };
    let parsed = text.parse::<jiff::Timestamp>();
    parsed.map(|at| Some(at.as_millisecond())).map_err(|_| ApiError::Invalid {
        place: ["body", "start_time"].map(str::to_owned).into(),
        text: format!("{text:?}: expected a time such as 2026-11-15T01:00:00Z"),
    })
}

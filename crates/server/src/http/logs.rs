//! `GET /api/v1/logs`: the output of a run: from its node while it runs, afterwards as the server keeps it.

use crate::http::answer::answer_json;
use crate::logs::collector;
use crate::shared::Shared;
use axum::body::Body;
use axum::extract::{Query, State};
use axum::http::header;
use axum::response::Response;
use cluster::authorise::{Act, authorise};
use futures_util::Stream;
use model::id::{AttemptId, JobId};
use model::principal::Principal;
use model::reason::Refusal;
use serde::Deserialize;
use std::io;
use std::sync::Arc;
use store::{LogKey, RunLogs};
use tokio::task::block_in_place;
use wire::client::Answer;
use wire::stream::StreamKind;

#[derive(Deserialize)]
pub struct LogsQuery {
    job: u32,
    /// Counts from 1; the last attempt without it.
    attempt: Option<u32>,
    /// The node's index in the allocation.
    #[serde(default)]
    node: usize,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    follow: bool,
}

/// The bytes that one read of a kept log takes.
const PAGE_BYTES: usize = 256 << 10;

pub async fn logs(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    Query(query): Query<LogsQuery>,
) -> Response {
    let (node, attempt) = match log_source(&shared, &by, &query) {
        Ok(source) => source,
        Err(why) => return answer_json(&Answer::Refused(why)),
    };
    let key = LogKey { attempt, node: node.clone() };
    if !collector::is_running(&shared, &key) {
        shared.logs.pull(key.clone()).await;
        return octets(kept(shared.logs.store.clone(), key, query.offset));
    }
    let kind = StreamKind::Log { offset: query.offset, follow: query.follow };
    let Some((log, _)) = shared.agents.open_stream(&node, attempt, kind) else {
        let why = Refusal::Other(format!("node {node} does not answer; its logs are there"));
        return answer_json(&Answer::Refused(why));
    };
    let stream = futures_util::stream::unfold(log, |mut log| async move {
        let chunk = log.next().await?;
        Some((chunk.map_err(io::Error::other), log))
    });
    octets(stream)
}

/// The kept log without its first `skip` bytes, page by page as the client takes it.
fn kept(
    store: Arc<dyn RunLogs>,
    key: LogKey,
    skip: u64,
) -> impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static {
    futures_util::stream::unfold((0, skip), move |(place, skip)| {
        let (store, key) = (store.clone(), key.clone());
        async move {
            let page = match block_in_place(|| store.read(&key, place, PAGE_BYTES)) {
                Ok(page) if page.chunks.is_empty() => return None,
                Ok(page) => page,
                Err(error) => return Some((Err(error), (place, skip))),
            };
            let mut bytes: Vec<u8> =
                page.chunks.into_iter().flat_map(|chunk| chunk.bytes).collect();
            let beyond = skip.saturating_sub(bytes.len() as u64);
            bytes.drain(..(skip - beyond) as usize);
            Some((Ok(bytes), (page.next, beyond)))
        }
    })
}

fn octets(stream: impl Stream<Item = io::Result<Vec<u8>>> + Send + 'static) -> Response {
    let mut response = Response::new(Body::from_stream(stream));
    let kind = header::HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

/// The node and the attempt whose log is asked for, if this principal may have it.
fn log_source(
    shared: &Shared,
    by: &Principal,
    query: &LogsQuery,
) -> Result<(String, AttemptId), Refusal> {
    let id = JobId(query.job);
    let state = shared.read();
    let job = state.jobs.get(&id).ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
    authorise(&state, by, Act::ActAsOwner(job))?;
    let allocation = match (job.attempt(), job.ended()) {
        (Some(attempt), _) => Some(&attempt.allocation),
        (None, Some(ended)) => ended.allocation.as_ref(),
        (None, None) => None,
    };
    let allocation = allocation.ok_or(Refusal::JobNotRunning(id))?;
    let share = allocation.nodes.get(query.node);
    let share = share.ok_or_else(|| Refusal::UnknownNode(query.node.to_string()))?;
    let number = query.attempt.unwrap_or(job.attempts);
    if number == 0 || number > job.attempts {
        return Err(Refusal::InvalidValue {
            what: "attempt".into(),
            value: number.to_string(),
            expected: format!("1 to {}", job.attempts),
        });
    }
    Ok((share.node.clone(), AttemptId { job: id, number }))
}

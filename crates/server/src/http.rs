//! The HTTP doors: the local socket, where the kernel says who asks, and the port, where a token does.

use crate::agents::Agents;
use crate::bodies::{self, Bodies};
use crate::calls;
use crate::doors::CALL_PATH;
use crate::list::Written;
use crate::principal;
use crate::shared::Shared;
use crate::step_stream;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use model::id::{AttemptId, JobId};
use model::principal::Principal;
use model::reason::Refusal;
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use wire::client::{Answer, Envelope, REQUEST_BYTES_MAX};
use wire::stream::StreamKind;

/// How a connection came in.
#[derive(Clone)]
pub enum Peer {
    Socket(Principal),
    Port(SocketAddr),
}

pub fn router(shared: Arc<Shared>, bodies: Bodies) -> Router {
    let whole = middleware::from_fn_with_state(bodies, bodies::whole);
    Router::new()
        .route(CALL_PATH, post(call).layer(whole))
        .route("/api/v1/hold", get(hold))
        .route("/api/v1/logs", get(logs))
        .route("/api/v1/step", get(step_stream::open))
        .layer(middleware::from_fn_with_state(shared.clone(), authenticate))
        .route("/", get(|| async { "sluice\n" }))
        .route("/healthz", get(|| async { "ok\n" }))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(shared)
}

fn refused(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}

/// Puts the principal into the request, or turns it away.
async fn authenticate(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let who = match peer {
        Some(Peer::Socket(principal)) => Some(principal),
        Some(Peer::Port(address)) if address.ip().is_loopback() => {
            bearer(&request).and_then(|token| principal::of_token(&shared, token))
        }
        Some(Peer::Port(_)) => {
            return refused(
                StatusCode::FORBIDDEN,
                "tokens are not taken over plain HTTP from afar",
            );
        }
        None => None,
    };
    let Some(who) = who else {
        return refused(
            StatusCode::UNAUTHORIZED,
            "this needs a valid token: Authorization: Bearer",
        );
    };
    request.extensions_mut().insert(who);
    next.run(request).await
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::trim)
}

async fn call(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    body: Bytes,
) -> Response {
    let envelope: Envelope = match serde_json::from_slice(&body) {
        Ok(envelope) => envelope,
        Err(error) => {
            return refused(StatusCode::BAD_REQUEST, &format!("the call cannot be read: {error}"));
        }
    };
    if !wire::version::compatible(envelope.version) {
        let text = format!("protocol {} is not spoken here", envelope.version);
        return refused(StatusCode::BAD_REQUEST, &text);
    }
    let kind = envelope.call.kind();
    // On a task of its own: a client that goes away does not take back what it asked for.
    let answer = tokio::spawn(async move {
        let _open = shared.volatile.counters.open(kind, &by);
        calls::call(&shared, by, envelope.call).await
    })
    .await;
    match answer {
        Ok(Ok(Written::Json(json))) => {
            ([(header::CONTENT_TYPE, "application/json")], json).into_response()
        }
        Ok(Ok(Written::Lines(text))) => {
            ([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], text).into_response()
        }
        _ => refused(StatusCode::INTERNAL_SERVER_ERROR, "the server failed; its log says why"),
    }
}

#[derive(Deserialize)]
struct HoldQuery {
    job: u32,
}

/// Holds an allocation for as long as the connection is open; its end gives the allocation back.
async fn hold(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    Query(query): Query<HoldQuery>,
) -> Response {
    let job = JobId(query.job);
    if let Err(why) = calls::may_hold(&shared, &by, job) {
        return answer_json(&Answer::Refused(why));
    }
    let guard = Holding::new(shared, job);
    let stream = futures_util::stream::unfold(guard, |guard| async move {
        tokio::time::sleep(Duration::from_secs(5)).await;
        Some((Ok::<_, std::convert::Infallible>(Bytes::from_static(b"\n")), guard))
    });
    Response::new(Body::from_stream(stream))
}

/// Counts as one holder of the job until it is dropped.
struct Holding {
    shared: Arc<Shared>,
    job: JobId,
}

impl Holding {
    fn new(shared: Arc<Shared>, job: JobId) -> Self {
        let mut holders = shared.volatile.holders.lock().expect("no panic with it held");
        *holders.entry(job).or_default() += 1;
        drop(holders);
        Self { shared, job }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        let mut holders = self.shared.volatile.holders.lock().expect("no panic with it held");
        let left = holders.get_mut(&self.job).map_or(0, |n| {
            *n -= 1;
            *n
        });
        if left == 0 {
            holders.remove(&self.job);
            self.shared.writer.tell_later(cluster::Command::ClientLost { job: self.job });
        }
    }
}

#[derive(Deserialize)]
struct LogsQuery {
    job: u32,
    /// Counts from 1; the last attempt without it.
    attempt: Option<u32>,
    /// The node's place in the allocation.
    #[serde(default)]
    node: usize,
    #[serde(default)]
    offset: u64,
    #[serde(default)]
    follow: bool,
}

/// The output of a run, from its node's spool.
async fn logs(
    State(shared): State<Arc<Shared>>,
    axum::Extension(by): axum::Extension<Principal>,
    Query(query): Query<LogsQuery>,
) -> Response {
    let (node, attempt) = match log_place(&shared, &by, &query) {
        Ok(place) => place,
        Err(why) => return answer_json(&Answer::Refused(why)),
    };
    let kind = StreamKind::Log { offset: query.offset, follow: query.follow };
    let Some((log, _)) = Agents::open_stream(&shared, &node, attempt, kind) else {
        let why = Refusal::Other(format!("node {node} does not answer; its logs are there"));
        return answer_json(&Answer::Refused(why));
    };
    let stream = futures_util::stream::unfold(log, |mut log| async move {
        let chunk = log.next().await?;
        Some((chunk.map_err(std::io::Error::other), log))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let kind = header::HeaderValue::from_static("application/octet-stream");
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}

fn log_place(
    shared: &Shared,
    by: &Principal,
    query: &LogsQuery,
) -> Result<(String, AttemptId), Refusal> {
    use cluster::authorise::{Act, authorise};
    let id = JobId(query.job);
    let state = shared.read();
    let job = state.jobs.get(&id).ok_or_else(|| Refusal::UnknownJob(id.to_string()))?;
    authorise(&state, by, Act::OwnJob(job))?;
    let allocation = match (job.attempt(), job.ended()) {
        (Some(attempt), _) => Some(&attempt.allocation),
        (None, Some(ended)) => ended.allocation.as_ref(),
        (None, None) => None,
    };
    let allocation = allocation.ok_or(Refusal::JobNotRunning(id))?;
    let share = allocation.nodes.get(query.node);
    let share = share.ok_or_else(|| Refusal::UnknownNode(query.node.to_string()))?;
    let number = query.attempt.unwrap_or(job.attempts);
    Ok((share.node.clone(), AttemptId { job: id, number }))
}

pub(crate) fn answer_json(answer: &Answer) -> Response {
    match serde_json::to_vec(answer) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

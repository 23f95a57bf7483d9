//! The HTTP doors: the local socket, where the kernel says who asks, and the port, where a token does.

use crate::agents::Agents;
use crate::calls;
use crate::principal;
use crate::shared::Shared;
use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Query, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use model::id::{AttemptId, JobId};
use model::principal::Principal;
use model::reason::Refusal;
use serde::Deserialize;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;
use wire::client::{Answer, Envelope, REQUEST_BYTES_MAX};

/// Connections at once, over both doors.
const CONNECTIONS_MAX: usize = 8192;

/// A connection without a request for this long is closed.
const SILENCE_MAX: Duration = Duration::from_secs(30);

/// How a connection came in.
#[derive(Clone)]
pub enum Peer {
    Socket(Principal),
    Port(SocketAddr),
}

pub fn router(shared: Arc<Shared>) -> Router {
    Router::new()
        .route("/api/v1/call", post(call))
        .route("/api/v1/hold", get(hold))
        .route("/api/v1/logs", get(logs))
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
    // On a task of its own: a client that goes away does not take back what it asked for.
    let answer = tokio::spawn(async move { calls::call(&shared, by, envelope.call).await }).await;
    match answer.map(|answer| serde_json::to_vec(&answer)) {
        Ok(Ok(json)) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
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
            self.shared.writer.tell_later(cluster::Command::HolderLost { job: self.job });
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
    let opened = Agents::read_log(&shared, &node, attempt, query.offset, query.follow);
    let Some(log) = opened else {
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

fn answer_json(answer: &Answer) -> Response {
    match serde_json::to_vec(answer) {
        Ok(json) => ([(header::CONTENT_TYPE, "application/json")], json).into_response(),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Serves the local socket.
pub async fn serve_socket(router: Router, listener: UnixListener, room: Arc<Semaphore>) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(credentials) = stream.peer_cred() else { continue };
                let who = principal::of_uid(credentials.uid(), credentials.gid());
                connection(&router, TokioIo::new(stream), Peer::Socket(who), &room);
            }
            Err(error) => pause(&error).await,
        }
    }
}

/// Serves the port.
pub async fn serve_port(router: Router, listener: TcpListener, room: Arc<Semaphore>) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                let _ = stream.set_nodelay(true);
                connection(&router, TokioIo::new(stream), Peer::Port(address), &room);
            }
            Err(error) => pause(&error).await,
        }
    }
}

pub fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(CONNECTIONS_MAX))
}

/// Out of descriptors, most likely: said, and tried again.
async fn pause(error: &std::io::Error) {
    tracing::warn!("a connection cannot be taken: {error}");
    tokio::time::sleep(Duration::from_millis(100)).await;
}

fn connection<I>(router: &Router, io: I, peer: Peer, room: &Arc<Semaphore>)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let Ok(permit) = room.clone().try_acquire_owned() else {
        tracing::warn!("a connection is refused: {CONNECTIONS_MAX} are open");
        return;
    };
    let router = router.clone();
    let service = hyper::service::service_fn(move |mut request: hyper::Request<_>| {
        request.extensions_mut().insert(peer.clone());
        let mut router = router.clone();
        async move { tower_service::Service::call(&mut router, request).await }
    });
    tokio::spawn(async move {
        let _permit = permit;
        let mut builder = auto::Builder::new(TokioExecutor::new());
        // Who says nothing does not keep a place.
        builder.http1().timer(TokioTimer::new()).header_read_timeout(SILENCE_MAX);
        let served = builder.serve_connection(io, service).await;
        if let Err(error) = served {
            tracing::debug!("a connection ended early: {error}");
        }
    });
}

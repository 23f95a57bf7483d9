//! Limits on bodies of requests and answers: in bytes over all connections together, and in time.

use crate::connection_limits::ConnectionLimits;
use crate::http::answer::refused;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::client::REQUEST_BYTES_MAX;

/// Bytes of requests that are being read, over all connections.
const REQUESTS_BYTES_MAX: usize = 512 << 20;

/// Bytes of long answers that clients have not taken, over all connections.
const ANSWERS_BYTES_MAX: usize = 1 << 30;

/// Answers up to this many bytes are not counted: the number of connections bounds them.
const UNCOUNTED_BYTES_MAX: usize = 64 << 10;

/// The bytes that one permit stands for.
const UNIT: usize = 1 << 10;

#[derive(Clone)]
pub struct BodyLimits {
    requests: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    body_timeout: Duration,
}

impl BodyLimits {
    pub fn new(limits: &ConnectionLimits) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(REQUESTS_BYTES_MAX / UNIT)),
            answers: Arc::new(Semaphore::new(ANSWERS_BYTES_MAX / UNIT)),
            body_timeout: limits.body,
        }
    }
}

/// Bytes of an answer, with the permits that they hold until the last of them was sent.
struct CountedBytes {
    bytes: Bytes,
    _permits: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Middleware: hands the request on once its body is whole, and counts a long answer until it was sent.
pub async fn read_whole(
    State(limits): State<BodyLimits>,
    request: Request,
    next: Next,
) -> Response {
    let (head, body) = request.into_parts();
    let read = tokio::time::timeout(limits.body_timeout, read_body(&limits, body)).await;
    let (bytes, permits) = match read {
        Ok(Ok(read)) => read,
        Ok(Err(refusal)) => return *refusal,
        Err(_) => {
            return refused(StatusCode::REQUEST_TIMEOUT, "the request did not come in time");
        }
    };
    let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
    drop(permits);
    count_answer(&limits, response).await
}

/// The body, and the permits that it holds while the request is handled.
async fn read_body(
    limits: &BodyLimits,
    mut body: Body,
) -> Result<(Bytes, Vec<OwnedSemaphorePermit>), Box<Response>> {
    let mut whole = Vec::new();
    let mut permits = Vec::new();
    while let Some(frame) = body.frame().await {
        let unread = |e: axum::Error| Box::new(refused(StatusCode::BAD_REQUEST, &e.to_string()));
        let Ok(data) = frame.map_err(unread)?.into_data() else { continue };
        if whole.len() + data.len() > REQUEST_BYTES_MAX {
            let text = format!("a request is longer than {REQUEST_BYTES_MAX} bytes");
            return Err(Box::new(refused(StatusCode::PAYLOAD_TOO_LARGE, &text)));
        }
        whole.extend_from_slice(&data);
        // Acquired as the bytes come: a client that only announces many keeps nobody out.
        let acquired: usize = permits.iter().map(OwnedSemaphorePermit::num_permits).sum();
        let more = whole.len().div_ceil(UNIT).saturating_sub(acquired);
        if more > 0 {
            let permit = limits.requests.clone().acquire_many_owned(more as u32).await;
            permits.extend(permit.ok());
        }
    }
    Ok((whole.into(), permits))
}

async fn count_answer(limits: &BodyLimits, response: Response) -> Response {
    use hyper::body::Body as _;
    let (head, body) = response.into_parts();
    let size = body.size_hint().exact().unwrap_or(0) as usize;
    if size <= UNCOUNTED_BYTES_MAX {
        return Response::from_parts(head, body);
    }
    let units = size.div_ceil(UNIT).min(ANSWERS_BYTES_MAX / UNIT) as u32;
    let Ok(permits) = limits.answers.clone().try_acquire_many_owned(units) else {
        let text = "too many answers wait for clients that do not read; try again";
        return refused(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    match body.collect().await {
        Ok(collected) => {
            let owner = CountedBytes { bytes: collected.to_bytes(), _permits: permits };
            Response::from_parts(head, Body::from(Bytes::from_owner(owner)))
        }
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

//! Bodies of requests and answers: bounded in bytes over all connections together, and in time.

use crate::http::connection_limits::DoorLimits;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http_body_util::BodyExt;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use wire::client::REQUEST_BYTES_MAX;

/// Bytes of requests that are being read, over all connections.
const REQUESTS_BYTES_MAX: usize = 512 << 20;

/// Bytes of long answers that clients have not taken, over all connections.
const ANSWERS_BYTES_MAX: usize = 1 << 30;

/// Answers up to this are not counted: the places behind the doors bound them.
const SHORT: usize = 64 << 10;

/// What one permit stands for.
const UNIT: usize = 1 << 10;

#[derive(Clone)]
pub struct Bodies {
    requests: Arc<Semaphore>,
    answers: Arc<Semaphore>,
    time: Duration,
}

impl Bodies {
    pub fn new(limits: &DoorLimits) -> Self {
        Self {
            requests: Arc::new(Semaphore::new(REQUESTS_BYTES_MAX / UNIT)),
            answers: Arc::new(Semaphore::new(ANSWERS_BYTES_MAX / UNIT)),
            time: limits.body,
        }
    }
}

/// Bytes that give their room back when the last of them has gone out.
struct Counted {
    bytes: Bytes,
    _room: OwnedSemaphorePermit,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

fn refused(status: StatusCode, text: &str) -> Response {
    (status, format!("{text}\n")).into_response()
}

/// Hands the request on once its body is whole, and counts a long answer until it was taken.
pub async fn whole(State(bodies): State<Bodies>, request: Request, next: Next) -> Response {
    let (head, body) = request.into_parts();
    let read = tokio::time::timeout(bodies.time, gather(&bodies, body)).await;
    let (bytes, room) = match read {
        Ok(Ok(gathered)) => gathered,
        Ok(Err(refusal)) => return *refusal,
        Err(_) => {
            return refused(StatusCode::REQUEST_TIMEOUT, "the request did not come in time");
        }
    };
    let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
    drop(room);
    counted(&bodies, response).await
}

/// The body, and the room that it takes while it is worked on.
async fn gather(
    bodies: &Bodies,
    mut body: Body,
) -> Result<(Bytes, Vec<OwnedSemaphorePermit>), Box<Response>> {
    let mut whole = Vec::new();
    let mut room = Vec::new();
    while let Some(frame) = body.frame().await {
        let unread = |e: axum::Error| Box::new(refused(StatusCode::BAD_REQUEST, &e.to_string()));
        let Ok(data) = frame.map_err(unread)?.into_data() else { continue };
        if whole.len() + data.len() > REQUEST_BYTES_MAX {
            let text = format!("a request is longer than {REQUEST_BYTES_MAX} bytes");
            return Err(Box::new(refused(StatusCode::PAYLOAD_TOO_LARGE, &text)));
        }
        whole.extend_from_slice(&data);
        // Taken as the bytes come: who only promises many keeps nobody out.
        let taken: usize = room.iter().map(OwnedSemaphorePermit::num_permits).sum();
        let lacking = whole.len().div_ceil(UNIT).saturating_sub(taken);
        if lacking > 0 {
            let permit = bodies.requests.clone().acquire_many_owned(lacking as u32).await;
            room.extend(permit.ok());
        }
    }
    Ok((whole.into(), room))
}

async fn counted(bodies: &Bodies, response: Response) -> Response {
    use hyper::body::Body as _;
    let (head, body) = response.into_parts();
    let size = body.size_hint().exact().unwrap_or(0) as usize;
    if size <= SHORT {
        return Response::from_parts(head, body);
    }
    let units = size.div_ceil(UNIT).min(ANSWERS_BYTES_MAX / UNIT) as u32;
    let Ok(room) = bodies.answers.clone().try_acquire_many_owned(units) else {
        let text = "too many answers wait for clients that do not read; try again";
        return refused(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    match body.collect().await {
        Ok(collected) => {
            let owner = Counted { bytes: collected.to_bytes(), _room: room };
            Response::from_parts(head, Body::from(Bytes::from_owner(owner)))
        }
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

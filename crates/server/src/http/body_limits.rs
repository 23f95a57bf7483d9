//! Limits on bodies of requests and answers: in bytes over all connections together, of which each user has a part, and in
//! time.

use crate::connection_limits::ConnectionLimits;
use crate::http::answer::refused;
use crate::shared::Shared;
use crate::user_shares::{Share, ShareOwner, UserShares};
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::Response;
use cluster::authorise::{Act, authorise};
use http_body_util::BodyExt;
use model::principal::Principal;
use std::sync::Arc;
use std::time::Duration;
use wire::client::REQUEST_BYTES_MAX;

/// Bytes of requests that are being received and read, over all connections.
const REQUESTS_BYTES_MAX: usize = 512 << 20;

/// Bytes of long answers that clients have not taken, over all connections.
const ANSWERS_BYTES_MAX: usize = 1 << 30;

/// Answers up to this many bytes are not counted: the number of connections, and of requests on each, bounds them.
const UNCOUNTED_BYTES_MAX: usize = 16 << 10;

/// The bytes that one permit stands for.
const UNIT: usize = 1 << 10;

#[derive(Clone)]
pub struct BodyLimits {
    shared: Arc<Shared>,
    requests: Arc<UserShares>,
    answers: Arc<UserShares>,
    body_timeout: Duration,
}

impl BodyLimits {
    pub fn new(shared: Arc<Shared>, limits: &ConnectionLimits) -> Self {
        Self {
            shared,
            requests: Arc::new(UserShares::new(REQUESTS_BYTES_MAX / UNIT)),
            answers: Arc::new(UserShares::new(ANSWERS_BYTES_MAX / UNIT)),
            body_timeout: limits.body,
        }
    }

    fn owner(&self, by: Option<&Principal>) -> ShareOwner {
        let nobody = ShareOwner { uid: u32::MAX, is_operator: false };
        by.map_or(nobody, |by| {
            let is_operator = authorise(&self.shared.read(), by, Act::Operate).is_ok();
            ShareOwner { uid: by.uid, is_operator }
        })
    }
}

/// Bytes of a request until it was read, or of an answer until it was sent, with what they take of the common amount.
struct CountedBytes {
    bytes: Bytes,
    _shares: Vec<Share>,
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
    let owner = limits.owner(head.extensions.get());
    let read = tokio::time::timeout(limits.body_timeout, read_body(&limits, owner, body)).await;
    let bytes = match read {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(refusal)) => return *refusal,
        Err(_) => {
            return refused(StatusCode::REQUEST_TIMEOUT, "the request did not come in time");
        }
    };
    let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
    count_answer(&limits, owner, response).await
}

/// The body. Its bytes count until they are dropped: a call that waits does not hold what it was read from.
async fn read_body(
    limits: &BodyLimits,
    owner: ShareOwner,
    mut body: Body,
) -> Result<Bytes, Box<Response>> {
    let mut whole = Vec::new();
    let (mut shares, mut counted) = (Vec::new(), 0);
    while let Some(frame) = body.frame().await {
        let unread = |e: axum::Error| Box::new(refused(StatusCode::BAD_REQUEST, &e.to_string()));
        let Ok(data) = frame.map_err(unread)?.into_data() else { continue };
        if whole.len() + data.len() > REQUEST_BYTES_MAX {
            let text = format!("a request is longer than {REQUEST_BYTES_MAX} bytes");
            return Err(Box::new(refused(StatusCode::PAYLOAD_TOO_LARGE, &text)));
        }
        whole.extend_from_slice(&data);
        // Acquired as the bytes come: a client that only announces many keeps nobody out.
        let more = whole.len().div_ceil(UNIT).saturating_sub(counted);
        if more > 0 && shares.is_empty() {
            shares.extend(limits.requests.acquire(owner, more).await);
        } else if more > 0 {
            // Nobody waits for more while he holds some of it.
            let Some(share) = limits.requests.try_acquire(owner, more) else {
                let text = "too many requests are being received; try again";
                return Err(Box::new(refused(StatusCode::SERVICE_UNAVAILABLE, text)));
            };
            shares.push(share);
        }
        counted += more;
    }
    Ok(Bytes::from_owner(CountedBytes { bytes: whole.into(), _shares: shares }))
}

async fn count_answer(limits: &BodyLimits, owner: ShareOwner, response: Response) -> Response {
    use hyper::body::Body as _;
    let (head, body) = response.into_parts();
    let size = body.size_hint().exact().unwrap_or(0) as usize;
    if size <= UNCOUNTED_BYTES_MAX {
        return Response::from_parts(head, body);
    }
    let Some(share) = limits.answers.try_acquire(owner, size.div_ceil(UNIT)) else {
        let text = "too many answers wait for clients that do not read; try again";
        return refused(StatusCode::SERVICE_UNAVAILABLE, text);
    };
    match body.collect().await {
        Ok(collected) => {
            let owner = CountedBytes { bytes: collected.to_bytes(), _shares: vec![share] };
            Response::from_parts(head, Body::from(Bytes::from_owner(owner)))
        }
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

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

/// Bytes of requests that are being received or are not answered yet, over all connections.
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
            ShareOwner { uid: self.shared.counted_user(by.uid), is_operator }
        })
    }

    /// The whole body of a request of this user, read within its bounds, and what it takes of the common amount.
    pub async fn read(
        &self,
        by: &Principal,
        body: Body,
    ) -> Result<(Bytes, HeldRequest), Box<Response>> {
        read_in_time(self, self.owner(Some(by)), body).await
    }
}

/// What a request takes of the common amount until it is answered: what was read from it is held while its call is worked on. Who
/// works on it beyond the life of its connection holds this too.
#[derive(Clone)]
pub struct HeldRequest {
    _shares: Arc<Vec<Share>>,
}

/// Bytes of an answer until it was sent, with what they take of the common amount.
struct CountedBytes {
    bytes: Bytes,
    _share: Share,
}

impl AsRef<[u8]> for CountedBytes {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Middleware: hands the request on once its body is whole, counts it until it is answered, and a long answer until it was sent.
pub async fn read_whole(
    State(limits): State<BodyLimits>,
    request: Request,
    next: Next,
) -> Response {
    let owner = limits.owner(request.extensions().get());
    match answer_whole(&limits, owner, request, next).await {
        Ok(response) => count_answer(&limits, owner, response).await,
        Err(refusal) => *refusal,
    }
}

/// Middleware: the same for a request whose answer is passed on as it comes. Nothing of such an answer is kept here: it is not counted.
pub async fn read_whole_request(
    State(limits): State<BodyLimits>,
    request: Request,
    next: Next,
) -> Response {
    let owner = limits.owner(request.extensions().get());
    answer_whole(&limits, owner, request, next).await.unwrap_or_else(|refusal| *refusal)
}

/// The answer to a request that is handed on once its body is whole, and that counts until it is answered.
async fn answer_whole(
    limits: &BodyLimits,
    owner: ShareOwner,
    request: Request,
    next: Next,
) -> Result<Response, Box<Response>> {
    let (mut head, body) = request.into_parts();
    let (bytes, held) = read_in_time(limits, owner, body).await?;
    head.extensions.insert(held.clone());
    let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
    drop(held);
    Ok(response)
}

/// As [`read_body`], within the time that a body may take.
async fn read_in_time(
    limits: &BodyLimits,
    owner: ShareOwner,
    body: Body,
) -> Result<(Bytes, HeldRequest), Box<Response>> {
    let read = tokio::time::timeout(limits.body_timeout, read_body(limits, owner, body)).await;
    let late =
        |_| Box::new(refused(StatusCode::REQUEST_TIMEOUT, "the request did not come in time"));
    read.map_err(late)?
}

/// The body, and what it takes of the common amount.
async fn read_body(
    limits: &BodyLimits,
    owner: ShareOwner,
    mut body: Body,
) -> Result<(Bytes, HeldRequest), Box<Response>> {
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
    Ok((whole.into(), HeldRequest { _shares: Arc::new(shares) }))
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
            let owner = CountedBytes { bytes: collected.to_bytes(), _share: share };
            Response::from_parts(head, Body::from(Bytes::from_owner(owner)))
        }
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{TestServer, user};
    use axum::routing::post;
    use axum::{Extension, Router, middleware};
    use tokio::sync::Semaphore;
    use tower_service::Service;

    #[tokio::test]
    async fn request_counts_until_its_call_is_done_also_when_its_client_is_gone() {
        let server = TestServer::without_writer();
        let limits = BodyLimits {
            shared: server.shared.clone(),
            requests: Arc::new(UserShares::new(8)),
            answers: Arc::new(UserShares::new(8)),
            body_timeout: Duration::from_secs(60),
        };
        let (entered, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (begun, passed) = (entered.clone(), gate.clone());
        // As a call: it is worked on by a task of its own.
        let work = move |Extension(held): Extension<HeldRequest>, body: Bytes| {
            let (begun, passed) = (begun.clone(), passed.clone());
            async move {
                drop(body);
                let call = tokio::spawn(async move {
                    let _held = held;
                    begun.add_permits(1);
                    passed.acquire().await.expect("an open gate").forget();
                });
                call.await.expect("no panic");
            }
        };
        let counted = middleware::from_fn_with_state(limits, read_whole);
        let router = Router::new().route("/", post(work)).layer(counted);
        let send = || {
            let mut router = router.clone();
            let body = Body::from(vec![0; 2 * UNIT]);
            let mut request = axum::http::Request::post("/").body(body).expect("a request");
            request.extensions_mut().insert(user());
            tokio::spawn(async move { router.call(request).await.expect("a response").status() })
        };
        // Both together have the half of one user.
        let first = [send(), send()];
        entered.acquire_many(2).await.expect("an open gate").forget();
        first.iter().for_each(|one| one.abort());
        let third = send();
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        assert_eq!(entered.available_permits(), 0, "there is no room for it yet");
        gate.add_permits(3);
        assert_eq!(third.await.expect("no panic"), StatusCode::OK);
    }
}

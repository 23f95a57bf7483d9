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

/// What the values of one request in JSON may take in memory, beside its bytes, and those of all requests that are not answered yet. A
/// request has what one user may: an array of half a million indices that are no neighbours is a pair of numbers for each.
const VALUES_BYTES_MAX: usize = 256 << 20;
const ALL_VALUES_BYTES_MAX: usize = 512 << 20;

/// What a mapping takes that is held as it was sent, and any other value: a mapping of one entry has a node of a tree, and takes a
/// hundred times the bytes that it was sent in.
const MAPPING_BYTES: usize = 640;
const VALUE_BYTES: usize = 128;

#[derive(Clone)]
pub struct BodyLimits {
    shared: Arc<Shared>,
    requests: Arc<UserShares>,
    /// An amount of its own: who waits for it has his whole request, and keeps nobody from reading one.
    values: Arc<UserShares>,
    answers: Arc<UserShares>,
    body_timeout: Duration,
}

impl BodyLimits {
    pub fn new(shared: Arc<Shared>, limits: &ConnectionLimits) -> Self {
        Self {
            shared,
            requests: Arc::new(UserShares::new(REQUESTS_BYTES_MAX / UNIT)),
            values: Arc::new(UserShares::new(ALL_VALUES_BYTES_MAX / UNIT)),
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

    /// The whole body of a request of this user, read within its bounds, and what it takes of the common amount. Its values are counted
    /// by whoever reads them.
    pub async fn read(
        &self,
        by: &Principal,
        body: Body,
    ) -> Result<(Bytes, HeldRequest), Box<Response>> {
        read_in_time(self, self.owner(Some(by)), |_| 0, body).await
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
    match answer_whole(&limits, owner, values_bytes, request, next).await {
        Ok(response) => count_answer(&limits, owner, response).await,
        Err(refusal) => *refusal,
    }
}

/// Middleware: the same for a request whose answer is passed on as it comes. Nothing of such an answer is kept here: it is not counted.
/// Nor are the values of the request, which are passed on as they were sent.
pub async fn read_whole_request(
    State(limits): State<BodyLimits>,
    request: Request,
    next: Next,
) -> Response {
    let owner = limits.owner(request.extensions().get());
    let answered = answer_whole(&limits, owner, |_| 0, request, next).await;
    answered.unwrap_or_else(|refusal| *refusal)
}

/// The answer to a request that is handed on once its body is whole, and that counts until it is answered. `beside`: what is held of
/// a body beside its bytes.
async fn answer_whole(
    limits: &BodyLimits,
    owner: ShareOwner,
    beside: fn(&[u8]) -> usize,
    request: Request,
    next: Next,
) -> Result<Response, Box<Response>> {
    let (mut head, body) = request.into_parts();
    let (bytes, held) = read_in_time(limits, owner, beside, body).await?;
    head.extensions.insert(held.clone());
    let response = next.run(Request::from_parts(head, Body::from(bytes))).await;
    drop(held);
    Ok(response)
}

/// As [`read_body`], within the time that a body may take.
async fn read_in_time(
    limits: &BodyLimits,
    owner: ShareOwner,
    beside: fn(&[u8]) -> usize,
    body: Body,
) -> Result<(Bytes, HeldRequest), Box<Response>> {
    let read = read_body(limits, owner, beside, body);
    let read = tokio::time::timeout(limits.body_timeout, read).await;
    let late =
        |_| Box::new(refused(StatusCode::REQUEST_TIMEOUT, "the request did not come in time"));
    read.map_err(late)?
}

/// The body, and what it takes of the common amount.
async fn read_body(
    limits: &BodyLimits,
    owner: ShareOwner,
    beside: fn(&[u8]) -> usize,
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
    let beside = beside(&whole);
    if beside > VALUES_BYTES_MAX {
        let text = format!(
            "the values of the request would take {beside} bytes of memory: at most {VALUES_BYTES_MAX}"
        );
        return Err(Box::new(refused(StatusCode::PAYLOAD_TOO_LARGE, &text)));
    }
    if beside > UNCOUNTED_BYTES_MAX {
        shares.extend(limits.values.acquire(owner, beside.div_ceil(UNIT)).await);
    }
    Ok((whole.into(), HeldRequest { _shares: Arc::new(shares) }))
}

/// What the values of a request in JSON take in memory at most, beside its bytes; nothing of what is not JSON.
fn values_bytes(body: &[u8]) -> usize {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    if !first.is_some_and(|byte| b"{[".contains(byte)) {
        return 0;
    }
    let (mut mappings, mut others) = (0_usize, 0_usize);
    let mut bytes = body.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => skip_text(&mut bytes),
            b'{' => mappings += 1,
            b'[' | b',' => others += 1,
            _ => {}
        }
    }
    mappings * MAPPING_BYTES + others * VALUE_BYTES
}

/// Goes on behind the end of a text in JSON.
fn skip_text(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
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
    use crate::http::carried_out::carried_out;
    use crate::testing::{TestServer, user};
    use axum::routing::post;
    use axum::{Extension, Router, middleware};
    use tokio::sync::Semaphore;
    use tower_service::Service;

    #[test]
    fn values_are_counted_and_what_stands_in_texts_is_not() {
        for (body, expected) in [
            (r#"{"a": [1, 2], "b": {}}"#, 2 * MAPPING_BYTES + 3 * VALUE_BYTES),
            (r#" [{"": "{{{,,,\"{,[" }]"#, MAPPING_BYTES + VALUE_BYTES),
            (r#"["\\", {}]"#, MAPPING_BYTES + 2 * VALUE_BYTES),
            ("--boundary\r\n{{{{,,,,", 0),
            ("", 0),
        ] {
            assert_eq!(values_bytes(body.as_bytes()), expected, "{body}");
        }
    }

    #[test]
    fn long_array_and_long_lists_of_nodes_are_within_the_bound() {
        let array = "[1000000,1000000],".repeat(500_000);
        let nodes = r#""node00001","#.repeat(65_536);
        let body = format!(r#"{{"indices":[{array}],"node_list":[{nodes}],"exclude":[{nodes}]}}"#);
        assert!(values_bytes(body.as_bytes()) <= VALUES_BYTES_MAX);
        let script = format!(r#"{{"script":"{}"}}"#, "{[,".repeat(1 << 20));
        assert_eq!(values_bytes(script.as_bytes()), MAPPING_BYTES);
    }

    #[tokio::test]
    async fn request_of_few_bytes_and_many_values_is_refused() {
        let server = TestServer::without_writer();
        let limits = BodyLimits::new(server.shared.clone(), &ConnectionLimits::default());
        let counted = middleware::from_fn_with_state(limits, read_whole);
        let router = Router::new().route("/", post(|| async { "read" })).layer(counted);
        let send = async |mappings: usize| {
            let body = format!("[{}0]", r#"{"":0},"#.repeat(mappings));
            let mut request =
                axum::http::Request::post("/").body(Body::from(body)).expect("a request");
            request.extensions_mut().insert(user());
            router.clone().call(request).await.expect("a response").status()
        };
        assert_eq!(send(1000).await, StatusCode::OK);
        // A sixth of the bytes that a request may have, and a hundred times as much memory.
        assert_eq!(send(400_000).await, StatusCode::PAYLOAD_TOO_LARGE);
    }

    #[tokio::test]
    async fn request_counts_until_its_call_is_done_also_when_its_client_is_gone() {
        let server = TestServer::without_writer();
        let limits = BodyLimits {
            shared: server.shared.clone(),
            requests: Arc::new(UserShares::new(8)),
            values: Arc::new(UserShares::new(8)),
            answers: Arc::new(UserShares::new(8)),
            body_timeout: Duration::from_secs(60),
        };
        let (entered, gate) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
        let (begun, passed) = (entered.clone(), gate.clone());
        // As a call.
        let work = move |Extension(held): Extension<HeldRequest>, body: Bytes| {
            let (begun, passed) = (begun.clone(), passed.clone());
            async move {
                drop(body);
                let call = carried_out(async move {
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

//! The router without sockets: who may ask, what is refused, and how calls are answered.

use super::body_limits::BodyLimits;
use super::peer::Peer;
use super::router;
use crate::auth::token;
use crate::connection_limits::{ConnectionLimits, ListenerSlots, PortConnection};
use crate::proxy::service::request_head::VIA_GATEWAY;
use crate::testing::{TestServer, submission, user};
use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{Request, StatusCode, header};
use cluster::Command;
use cluster::token::{ADMIN_TOKEN, UserToken};
use http_body_util::BodyExt;
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::reason::Refusal;
use std::net::Ipv4Addr;
use tower_service::Service;
use wire::client::{Answer, CALL_PATH, Call, Cancel, Envelope, JobsQuery};
use wire::version::PROTOCOL;

pub(super) struct Client {
    pub(super) server: TestServer,
    router: Router,
}

impl Client {
    pub(super) async fn new() -> Self {
        Self::with_limits("").await
    }

    async fn with_limits(limits: &str) -> Self {
        let server = TestServer::start().await;
        let limits: ConnectionLimits = limits.parse().expect("limits");
        let router = router(server.shared.clone(), BodyLimits::new(server.shared.clone(), &limits));
        Self { server, router }
    }

    async fn send(&self, request: Request<Body>) -> (StatusCode, Vec<u8>) {
        let response = self.router.clone().call(request).await.expect("a response");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, body.to_vec())
    }

    /// Posts a body from the given peer, with a token where there is one.
    async fn post(
        &self,
        body: Body,
        peer: Option<Peer>,
        token: Option<&str>,
    ) -> (StatusCode, String) {
        let mut request = Request::post(CALL_PATH).body(body).expect("a request");
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a header");
            request.headers_mut().insert(header::AUTHORIZATION, value);
        }
        let (status, body) = self.send(request).await;
        (status, String::from_utf8(body).expect("text"))
    }

    /// Makes a call on the local socket as an ordinary user.
    pub(super) async fn call(&self, call: Call) -> Answer {
        self.call_with(envelope(PROTOCOL, call)).await
    }

    /// The same for a call that is written already.
    pub(super) async fn call_with(&self, body: Body) -> Answer {
        let peer = Some(Peer::Socket(user()));
        let (status, body) = self.post(body, peer, None).await;
        assert_eq!(status, StatusCode::OK, "{body}");
        serde_json::from_str(&body).unwrap_or_else(|e| panic!("{body}: {e}"))
    }
}

fn envelope(version: u32, call: Call) -> Body {
    serde_json::to_vec(&Envelope { version, id: None, call }).expect("JSON").into()
}

pub(super) fn port() -> Option<Peer> {
    let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).port;
    let from = Ipv4Addr::LOCALHOST.into();
    Some(Peer::Port { connection: PortConnection::new(slots), from, is_loopback: true })
}

#[tokio::test(flavor = "multi_thread")]
async fn health_needs_no_principal_and_calls_do() {
    let client = Client::new().await;
    let health = Request::get("/healthz").body(Body::empty()).expect("a request");
    assert_eq!(client.send(health).await, (StatusCode::OK, b"ok\n".to_vec()));
    let (status, text) = client.post(envelope(PROTOCOL, Call::Ping), None, None).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert_eq!(text, "this needs a valid token: Authorization: Bearer\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn administrators_token_is_taken_on_the_servers_own_machine_alone() {
    let client = Client::new().await;
    let text = token::generate();
    let known = UserToken {
        hash: token::hash(&text),
        name: "root".into(),
        token_name: ADMIN_TOKEN.into(),
        ..UserToken::default()
    };
    assert!(known.is_admin_token());
    client.server.run(Command::SetAdminToken(Box::new(known))).await.expect("a token");
    let ping = || envelope(PROTOCOL, Call::Ping);
    assert_eq!(client.post(ping(), port(), Some(&text)).await.0, StatusCode::OK);
    let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).port;
    let connection = PortConnection::new(slots);
    let from = Ipv4Addr::new(192, 0, 2, 1).into();
    let far = Some(Peer::Port { connection, from, is_loopback: false });
    let (status, said) = client.post(ping(), far, Some(&text)).await;
    assert_eq!(status, StatusCode::UNAUTHORIZED);
    assert!(said.contains("on the server's own machine alone"), "{said}");
    // A gateway on this machine passes on what strangers ask.
    let mut passed = Request::post(CALL_PATH).body(ping()).expect("a request");
    passed.extensions_mut().insert(port().expect("a peer"));
    let bearer = format!("Bearer {text}").parse().expect("a header");
    passed.headers_mut().insert(header::AUTHORIZATION, bearer);
    passed.headers_mut().insert(header::VIA, VIA_GATEWAY.parse().expect("a header"));
    assert_eq!(client.send(passed).await.0, StatusCode::UNAUTHORIZED);
}

#[tokio::test(flavor = "multi_thread")]
async fn good_token_is_accepted_on_the_port() {
    let client = Client::new().await;
    let text = token::generate();
    let known = UserToken { hash: token::hash(&text), name: "root".into(), ..UserToken::default() };
    client.server.run(Command::SetUserToken(Box::new(known))).await.expect("a token");
    let ping = || envelope(PROTOCOL, Call::Ping);
    let status = |(status, _)| status;
    let good = client.post(ping(), port(), Some(&text)).await;
    assert_eq!(status(good), StatusCode::OK);
    for wrong in [None, Some("wrong"), Some("")] {
        let refused = client.post(ping(), port(), wrong).await;
        assert_eq!(status(refused), StatusCode::UNAUTHORIZED, "{wrong:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn unreadable_call_and_unknown_protocol_are_bad_requests() {
    let client = Client::new().await;
    let peer = || Some(Peer::Socket(user()));
    let (status, text) = client.post("{".into(), peer(), None).await;
    assert_eq!(status, StatusCode::BAD_REQUEST);
    assert!(text.starts_with("the call cannot be read: "), "{text}");
    let (status, text) = client.post(envelope(9_999, Call::Ping), peer(), None).await;
    assert_eq!((status, &*text), (StatusCode::BAD_REQUEST, "protocol 9999 is not spoken here\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_does_not_come_in_time_is_refused() {
    let client = Client::with_limits("body_ms=20").await;
    let stuck = futures_util::stream::pending::<Result<Bytes, std::io::Error>>();
    let peer = Some(Peer::Socket(user()));
    let (status, text) = client.post(Body::from_stream(stuck), peer, None).await;
    assert_eq!(status, StatusCode::REQUEST_TIMEOUT);
    assert_eq!(text, "the request did not come in time\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn body_beyond_the_limit_is_refused() {
    let client = Client::new().await;
    let chunk = Bytes::from(vec![b' '; 1 << 20]);
    let chunks = std::iter::repeat_n(chunk, 17).map(Ok::<_, std::io::Error>);
    let body = Body::from_stream(futures_util::stream::iter(chunks));
    let (status, _) = client.post(body, Some(Peer::Socket(user())), None).await;
    assert_eq!(status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test(flavor = "multi_thread")]
async fn submitted_job_belongs_to_the_caller_and_is_listed() {
    let client = Client::new().await;
    let mut submission = submission("name: train");
    std::sync::Arc::make_mut(&mut submission.spec.owner).name = "somebody else".into();
    let answer = client.call(Call::Submit(Box::new(submission))).await;
    let Answer::Submitted { job, name, .. } = answer else { panic!("{answer:?}") };
    assert_eq!(name, "train");
    assert_eq!(client.server.shared.read().jobs[&job].spec.owner.name, user().name);
    let answer = client.call(Call::Jobs(JobsQuery::default())).await;
    let Answer::Jobs { jobs, .. } = answer else { panic!("{answer:?}") };
    let listed: Vec<_> = jobs.0.iter().map(|view| (view.id, &*view.name)).collect();
    assert_eq!(listed, [(job, "train")]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refusal_is_an_answer() {
    let client = Client::new().await;
    let filter = JobFilter { jobs: vec![JobRef::whole(JobId(77))], ..JobFilter::default() };
    let cancel = Cancel { filter, step: None, signal: None, batch_only: false, full: false };
    let answer = client.call(Call::Cancel(cancel)).await;
    let Answer::Cancelled(results) = answer else { panic!("{answer:?}") };
    assert!(matches!(&results[..], [one] if one.refusal.is_some()), "{results:?}");
    let answer = client.call(Call::Diagnostics { reset: true }).await;
    let Answer::Refused(why) = answer else { panic!("a user may not reset counters: {answer:?}") };
    assert!(!matches!(why, Refusal::Other(_)), "{why:?}");
}

//! The middleware that answers sign-ins which fail too often with 429, whatever the API: a token in a request, the page's sign-in,
//! single sign-on. Whoever refuses one says so in the response's extensions. The server's own machine has no such limit.

use crate::auth::token;
use crate::http::authenticate;
use crate::http::peer::Peer;
use crate::shared::Shared;
use crate::shared::failed_sign_ins::FailedSignIn;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use serde_json::json;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub async fn hold(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let sign_in = SignIn::of(&request);
    let response = next.run(request).await;
    match sign_in {
        Some(sign_in) => sign_in.hold(&shared, response),
        None => response,
    }
}

/// What a request of another machine would sign in by.
pub struct SignIn {
    from: IpAddr,
    token: Option<String>,
}

impl SignIn {
    pub fn of(request: &Request) -> Option<Self> {
        let from = distant(request)?;
        Some(Self { from, token: authenticate::bearer(request).map(str::to_owned) })
    }

    /// The answer to the request, or the refusal in its place.
    pub fn hold(self, shared: &Shared, mut response: Response) -> Response {
        let Some(mut failed) = response.extensions_mut().remove::<FailedSignIn>() else {
            return response;
        };
        let Self { from, token } = self;
        if failed.account.is_none() {
            let of_token = |text: String| authenticate::user_of_hash(shared, &token::hash(&text));
            failed.account = token.and_then(of_token);
        }
        match shared.volatile.failed_sign_ins.note(from, &failed, Instant::now()) {
            Ok(()) => response,
            Err(wait) => {
                let why = format!("the last came from {from}");
                authenticate::log_unusable(shared, "too many sign-ins fail", &why);
                too_often(response, wait)
            }
        }
    }
}

/// Notes that a browser is to be sent to the identity provider. The error is how long it is to wait.
pub fn sign_on(shared: &Shared, request: &Request) -> Result<(), Duration> {
    match distant(request) {
        Some(from) => shared.volatile.failed_sign_ins.note_sign_on(from, Instant::now()),
        None => Ok(()),
    }
}

/// Where a request to the port comes from, if it is not the server's own machine.
fn distant(request: &Request) -> Option<IpAddr> {
    match request.extensions().get::<Peer>() {
        Some(Peer::Port { from, is_loopback: false, .. }) => Some(*from),
        _ => None,
    }
}

/// The refusal in the place of another, with the headers of that one, as JSON where that was JSON; its connection ends with it.
pub fn too_often(response: Response, wait: Duration) -> Response {
    let seconds = (wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1);
    let text =
        format!("too many sign-ins have failed: check the token, and try again in {seconds} s");
    let (mut head, _) = response.into_parts();
    let kind = head.headers.get(header::CONTENT_TYPE).map(HeaderValue::as_bytes);
    let is_json = kind.is_some_and(|kind| kind.starts_with(b"application/json"));
    // The page reads `error`, dstack's client `detail`.
    let (kind, body) = if is_json {
        let body = json!({ "error": text, "detail": { "msg": text, "code": null } });
        ("application/json", body.to_string())
    } else {
        ("text/plain; charset=utf-8", format!("{text}\n"))
    };
    head.status = StatusCode::TOO_MANY_REQUESTS;
    head.headers.remove(header::CONTENT_LENGTH);
    head.headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    head.headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    head.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    Response::from_parts(head, Body::from(body))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::connection_limits::{ConnectionLimits, ListenerSlots, PortConnection};
    use crate::http::body_limits::BodyLimits;
    use crate::http::router;
    use crate::testing::TestServer;
    use axum::Router;
    use axum::http::Method;
    use cluster::Command;
    use cluster::token::UserToken;
    use http_body_util::BodyExt;
    use tower_service::Service;

    const CALLS: &str = wire::client::CALL_PATH;
    const DSTACK: &str = "/api/projects/list";
    const SESSION: &str = "/api/web/session";
    /// More than may fail in a row.
    const TRIES: usize = 40;

    struct Site {
        server: TestServer,
        router: Router,
    }

    impl Site {
        async fn new() -> Self {
            let server = TestServer::start().await;
            let limits = ConnectionLimits::default();
            let bodies = BodyLimits::new(server.shared.clone(), &limits);
            let router = router(server.shared.clone(), bodies);
            Self { server, router }
        }

        async fn ask(&self, from: &str, path: &str, token: &str) -> Response {
            let body = match path {
                SESSION => json!({ "token": token }).to_string(),
                CALLS => {
                    let envelope = wire::client::Envelope::new(wire::client::Call::Ping);
                    serde_json::to_string(&envelope).expect("JSON")
                }
                _ => "{}".to_owned(),
            };
            let mut request = Request::builder().method(Method::POST).uri(path);
            request = request.header(header::HOST, "head:6820");
            request = request.header(header::ORIGIN, "https://head:6820");
            request = request.header(header::CONTENT_TYPE, "application/json");
            if path != SESSION {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            let mut request = request.body(Body::from(body)).expect("a request");
            let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).port;
            let from: IpAddr = from.parse().expect("an address");
            let (connection, is_loopback) = (PortConnection::new(slots), from.is_loopback());
            request.extensions_mut().insert(Peer::Port { connection, from, is_loopback });
            self.router.clone().call(request).await.expect("a response")
        }

        /// How many of the tries with a wrong token are answered with 429.
        async fn held(&self, from: &str, path: &str) -> usize {
            let mut held = 0;
            for _ in 0..TRIES {
                let response = self.ask(from, path, &"0".repeat(64)).await;
                held += usize::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
            }
            held
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn wrong_tokens_of_every_api_are_held_to_a_rate_and_the_right_one_is_taken() {
        let site = Site::new().await;
        let text = token::generate();
        let known = UserToken {
            hash: token::hash(&text),
            name: "nobody".into(),
            token_name: "own".into(),
            ..UserToken::default()
        };
        site.server.run(Command::SetUserToken(Box::new(known))).await.expect("a token");
        for (host, path) in [(1, CALLS), (2, DSTACK), (3, SESSION)] {
            let from = format!("192.0.2.{host}");
            assert!(site.held(&from, path).await > 0, "{path}");
            let response = site.ask(&from, path, &"0".repeat(64)).await;
            let wait = response.headers().get(header::RETRY_AFTER).expect("how long to wait");
            let wait: u64 = wait.to_str().expect("text").parse().expect("seconds");
            assert!((1..=6).contains(&wait), "{path}: {wait}");
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            let body = String::from_utf8_lossy(&body).into_owned();
            assert!(body.contains("try again in"), "{path}: {body}");
            assert_eq!(site.ask(&from, path, &text).await.status(), StatusCode::OK, "{path}");
            assert_eq!(site.held("127.0.0.1", path).await, 0, "{path} on the server's machine");
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn expired_tokens_of_one_account_are_held_wherever_they_come_from() {
        let site = Site::new().await;
        let text = token::generate();
        // Far enough ahead for the token to be taken.
        let expires = crate::clock::now() + Duration::from_secs(1);
        let known = UserToken {
            hash: token::hash(&text),
            name: "nobody".into(),
            token_name: "old".into(),
            expires: Some(expires),
            ..UserToken::default()
        };
        site.server.run(Command::SetUserToken(Box::new(known))).await.expect("a token");
        while crate::clock::now() <= expires {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        let mut held = 0;
        for host in 0..TRIES {
            let response = site.ask(&format!("198.51.100.{host}"), CALLS, &text).await;
            held += usize::from(response.status() == StatusCode::TOO_MANY_REQUESTS);
        }
        assert!(held > 0, "an address each, and one account");
    }
}

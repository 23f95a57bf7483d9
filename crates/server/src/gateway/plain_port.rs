//! The gateway's port for plain HTTP (`--http`): it proves names to an ACME authority, answers for services that do without HTTPS, and
//! leads all else to HTTPS.

use super::acme::Challenges;
use super::{Gateway, pass};
use crate::http::serve::RequestHandler;
use crate::proxy::exchange::{redirect, said};
use crate::proxy::origin::{host_of, service_of_host};
use crate::proxy::service::request_head::check_method;
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::http::uri::Authority;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;

/// Addresses by https do not say it.
const USUAL_PORT: u16 = 443;

const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/{token}";

#[derive(Clone)]
struct PlainPort {
    gateway: Arc<Gateway>,
    challenges: Challenges,
    /// The gateway's port for HTTPS.
    https: u16,
}

pub fn router(gateway: Arc<Gateway>, challenges: Challenges, https: u16) -> Router {
    let state = PlainPort { gateway, challenges, https };
    Router::new().route(CHALLENGE_PATH, get(prove)).fallback(answer).with_state(state)
}

async fn prove(State(port): State<PlainPort>, Path(token): Path<String>) -> Response {
    match port.challenges.get(&token) {
        Some(text) => text.into_response(),
        None => StatusCode::NOT_FOUND.into_response(),
    }
}

async fn answer(State(port): State<PlainPort>, request: Request) -> Response {
    if pass::is_plain(&port.gateway, &request) {
        return port.gateway.handle(request).await;
    }
    if let Err(refusal) = check_method(request.method()) {
        return *refusal;
    }
    let routes = port.gateway.routes();
    let asked = host_of(&request).unwrap_or_default();
    if !is_host(asked) {
        return said(StatusCode::BAD_REQUEST, "the request names no host that it could be led to");
    }
    let host = secure_host(asked, routes.domain.as_deref(), port.https);
    let place = request.uri().path_and_query().map_or("/", |place| place.as_str());
    redirect(StatusCode::PERMANENT_REDIRECT, &format!("https://{host}{place}"))
}

/// Whether this is a host and nothing else: a path behind it, or a name before it, would lead elsewhere.
fn is_host(asked: &str) -> bool {
    asked.parse::<Authority>().is_ok() && !asked.contains('@')
}

/// Where a host answers by HTTPS: a service's host name at the port that the site's domain says, any other at the gateway's own.
fn secure_host(asked: &str, domain: Option<&str>, own: u16) -> String {
    let with_port = asked.rsplit_once(':').filter(|_| !asked.ends_with(']'));
    let name = with_port.map_or(asked, |(name, _)| name);
    let port = match domain.filter(|domain| service_of_host(asked, domain).is_some()) {
        Some(domain) => {
            let said = domain.rsplit_once(':').and_then(|(_, port)| port.parse().ok());
            said.unwrap_or(USUAL_PORT)
        }
        None => own,
    };
    if port == USUAL_PORT { name.to_owned() } else { format!("{name}:{port}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nobody_is_led_to_what_is_no_host() {
        for good in ["edge.example", "edge.example:80", "127.0.0.1:8080", "[::1]:8080"] {
            assert!(is_host(good), "{good}");
        }
        for bad in ["", "evil.example/", "evil.example/?", "a@evil.example", "a b", "evil.example#"]
        {
            assert!(!is_host(bad), "{bad}");
        }
    }

    #[test]
    fn plain_http_is_led_to_the_port_that_answers_by_https() {
        for (asked, domain, own, expected) in [
            ("edge.example", None, 443, "edge.example"),
            ("edge.example:80", None, 8443, "edge.example:8443"),
            ("127.0.0.1:8080", None, 8443, "127.0.0.1:8443"),
            ("[::1]:8080", None, 8443, "[::1]:8443"),
            ("[::1]", None, 8443, "[::1]:8443"),
            ("web.apps.example:80", Some("apps.example"), 8443, "web.apps.example"),
            ("web.apps.example", Some("apps.example:6823"), 8443, "web.apps.example:6823"),
            ("edge.example", Some("apps.example"), 8443, "edge.example:8443"),
        ] {
            assert_eq!(secure_host(asked, domain, own), expected, "{asked} {domain:?}");
        }
    }
}

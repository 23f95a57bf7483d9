//! The middleware of the page's API. Who asks is found out by the cookie of a session, from pages of this server alone; or, for
//! other programs, by a token or the connection, as everywhere else. And the headers that every answer of the page has.

use crate::http::authenticate::{self, Caller};
use crate::http::browser::{self, SESSION};
use crate::http::peer::Peer;
use crate::proxy;
use crate::shared::Shared;
use crate::web::answer::WebRefusal;
use crate::web::job_pages;
use crate::web::{CALL_PATH, CHECK_PATH, SESSION_PATH};
use axum::extract::{Request, State};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use cluster::authorise::{Act, authorise};
use cluster::rights::role_of;
use model::principal::{Principal, Role};
use std::sync::Arc;

/// What a request was let in by. A stream asks again whether that still holds.
#[derive(Clone)]
pub enum Admission {
    Session {
        secret: String,
        is_loopback: bool,
    },
    /// A token in the request, by its hash and whether it came from this machine; without one, the connection itself.
    Direct {
        token: Option<(String, bool)>,
    },
}

impl Admission {
    /// Whether the session is still one, or the token still good. The user directory is not asked: a stream tells nothing of the
    /// cluster, and does not end because the directory did not answer once.
    pub fn holds(&self, shared: &Shared) -> bool {
        match self {
            Self::Session { secret, is_loopback } => {
                let session = shared.web_session(secret);
                session.is_some_and(|known| {
                    authenticate::token_holds(shared, &known.token_hash(), *is_loopback).is_ok()
                })
            }
            Self::Direct { token } => token.as_ref().is_none_or(|(hash, is_loopback)| {
                authenticate::token_holds(shared, hash, *is_loopback).is_ok()
            }),
        }
    }
}

/// Puts the principal and its admission into the request's extensions, or refuses the request.
pub async fn authenticate(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    match admit(&shared, &request) {
        Ok((by, admission)) => {
            request.extensions_mut().insert(by);
            request.extensions_mut().insert(admission);
            next.run(request).await
        }
        Err(refusal) => *refusal,
    }
}

fn admit(shared: &Shared, request: &Request) -> Result<(Principal, Admission), Box<Response>> {
    let is_direct = request.headers().contains_key(header::AUTHORIZATION);
    let by_cookie = match request.extensions().get::<Peer>() {
        Some(Peer::Port { connection, is_loopback, .. }) if !is_direct => {
            Some((connection, *is_loopback))
        }
        _ => None,
    };
    let Some((connection, is_loopback)) = by_cookie else {
        return match authenticate::caller(shared, request) {
            Caller::Known(by) => {
                let token = authenticate::presented_token(shared, request);
                Ok((by, Admission::Direct { token }))
            }
            other => Err(Box::new(authenticate::refusal(other))),
        };
    };
    let refused = |status, text: &str| Box::new(WebRefusal::new(status, text).into_response());
    let mut sent = browser::cookies(request.headers(), SESSION.name(is_loopback));
    let secret = sent.next();
    // This server sets one: another was put beside it by somebody who would be acted for, or would have others act for him.
    if sent.next().is_some() {
        return Err(refused(StatusCode::FORBIDDEN, TWO_SESSIONS));
    }
    let found = secret.and_then(|secret| Some((secret, shared.use_web_session(secret)?)));
    let Some((secret, session)) = found else {
        return Err(refused(StatusCode::UNAUTHORIZED, "sign in first"));
    };
    if !is_of_own_page(request) {
        return Err(refused(StatusCode::FORBIDDEN, FOREIGN_PAGE));
    }
    let token_hash = session.token_hash();
    let known = authenticate::token_holds(shared, &token_hash, is_loopback)
        .map_err(|why| refused(StatusCode::UNAUTHORIZED, why))?;
    // The session stays: the directory may know the user the next time.
    let Some(by) = authenticate::holder(shared, &token_hash, &known) else {
        return Err(refused(StatusCode::SERVICE_UNAVAILABLE, UNKNOWN_USER));
    };
    // Signing out is never wrong.
    if request.method() != Method::DELETE {
        let checked = job_pages::check(shared, request.headers(), &by);
        checked.map_err(|why| Box::new(why.into_response()))?;
    }
    if is_change(request) && looks_only(shared, &by) {
        return Err(refused(StatusCode::FORBIDDEN, LOOKS_ONLY));
    }
    let is_operator = || authorise(&shared.read(), &by, Act::Operate).is_ok();
    if !connection.identify(by.uid, is_operator) {
        return Err(Box::new(authenticate::too_many_connections(&by)));
    }
    Ok((by, Admission::Session { secret: secret.to_owned(), is_loopback }))
}

const UNKNOWN_USER: &str = "the user directory does not know the token's user now; try again";

const TWO_SESSIONS: &str = "this browser sends more than one session: remove its cookies of this server, and sign in again";

pub const LOOKS_ONLY: &str = "where pages of jobs have no port of their own ([proxy] listen in sluice.toml), administrators \
     change nothing by the page: use a token's own commands, or set [web] job_pages = false";

/// Whether a session of this user may only look. A script of a job's page may have the origin of the server's own page, and can push
/// cookies out of the browser by which it would be known: what such a script could do is bounded by what sessions may do.
pub fn looks_only(shared: &Shared, by: &Principal) -> bool {
    let state = shared.read();
    let is_shared = state.config.job_pages && !proxy::origin::is_own(shared);
    is_shared && role_of(&state, by) > Role::User
}

/// Whether a request changes something by its path alone. Signing out and checking a script change nothing of the cluster, and
/// what a call does is for its own handler to see.
fn is_change(request: &Request) -> bool {
    let is_read = matches!(*request.method(), Method::GET | Method::HEAD);
    !is_read && !matches!(request.uri().path(), SESSION_PATH | CHECK_PATH | CALL_PATH)
}

pub const FOREIGN_PAGE: &str = "this request does not come from a page of this server";

/// A change must say that it comes from an own page; a read must not say otherwise.
pub fn is_of_own_page(request: &Request) -> bool {
    if matches!(*request.method(), Method::GET | Method::HEAD) {
        browser::is_own_page(request)
    } else {
        browser::is_change_of_own_page(request)
    }
}

/// The policy of a page whose terminal makes style elements: those with this nonce count too.
pub fn policy_with_styles(nonce: &str) -> String {
    CONTENT_POLICY.replace("style-src 'self'", &format!("style-src 'self' 'nonce-{nonce}'"))
}

/// No script, style, image or connection but this server's own; nothing inline; in no frame.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
     worker-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

const HEADERS: [(&str, &str); 6] = [
    ("content-security-policy", CONTENT_POLICY),
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
];

/// Middleware: the headers that bound what a browser does with an answer, whatever is in it. What says nothing else about it has
/// the policy of all, and is kept in no cache.
pub async fn secure(request: Request, next: Next) -> Response {
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    for (name, value) in HEADERS {
        headers.entry(name).or_insert(HeaderValue::from_static(value));
    }
    headers.entry(header::CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::token;
    use crate::testing::TestServer;
    use cluster::Command;
    use cluster::token::UserToken;

    #[tokio::test(flavor = "multi_thread")]
    async fn stream_of_a_token_ends_with_it_and_that_of_a_socket_stays() {
        let server = TestServer::start().await;
        let hash = token::hash("presented");
        let known = UserToken {
            hash: hash.clone(),
            name: "nobody".into(),
            token_name: "shell".into(),
            ..UserToken::default()
        };
        server.run(Command::SetUserToken(Box::new(known))).await.expect("a token");
        let by_token = Admission::Direct { token: Some((hash, true)) };
        let by_socket = Admission::Direct { token: None };
        assert!(by_token.holds(&server.shared) && by_socket.holds(&server.shared));
        let revoke = Command::RevokeToken { name: "shell".into(), user: Some("nobody".into()) };
        server.run(revoke).await.expect("revoked");
        assert!(!by_token.holds(&server.shared) && by_socket.holds(&server.shared));
    }
}

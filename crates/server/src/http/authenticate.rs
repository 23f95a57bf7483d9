//! The middleware that says who makes a request.

use crate::auth::{principal, token};
use crate::http::answer::refused;
use crate::http::peer::Peer;
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use cluster::authorise::{Act, authorise};
use model::principal::Principal;
use std::sync::Arc;

/// Puts the principal into the request's extensions, or refuses the request.
pub async fn authenticate(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    let peer = request.extensions().get::<Peer>().cloned();
    let who = match peer {
        Some(Peer::Socket(principal)) => Some(principal),
        Some(Peer::Port(address, connection)) if address.ip().is_loopback() => {
            let who = bearer(&request).and_then(|token| of_token(&shared, token));
            if let Some(who) = &who {
                let is_operator = || authorise(&shared.read(), who, Act::Operate).is_ok();
                if !connection.identify(who.uid, is_operator) {
                    return too_many_connections(who);
                }
            }
            who
        }
        Some(Peer::Port(..)) => {
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

/// Refuses the request and closes its connection.
fn too_many_connections(who: &Principal) -> Response {
    let why = format!("user {} has as many connections open as one user may", who.name);
    let mut response = refused(StatusCode::SERVICE_UNAVAILABLE, &why);
    response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    response
}

/// Whom a token stands for; `None` if the state does not know it.
fn of_token(shared: &Shared, presented: &str) -> Option<Principal> {
    let known = shared.read().user_tokens.get(&token::hash(presented)).cloned()?;
    principal::of_token(&known)
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::trim)
}

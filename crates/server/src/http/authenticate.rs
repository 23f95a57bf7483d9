//! The middleware that says who makes a request.

use crate::auth::{principal, token};
use crate::http::answer::refused;
use crate::http::peer::Peer;
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use model::principal::Principal;
use std::sync::Arc;

/// Who makes a request.
pub enum Caller {
    Known(Principal),
    NoToken,
    WrongToken,
    /// Not even asked for a token.
    Refused(Response),
}

pub fn caller(shared: &Shared, request: &Request) -> Caller {
    match request.extensions().get::<Peer>() {
        Some(Peer::Socket(principal)) => Caller::Known(principal.clone()),
        Some(Peer::Port(address)) if address.ip().is_loopback() => match bearer(request) {
            Some(token) => of_token(shared, token).map_or(Caller::WrongToken, Caller::Known),
            None => Caller::NoToken,
        },
        Some(Peer::Port(_)) => {
            let why = "tokens are not taken over plain HTTP from afar";
            Caller::Refused(refused(StatusCode::FORBIDDEN, why))
        }
        None => Caller::NoToken,
    }
}

/// Puts the principal into the request's extensions, or refuses the request.
pub async fn authenticate(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    match caller(&shared, &request) {
        Caller::Known(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Caller::NoToken | Caller::WrongToken => {
            let why = "this needs a valid token: Authorization: Bearer";
            refused(StatusCode::UNAUTHORIZED, why)
        }
        Caller::Refused(response) => response,
    }
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

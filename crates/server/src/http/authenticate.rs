//! The middleware that says who makes a request.

use crate::auth::{principal, token};
use crate::clock;
use crate::http::answer::refused;
use crate::http::peer::Peer;
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::Response;
use cluster::token::TokenStatus;
use model::principal::Principal;
use std::sync::Arc;

/// Who makes a request.
pub enum Caller {
    Known(Principal),
    NoToken,
    /// A token that is not taken, and why.
    WrongToken(&'static str),
    /// Not even asked for a token, and why.
    TooFar(&'static str),
}

pub fn caller(shared: &Shared, request: &Request) -> Caller {
    match request.extensions().get::<Peer>() {
        Some(Peer::Socket(principal)) => Caller::Known(principal.clone()),
        Some(Peer::Port(address)) if address.ip().is_loopback() => match bearer(request) {
            Some(token) => of_token(shared, token).map_or_else(Caller::WrongToken, Caller::Known),
            None => Caller::NoToken,
        },
        Some(Peer::Port(_)) => Caller::TooFar("tokens are not taken over plain HTTP from afar"),
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
        Caller::NoToken => refused(StatusCode::UNAUTHORIZED, UNKNOWN_TOKEN),
        Caller::WrongToken(why) => refused(StatusCode::UNAUTHORIZED, why),
        Caller::TooFar(why) => refused(StatusCode::FORBIDDEN, why),
    }
}

/// Says the same of a token that was never made and of one whose user is gone.
const UNKNOWN_TOKEN: &str = "this needs a valid token: Authorization: Bearer";

/// Whom a token stands for, or why it is not taken. Only who has the token is told of its end.
fn of_token(shared: &Shared, presented: &str) -> Result<Principal, &'static str> {
    let now = clock::now();
    let hash = token::hash(presented);
    let known = shared.read().user_tokens.get(&hash).cloned().ok_or(UNKNOWN_TOKEN)?;
    match known.status(now) {
        TokenStatus::Good => {}
        TokenStatus::Expired => return Err("this token has expired: make another (sluice token)"),
        TokenStatus::Revoked => return Err("this token was revoked: make another (sluice token)"),
    }
    let who = principal::of_token(&known).ok_or(UNKNOWN_TOKEN)?;
    shared.volatile.token_uses.note(&hash, now);
    Ok(who)
}

fn bearer(request: &Request) -> Option<&str> {
    let value = request.headers().get(header::AUTHORIZATION)?.to_str().ok()?;
    value.strip_prefix("Bearer ").map(str::trim)
}

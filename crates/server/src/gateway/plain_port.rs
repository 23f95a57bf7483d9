//! The gateway's port for plain HTTP (`--http`): it proves names to an ACME authority, answers for services that do without HTTPS, and
//! leads all else to HTTPS.

use super::acme::Challenges;
use super::{Gateway, pass};
use crate::http::serve::RequestHandler;
use crate::proxy::exchange::redirect;
use crate::proxy::origin::host_of;
use axum::Router;
use axum::extract::{Path, Request, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use std::sync::Arc;

const CHALLENGE_PATH: &str = "/.well-known/acme-challenge/{token}";

#[derive(Clone)]
struct PlainPort {
    gateway: Arc<Gateway>,
    challenges: Challenges,
}

pub fn router(gateway: Arc<Gateway>, challenges: Challenges) -> Router {
    let state = PlainPort { gateway, challenges };
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
    let host = host_of(&request).unwrap_or_default();
    let host = host.rsplit_once(':').map_or(host, |(name, _)| name);
    let place = request.uri().path_and_query().map_or("/", |place| place.as_str());
    redirect(StatusCode::PERMANENT_REDIRECT, &format!("https://{host}{place}"))
}

//! The server's own web page at `/`, and its API at `/api/web/`: another form of the same calls, with no policy of its own.
//!
//! - `assets`: the files of the page; `guard`: who asks, and the headers of every answer; `answer`: the form of answers
//! - `session`: signing in and out

mod answer;
mod assets;
mod guard;
mod session;
#[cfg(test)]
mod tests;

use crate::shared::Shared;
use axum::Router;
use axum::middleware;
use axum::routing::{get, post};
use std::sync::Arc;

const SESSION_PATH: &str = "/api/web/session";

pub fn router(shared: &Arc<Shared>) -> Router<Arc<Shared>> {
    let guarded = Router::new()
        .route(SESSION_PATH, get(session::who).delete(session::sign_out))
        .layer(middleware::from_fn_with_state(shared.clone(), guard::authenticate));
    Router::new()
        .route("/", get(assets::index))
        .route("/web/{file}", get(assets::file))
        .route(SESSION_PATH, post(session::sign_in))
        .merge(guarded)
        .layer(middleware::from_fn(guard::secure))
}

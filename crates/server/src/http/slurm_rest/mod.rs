//! slurmrestd's API, v0.0.38 and v0.0.40 to v0.0.42, over the same calls as the commands'. What a version writes otherwise is data
//! (`slurm::openapi`): the paths and what they do are the same in all of them.
//!
//! - `client`: who asks in which version, and the forms of answers and refusals; `query`: what stands behind a path's question mark
//! - `jobs`: jobs that are listed, submitted, changed and cancelled
//! - `controller`: nodes, partitions, reservations, counters; `database`: accounts and the books

mod client;
mod controller;
mod database;
mod jobs;
mod query;
#[cfg(test)]
mod tests;

use crate::http::answer::refused;
use crate::http::authenticate;
use crate::http::body_limits::{self, BodyLimits};
use crate::shared::Shared;
use axum::extract::Request;
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use model::principal::Principal;
use slurm::openapi::Version;
use std::sync::Arc;

const USER_NAME: &str = "x-slurm-user-name";
const USER_TOKEN: &str = "x-slurm-user-token";

/// Makes what answers a path.
type Handler = fn() -> MethodRouter<Arc<Shared>>;

/// The paths of every version: what stands before the version, what stands behind it, and what answers. Not formatted by rustfmt: a
/// row is one line.
#[rustfmt::skip]
const ROUTES: &[(&str, &str, Handler)] = &[
    ("slurm",   "ping",               || get(controller::ping)),
    ("slurm",   "diag",               || get(controller::diagnostics)),
    ("slurm",   "jobs",               || get(jobs::all)),
    ("slurm",   "job/submit",         || post(jobs::submit)),
    ("slurm",   "job/{job}",          || get(jobs::one).post(jobs::update).delete(jobs::cancel)),
    ("slurm",   "nodes",              || get(controller::nodes)),
    ("slurm",   "node/{node}",        || get(controller::node)),
    ("slurm",   "partitions",         || get(controller::partitions)),
    ("slurm",   "partition/{name}",   || get(controller::partition)),
    ("slurm",   "reservations",       || get(controller::reservations)),
    ("slurm",   "reservation/{name}", || get(controller::reservation)),
    ("slurmdb", "config",             || get(database::configuration)),
    ("slurmdb", "jobs",               || get(database::jobs)),
    ("slurmdb", "job/{job}",          || get(database::job)),
    ("slurmdb", "{list}",             || get(database::list)),
    ("slurmdb", "{list}/{name}",      || get(database::one)),
];

pub fn router(shared: &Arc<Shared>, bodies: &BodyLimits) -> Router<Arc<Shared>> {
    let versions = Version::ALL.into_iter().map(of_version);
    versions
        .fold(Router::new(), Router::merge)
        .layer(middleware::from_fn_with_state(bodies.clone(), body_limits::read_whole))
        .layer(middleware::from_fn(check_name))
        .layer(middleware::from_fn_with_state(shared.clone(), authenticate::authenticate))
        .layer(middleware::from_fn(take_token))
}

fn of_version(version: Version) -> Router<Arc<Shared>> {
    let add = |router: Router<Arc<Shared>>, (part, path, handler): &(&str, &str, Handler)| {
        let path = format!("/{part}/{}/{path}", version.name());
        // Later versions end the paths of lists with a slash.
        router.route(&format!("{path}/"), handler()).route(&path, handler())
    };
    ROUTES.iter().fold(Router::new(), add).layer(Extension(version))
}

/// Middleware: the token in Slurm's header is that of the request.
async fn take_token(mut request: Request, next: Next) -> Response {
    let token = request.headers().get(USER_TOKEN).and_then(|value| value.to_str().ok());
    let bearer = token.and_then(|token| HeaderValue::from_str(&format!("Bearer {token}")).ok());
    if let Some(bearer) = bearer {
        request.headers_mut().insert(header::AUTHORIZATION, bearer);
    }
    next.run(request).await
}

/// Middleware: a name in Slurm's header must be the token's user. Nobody is taken for another by it.
async fn check_name(Extension(by): Extension<Principal>, request: Request, next: Next) -> Response {
    let name = request.headers().get(USER_NAME).and_then(|value| value.to_str().ok());
    if name.is_some_and(|name| name != by.name) {
        let text = format!("{USER_NAME}: the token is for user {}", by.name);
        return refused(StatusCode::UNAUTHORIZED, &text);
    }
    next.run(request).await
}

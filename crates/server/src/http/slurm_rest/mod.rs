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

use crate::auth::{json_web_token, principal};
use crate::clock;
use crate::http::answer::refused;
use crate::http::authenticate::{self, Caller};
use crate::http::body_limits::{self, BodyLimits};
use crate::shared::Shared;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use cluster::token::UserToken;
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
    ("slurm",   "jobs",               || get(jobs::all).delete(jobs::cancel_many)),
    ("slurm",   "job/submit",         || post(jobs::submit)),
    ("slurm",   "job/{job}",          || get(jobs::one).post(jobs::update).delete(jobs::cancel)),
    ("slurm",   "nodes",              || get(controller::nodes)),
    ("slurm",   "node/{node}",        || get(controller::node).post(controller::update_node)),
    ("slurm",   "partitions",         || get(controller::partitions)),
    ("slurm",   "partition/{name}",   || get(controller::partition)),
    ("slurm",   "reservations",       || get(controller::reservations)),
    ("slurm",   "reservation/{name}", || get(controller::reservation)),
    ("slurmdb", "config",             || get(database::configuration)),
    ("slurmdb", "jobs",               || get(database::jobs)),
    ("slurmdb", "job/{job}",          || get(database::job)),
    ("slurmdb", "{list}",             || get(database::list).post(database::change).delete(database::remove_association)),
    ("slurmdb", "{list}/{name}",      || get(database::one).delete(database::remove)),
];

pub fn router(shared: &Arc<Shared>, bodies: &BodyLimits) -> Router<Arc<Shared>> {
    let versions = Version::ALL.into_iter().map(of_version);
    versions
        .fold(Router::new(), Router::merge)
        .layer(middleware::from_fn_with_state(bodies.clone(), body_limits::read_whole))
        .layer(middleware::from_fn(check_name))
        .layer(middleware::from_fn_with_state(shared.clone(), identify))
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

/// Middleware: puts the principal into the request's extensions, or refuses the request.
async fn identify(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    match authenticate::caller_by(&shared, &request, of_token) {
        Caller::Known(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        other => authenticate::refusal(other),
    }
}

/// Whom a token stands for. JSON Web Tokens are taken at these paths alone, where the site has `AuthAltTypes=auth/jwt`; ours have no
/// dots.
fn of_token(shared: &Shared, token: &str, is_loopback: bool) -> Result<Principal, &'static str> {
    let place = shared.read().config.jwt_key.clone();
    let Some(place) = place.filter(|_| token.contains('.')) else {
        return authenticate::of_token(shared, token, is_loopback);
    };
    let key = json_web_token::key(&place, &shared.setup.server_dir).map_err(|error| {
        authenticate::log_unusable(shared, "no JSON Web Token is taken", &error);
        "JSON Web Tokens are not taken now: the server's log says why"
    })?;
    let user = json_web_token::verify(&key, token, clock::now()).map_err(|why| why.text())?;
    let known = UserToken { name: user, ..UserToken::default() };
    let known = principal::of_token(&known, |name| shared.volatile.token_accounts.find(name));
    let known = known.filter(|who| !authenticate::is_inactive(shared, &who.name));
    known.ok_or("this token's user is not known here")
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

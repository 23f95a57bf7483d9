//! slurmrestd's API, v0.0.38 and v0.0.40 to v0.0.42, over the same calls as the commands'. What a version writes otherwise is data
//! (`slurm::openapi`): the paths and what they do are the same in all of them.
//!
//! - `client`: who asks in which version, and the forms of answers and refusals; `query`: what stands behind a path's question mark
//! - `jobs`: jobs that are listed, submitted, changed and cancelled
//! - `controller`: nodes, partitions, reservations, shares, counters
//! - `database`: accounts and the books; `list_query`, `history_query`: how they are narrowed

mod client;
mod controller;
mod database;
mod history_query;
mod jobs;
mod list_query;
mod query;
#[cfg(test)]
mod tests;

use crate::auth::{json_web_token, principal};
use crate::clock;
use crate::http::answer::refused;
use crate::http::authenticate::{self, Caller};
use crate::http::body_limits::{self, BodyLimits};
use crate::http::peer::Peer;
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
use tokio::task::spawn_blocking;

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
    ("slurm",   "reconfigure",        || get(controller::reconfigure)),
    ("slurm",   "shares",             || get(controller::shares)),
    ("slurm",   "jobs",               || get(jobs::all).delete(jobs::cancel_many)),
    ("slurm",   "jobs/state",         || get(jobs::states)),
    ("slurm",   "job/submit",         || post(jobs::submit)),
    ("slurm",   "job/allocate",       || post(jobs::allocate)),
    ("slurm",   "job/{job}",          || get(jobs::one).post(jobs::update).delete(jobs::cancel)),
    ("slurm",   "nodes",              || get(controller::nodes).post(controller::update_nodes)),
    ("slurm",   "node/{node}",        || get(controller::node).post(controller::update_node).delete(controller::delete_node)),
    ("slurm",   "partitions",         || get(controller::partitions)),
    ("slurm",   "partition/{name}",   || get(controller::partition)),
    ("slurm",   "reservations",       || get(controller::reservations)),
    ("slurm",   "reservation/{name}", || get(controller::reservation)),
    ("slurm",   "licenses",           || get(controller::licenses)),
    ("slurmdb", "ping",               || get(database::ping)),
    ("slurmdb", "diag",               || get(database::diagnostics)),
    ("slurmdb", "config",             || get(database::configuration).post(database::configure)),
    ("slurmdb", "instances",          || get(database::instances)),
    ("slurmdb", "instance",           || get(database::instances)),
    ("slurmdb", "users_association",    || post(database::add_users)),
    ("slurmdb", "accounts_association", || post(database::add_accounts)),
    ("slurmdb", "jobs",               || get(database::jobs)),
    ("slurmdb", "job/{job}",          || get(database::job)),
    ("slurmdb", "{list}",             || get(database::list).post(database::change).delete(database::remove_associations)),
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

/// Middleware: puts the principal into the request's extensions, or refuses the request. The user directory and the file of the key
/// may be slow: both are asked on other threads, before anybody is judged by them.
async fn identify(State(shared): State<Arc<Shared>>, mut request: Request, next: Next) -> Response {
    let is_port = matches!(request.extensions().get::<Peer>(), Some(Peer::Port { .. }));
    let token = authenticate::bearer(&request).filter(|_| is_port).map(str::to_owned);
    // The token of Slurm's header was not there yet when all others were looked up.
    let presented = authenticate::presented_token(&shared, &request);
    let user = match token {
        Some(token) => web_token_user(&shared, token).await,
        None => None,
    };
    match (&user, presented) {
        (Some(Ok(name)), _) if name != principal::ROOT => {
            shared.volatile.token_accounts.prepare(name).await;
        }
        (None, Some((hash, is_loopback))) => {
            authenticate::prepare_account(&shared, &hash, is_loopback).await;
        }
        _ => {}
    }
    let read = |shared: &Shared, token: &str, is_loopback: bool| match user {
        Some(user) => of_user(shared, user?),
        None => authenticate::of_token(shared, token, is_loopback),
    };
    match authenticate::caller_by(&shared, &request, read) {
        Caller::Known(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        other => authenticate::refusal(other),
    }
}

/// The user whom a JSON Web Token names, or why it is not taken; `None` for tokens of ours, which have no dots. JSON Web Tokens are
/// taken at these paths alone, where the site has `AuthAltTypes=auth/jwt`.
async fn web_token_user(
    shared: &Arc<Shared>,
    token: String,
) -> Option<Result<String, &'static str>> {
    let place = shared.read().config.jwt_key.clone();
    let place = place.filter(|_| token.contains('.'))?;
    let reader = shared.clone();
    let verified = spawn_blocking(move || {
        let key = json_web_token::key(&place, &reader.key_files).map_err(|error| {
            authenticate::log_unusable(&reader, "no JSON Web Token is taken", &error);
            KEY_UNUSABLE
        })?;
        json_web_token::verify(&key, &token, clock::now()).map_err(|why| why.text())
    });
    Some(verified.await.unwrap_or(Err(KEY_UNUSABLE)))
}

const KEY_UNUSABLE: &str = "JSON Web Tokens are not taken now: the server's log says why";

/// The user whom a JSON Web Token names, as the user directory was found to know him.
fn of_user(shared: &Shared, name: String) -> Result<Principal, &'static str> {
    let known = UserToken { name, ..UserToken::default() };
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

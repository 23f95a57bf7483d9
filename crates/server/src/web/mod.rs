//! The server's own web page at `/`, and its API at `/api/web/`: another form of the same calls, with no policy of its own.
//!
//! - `assets`: the files of the page; `guard`: who asks, and the headers of every answer; `answer`: the form of answers
//! - `session`: signing in and out; `oidc`: signing in at the site's identity provider; `job_pages`: browsers that show pages of jobs too
//! - `ask`: the calls; `call`: any of them; `job_rows` (the queue), `history` (ended jobs), `job` (`job/booked`: out of the books) with `job_name`, `explanation`, `job_end`, `attempts` and `array_tasks`, `nodes`, `timeline`, `usage`, `load`, `lists`, `logs`: what is shown and changed by them
//! - `submit`: jobs that are pasted into the page; `shell`: a terminal in a job; `openapi`: the description of the API
//! - `events`: tells pages that are open what changed

mod answer;
#[cfg(test)]
mod api_tests;
mod array_tasks;
mod ask;
mod assets;
mod attempts;
mod call;
mod events;
mod explanation;
mod guard;
mod history;
mod job;
mod job_end;
mod job_name;
mod job_pages;
mod job_rows;
#[cfg(test)]
mod job_tests;
mod lists;
mod load;
mod logs;
mod nodes;
mod oidc;
mod openapi;
mod session;
mod shell;
mod submit;
#[cfg(test)]
mod tests;
mod timeline;
mod usage;

use crate::http::body_limits::{self, BodyLimits};
use crate::shared::Shared;
use answer::WebRefusal;
use axum::Router;
use axum::http::StatusCode;
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use std::sync::Arc;

const SESSION_PATH: &str = "/api/web/session";
const CHECK_PATH: &str = "/api/web/check";
const CALL_PATH: &str = "/api/web/call";

/// Makes what answers a route.
type Handler = fn() -> MethodRouter<Arc<Shared>>;

/// Every route that needs a session, or a token.
const ROUTES: &[(&str, Handler)] = &[
    (SESSION_PATH, || get(session::who).delete(session::sign_out)),
    ("/api/web/jobs", || get(job_rows::rows)),
    ("/api/web/history", || get(history::history)),
    ("/api/web/jobs/{job}", || get(job::show)),
    ("/api/web/jobs/{job}/usage", || get(job::usage)),
    ("/api/web/jobs/{job}/script", || get(job::script)),
    ("/api/web/jobs/{job}/attempts", || get(attempts::attempts)),
    ("/api/web/jobs/{job}/tasks", || get(array_tasks::tasks)),
    ("/api/web/jobs/{job}/shell", || post(shell::ticket)),
    ("/api/web/jobs/{job}/{change}", || post(job::change)),
    ("/api/web/logs", || get(logs::logs)),
    ("/api/web/nodes", || get(nodes::nodes)),
    ("/api/web/load", || get(load::load)),
    ("/api/web/timeline", || get(timeline::timeline)),
    ("/api/web/usage", || get(usage::usage)),
    ("/api/web/lists/{list}", || get(lists::list)),
    (CHECK_PATH, || post(submit::check)),
    ("/api/web/submit", || post(submit::submit)),
    (CALL_PATH, || post(call::call)),
];

/// The answer to a path of this API that there is not, or to a method that one does not have; `None` for paths of others.
pub fn unknown_route(status: StatusCode, path: &str) -> Option<Response> {
    let refusal = || WebRefusal::new(status, format!("{path}: {status}")).into_response();
    path.starts_with("/api/web/").then(refusal)
}

pub fn router(shared: &Arc<Shared>, bodies: &BodyLimits) -> Router<Arc<Shared>> {
    let add = |router: Router<Arc<Shared>>, (path, handler): &(&str, Handler)| {
        router.route(path, handler())
    };
    let whole = ROUTES.iter().fold(Router::new(), add);
    let guarded = whole
        .layer(middleware::from_fn_with_state(bodies.clone(), body_limits::read_whole))
        // A stream has no end that could be waited for.
        .route("/api/web/events", get(events::events))
        .route("/api/web/shell", get(shell::open))
        .layer(middleware::from_fn_with_state(shared.clone(), guard::authenticate))
        .layer(middleware::from_fn(answer::refusals_as_json));
    Router::new()
        .route("/", get(assets::index))
        .route("/shell", get(assets::shell))
        .route("/openapi.json", get(openapi::document))
        .route("/web/{version}/{file}", get(assets::file))
        .route(SESSION_PATH, post(session::sign_in))
        .merge(oidc::router())
        .merge(guarded)
        .layer(middleware::from_fn(guard::secure))
}

//! What a standby answers itself, each with its state's age, and what it passes on: everything else.

use super::Standby;
use super::pass_on::pass_on;
use crate::http::authenticate::{self, Caller};
use crate::http::body_limits::{self, BodyLimits, HeldRequest};
use crate::http::call::{call, read_call};
use crate::http::{dstack, metrics};
use axum::body::{Body, to_bytes};
use axum::extract::{DefaultBodyLimit, Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use model::principal::Principal;
use std::sync::Arc;
use wire::client::{CALL_PATH, REQUEST_BYTES_MAX};

/// dstack's lists, by the ends of their paths.
const DSTACK_LISTS: [&str; 8] = [
    "/fleets/list",
    "/fleets/get",
    "/instances/list",
    "/projects/list",
    "/events/list",
    "/users/list",
    "/volumes/list",
    "/volumes/get",
];

/// The same of what shows runs: of some of them the leader alone knows all.
const DSTACK_RUNS: [&str; 2] = ["/runs/list", "/runs/get"];

/// Which runs are asked for is said in fewer bytes than these. They are held twice while the answer is made, and count once: the
/// number of connections, and of requests on each, bounds the others.
const RUNS_QUESTION_BYTES_MAX: usize = 16 << 10;

/// Everything that comes to a standby. `lists` is answered from its state.
#[derive(Clone)]
struct Site {
    standby: Arc<Standby>,
    lists: Router,
    bodies: BodyLimits,
}

pub fn router(standby: &Arc<Standby>, bodies: &BodyLimits) -> Router {
    let shared = &standby.shared;
    let lists = dstack::router(shared, bodies)
        .route(metrics::PATH, get(metrics::metrics))
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .with_state(shared.clone());
    let site = Site { standby: standby.clone(), lists, bodies: bodies.clone() };
    let read = middleware::from_fn_with_state(bodies.clone(), body_limits::read_whole);
    // The user directory may be slow: no thread that answers others waits for it.
    let account = middleware::from_fn_with_state(shared.clone(), authenticate::look_up_account);
    let identify = middleware::from_fn_with_state(site.clone(), known_or_passed_on);
    Router::new()
        .route(CALL_PATH, post(call_or_pass_on).layer(read).layer(identify))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(list_or_pass_on)
        .layer(DefaultBodyLimit::max(REQUEST_BYTES_MAX))
        .layer(account)
        .with_state(site)
}

/// Who is not known here may be known to the leader, whose state is newer. A state that is too old says nothing of who asks.
async fn known_or_passed_on(
    State(site): State<Site>,
    mut request: Request,
    next: Next,
) -> Response {
    let caller = authenticate::caller(&site.standby.shared, &request);
    // The leader would say the same.
    if matches!(caller, Caller::NoToken) {
        return authenticate::refusal(caller);
    }
    if site.standby.freshness.is_too_old() {
        return pass_on(&site.standby, request).await;
    }
    match caller {
        Caller::Known(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        _ => pass_on(&site.standby, request).await,
    }
}

async fn call_or_pass_on(State(site): State<Site>, request: Request) -> Response {
    let (parts, body) = request.into_parts();
    // It was read whole, within its bounds.
    let Ok(body) = to_bytes(body, REQUEST_BYTES_MAX).await else {
        return StatusCode::BAD_REQUEST.into_response();
    };
    let known = parts.extensions.get::<Principal>().cloned();
    let held = parts.extensions.get::<HeldRequest>().cloned();
    // A body may have taken long to come.
    let is_own = !site.standby.freshness.is_too_old()
        && read_call(&body).is_ok_and(|envelope| envelope.call.is_answered_by_standby());
    match (known, held) {
        (Some(by), Some(held)) if is_own => {
            site.standby.freshness.await_passed().await;
            let (shared, headers) = (State(site.standby.shared.clone()), parts.headers);
            let answer = call(shared, Extension(by), Extension(held), headers, body).await;
            site.standby.freshness.stamp(answer)
        }
        _ => pass_on(&site.standby, Request::from_parts(parts, Body::from(body))).await,
    }
}

async fn list_or_pass_on(State(site): State<Site>, request: Request) -> Response {
    let path = request.uri().path();
    if is_of_dstack(path, &DSTACK_RUNS) {
        show_runs_or_pass_on(&site, request).await
    } else if is_of_dstack(path, &DSTACK_LISTS) || path == metrics::PATH {
        list(&site, request).await
    } else {
        pass_on(&site.standby, request).await
    }
}

/// Shows runs, or passes the question on where one of them is not known here as the leader knows it.
async fn show_runs_or_pass_on(site: &Site, request: Request) -> Response {
    let Caller::Known(by) = authenticate::caller(&site.standby.shared, &request) else {
        // Nothing is kept of it: it is refused, or passed on.
        return list(site, request).await;
    };
    let (parts, body) = request.into_parts();
    let (body, held) = match site.bodies.read(&by, body).await {
        Ok(read) => read,
        Err(refusal) => return *refusal,
    };
    let question = || Request::from_parts(parts.clone(), Body::from(body.clone()));
    if body.len() <= RUNS_QUESTION_BYTES_MAX {
        // The list counts it anew: nobody waits for more of the common amount while he holds some of it.
        drop(held);
        let answer = list(site, question()).await;
        if answer.status() != StatusCode::MISDIRECTED_REQUEST {
            return answer;
        }
    }
    pass_on(&site.standby, question()).await
}

/// Answers from the state of this server, or passes on what may not be answered from it.
async fn list(site: &Site, request: Request) -> Response {
    if site.standby.freshness.is_too_old() {
        return pass_on(&site.standby, request).await;
    }
    // A token that is not known here may be to the leader.
    if matches!(authenticate::caller(&site.standby.shared, &request), Caller::WrongToken(_)) {
        return pass_on(&site.standby, request).await;
    }
    site.standby.freshness.await_passed().await;
    let mut lists = site.lists.clone();
    let answer = tower_service::Service::call(&mut lists, request).await;
    let answer = answer.unwrap_or_else(|never| match never {});
    site.standby.freshness.stamp(answer)
}

/// Whether this is a path of dstack's API with one of these ends.
fn is_of_dstack(path: &str, ends: &[&str]) -> bool {
    path.starts_with("/api/") && ends.iter().any(|end| path.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_looks_is_told_from_what_changes() {
        for (path, is_list, is_of_runs) in [
            ("/api/project/main/fleets/list", true, false),
            ("/api/projects/list", true, false),
            ("/api/project/main/volumes/list", true, false),
            ("/api/runs/list", false, true),
            ("/api/project/main/runs/get", false, true),
            ("/api/project/main/runs/get_plan", false, false),
            ("/api/project/main/runs/stop", false, false),
            ("/api/project/main/fleets/delete", false, false),
            ("/services/fleets/list", false, false),
            ("/services/main/runs/list", false, false),
        ] {
            assert_eq!(is_of_dstack(path, &DSTACK_LISTS), is_list, "{path}");
            assert_eq!(is_of_dstack(path, &DSTACK_RUNS), is_of_runs, "{path}");
        }
    }
}

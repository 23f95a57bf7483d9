//! dstack's HTTP API, as its published client speaks it: another language over the same calls, with no policy of its own.
//!
//! `answer` is the form of answers and `multipart` that of uploads, `client_version` refuses clients that are too new, `user` and `project` have users and projects, `file` and
//! `repo` what runs bring along, `run` the runs
//! (`run_request` from a configuration to a submission, `run_body` back, `run_bodies` those that were listed, `job_room` how many jobs an answer repeats), `fleet` the nodes, `event` what happened, `log` the
//! kept logs, `metric` what runs use, `secret` the secrets, `backend` the sources of machines, `unavailable` what is not there. `pasted_run` reads what is pasted into the web page.

mod answer;
mod backend;
#[cfg(test)]
mod backend_tests;
mod client_version;
#[cfg(test)]
mod error_tests;
mod event;
#[cfg(test)]
mod event_tests;
mod file;
mod fleet;
mod fleet_plan;
mod gateway;
#[cfg(test)]
mod group_tests;
mod job_room;
pub mod kept_spec;
mod log;
mod machines;
mod metric;
mod multipart;
pub mod pasted_run;
mod project;
#[cfg(test)]
mod replay_tests;
mod repo;
#[cfg(test)]
mod rights_tests;
mod run;
mod run_bodies;
mod run_body;
mod run_facts;
mod run_list;
mod run_request;
mod secret;
#[cfg(test)]
mod service_tests;
#[cfg(test)]
mod tests;
mod unavailable;
#[cfg(test)]
mod upload_tests;
mod user;
mod volume;

use crate::http::authenticate::{self, Caller};
use crate::http::body_limits::{self, BodyLimits};
use crate::shared::Shared;
use crate::shared::failed_sign_ins::FailedSignIn;
use answer::{Json, Refused};
use axum::extract::{RawPathParams, Request, State};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use axum::{Extension, Router};
use backend::Change;
use dstack::api::error::ApiError;
use dstack::api::project::ServerInfo;
use model::principal::Principal;
use run_bodies::RunBodies;
use serde_json::json;
use std::sync::Arc;

/// The version of dstack whose API this is.
const DSTACK_VERSION: &str = "0.22.5";

/// Makes what answers a route.
type Handler = fn() -> MethodRouter<Arc<Shared>>;

/// Every route that needs a token.
const ROUTES: &[(&str, Handler)] = &[
    ("/api/users/get_my_user", || post(user::my_user)),
    ("/api/users/list", || post(user::list)),
    ("/api/users/get_user", || post(user::get)),
    ("/api/users/create", || post(user::create)),
    ("/api/users/update", || post(user::update)),
    ("/api/users/delete", || post(user::delete)),
    ("/api/users/refresh_token", || post(user::refresh_token)),
    ("/api/users/refresh_ssh_key", || post(user::refresh_ssh_key)),
    ("/api/projects/list", || post(project::list)),
    ("/api/projects/create", || post(project::create)),
    ("/api/projects/delete", || post(project::delete)),
    ("/api/projects/{project}/get", || post(project::get)),
    ("/api/projects/{project}/update", || post(project::update)),
    ("/api/projects/{project}/set_members", || post(project::set_members)),
    ("/api/projects/{project}/add_members", || post(project::add_members)),
    ("/api/projects/{project}/remove_members", || post(project::remove_members)),
    ("/api/backends/list_types", || post(backend::list_types)),
    ("/api/project/{project}/backends/create", || {
        post(backend::change).layer(Extension(Change::Create))
    }),
    ("/api/project/{project}/backends/update", || {
        post(backend::change).layer(Extension(Change::Update))
    }),
    ("/api/project/{project}/backends/delete", || post(backend::delete)),
    ("/api/project/{project}/backends/create_yaml", || {
        post(backend::change_yaml).layer(Extension(Change::Create))
    }),
    ("/api/project/{project}/backends/update_yaml", || {
        post(backend::change_yaml).layer(Extension(Change::Update))
    }),
    ("/api/project/{project}/backends/{backend}/config_info", || post(backend::config_info)),
    ("/api/project/{project}/backends/{backend}/get_yaml", || post(backend::get_yaml)),
    ("/api/files/upload_archive", || post(file::upload_archive)),
    ("/api/files/get_archive_by_hash", || post(file::get_archive_by_hash)),
    ("/api/project/{project}/repos/init", || post(repo::init)),
    ("/api/project/{project}/repos/get", || post(repo::get)),
    ("/api/project/{project}/repos/upload_code", || post(repo::upload_code)),
    ("/api/project/{project}/repos/delete", || post(repo::delete)),
    ("/api/project/{project}/repos/list", || post(repo::list)),
    ("/api/runs/list", || post(run::list)),
    ("/api/project/{project}/runs/get", || post(run::get)),
    ("/api/project/{project}/runs/get_plan", || post(run::plan)),
    ("/api/project/{project}/runs/apply", || post(run::apply)),
    ("/api/project/{project}/runs/stop", || post(run::stop)),
    ("/api/project/{project}/runs/delete", || post(run::delete)),
    ("/api/project/{project}/gpus/list", || post(run::gpus)),
    ("/api/project/{project}/logs/poll", || post(log::poll)),
    ("/api/project/{project}/metrics/job/{run}", || get(metric::job)),
    ("/api/events/list", || post(event::list)),
    ("/api/project/{project}/secrets/list", || post(secret::list)),
    ("/api/project/{project}/secrets/get", || post(secret::get)),
    ("/api/project/{project}/secrets/create_or_update", || post(secret::create_or_update)),
    ("/api/project/{project}/secrets/delete", || post(secret::delete)),
    ("/api/fleets/list", || post(fleet::list)),
    ("/api/project/{project}/fleets/list", || post(fleet::list)),
    ("/api/project/{project}/fleets/get", || post(fleet::get)),
    ("/api/instances/list", || post(fleet::instances)),
    ("/api/volumes/list", || post(volume::list_all)),
    ("/api/project/{project}/volumes/list", || post(volume::list)),
    ("/api/project/{project}/fleets/get_plan", || post(fleet_plan::plan)),
    ("/api/project/{project}/fleets/apply", || post(fleet_plan::apply)),
    ("/api/project/{project}/fleets/delete", || post(fleet_plan::delete)),
    ("/api/project/{project}/fleets/delete_instances", || post(fleet_plan::delete_instances)),
    ("/api/project/{project}/instances/get", || post(fleet::get_instance)),
    ("/api/project/{project}/instances/get_instance_health_checks", || post(fleet::health_checks)),
    ("/api/project/{project}/volumes/get", || post(volume::get)),
    ("/api/project/{project}/volumes/create", || post(volume::create)),
    ("/api/project/{project}/volumes/delete", || post(volume::delete)),
    ("/api/project/{project}/gateways/list", || post(gateway::list)),
    ("/api/project/{project}/gateways/get", || post(gateway::get)),
    ("/api/project/{project}/gateways/get_plan", || post(gateway::plan)),
    ("/api/project/{project}/gateways/apply", || post(gateway::apply)),
    ("/api/project/{project}/gateways/create", || post(gateway::create)),
    ("/api/project/{project}/gateways/delete", || post(gateway::delete)),
    ("/api/project/{project}/gateways/set_default", || post(gateway::set_default)),
    ("/api/project/{project}/templates/list", || post(nothing)),
    ("/api/projects/list_only_no_fleets", || post(nothing)),
    ("/api/users/public_keys/list", || post(nothing)),
];

pub use unavailable::unknown_route;

/// The paths of the routes that need a token, as they are declared: a part in braces stands for any.
pub fn paths() -> impl Iterator<Item = &'static str> {
    ROUTES.iter().map(|(path, _)| *path)
}

/// The same of those that are refused whatever is asked.
pub fn refused_paths() -> impl Iterator<Item = &'static str> {
    unavailable::REFUSED.iter().map(|(path, _)| *path)
}

pub fn router(shared: &Arc<Shared>, bodies: &BodyLimits) -> Router<Arc<Shared>> {
    let add = |router: Router<_>, (path, handler): &(&str, Handler)| router.route(path, handler());
    let refuse = |router: Router<_>, &(path, why): &(&str, &'static str)| {
        router.route(path, post(move || async move { Refused::because(why) }))
    };
    let routes = ROUTES.iter().fold(Router::new(), add);
    let routes = unavailable::REFUSED.iter().fold(routes, refuse);
    routes
        .route_layer(Extension(Arc::new(RunBodies::default())))
        .route_layer(middleware::from_fn_with_state(shared.clone(), in_project))
        .route_layer(middleware::from_fn(client_version::check))
        .route_layer(middleware::from_fn_with_state(bodies.clone(), body_limits::read_whole))
        .route_layer(middleware::from_fn_with_state(shared.clone(), authenticated))
        .route("/api/server/get_info", post(server_info))
        .route("/api/auth/list_providers", post(nothing))
        .route("/healthcheck", get(|| async { Json(json!({"status": "running"})) }))
}

/// The list of something that there is none of here.
async fn nothing() -> Json<[(); 0]> {
    Json([])
}

/// Lets in whom a token or the kernel names, or refuses as dstack's client expects it.
async fn authenticated(
    State(shared): State<Arc<Shared>>,
    mut request: Request,
    next: Next,
) -> Response {
    match authenticate::caller(&shared, &request) {
        Caller::Known(principal) => {
            request.extensions_mut().insert(principal);
            next.run(request).await
        }
        Caller::WrongToken(_) => {
            let mut response = Refused(ApiError::invalid_token()).into_response();
            response.extensions_mut().insert(FailedSignIn::default());
            response
        }
        Caller::NoToken => Refused(ApiError::not_authenticated()).into_response(),
        Caller::TooMany(who) => authenticate::too_many_connections(&who),
        Caller::NotVouched(why) => Refused(ApiError::denied(&why)).into_response(),
    }
}

async fn server_info() -> Json<ServerInfo> {
    Json(ServerInfo { server_version: Some(DSTACK_VERSION.to_owned()) })
}

/// A route below a project is for its members.
async fn in_project(
    State(shared): State<Arc<Shared>>,
    params: Result<RawPathParams, axum::extract::rejection::RawPathParamsRejection>,
    request: Request,
    next: Next,
) -> Response {
    let by = request.extensions().get::<Principal>().cloned();
    let params = params.ok();
    let mut params = params.iter().flatten();
    let named = params.find(|(name, _)| *name == project::PARAMETER);
    let checked = match (by, named) {
        (Some(by), Some((_, name))) => project::check_member(&shared, &by, name),
        (_, None) => Ok(()),
        (None, Some(_)) => Err(ApiError::not_authenticated().into()),
    };
    match checked {
        Ok(()) => next.run(request).await,
        Err(refused) => refused.into_response(),
    }
}

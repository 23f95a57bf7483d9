//! dstack's HTTP API, as its published client speaks it: another language over the same calls, with no policy of its own.
//!
//! `answer` is the form of answers, `account` has users and projects, `run` the runs (`run_request` from a configuration to a
//! submission, `run_body` back), `fleet` the nodes, `log` the kept logs, `metric` what runs use.

mod account;
mod answer;
mod fleet;
mod log;
mod metric;
mod run;
mod run_body;
mod run_request;

use crate::http::authenticate::{self, Caller};
use crate::shared::Shared;
use answer::{Json, Refused};
use axum::Router;
use axum::extract::{Request, State};
use axum::http::StatusCode;
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use dstack::api::error::ApiError;
use dstack::api::project::ServerInfo;
use model::fleet::MAIN_PROJECT;
use model::id::RunId;
use ring::digest::{SHA256, digest};
use serde_json::json;
use std::sync::Arc;

/// The version of dstack whose API this is.
const DSTACK_VERSION: &str = "0.22.5";

pub fn router(shared: &Arc<Shared>) -> Router<Arc<Shared>> {
    let nothing = || post(|| async { Json(json!([])) });
    Router::new()
        .route("/api/server/get_info", post(server_info))
        .route("/api/users/get_my_user", post(account::my_user))
        .route("/api/users/list", post(account::users))
        .route("/api/projects/list", post(account::projects))
        .route("/api/projects/{project}/get", post(account::project))
        .route("/api/backends/list_types", nothing())
        .route("/api/project/{project}/repos/init", post(account::init_repo))
        .route("/api/project/{project}/repos/list", nothing())
        .route("/api/runs/list", post(run::list))
        .route("/api/project/{project}/runs/get", post(run::get))
        .route("/api/project/{project}/runs/get_plan", post(run::plan))
        .route("/api/project/{project}/runs/apply", post(run::apply))
        .route("/api/project/{project}/runs/stop", post(run::stop))
        .route("/api/project/{project}/gpus/list", post(run::gpus))
        .route("/api/project/{project}/logs/poll", post(log::poll))
        .route("/api/project/{project}/metrics/job/{run}", get(metric::job))
        .route("/api/fleets/list", post(fleet::list))
        .route("/api/project/{project}/fleets/list", post(fleet::list))
        .route("/api/project/{project}/fleets/get", post(fleet::get))
        .route("/api/instances/list", post(fleet::instances))
        .route("/api/volumes/list", nothing())
        .route("/api/project/{project}/volumes/list", nothing())
        .route("/api/project/{project}/gateways/list", nothing())
        .route_layer(middleware::from_fn_with_state(shared.clone(), authenticated))
        .route("/healthcheck", get(|| async { Json(json!({"status": "running"})) }))
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
        Caller::WrongToken(_) => Refused(ApiError::invalid_token()).into_response(),
        Caller::NoToken => Refused(ApiError::not_authenticated()).into_response(),
        Caller::TooFar(why) => (StatusCode::FORBIDDEN, format!("{why}\n")).into_response(),
    }
}

async fn server_info() -> Json<ServerInfo> {
    Json(ServerInfo { server_version: Some(DSTACK_VERSION.to_owned()) })
}

/// There is one project.
fn check_project(name: &str) -> Result<(), Refused> {
    if name == MAIN_PROJECT { Ok(()) } else { Err(Refused(ApiError::no_such_project())) }
}

/// The id of something that has none of its own: a UUID made from its kind and its name, so that it stays the same.
fn uuid(kind: &str, name: &str) -> String {
    let digest = digest(&SHA256, format!("{kind}\0{name}").as_bytes());
    let bits: [u8; 16] = digest.as_ref()[..16].try_into().expect("a digest has 32 bytes");
    RunId::from_random(u128::from_be_bytes(bits)).to_string()
}

//! HTTP for clients: on the local socket, where the kernel says who asks, on the port, where a token does, and from the
//! sockets of nodes, which vouch for who asks.
//!
//! - Connections: `serve` (the socket), `clients_port`, `port_tls` (its certificate), `proxy_port`, `peer`, `drain`, `event_loops`, `gathered_write`, `stall_timeout`, `idle_http2`, `own_wakes`, `rare_event`, `body_limits`.
//! - Who asks: `authenticate`, `vouch`, `from_gateway`, `sign_in_limit` (how often that may fail). `browser` is what browsers send by themselves.
//! - Calls of commands: `route`, `call` (reads one), `carried_out` (to its end, also without its client), `call_bounds`, `named_fields`, `calls` (answers it), `counted_call`, `answer`, `await_job`, `limit_log`.
//!   Calls about one subject: `delete_run`, `fleets`, `gateways`, `machines`, `nodes`, `partition_bounds`, `secrets`, `ssh_keys`, `tokens`, `unknown_names`, `volumes`, `web_links`.
//! - Streams: `hold`, `logs`, `step_stream`, `backup`. `metrics` is for Prometheus.
//! - Other APIs: `dstack/`, and `slurm_rest/` for slurmrestd's. `refusal_form`: refusals in the form of one of them. `batch_script` reads scripts that come over HTTP; `html` is for small pages.

pub mod answer;
#[cfg(test)]
mod attack_tests;
pub mod authenticate;
pub mod await_job;
mod backends;
pub mod backends_file;
mod backup;
pub mod batch_script;
pub mod body_limits;
pub mod browser;
pub mod call;
pub mod call_bounds;
pub mod calls;
mod carried_out;
pub mod clients_port;
pub mod counted_call;
mod delete_run;
pub mod drain;
pub mod dstack;
pub mod event_loops;
mod fleets;
mod from_gateway;
mod gateways;
pub mod gathered_write;
pub mod hold;
pub mod html;
mod idle_http2;
mod limit_log;
pub mod logs;
mod machines;
pub mod metrics;
pub mod named_fields;
mod nodes;
pub mod own_wakes;
mod partition_bounds;
pub mod peer;
pub mod port_tls;
#[cfg(test)]
mod privacy_tests;
mod proxy_port;
pub mod rare_event;
pub mod refusal_form;
#[cfg(test)]
mod rights_tests;
pub mod route;
pub mod secrets;
pub mod serve;
pub mod sign_in_limit;
mod slurm_rest;
pub mod ssh_keys;
pub mod stall_timeout;
pub mod step_stream;
#[cfg(test)]
mod tests;
pub mod tokens;
pub mod trusted_proxy;
mod unknown_names;
pub mod volumes;
pub mod vouch;
mod web_links;

#[cfg(test)]
use crate::connection_limits::SERVICE_LIMITS;
use crate::connection_limits::ServiceLimits;
use crate::proxy;
use crate::proxy::service::models;
use crate::shared::Shared;
use crate::web;
use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{Method, StatusCode, Uri};
use axum::middleware;
use axum::response::Response;
use axum::routing::{any, get, post};
use body_limits::BodyLimits;
use proxy_port::ProxyPort;
use route::Route;
use std::sync::Arc;
use wire::client::REQUEST_BYTES_MAX;

/// What is served at each port.
pub struct Routers {
    /// Everything. Another API, dstack's for one, is a router of its own that is merged here.
    pub clients: Router,
    /// Services and web pages of jobs alone, at an origin of their own.
    pub proxy: Arc<ProxyPort>,
}

pub fn routers(shared: Arc<Shared>, bodies: BodyLimits, limits: ServiceLimits) -> Routers {
    let services = proxy::service::Services::new(&shared, limits);
    proxy::service::look_after(shared.clone(), &services);
    let passed_on = proxied(&shared, &bodies, services.clone());
    let own = passed_on.clone().fallback(proxy::unknown_path);
    let limit = DefaultBodyLimit::max(REQUEST_BYTES_MAX);
    let lead = middleware::from_fn_with_state(shared.clone(), proxy::origin::lead_to_own);
    let clients = clients(&shared, &bodies, passed_on.layer(lead));
    let account = middleware::from_fn_with_state(shared.clone(), authenticate::look_up_account);
    let sign_ins = middleware::from_fn_with_state(shared.clone(), sign_in_limit::hold);
    let passed_on_by = middleware::from_fn_with_state(shared.clone(), from_gateway::mark);
    let others = own
        .layer(limit)
        .layer(account.clone())
        .layer(sign_ins.clone())
        .layer(passed_on_by.clone())
        .with_state(shared.clone());
    Routers {
        clients: clients
            .layer(limit)
            .layer(account)
            .layer(sign_ins)
            .layer(passed_on_by)
            .with_state(shared.clone()),
        proxy: Arc::new(ProxyPort { shared, services, others }),
    }
}

#[cfg(test)]
pub fn router(shared: Arc<Shared>, bodies: BodyLimits) -> Router {
    routers(shared, bodies, SERVICE_LIMITS).clients
}

fn clients(
    shared: &Arc<Shared>,
    bodies: &BodyLimits,
    passed_on: Router<Arc<Shared>>,
) -> Router<Arc<Shared>> {
    native_api(bodies)
        .layer(middleware::from_fn_with_state(shared.clone(), authenticate::authenticate))
        .merge(dstack::router(shared, bodies))
        .route(metrics::PATH, get(metrics::metrics))
        .merge(passed_on)
        .merge(slurm_rest::router(shared, bodies))
        .merge(web::router(shared, bodies))
        .route("/healthz", get(|| async { "ok\n" }))
        .fallback(unknown_path)
        .method_not_allowed_fallback(unknown_method)
}

/// A path that nothing answers, refused in the form of the API that it begins like.
async fn unknown_path(method: Method, uri: Uri) -> Response {
    let of_web = web::unknown_route(StatusCode::NOT_FOUND, uri.path());
    of_web.unwrap_or_else(|| dstack::unknown_route(&method))
}

/// A method that a path does not have.
async fn unknown_method(method: Method, uri: Uri) -> Response {
    let of_web = web::unknown_route(StatusCode::METHOD_NOT_ALLOWED, uri.path());
    of_web.unwrap_or_else(|| dstack::unknown_route(&method))
}

/// What is passed on into jobs.
fn proxied(
    shared: &Arc<Shared>,
    bodies: &BodyLimits,
    services: Arc<proxy::service::Services>,
) -> Router<Arc<Shared>> {
    web_pages().merge(service_requests(shared, bodies, services))
}

/// Web pages of jobs.
fn web_pages() -> Router<Arc<Shared>> {
    let add = |router: Router<Arc<Shared>>, path| router.route(path, any(proxy::proxy));
    let routes = proxy::ROUTES.into_iter().fold(Router::new(), add);
    routes.layer(axum::Extension(Arc::<proxy::Forwarders>::default()))
}

/// Requests to services.
fn service_requests(
    shared: &Arc<Shared>,
    bodies: &BodyLimits,
    known: Arc<proxy::service::Services>,
) -> Router<Arc<Shared>> {
    let add = |router: Router<Arc<Shared>>, path| router.route(path, any(proxy::service::service));
    let list = |router: Router<Arc<Shared>>, path| router.route(path, get(models::list));
    let chat = |router: Router<Arc<Shared>>, path| router.route(path, post(models::chat));
    let routes = proxy::service::ROUTES.into_iter().fold(Router::new(), add);
    let lists = models::LIST_ROUTES.into_iter().fold(Router::new(), list);
    // They are read whole, to find the model that they name: their bytes count.
    let read = middleware::from_fn_with_state(bodies.clone(), body_limits::read_whole_request);
    let identify = middleware::from_fn_with_state(shared.clone(), authenticate::authenticate);
    let chats = models::CHAT_ROUTES.into_iter().fold(Router::new(), chat);
    let chats = chats.route_layer(read).route_layer(identify);
    let of_models = lists.merge(chats).route(models::OTHER_ROUTE, any(models::unknown_path));
    let of_models = of_models.layer(middleware::from_fn(models::refusals_as_json));
    routes.merge(of_models).layer(axum::Extension(known))
}

/// The API that Sluice's own commands use.
fn native_api(bodies: &BodyLimits) -> Router<Arc<Shared>> {
    let add = |router: Router<Arc<Shared>>, route: Route| {
        router.route(route.path(), route.handler(bodies))
    };
    Route::ALL.into_iter().fold(Router::new(), add)
}

//! A part of slurmrestd's API, v0.0.38: jobs and nodes, submit and cancel, over the same calls and with the objects of `--json`. A
//! token of ours stands where a JSON Web Token would: clients hand it on unread (`X-SLURM-USER-TOKEN`).

use crate::http::answer::refused;
use crate::http::authenticate;
use crate::http::batch_script::{self, BatchScript};
use crate::http::body_limits::{self, BodyLimits, HeldRequest};
use crate::http::{call_bounds, calls, counted_call};
use crate::shared::Shared;
use crate::shared::long_calls::LongWork;
use axum::body::Bytes;
use axum::extract::{Path, Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Extension, Router};
use model::change::{JobFilter, JobRef};
use model::id::JobId;
use model::principal::Principal;
use model::reason::Refusal;
use serde::Deserialize;
use serde_json::Value;
use slurm::openapi::{self, rest};
use slurm::request::Draft;
use slurm::words;
use std::sync::Arc;
use tokio::task::block_in_place;
use wire::client::{Answer, Call, Cancel, JobsQuery};
use wire::diagnostics::CallKind;
use wire::view::{ClusterView, JobView};

const USER_NAME: &str = "x-slurm-user-name";
const USER_TOKEN: &str = "x-slurm-user-token";

pub fn router(shared: &Arc<Shared>, bodies: &BodyLimits) -> Router<Arc<Shared>> {
    Router::new()
        .route("/slurm/v0.0.38/ping", get(ping))
        .route("/slurm/v0.0.38/jobs", get(jobs))
        .route("/slurm/v0.0.38/job/{job}", get(job).delete(cancel))
        .route("/slurm/v0.0.38/job/submit", post(submit))
        .route("/slurm/v0.0.38/nodes", get(nodes))
        .route("/slurm/v0.0.38/node/{node}", get(node))
        .layer(middleware::from_fn_with_state(bodies.clone(), body_limits::read_whole))
        .layer(middleware::from_fn(check_name))
        .layer(middleware::from_fn_with_state(shared.clone(), authenticate::authenticate))
        .layer(middleware::from_fn(take_token))
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

fn document(value: &Value) -> Response {
    ([(header::CONTENT_TYPE, "application/json")], value.to_string()).into_response()
}

fn refusal(why: &Refusal) -> Response {
    let status = match why {
        Refusal::AccessDenied => StatusCode::FORBIDDEN,
        Refusal::UnknownJob(_) | Refusal::UnknownNode(_) => StatusCode::NOT_FOUND,
        _ => StatusCode::BAD_REQUEST,
    };
    let number = words::refusal::slurm_error(why).map_or(0, |error| error.number);
    (status, document(&rest::refused(&words::refusal::text(why), number))).into_response()
}

fn bad(text: &str) -> Response {
    (StatusCode::BAD_REQUEST, document(&rest::refused(text, 0))).into_response()
}

async fn ping(State(shared): State<Arc<Shared>>) -> Response {
    document(&rest::ping(&shared.setup.hostname))
}

async fn jobs(State(shared): State<Arc<Shared>>, Extension(by): Extension<Principal>) -> Response {
    let _timer = shared.volatile.counters.begin_call(CallKind::Jobs, &by);
    // All of them are looked through and written: that is as much work as a plan.
    match calls::begin_long(&shared, &by, LongWork::Plan).await {
        Ok(_long) => listed(&shared, &by, Vec::new()),
        Err(why) => refusal(&why),
    }
}

async fn job(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(id): Path<u32>,
) -> Response {
    let _timer = shared.volatile.counters.begin_call(CallKind::OneJob, &by);
    listed(&shared, &by, vec![JobRef::whole(JobId(id))])
}

/// All jobs that are in memory, or those named.
fn listed(shared: &Shared, by: &Principal, jobs: Vec<JobRef>) -> Response {
    let filter = JobFilter { jobs, all_states: true, ..JobFilter::default() };
    let wanted = JobsQuery { filter, ..JobsQuery::default() };
    match calls::jobs(shared, by, &wanted, |_| ()) {
        Ok(views) => block_in_place(|| jobs_document(shared, &views)),
        Err(why) => refusal(&why),
    }
}

fn jobs_document(shared: &Shared, views: &[JobView]) -> Response {
    let cluster = shared.read().config.name.clone();
    let mut out = Vec::new();
    written(openapi::jobs(&mut out, &cluster, views), out)
}

fn written(result: std::io::Result<()>, out: Vec<u8>) -> Response {
    match result {
        Ok(()) => ([(header::CONTENT_TYPE, "application/json")], out).into_response(),
        Err(error) => refused(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

async fn nodes(State(shared): State<Arc<Shared>>, Extension(by): Extension<Principal>) -> Response {
    match cluster(&shared, &by).await {
        Ok(view) => nodes_document(&view),
        Err(why) => refusal(&why),
    }
}

async fn node(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(name): Path<String>,
) -> Response {
    match cluster(&shared, &by).await {
        Ok(mut view) => {
            view.nodes.retain(|node| node.config.name == name);
            if view.nodes.is_empty() {
                return refusal(&Refusal::UnknownNode(name));
            }
            nodes_document(&view)
        }
        Err(why) => refusal(&why),
    }
}

async fn cluster(shared: &Arc<Shared>, by: &Principal) -> Result<ClusterView, Refusal> {
    match counted_call::answer(shared, by, None, Call::Cluster).await? {
        Answer::Cluster(view) => Ok(view),
        other => Err(Refusal::Other(format!("a question was answered with {other:?}"))),
    }
}

fn nodes_document(view: &ClusterView) -> Response {
    let mut out = Vec::new();
    written(openapi::nodes(&mut out, view), out)
}

#[derive(Deserialize)]
struct Submit {
    script: String,
    #[serde(default)]
    job: Value,
}

async fn submit(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Extension(held): Extension<HeldRequest>,
    body: Bytes,
) -> Response {
    if let Err(why) = call_bounds::check(&body) {
        return refusal(&why);
    }
    let wanted: Submit = match serde_json::from_slice(&body) {
        Ok(wanted) => wanted,
        Err(error) => return bad(&format!("the request cannot be read: {error}")),
    };
    let read = || -> Result<Draft, String> {
        let options = rest::options(&wanted.job)?;
        let variables = rest::environment(&wanted.job)?;
        let script = BatchScript { script: &wanted.script, options, variables };
        let draft = batch_script::read(&script, &by, &shared.setup.hostname);
        draft.map_err(|lines| lines.join("; "))
    };
    let draft = match block_in_place(read) {
        Ok(draft) => draft,
        Err(text) => return bad(&text),
    };
    let call = Call::Submit(Box::new(draft.submission));
    match counted_call::answer(&shared, &by, Some(held), call).await {
        Ok(Answer::Submitted { job, .. }) => document(&rest::submitted(job)),
        Ok(_) => refused(StatusCode::INTERNAL_SERVER_ERROR, "the job was not submitted"),
        Err(why) => refusal(&why),
    }
}

async fn cancel(
    State(shared): State<Arc<Shared>>,
    Extension(by): Extension<Principal>,
    Path(id): Path<u32>,
) -> Response {
    let filter = JobFilter { jobs: vec![JobRef::whole(JobId(id))], ..JobFilter::default() };
    let cancel = Cancel { filter, step: None, signal: None, batch_only: false, full: false };
    match counted_call::answer(&shared, &by, None, Call::Cancel(cancel)).await {
        Ok(Answer::Cancelled(results)) => {
            let why = results.into_iter().find_map(|result| result.refusal);
            why.map_or_else(|| document(&rest::done()), |why| refusal(&why))
        }
        Ok(_) => document(&rest::done()),
        Err(why) => refusal(&why),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::auth::token;
    use crate::connection_limits::{ConnectionLimits, ListenerSlots, PortConnection};
    use crate::http::peer::Peer;
    use crate::testing::{NODE, TestServer};
    use axum::body::Body;
    use axum::http::Method;
    use cluster::Command;
    use cluster::token::UserToken;
    use http_body_util::BodyExt;
    use serde_json::json;
    use tower_service::Service;

    struct Client {
        server: TestServer,
        router: Router,
        token: String,
    }

    impl Client {
        async fn new(user: &str) -> Self {
            let server = TestServer::start().await;
            let token = token::generate();
            let hash = token::hash(&token);
            let known = UserToken { hash, name: user.into(), ..UserToken::default() };
            server.run(Command::SetUserToken(Box::new(known))).await.expect("a token");
            let limits = ConnectionLimits::default();
            let bodies = BodyLimits::new(server.shared.clone(), &limits);
            let router = router(&server.shared, &bodies).with_state(server.shared.clone());
            Self { server, router, token }
        }

        async fn send(
            &self,
            method: Method,
            path: &str,
            name: &str,
            body: Value,
        ) -> (StatusCode, Value) {
            let mut request = Request::new(Body::from(body.to_string()));
            *request.method_mut() = method;
            *request.uri_mut() = format!("/slurm/v0.0.38/{path}").parse().expect("a path");
            let slots = ListenerSlots::new(1024, &ConnectionLimits::default()).port;
            let peer = Peer::Port {
                connection: PortConnection::new(slots),
                from: std::net::Ipv4Addr::LOCALHOST.into(),
                is_loopback: true,
            };
            request.extensions_mut().insert(peer);
            let headers = request.headers_mut();
            headers.insert(USER_NAME, name.parse().expect("a name"));
            headers.insert(USER_TOKEN, self.token.parse().expect("a token"));
            let response = self.router.clone().call(request).await.expect("a response");
            let status = response.status();
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            (status, serde_json::from_slice(&body).unwrap_or_default())
        }
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn job_is_submitted_listed_and_cancelled_as_slurmrestd_has_it() {
        let client = Client::new("root").await;
        let (status, ping) = client.send(Method::GET, "ping", "root", json!({})).await;
        assert_eq!((status, &ping["pings"][0]["ping"]), (StatusCode::OK, &json!("UP")));
        let job = json!({
            "name": "rest", "tasks": 2, "current_working_directory": "/tmp", "environment": {"A": "1"},
        });
        let wanted = json!({"script": "#!/bin/sh\ntrue\n", "job": job});
        let (status, submitted) = client.send(Method::POST, "job/submit", "root", wanted).await;
        assert_eq!(status, StatusCode::OK, "{submitted}");
        let path = format!("job/{}", submitted["job_id"]);
        let (_, found) = client.send(Method::GET, &path, "root", json!({})).await;
        let one = &found["jobs"][0];
        assert_eq!(
            (&one["name"], &one["job_state"]),
            (&json!("rest"), &json!("PENDING")),
            "{found}"
        );
        assert_eq!(one["current_working_directory"], "/tmp");
        let (_, all) = client.send(Method::GET, "jobs", "root", json!({})).await;
        assert_eq!(all["jobs"].as_array().map(Vec::len), Some(1));
        let (status, done) = client.send(Method::DELETE, &path, "root", json!({})).await;
        assert_eq!((status, &done["errors"]), (StatusCode::OK, &json!([])), "{done}");
        let (_, found) = client.send(Method::GET, &path, "root", json!({})).await;
        assert_eq!(found["jobs"][0]["job_state"], "CANCELLED", "{found}");
        let (_, nodes) = client.send(Method::GET, "nodes", "root", json!({})).await;
        assert_eq!(nodes["nodes"][0]["name"], NODE);
        let (status, _) = client.send(Method::GET, "node/none", "root", json!({})).await;
        assert_eq!(status, StatusCode::NOT_FOUND);
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn token_says_who_asks_and_bad_properties_are_named() {
        let mut client = Client::new("nobody").await;
        let job = client.server.submit("name: of-ada").await.expect("a job");
        let path = format!("job/{job}");
        let (status, why) = client.send(Method::DELETE, &path, "nobody", json!({})).await;
        assert_eq!(status, StatusCode::FORBIDDEN, "{why}");
        let (status, _) = client.send(Method::GET, "jobs", "root", json!({})).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "the name of another");
        let bad = json!({"script": "#!/bin/sh\n", "job": {"user_id": 0}});
        let (status, why) = client.send(Method::POST, "job/submit", "nobody", bad).await;
        assert_eq!(status, StatusCode::BAD_REQUEST);
        assert!(why["errors"][0]["error"].as_str().is_some_and(|text| text.contains("user_id")));
        client.token = "eyJhbGciOiJub25lIn0.eyJzdWIiOiJyb290In0.".into();
        let (status, _) = client.send(Method::GET, "jobs", "root", json!({})).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "a JSON Web Token of no algorithm");
        assert!(!client.server.shared.read().jobs[&job].has_ended());
    }
}

//! Who may do what through dstack's API, by the real router.

use super::ROUTES;
use super::unavailable::REFUSED;
use crate::auth::principal::server_principal;
use crate::connection_limits::ConnectionLimits;
use crate::http::body_limits::BodyLimits;
use crate::http::peer::Peer;
use crate::http::router;
use crate::testing::{TestServer, submission, user};
use axum::body::Body;
use axum::http::header::AUTHORIZATION;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use model::principal::Principal;
use serde_json::{Value, json};
use tower_service::Service;

pub(super) struct Api {
    pub(super) server: TestServer,
}

impl Api {
    /// A cluster in which ada's run `train` runs.
    async fn new() -> Self {
        let Self { server } = Self::empty().await;
        server.node_up().await;
        let mut run = submission("");
        run.spec.name = "train".into();
        server.shared.writer.submit(Box::new(run), user()).await.expect("a run");
        server.plan();
        Self { server }
    }

    pub(super) async fn empty() -> Self {
        Self { server: TestServer::start().await }
    }

    pub(super) async fn send(
        &self,
        path: &str,
        body: Value,
        by: Option<Principal>,
    ) -> (StatusCode, Value) {
        self.send_from(path, body, by.map(Peer::Socket), None).await
    }

    pub(super) async fn send_from(
        &self,
        path: &str,
        body: Value,
        peer: Option<Peer>,
        token: Option<&str>,
    ) -> (StatusCode, Value) {
        let limits: ConnectionLimits = "".parse().expect("limits");
        let router = router(self.server.shared.clone(), BodyLimits::new(&limits));
        let path = path.replace("{project}", "main").replace("{run}", "train");
        let method = if path.contains("/metrics/") { "GET" } else { "POST" };
        let request =
            Request::builder().method(method).uri(path).body(Body::from(body.to_string()));
        let mut request = request.expect("a request");
        if let Some(peer) = peer {
            request.extensions_mut().insert(peer);
        }
        if let Some(token) = token {
            let value = format!("Bearer {token}").parse().expect("a header");
            request.headers_mut().insert(AUTHORIZATION, value);
        }
        let response = router.clone().call(request).await.expect("a response");
        let status = response.status();
        let body = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
    }
}

fn stranger() -> Principal {
    Principal { name: "sam".into(), uid: 2001, gid: 2001, ..user() }
}

#[tokio::test(flavor = "multi_thread")]
async fn no_route_answers_somebody_without_a_token() {
    let api = Api::new().await;
    for (path, _) in ROUTES {
        let (status, body) = api.send(path, json!({}), None).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
        assert_eq!(body, json!({"detail": "Not authenticated"}), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_is_stopped_and_its_log_read_by_its_owner_and_administrators() {
    let stop = "/api/project/main/runs/stop";
    let names = json!({"runs_names": ["train"], "abort": false});
    let get = json!({"run_name": "train"});
    let api = Api::new().await;
    let (_, run) = api.send("/api/project/main/runs/get", get.clone(), Some(user())).await;
    assert_eq!(run["status"], "running", "{run}");
    let submission = run["jobs"][0]["job_submissions"][0]["id"].clone();
    let poll = json!({"run_name": "train", "job_submission_id": submission});
    let (status, _) = api.send("/api/project/main/logs/poll", poll, Some(stranger())).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "another's log");
    let (status, _) = api.send(stop, names.clone(), Some(stranger())).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "another's run");
    let (_, run) = api.send("/api/project/main/runs/get", get, Some(user())).await;
    assert_eq!(run["status"], "running", "it goes on: {run}");
    for by in [user(), server_principal()] {
        let (status, _) = Api::new().await.send(stop, names.clone(), Some(by)).await;
        assert_eq!(status, StatusCode::OK);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_bodies_and_names_are_refused_in_the_clients_shapes() {
    let api = Api::new().await;
    let table = [
        ("/api/projects/other/get", json!({}), StatusCode::NOT_FOUND),
        ("/api/project/other/runs/get", json!({"run_name": "train"}), StatusCode::NOT_FOUND),
        ("/api/project/main/runs/get", json!({"run_name": "none"}), StatusCode::BAD_REQUEST),
        ("/api/project/main/runs/get", json!({"run_name": 7}), StatusCode::UNPROCESSABLE_ENTITY),
        ("/api/project/main/runs/get_plan", json!({}), StatusCode::UNPROCESSABLE_ENTITY),
        (
            "/api/project/main/runs/get_plan",
            json!({"run_spec": {"configuration": {"type": "task", "commands": ["a"], "nodes": 0}}}),
            StatusCode::UNPROCESSABLE_ENTITY,
        ),
        (
            "/api/project/main/runs/apply",
            json!({"plan": {"run_spec": {"configuration": {"type": "service", "port": 80, "commands": ["a"]}}}}),
            StatusCode::BAD_REQUEST,
        ),
        (
            "/api/project/main/repos/init",
            json!({"repo_id": "a", "repo_info": {"repo_type": "remote"}}),
            StatusCode::BAD_REQUEST,
        ),
    ];
    for (path, body, expected) in table {
        let (status, said) = api.send(path, body.clone(), Some(user())).await;
        assert_eq!(status, expected, "{path} {body} {said}");
        // The client takes the first of a list where the status is 400 or 422.
        let listed = matches!(status.as_u16(), 400 | 422);
        assert_eq!(said["detail"].is_array(), listed, "{path} {said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn commands_and_environment_of_a_run_are_shown_to_its_owner_alone() {
    let api = Api::new().await;
    let configuration = json!({
        "type": "task",
        "name": "secretive",
        "commands": ["echo hush-command"],
        "env": {"KEY": "hush-value"},
        "resources": {"cpu": {"count": {"min": 1, "max": 1}}, "memory": {"min": 1.0, "max": 1.0}, "disk": null},
        "retry": true,
    });
    let plan = json!({"plan": {"run_spec": {"configuration": configuration}}});
    let (status, run) = api.send("/api/project/main/runs/apply", plan, Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{run}");
    assert!(run.to_string().contains("hush-value"), "{run}");
    let get = ("/api/project/main/runs/get", json!({"run_name": "secretive"}));
    for (path, body) in [get, ("/api/runs/list", json!({}))] {
        let (_, own) = api.send(path, body.clone(), Some(user())).await;
        assert!(own.to_string().contains("hush-value"), "{path} {own}");
        let (status, others) = api.send(path, body, Some(stranger())).await;
        assert_eq!(status, StatusCode::OK, "{others}");
        assert!(others.to_string().contains("secretive"), "{path} {others}");
        assert!(!others.to_string().contains("hush-"), "{path} {others}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_of_more_nodes_than_there_will_ever_be_costs_no_more_than_the_cluster_has() {
    let api = Api::new().await;
    let configuration = json!({"type": "task", "name": "vast", "commands": ["a"], "nodes": u32::MAX, "retry": true});
    let plan = json!({"run_spec": {"configuration": configuration}});
    let (_, plan) = api.send("/api/project/main/runs/get_plan", plan, Some(user())).await;
    assert!(plan.to_string().len() < 1 << 20, "{} bytes", plan.to_string().len());
    let mut vast = submission("");
    vast.spec.name = "vast".into();
    let component = &mut std::sync::Arc::make_mut(&mut vast.spec.components)[0];
    std::sync::Arc::make_mut(&mut component.request).nodes = model::range::Range::exactly(u32::MAX);
    let taken = api.server.shared.writer.submit(Box::new(vast), user()).await;
    let (_, runs) = api.send("/api/runs/list", json!({}), Some(user())).await;
    let expected = if taken.is_ok() { 2 } else { 1 };
    assert_eq!(runs.as_array().map(Vec::len), Some(expected), "{taken:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_and_lists_of_a_body_have_the_bounds_of_a_call() {
    let api = Api::new().await;
    let names: Vec<String> = (0..2000).map(|n| format!("run-{n}")).collect();
    let long = "x".repeat(1 << 20);
    let table = [
        ("/api/project/main/runs/stop", json!({"runs_names": names})),
        ("/api/project/main/runs/get", json!({"run_name": long})),
        (
            "/api/project/main/runs/apply",
            json!({"plan": {"run_spec": {"configuration": {"type": "task", "commands": ["a"], "working_dir": long}}}}),
        ),
    ];
    for (path, body) in table {
        let (status, said) = api.send(path, body, Some(user())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{path} {said}");
        assert!(
            said["detail"][0]["msg"].as_str().is_some_and(|text| text.contains("at most")),
            "{said}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_nothing_answers_is_refused_in_dstacks_shape() {
    let api = Api::empty().await;
    let table = [
        ("/api/nope", 405, json!({"detail": "Method Not Allowed"})),
        ("/api/project/main/metrics/nope", 404, json!({"detail": "Not Found"})),
        ("/api/project/main/metrics/", 404, json!({"detail": "Not Found"})),
    ];
    for (path, status, said) in table {
        assert_eq!(
            api.send(path, json!({}), Some(user())).await,
            (StatusCode::from_u16(status).unwrap(), said),
            "{path}"
        );
    }
    for (path, why) in REFUSED {
        let (status, said) = api.send(path, json!({}), Some(user())).await;
        let refusal = json!({"detail": [{"msg": why, "code": "error"}]});
        assert_eq!((status, said), (StatusCode::BAD_REQUEST, refusal), "{path}");
        let (status, _) = api.send(path, json!({}), None).await;
        assert_eq!(status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let volume = json!({"configuration": {"type": "volume", "name": "vol", "backend": "aws",
        "region": "eu", "size": "10GB"}});
    let (status, said) = api.send("/api/project/main/volumes/create", volume, Some(user())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
    let msg = said["detail"][0]["msg"].as_str().unwrap_or_default();
    assert!(msg.contains("network volumes are not available yet"), "{said}");
}

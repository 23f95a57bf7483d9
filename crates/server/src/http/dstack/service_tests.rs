//! Services through dstack's API, by the real router.

use super::tests::Api;
use crate::testing::user;
use axum::http::StatusCode;
use serde_json::{Value, json};
use std::time::Instant;
use wire::gateway::GatewayReport;

const APPLY: &str = "/api/project/main/runs/apply";

/// A service of so many replicas, of which two have a place.
fn service(replicas: u32) -> Value {
    let configuration = json!({"type": "service", "name": "web", "port": 8000, "commands": ["a"],
        "replicas": replicas, "retry": true, "model": "meta/llama",
        "resources": {"cpu": 2, "memory": "1GB..", "disk": null}});
    json!({"plan": {"run_spec": {"configuration": configuration}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_of_a_service_are_one_run_with_a_job_each() {
    let api = Api::empty().await;
    api.server.node_up().await;
    let (status, applied) = api.send(APPLY, service(3), Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{applied}");
    api.server.plan();
    let get = json!({"run_name": "web"});
    let (_, run) = api.send("/api/project/main/runs/get", get.clone(), Some(user())).await;
    assert_eq!((&run["id"], &run["status"]), (&applied["id"], &json!("running")), "{run}");
    assert_eq!(run["service"]["url"], "/proxy/services/main/web/", "{run}");
    assert_eq!(run["service"]["model"]["name"], "meta/llama", "{run}");
    assert_eq!(run["service"]["model"]["base_url"], "/proxy/models/main", "{run}");
    let jobs = run["jobs"].as_array().expect("jobs");
    let numbers: Vec<&Value> = jobs.iter().map(|job| &job["job_spec"]["replica_num"]).collect();
    assert_eq!(numbers, [0_u32, 1, 2], "{run}");
    assert!(jobs.iter().all(|job| job["job_spec"]["service_port"] == 8000), "{run}");
    let status = |job: &&Value| job["job_submissions"][0]["status"] == "running";
    assert_eq!(jobs.iter().filter(status).count(), 2, "{run}");
    let of_jobs = json!({"include_target_types": ["job"]});
    let (_, events) = api.send("/api/events/list", of_jobs, Some(user())).await;
    for name in ["web-0-0", "web-0-1"] {
        let told = events.as_array().expect("events").iter();
        let mut targets = told.flat_map(|event| event["targets"].as_array().expect("targets"));
        assert!(targets.any(|target| target["name"] == name), "{name}: {events}");
    }
    let (_, listed) = api.send("/api/runs/list", json!({}), Some(user())).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    let (_, again) = api.send(APPLY, service(3), Some(user())).await;
    assert_eq!(again["id"], run["id"], "the same service is not submitted twice: {again}");
    let plan = json!({"run_spec": service(4)["plan"]["run_spec"]});
    let (status, plan) = api.send("/api/project/main/runs/get_plan", plan, Some(user())).await;
    assert_eq!((status, &plan["action"]), (StatusCode::OK, &json!("update")), "{plan}");
    let (status, other) = api.send(APPLY, service(4), Some(user())).await;
    assert_eq!((status, &other["deployment_num"]), (StatusCode::OK, &json!(1)), "{other}");
    assert_ne!(other["id"], run["id"], "it runs beside the one before until it is ready");
    let (_, shown) = api.send("/api/project/main/runs/get", get.clone(), Some(user())).await;
    assert_eq!(shown["id"], other["id"], "the name means the newest: {shown}");
    let stop = json!({"runs_names": ["web"], "abort": false});
    assert_eq!(api.send("/api/project/main/runs/stop", stop, Some(user())).await.0, StatusCode::OK);
    let (_, stopped) = api.send("/api/project/main/runs/get", get, Some(user())).await;
    let first = json!({"id": run["id"]});
    let (_, first) = api.send("/api/project/main/runs/get", first, Some(user())).await;
    for ended in [&first, &stopped] {
        assert_ne!(ended["status"], "running", "both deployments end: {ended}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_is_applied_with_a_gateway_that_runs_and_found_there() {
    let api = Api::empty().await;
    api.server.node_up().await;
    let report = GatewayReport {
        name: "edge".into(),
        address: "edge.example:443".into(),
        has_tls: true,
        ..GatewayReport::default()
    };
    let told = api.server.shared.volatile.gateways.report(report, Instant::now());
    assert!(told.is_ok());
    let with = |gateway: Value| {
        let mut body = service(1);
        body["plan"]["run_spec"]["configuration"]["gateway"] = gateway;
        body
    };
    let (status, refused) = api.send(APPLY, with(json!("other")), Some(user())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{refused}");
    assert!(refused.to_string().contains("no gateway other runs"), "{refused}");
    let (status, run) = api.send(APPLY, with(json!("edge")), Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{run}");
    let url = "https://edge.example/proxy/services/main/web/";
    assert_eq!(run["service"]["url"], url, "{run}");
}

/// Requests that name a model are read whole: as every other that is, they count, once it is known whose they are.
#[tokio::test(flavor = "multi_thread")]
async fn request_for_a_model_is_read_whole_for_users_alone() {
    let api = Api::empty().await;
    let path = "/proxy/models/main/v1/chat/completions";
    let ask = |content: String| json!({"model": "none", "messages": [content]});
    let long = ask("a".repeat(16 << 20));
    for (body, by, status) in [
        (ask("hello".into()), None, StatusCode::UNAUTHORIZED),
        (long.clone(), None, StatusCode::UNAUTHORIZED),
        (ask("hello".into()), Some(user()), StatusCode::NOT_FOUND),
        (json!({}), Some(user()), StatusCode::BAD_REQUEST),
        (long, Some(user()), StatusCode::PAYLOAD_TOO_LARGE),
    ] {
        let shown = body.to_string().len();
        let (found, said) = api.send(path, body, by).await;
        assert_eq!(found, status, "{shown} bytes");
        assert_eq!(said["error"]["type"], "invalid_request_error", "{said}");
        assert!(said["error"]["message"].is_string(), "{said}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn groups_of_replicas_are_one_run_that_is_updated_and_deleted_whole() {
    let api = Api::empty().await;
    api.server.node_up().await;
    let grouped = |replicas: u32| {
        let group = |name: &str, replicas: u32| {
            json!({"name": name, "replicas": replicas, "commands": [name],
                "resources": {"cpu": 1, "memory": "1GB..", "disk": null}})
        };
        let configuration = json!({"type": "service", "name": "web", "port": 8000, "retry": true,
            "groups": [group("small", 1), group("large", replicas)]});
        json!({"plan": {"run_spec": {"configuration": configuration}}})
    };
    let plan = json!({"run_spec": grouped(2)["plan"]["run_spec"]});
    let (status, plan) = api.send("/api/project/main/runs/get_plan", plan, Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{plan}");
    let names = |jobs: &Value| {
        let jobs = jobs.as_array().cloned().unwrap_or_default();
        let name = |job: &Value| job["job_spec"]["replica_group"].as_str().map(str::to_owned);
        jobs.iter().filter_map(name).collect::<Vec<String>>()
    };
    assert_eq!(names(&plan["job_plans"]), ["small", "large"], "{plan}");
    let (status, applied) = api.send(APPLY, grouped(2), Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{applied}");
    assert_eq!(names(&applied["jobs"]), ["small", "large", "large"], "{applied}");
    assert_eq!(applied["jobs"][1]["job_spec"]["commands"], json!(["large"]), "{applied}");
    assert_eq!(applied["jobs"][2]["job_spec"]["replica_num"], 2, "{applied}");
    let (_, listed) = api.send("/api/runs/list", json!({}), Some(user())).await;
    assert_eq!(listed.as_array().map(Vec::len), Some(1), "{listed}");
    let by_id = json!({"id": applied["id"]});
    let (_, found) = api.send("/api/project/main/runs/get", by_id, Some(user())).await;
    assert_eq!(found["jobs"].as_array().map(Vec::len), Some(3), "{found}");
    let (_, again) = api.send(APPLY, grouped(2), Some(user())).await;
    assert_eq!(again["id"], applied["id"], "nothing has changed: {again}");
    let (_, next) = api.send(APPLY, grouped(1), Some(user())).await;
    assert_eq!(next["deployment_num"], 1, "{next}");
    let stop = json!({"runs_names": ["web"], "abort": false});
    assert_eq!(api.send("/api/project/main/runs/stop", stop, Some(user())).await.0, StatusCode::OK);
}

//! The errors that dstack 0.22.5 was seen to answer, asked for here: the same status, and the same body where clients look at it.

use super::tests::Api;
use crate::auth::principal::server_principal;
use crate::connection_limits::ConnectionLimits;
use crate::http::body_limits::BodyLimits;
use crate::http::peer::Peer;
use crate::http::router;
use axum::body::Body;
use axum::http::Request;
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower_service::Service;

const RUN: &str = "/api/project/main/runs/get";
const LIST: &str = "/api/runs/list";

/// A request by an administrator, and what dstack answered.
struct Recorded {
    method: &'static str,
    path: &'static str,
    version: Option<&'static str>,
    body: &'static str,
    status: u16,
    said: Value,
}

fn post(path: &'static str, body: &'static str, status: u16, said: Value) -> Recorded {
    Recorded { method: "POST", path, version: None, body, status, said }
}

fn with_version(version: &'static str, status: u16, said: Value) -> Recorded {
    let body = r#"{"run_name":"zzz"}"#;
    Recorded { version: Some(version), ..post(RUN, body, status, said) }
}

fn no_run() -> Value {
    json!({"detail": [{"msg": "Run not found", "code": "resource_not_exists"}]})
}

fn recorded() -> Vec<Recorded> {
    let too_new =
        "The client/CLI version (0.23.0) is incompatible with the server version (0.22.5).";
    let regex = "Secret name should match regex '^[A-Za-z0-9-_]{1,200}$";
    vec![
        post(LIST, "{}", 200, json!([])),
        post(LIST, r#"{"limit":0}"#, 200, json!([])),
        post(
            "/api/project/nope/runs/get",
            r#"{"run_name":"x"}"#,
            404,
            json!({"detail": {"msg": "Not found", "code": null}}),
        ),
        post(RUN, r#"{"run_name":"zzz"}"#, 400, no_run()),
        with_version("0.23.0", 400, json!({"detail": [{"msg": too_new, "code": "error"}]})),
        with_version("0.22.99", 400, no_run()),
        with_version("0.18.0", 400, no_run()),
        with_version("latest", 400, no_run()),
        with_version(
            "banana",
            400,
            json!({"detail": [{"msg": "Invalid version: banana", "code": null}]}),
        ),
        post("/api/nope", "", 405, json!({"detail": "Method Not Allowed"})),
        Recorded { method: "GET", ..post(LIST, "", 404, json!({"detail": "Not Found"})) },
        post("/api/server/get_info", "", 200, json!({"server_version": "0.22.5"})),
        post("/api/project/main/fleets/delete", r#"{"names":["zz"]}"#, 200, Value::Null),
        post(
            "/api/project/main/secrets/create_or_update",
            r#"{"name":"bad name!","value":"x"}"#,
            400,
            json!({"detail": [{"msg": regex, "code": "error"}]}),
        ),
    ]
}

async fn send(api: &Api, one: &Recorded) -> (u16, Value) {
    send_from(api, one, Some(Peer::Socket(server_principal()))).await
}

async fn send_from(api: &Api, one: &Recorded, peer: Option<Peer>) -> (u16, Value) {
    let limits: ConnectionLimits = "".parse().expect("limits");
    let mut router =
        router(api.server.shared.clone(), BodyLimits::new(api.server.shared.clone(), &limits));
    let mut request = Request::builder().method(one.method).uri(one.path);
    if let Some(version) = one.version {
        request = request.header("X-API-VERSION", version);
    }
    let mut request = request.body(Body::from(one.body)).expect("a request");
    if let Some(peer) = peer {
        request.extensions_mut().insert(peer);
    }
    let response = router.call(request).await.expect("a response");
    let status = response.status().as_u16();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&body).unwrap_or(Value::Null))
}

#[tokio::test(flavor = "multi_thread")]
async fn recorded_errors_are_answered_alike() {
    let api = Api::empty().await;
    for one in recorded() {
        let (status, said) = send(&api, &one).await;
        let asked = format!("{} {} {:?} {}", one.method, one.path, one.version, one.body);
        assert_eq!((status, said), (one.status, one.said), "{asked}");
    }
}

/// Bodies that are no JSON, or lack something: the kind of the error, where it is, and its message. What else dstack says of them
/// no client reads.
#[tokio::test(flavor = "multi_thread")]
async fn bad_bodies_are_named_by_their_place() {
    let api = Api::empty().await;
    let table = [
        (LIST, "{bad", json!(["json_invalid", ["body", 1], "JSON decode error"])),
        (LIST, "", Value::Null),
        (
            "/api/project/main/repos/get",
            r#"{"repo_id":"zz"}"#,
            json!(["missing", ["body", "include_creds"], "Field required"]),
        ),
        (RUN, "{", json!(["json_invalid", ["body", 0], "JSON decode error"])),
    ];
    for (path, body, wanted) in table {
        let (status, said) = send(&api, &post(path, body, 0, Value::Null)).await;
        if wanted.is_null() {
            assert_eq!(status, 200, "{path}: no body asks for everything: {said}");
            continue;
        }
        let first = &said["detail"][0];
        assert_eq!(json!([first["type"], first["loc"], first["msg"]]), wanted, "{path} {body}");
        assert_eq!(status, 422, "{path} {body}");
    }
}

/// Fields that are not known are left alone, unlike by dstack: its clients of other versions send some.
#[tokio::test(flavor = "multi_thread")]
async fn unknown_fields_of_other_versions_are_taken() {
    let api = Api::empty().await;
    let (status, said) = send(&api, &post(LIST, r#"{"foo":1}"#, 200, json!([]))).await;
    assert_eq!((status, said), (200, json!([])));
}

#[tokio::test(flavor = "multi_thread")]
async fn version_is_told_to_somebody_without_a_token() {
    let api = Api::empty().await;
    let info = post("/api/server/get_info", "", 200, Value::Null);
    let version = json!({"server_version": "0.22.5"});
    assert_eq!(send_from(&api, &info, None).await, (200, version));
    let list = post(LIST, "{}", 401, Value::Null);
    assert_eq!(send_from(&api, &list, None).await.0, 401);
}

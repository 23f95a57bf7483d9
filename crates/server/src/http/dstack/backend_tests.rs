//! Backends by dstack's routes: who may, what is shown, and what stays when nothing is said of it.

use super::tests::Api;
use crate::testing::user;
use axum::http::StatusCode;
use cluster::Command;
use model::cloud_source::{CloudConfig, SourceKind};
use model::machine::SourceConfig;
use model::principal::{Principal, Role};
use serde_json::{Value, json};

fn admin() -> Principal {
    Principal { role: Role::Admin, ..user() }
}

fn lambda(more: Value) -> Value {
    let mut body = json!({"type": "lambda", "regions": ["us-west-1"], "ssh_key": "lab",
        "endpoint": "http://127.0.0.1:1"});
    let more = more.as_object().expect("keys").clone();
    body.as_object_mut().expect("keys").extend(more);
    body
}

fn message(said: &Value) -> &str {
    said["detail"][0]["msg"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn backend_is_made_shown_without_its_keys_changed_and_deleted() {
    let api = Api::empty().await;
    let creds = json!({"creds": {"type": "api_key", "api_key": "hush"}});
    let create = "/api/project/main/backends/create";
    let (status, said) = api.send(create, lambda(json!({})), Some(admin())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
    assert_eq!(message(&said), "backend: creds: missing: expected its keys");
    let (status, said) = api.send(create, lambda(creds.clone()), Some(user())).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{said}");
    let (status, said) = api.send(create, lambda(creds.clone()), Some(admin())).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    assert_eq!(said, lambda(json!({"creds": {"type": "api_key", "api_key": ""}})));
    let (_, said) = api.send(create, lambda(creds), Some(admin())).await;
    assert_eq!(said["detail"][0]["code"], "resource_exists", "{said}");
    let sealed = api.server.shared.read().backends["lambda"].credentials.clone();
    let changed = lambda(json!({"machines": 3}));
    let (status, said) =
        api.send("/api/project/main/backends/update", changed, Some(admin())).await;
    assert_eq!((status, &said["machines"]), (StatusCode::OK, &json!(3)), "{said}");
    let kept = api.server.shared.read().backends["lambda"].clone();
    assert_eq!((kept.credentials, kept.source.machines_max), (sealed, 3));
    let path = "/api/project/main/backends/lambda/get_yaml";
    let (_, said) = api.send(path, json!({}), Some(admin())).await;
    let yaml = said["config_yaml"].as_str().expect("a text");
    assert!(yaml.lines().any(|line| line == "machines: 3") && !yaml.contains("hush"), "{yaml}");
    // What is shown is good again.
    let again = json!({ "config_yaml": yaml });
    let path = "/api/project/main/backends/update_yaml";
    assert_eq!(api.send(path, again, Some(admin())).await, (StatusCode::OK, Value::Null));
    let (_, project) = api.send("/api/projects/main/get", json!({}), Some(user())).await;
    let shown = json!([{"name": "lambda", "config": {"type": "lambda", "regions": ["us-west-1"]}}]);
    assert_eq!(project["backends"], shown);
    let delete = "/api/project/main/backends/delete";
    let names = json!({"backends_names": ["lambda"]});
    let (status, said) = api.send(delete, names.clone(), Some(admin())).await;
    assert_eq!((status, said), (StatusCode::OK, Value::Null));
    let (_, said) = api.send(delete, names, Some(admin())).await;
    assert_eq!(said["detail"][0]["code"], "resource_not_exists", "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn source_of_sluice_toml_is_shown_and_not_changed() {
    let api = Api::empty().await;
    let mut config = (*api.server.shared.read().config).clone();
    let cloud = |region: &str, project: Option<&str>| {
        let (regions, project) = (vec![region.to_owned()], project.map(str::to_owned));
        Box::new(CloudConfig { regions, project, ..CloudConfig::default() })
    };
    config.sources = vec![
        SourceConfig::of_kind("lambda", SourceKind::Lambda(cloud("us-west-1", None))),
        SourceConfig::of_kind("burst", SourceKind::Gcp(cloud("us-east1-b", Some("lab")))),
        SourceConfig::new("own", "/opt/make"),
    ];
    api.server.run(Command::Configure(Box::new(config))).await.expect("configured");
    let (_, project) = api.send("/api/projects/main/get", json!({}), Some(user())).await;
    let lambda_shown = json!({"type": "lambda", "regions": ["us-west-1"]});
    let gcp_shown = json!({"type": "gcp", "regions": ["us-east1-b"], "project_id": "lab"});
    let shown = json!([{"name": "lambda", "config": lambda_shown},
        {"name": "burst", "config": gcp_shown}]);
    assert_eq!(project["backends"], shown, "a program is of no type that clients know");
    let path = "/api/project/main/backends/burst/config_info";
    let (_, said) = api.send(path, json!({}), Some(admin())).await;
    assert_eq!(said["creds"], json!({"type": "default"}), "{said}");
    let path = "/api/project/main/backends/lambda/get_yaml";
    let (_, said) = api.send(path, json!({}), Some(admin())).await;
    let yaml = said["config_yaml"].as_str().expect("a text");
    assert!(yaml.starts_with("# A source of sluice.toml"), "{yaml}");
    let creds = json!({"creds": {"type": "api_key", "api_key": "hush"}});
    for path in ["/api/project/main/backends/create", "/api/project/main/backends/update"] {
        let (status, said) = api.send(path, lambda(creds.clone()), Some(admin())).await;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
        assert!(message(&said).contains("it is a source of sluice.toml"), "{said}");
    }
    let names = json!({"backends_names": ["lambda"]});
    let (_, said) = api.send("/api/project/main/backends/delete", names, Some(admin())).await;
    assert!(message(&said).contains("it is a source of sluice.toml"), "{said}");
}

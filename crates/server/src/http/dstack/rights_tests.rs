//! Who may do what by dstack's routes, and what `PrivateData` leaves of their answers: one table, every route by every role.

use super::ROUTES;
use crate::http::peer::Peer;
use crate::http::privacy_tests::{self, PARTITION};
use crate::http::rights_tests::Caller::{self, *};
use crate::http::rights_tests::{
    ADMINISTER, AS_OWNER, CALLERS, EVERYBODY, JOB_NAME, MANAGE, OPERATE, World,
};
use axum::body::Body;
use axum::http::{Request, StatusCode};
use http_body_util::BodyExt;
use model::private_data::PrivateKind;
use serde_json::{Value, json};
use tower_service::Service;

/// A body, about the run of this name.
type Sample = fn(&str) -> Value;

const NO_BODY: Sample = |_| json!({});

fn run_spec() -> Value {
    json!({"configuration": {"type": "task", "name": "again", "commands": ["true"], "retry": true}})
}

/// Who gets what he asks for by each route.
const TABLE: &[(&str, &[Caller], Sample)] = &[
    ("/api/users/get_my_user", EVERYBODY, NO_BODY),
    ("/api/users/list", EVERYBODY, NO_BODY),
    ("/api/users/get_user", &[Stranger, Administrator, Root], |_| json!({"username": "sam"})),
    ("/api/users/create", ADMINISTER, |_| json!({"username": "nobody", "global_role": "user"})),
    ("/api/users/update", ADMINISTER, |_| json!({"username": "nobody", "global_role": "user"})),
    ("/api/users/delete", ADMINISTER, |_| json!({"users": ["nobody"]})),
    ("/api/users/refresh_token", ADMINISTER, |_| json!({"username": "nobody"})),
    ("/api/users/refresh_ssh_key", ADMINISTER, |_| json!({"username": "nobody"})),
    ("/api/projects/list", EVERYBODY, NO_BODY),
    ("/api/projects/create", OPERATE, |_| json!({"project_name": "atlas"})),
    ("/api/projects/delete", OPERATE, |_| json!({"projects_names": ["atlas"]})),
    ("/api/projects/{project}/update", EVERYBODY, NO_BODY),
    ("/api/projects/{project}/set_members", EVERYBODY, NO_BODY),
    ("/api/projects/{project}/add_members", EVERYBODY, NO_BODY),
    ("/api/projects/{project}/remove_members", EVERYBODY, NO_BODY),
    ("/api/projects/{project}/get", EVERYBODY, NO_BODY),
    ("/api/backends/list_types", EVERYBODY, NO_BODY),
    ("/api/project/{project}/backends/create", ADMINISTER, |_| json!({"type": "none"})),
    ("/api/project/{project}/backends/update", ADMINISTER, |_| json!({"type": "none"})),
    ("/api/project/{project}/backends/delete", ADMINISTER, |_| json!({"backends_names": ["none"]})),
    (
        "/api/project/{project}/backends/create_yaml",
        ADMINISTER,
        |_| json!({"config_yaml": "type: none"}),
    ),
    (
        "/api/project/{project}/backends/update_yaml",
        ADMINISTER,
        |_| json!({"config_yaml": "type: none"}),
    ),
    ("/api/project/{project}/backends/{backend}/config_info", ADMINISTER, NO_BODY),
    ("/api/project/{project}/backends/{backend}/get_yaml", ADMINISTER, NO_BODY),
    (
        "/api/project/{project}/repos/init",
        EVERYBODY,
        |_| json!({"repo_id": "a", "repo_info": {"repo_type": "virtual"}}),
    ),
    ("/api/project/{project}/repos/list", EVERYBODY, NO_BODY),
    // Everybody has repositories and archives of his own.
    (
        "/api/project/{project}/repos/get",
        EVERYBODY,
        |_| json!({"repo_id": "a", "include_creds": true}),
    ),
    ("/api/project/{project}/repos/upload_code", EVERYBODY, NO_BODY),
    ("/api/project/{project}/repos/delete", EVERYBODY, |_| json!({"repos_ids": ["a"]})),
    ("/api/files/upload_archive", EVERYBODY, NO_BODY),
    ("/api/files/get_archive_by_hash", EVERYBODY, |_| json!({"hash": "00"})),
    ("/api/runs/list", EVERYBODY, NO_BODY),
    ("/api/project/{project}/runs/get", EVERYBODY, |run| json!({"run_name": run})),
    ("/api/project/{project}/runs/get_plan", EVERYBODY, |_| json!({"run_spec": run_spec()})),
    ("/api/project/{project}/runs/apply", EVERYBODY, |_| json!({"plan": {"run_spec": run_spec()}})),
    ("/api/project/{project}/gpus/list", EVERYBODY, |_| json!({"run_spec": run_spec()})),
    (
        "/api/project/{project}/logs/poll",
        AS_OWNER,
        |run| json!({"run_name": run, "job_submission_id": "none"}),
    ),
    ("/api/project/{project}/metrics/job/{run}", MANAGE, NO_BODY),
    ("/api/events/list", EVERYBODY, NO_BODY),
    ("/api/project/{project}/secrets/list", ADMINISTER, NO_BODY),
    ("/api/project/{project}/secrets/get", ADMINISTER, |_| json!({"name": "none"})),
    (
        "/api/project/{project}/secrets/create_or_update",
        ADMINISTER,
        |_| json!({"name": "token", "value": "hush"}),
    ),
    ("/api/project/{project}/secrets/delete", ADMINISTER, |_| json!({"secrets_names": ["none"]})),
    ("/api/fleets/list", EVERYBODY, NO_BODY),
    ("/api/project/{project}/fleets/list", EVERYBODY, NO_BODY),
    ("/api/project/{project}/fleets/get", EVERYBODY, |_| json!({"name": "main"})),
    ("/api/instances/list", EVERYBODY, NO_BODY),
    ("/api/volumes/list", EVERYBODY, NO_BODY),
    ("/api/project/{project}/volumes/list", EVERYBODY, NO_BODY),
    ("/api/project/{project}/fleets/get_plan", EVERYBODY, NO_BODY),
    ("/api/project/{project}/fleets/apply", ADMINISTER, NO_BODY),
    ("/api/project/{project}/fleets/delete", ADMINISTER, NO_BODY),
    ("/api/project/{project}/fleets/delete_instances", ADMINISTER, NO_BODY),
    ("/api/project/{project}/instances/get", EVERYBODY, NO_BODY),
    ("/api/project/{project}/instances/get_instance_health_checks", EVERYBODY, NO_BODY),
    ("/api/project/{project}/volumes/get", EVERYBODY, NO_BODY),
    ("/api/project/{project}/volumes/create", EVERYBODY, NO_BODY),
    ("/api/project/{project}/volumes/delete", EVERYBODY, NO_BODY),
    ("/api/project/{project}/gateways/list", EVERYBODY, NO_BODY),
    ("/api/project/{project}/gateways/get", EVERYBODY, NO_BODY),
    ("/api/project/{project}/gateways/get_plan", EVERYBODY, NO_BODY),
    ("/api/project/{project}/gateways/apply", EVERYBODY, NO_BODY),
    ("/api/project/{project}/gateways/create", EVERYBODY, NO_BODY),
    ("/api/project/{project}/gateways/delete", EVERYBODY, NO_BODY),
    ("/api/project/{project}/gateways/set_default", OPERATE, |_| json!({"name": "none"})),
    ("/api/project/{project}/templates/list", EVERYBODY, NO_BODY),
    ("/api/projects/list_only_no_fleets", EVERYBODY, NO_BODY),
    ("/api/users/public_keys/list", EVERYBODY, NO_BODY),
    // A run that has not ended is not deleted.
    ("/api/project/{project}/runs/delete", MANAGE, |run| json!({"runs_names": [run]})),
    // The last: it ends the run.
    (
        "/api/project/{project}/runs/stop",
        MANAGE,
        |run| json!({"runs_names": [run], "abort": false}),
    ),
];

async fn send(
    world: &World,
    (path, _, body): &(&str, &[Caller], Sample),
    run: &str,
    caller: Caller,
) -> (StatusCode, String) {
    let path = path.replace("{project}", "main").replace("{run}", run);
    let method = if path.contains("/metrics/") { "GET" } else { "POST" };
    let request = Request::builder().method(method).uri(path);
    let mut request = request.body(Body::from(body(run).to_string())).expect("a request");
    if let Some(principal) = caller.principal() {
        request.extensions_mut().insert(Peer::Socket(principal));
    }
    let response = world.router.clone().call(request).await.expect("a response");
    let status = response.status();
    let body = response.into_body().collect().await.expect("a body").to_bytes();
    (status, String::from_utf8(body.to_vec()).expect("text"))
}

#[test]
fn every_route_has_a_row() {
    let (mut routes, mut rows): (Vec<&str>, Vec<&str>) =
        (ROUTES.iter().map(|route| route.0).collect(), TABLE.iter().map(|row| row.0).collect());
    routes.sort_unstable();
    rows.sort_unstable();
    assert_eq!(rows, routes);
}

#[tokio::test(flavor = "multi_thread")]
async fn every_route_is_allowed_to_the_roles_of_its_row_and_to_no_other() {
    let world = World::new().await;
    let run = format!("{JOB_NAME}-{}", world.batch);
    for row in TABLE {
        for caller in CALLERS {
            let (status, said) = send(&world, row, &run, caller).await;
            let expected = match caller {
                Anonymous => StatusCode::UNAUTHORIZED,
                _ if !row.1.contains(&caller) => StatusCode::FORBIDDEN,
                // A request that is allowed may still be for something that is not there.
                _ => {
                    let fits = matches!(status.as_u16(), 200 | 400 | 404 | 422);
                    assert!(fits, "{} {caller:?}: {status} {said}", row.0);
                    continue;
                }
            };
            assert_eq!(status, expected, "{} {caller:?}: {said}", row.0);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn hidden_run_is_answered_as_no_run_by_every_route() {
    let world = privacy_tests::world(&[PrivateKind::Jobs]).await;
    let run = format!("{JOB_NAME}-{}", world.batch);
    let none = format!("{JOB_NAME}-9999");
    let list = TABLE.iter().find(|row| row.0 == "/api/runs/list").expect("a row");
    for caller in MANAGE {
        assert!(send(&world, list, "", *caller).await.1.contains(JOB_NAME), "{caller:?}");
    }
    let (_, said) = send(&world, list, "", Stranger).await;
    assert!(!said.contains(JOB_NAME), "{said}");
    let about_runs: Vec<_> = TABLE
        .iter()
        .filter(|row| row.2("x").to_string().contains("\"x\"") || row.0.contains("{run}"))
        .collect();
    assert_eq!(about_runs.len(), 5, "get, poll, metrics, delete, stop");
    for row in about_runs {
        let hidden = send(&world, row, &run, Stranger).await;
        let absent = send(&world, row, &none, Stranger).await;
        assert_eq!((hidden.0, hidden.1.replace(&run, &none)), absent, "{}", row.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn private_partitions_and_nodes_are_in_no_answer() {
    let world = privacy_tests::world(&[PrivateKind::Partitions, PrivateKind::Nodes]).await;
    for row in TABLE {
        let (_, said) = send(&world, row, "none", Stranger).await;
        assert!(!said.contains(PARTITION), "{}: {said}", row.0);
    }
    for path in ["/api/instances/list", "/api/fleets/list"] {
        let row = TABLE.iter().find(|row| row.0 == path).expect("a row");
        assert_eq!(send(&world, row, "", Stranger).await.1, "[]", "{path}");
        for caller in OPERATE {
            assert_ne!(send(&world, row, "", *caller).await.1, "[]", "{path} {caller:?}");
        }
    }
}

/// Two clients apply one name at the same moment: there is one run.
#[tokio::test(flavor = "multi_thread")]
async fn one_name_that_is_applied_by_many_at_once_is_one_run() {
    let world = World::new().await;
    let row = TABLE.iter().find(|row| row.0.ends_with("/apply")).expect("a row");
    let sent = (0..20).map(|_| send(&world, row, "", Owner));
    let answers = futures_util::future::join_all(sent).await;
    // Who comes second is answered with the run of the first: it is the same.
    assert!(answers.iter().all(|(status, _)| *status == StatusCode::OK), "{answers:?}");
    let state = world.server.shared.read();
    let runs = state.jobs.values().filter(|job| &*job.spec.name == "again").count();
    assert_eq!(runs, 1);
}

//! Who may do what through dstack's API, by the real router.

use super::ROUTES;
use super::run::offers_of_rank;
use super::unavailable::REFUSED;
use crate::auth::principal::server_principal;
use crate::connection_limits::ConnectionLimits;
use crate::http::body_limits::BodyLimits;
use crate::http::calls;
use crate::http::peer::Peer;
use crate::http::router;
use crate::shared::LastPlan;
use crate::testing::{TestServer, submission, user};
use axum::body::Body;
use axum::http::header::AUTHORIZATION;
use axum::http::{Request, StatusCode};
use cluster::Command;
use http_body_util::BodyExt;
use model::principal::Principal;
use model::reason::Refusal;
use model::record::HistoryFilter;
use model::run::LaunchKind;
use model::time::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;
use tower_service::Service;
use wire::client::Call;

pub(super) struct Api {
    pub(super) server: TestServer,
}

impl Api {
    /// A cluster in which ada's run `train` runs.
    pub(super) async fn new() -> Self {
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
        let router = router(
            self.server.shared.clone(),
            BodyLimits::new(self.server.shared.clone(), &limits),
        );
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
            json!({"plan": {"run_spec": {"configuration": {"type": "service", "port": 80, "commands": ["a"], "model": {"name": "m", "format": "tgi", "chat_template": "x"}}}}}),
            StatusCode::BAD_REQUEST,
        ),
        (
            "/api/project/main/repos/init",
            json!({"repo_id": "a", "repo_info": {"repo_type": "local"}}),
            StatusCode::BAD_REQUEST,
        ),
        (
            "/api/project/main/repos/init",
            json!({"repo_id": "a", "repo_info": {"repo_type": "remote", "repo_name": [{}]}}),
            StatusCode::BAD_REQUEST,
        ),
        (
            "/api/project/main/repos/delete",
            json!({"repos_ids": vec!["a"; 1001]}),
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
async fn run_for_which_nothing_is_free_is_told_how_it_would_wait() {
    // One of the four CPUs is taken.
    let api = Api::new().await;
    let apply = |retry: Value| {
        json!({"plan": {"run_spec": {"configuration": {"type": "task", "name": "large",
            "commands": ["a"], "retry": retry,
            "resources": {"cpu": 4, "memory": "1GB..", "disk": null}}}}})
    };
    let path = "/api/project/main/runs/apply";
    let (status, said) = api.send(path, apply(json!(false)), Some(user())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
    let words = said["detail"][0]["msg"].as_str().unwrap_or_default();
    assert!(words.contains("on_events: [no-capacity]"), "{said}");
    let waits = json!({"on_events": ["no-capacity"]});
    assert_eq!(api.send(path, apply(waits), Some(user())).await.0, StatusCode::OK);
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
    assert!(msg.contains("no source of the cluster is of the backend aws"), "{said}");
}

/// Ends every run, and has the state forget all that have ended.
pub(super) async fn purge(api: &Api) {
    api.end_all().await;
    let mut config = (*api.server.shared.read().config).clone();
    config.parameters.min_job_age_s = 0;
    api.server.run(Command::Configure(Box::new(config))).await.expect("configured");
    until("the books have the run", || api.server.shared.books.is_settled());
    api.server.run(Command::Tick { booked: true }).await.expect("a tick");
    assert!(api.server.shared.read().jobs.is_empty(), "the state has forgotten it");
}

fn until(what: &str, is_so: impl Fn() -> bool) {
    let begun = std::time::Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < std::time::Duration::from_secs(30), "{what}");
        std::thread::yield_now();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn run_that_left_memory_is_listed_and_read_until_it_is_deleted() {
    let api = Api::new().await;
    let (get, list) = ("/api/project/main/runs/get", "/api/runs/list");
    let wanted = json!({"run_name": "train"});
    let before = api.send(get, wanted.clone(), Some(user())).await.1;
    let delete = ("/api/project/main/runs/delete", json!({"runs_names": ["train"]}));
    let (status, said) = api.send(delete.0, delete.1.clone(), Some(user())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "it runs: {said}");
    purge(&api).await;
    let after = api.send(get, wanted.clone(), Some(user())).await.1;
    assert_eq!(after["id"], before["id"], "{after}");
    assert_eq!(after["status"], "terminated", "{after}");
    let by_id = api.send(get, json!({"id": before["id"]}), Some(user())).await.1;
    assert_eq!(by_id["run_spec"]["run_name"], "train", "{by_id}");
    let submission = after["latest_job_submission"]["id"].clone();
    let poll = json!({"run_name": "train", "job_submission_id": submission});
    let log = "/api/project/main/logs/poll";
    assert_eq!(api.send(log, poll.clone(), Some(user())).await.0, StatusCode::OK);
    assert_eq!(api.send(log, poll, Some(stranger())).await.0, StatusCode::FORBIDDEN);
    let listed = async |body: Value| {
        let (_, runs) = api.send(list, body, Some(user())).await;
        runs.as_array().map(Vec::len)
    };
    assert_eq!(listed(json!({})).await, Some(1));
    assert_eq!(listed(json!({"only_active": true})).await, Some(0));
    let (status, _) = api.send(delete.0, delete.1.clone(), Some(stranger())).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "another's run");
    assert_eq!(listed(json!({})).await, Some(1));
    let (status, said) = api.send(delete.0, delete.1, Some(user())).await;
    assert_eq!((status, said), (StatusCode::OK, Value::Null));
    assert_eq!(listed(json!({})).await, Some(0), "the answer came after the books had it");
    assert_eq!(api.send(get, wanted, Some(user())).await.0, StatusCode::BAD_REQUEST);
    let records = api.server.book_reader().query(&HistoryFilter::default()).expect("records");
    assert_eq!(records.len(), 1, "sacct keeps it");
}

#[tokio::test(flavor = "multi_thread")]
async fn project_is_an_account_for_its_members_alone() {
    let api = Api::empty().await;
    api.server.node_up().await;
    let root = || Some(server_principal());
    let create = json!({"project_name": "atlas"});
    let (status, said) = api.send("/api/projects/create", create.clone(), root()).await;
    assert_eq!((status, &said["project_name"]), (StatusCode::OK, &json!("atlas")), "{said}");
    let (status, said) = api.send("/api/projects/create", create, root()).await;
    assert_eq!(
        (status, &said["detail"][0]["code"]),
        (StatusCode::BAD_REQUEST, &json!("resource_exists"))
    );
    assert!(api.server.shared.read().accounts.contains_key("atlas"), "sacctmgr shows it");

    let get = "/api/projects/atlas/get";
    assert_eq!(api.send(get, json!({}), Some(user())).await.0, StatusCode::FORBIDDEN);
    let add = "/api/projects/atlas/add_members";
    let ada = |role: &str| json!({"members": [{"username": "ada", "project_role": role}]});
    assert_eq!(api.send(add, ada("user"), Some(user())).await.0, StatusCode::FORBIDDEN);
    assert_eq!(api.send(add, ada("user"), root()).await.0, StatusCode::OK);
    let (status, said) = api.send(get, json!({}), Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    let role = |said: &Value| {
        let members = said["members"].as_array().expect("members").clone();
        let ada = members.into_iter().find(|member| member["user"]["username"] == "ada");
        ada.map(|ada| ada["project_role"].clone())
    };
    assert_eq!(role(&said), Some(json!("user")));
    // A user manages nobody; a manager appoints users, and no administrators.
    let sam = |role: &str| json!({"members": [{"username": "sam", "project_role": role}]});
    assert_eq!(api.send(add, sam("user"), Some(user())).await.0, StatusCode::FORBIDDEN);
    assert_eq!(role(&api.send(add, ada("manager"), root()).await.1), Some(json!("manager")));
    assert_eq!(api.send(add, sam("admin"), Some(user())).await.0, StatusCode::FORBIDDEN);
    assert_eq!(api.send(add, sam("user"), Some(user())).await.0, StatusCode::OK);
    let (_, listed) = api.send("/api/projects/list", json!({}), Some(stranger())).await;
    let names: Vec<&Value> =
        listed.as_array().expect("a list").iter().map(|project| &project["project_name"]).collect();
    assert_eq!(names, ["main", "atlas"]);

    // A run of the project is charged to it, and is no other project's.
    let run_spec = json!({"configuration": {"type": "task", "name": "orbit", "commands": ["a"],
        "resources": {"cpu": "1..", "memory": "1GB..", "disk": null}, "retry": true}});
    let apply = json!({"plan": {"run_spec": run_spec}});
    let (status, run) = api.send("/api/project/atlas/runs/apply", apply, Some(user())).await;
    assert_eq!((status, &run["project_name"]), (StatusCode::OK, &json!("atlas")), "{run}");
    let account = api.server.shared.read().jobs.values().next().map(|job| job.account.to_string());
    assert_eq!(account.as_deref(), Some("atlas"));
    let events = async |filter: Value| {
        let (_, events) = api.send("/api/events/list", filter, Some(user())).await;
        events.as_array().expect("events").clone()
    };
    let of_run = events(json!({"within_runs": [run["id"]]})).await;
    assert_eq!(of_run[0]["targets"][0]["project_name"], "atlas", "{of_run:?}");
    for none in [json!([]), json!(["no-run"])] {
        assert_eq!(events(json!({"within_runs": none})).await, Vec::<Value>::new());
    }
    let wanted = json!({"run_name": "orbit"});
    let of = |project: &str| format!("/api/project/{project}/runs/get");
    assert_eq!(api.send(&of("atlas"), wanted.clone(), Some(stranger())).await.0, StatusCode::OK);
    let (_, _) = api.send("/api/projects/create", json!({"project_name": "other"}), root()).await;
    assert_eq!(api.send(&of("other"), wanted.clone(), root()).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(api.send(&of("other"), wanted.clone(), Some(user())).await.0, StatusCode::FORBIDDEN);
    assert_eq!(api.send(&of("nope"), wanted, Some(user())).await.0, StatusCode::NOT_FOUND);
    let list = json!({"project_name": "other"});
    let (_, runs) = api.send("/api/runs/list", list.clone(), root()).await;
    assert_eq!(runs, json!([]));
    assert_eq!(api.send("/api/runs/list", list, Some(user())).await.0, StatusCode::FORBIDDEN);

    let remove = json!({"usernames": ["sam"]});
    let path = "/api/projects/atlas/remove_members";
    assert_eq!(api.send(path, remove.clone(), Some(user())).await.0, StatusCode::OK);
    let (status, said) = api.send(path, remove, Some(user())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
    assert_eq!(said["detail"][0]["msg"], "project atlas: member sam does not exist");
    assert_eq!(api.send(get, json!({}), Some(stranger())).await.0, StatusCode::FORBIDDEN);
    let delete = json!({"projects_names": ["atlas"]});
    let (status, said) = api.send("/api/projects/delete", delete.clone(), Some(user())).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "a manager: {said}");
    let (status, said) = api.send("/api/projects/delete", delete.clone(), root()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "a run of it waits: {said}");
    api.end_all().await;
    assert_eq!(api.send("/api/projects/delete", delete, root()).await.0, StatusCode::OK);
    assert_eq!(api.send(get, json!({}), root()).await.0, StatusCode::NOT_FOUND);
}

#[tokio::test(flavor = "multi_thread")]
async fn planned_start_of_a_run_that_waits_is_no_time_at_which_it_was_processed() {
    let api = Api::empty().await;
    let job = api.server.submit("name: waits").await.expect("a run");
    let mut plan = LastPlan::default();
    plan.estimates.insert(job, Timestamp(4_000_000_000_000));
    api.server.shared.volatile.set_last_plan(plan);
    let wanted = json!({"only_active": true});
    let (_, runs) = api.send("/api/runs/list", wanted, Some(user())).await;
    assert!(runs[0]["submitted_at"].is_string(), "{runs}");
    assert_eq!(runs[0]["last_processed_at"], runs[0]["submitted_at"], "{runs}");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_of_runs_go_on_where_the_last_ended_in_either_direction() {
    let api = Api::empty().await;
    api.server.node_up().await;
    let names = ["a1", "b2", "c3", "d4"];
    for name in names {
        let mut run = submission("");
        run.spec.name = name.into();
        api.server.shared.writer.submit(Box::new(run), user()).await.expect("a run");
        if name == "b2" {
            // The first two are in the books alone.
            purge(&api).await;
        }
    }
    for ascending in [true, false] {
        let (mut seen, mut last) = (Vec::new(), json!({}));
        loop {
            let wanted = json!({"ascending": ascending, "limit": 1, "prev_run_id": last["id"],
                "prev_submitted_at": last["submitted_at"]});
            let (_, page) = api.send("/api/runs/list", wanted, Some(user())).await;
            let Some(run) = page.as_array().expect("a page").first().cloned() else { break };
            seen.push(run["run_spec"]["run_name"].as_str().expect("a name")[..2].to_owned());
            last = run;
        }
        if !ascending {
            seen.reverse();
        }
        assert_eq!(seen, names, "ascending: {ascending}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_made_known_given_tokens_and_removed_by_administrators() {
    let api = Api::empty().await;
    let root = || Some(server_principal());
    let nobody =
        |active: bool| json!({"username": "nobody", "global_role": "admin", "active": active});
    let (status, said) = api.send("/api/users/update", nobody(true), root()).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "nobody has heard of them: {said}");
    let (status, said) = api.send("/api/users/create", nobody(true), root()).await;
    assert_eq!((status, &said["global_role"]), (StatusCode::OK, &json!("admin")), "{said}");
    let missing = json!({"username": "no-such-user-here", "global_role": "user"});
    assert_eq!(api.send("/api/users/create", missing, root()).await.0, StatusCode::BAD_REQUEST);
    let name = json!({"username": "nobody"});
    let (_, first) = api.send("/api/users/refresh_token", name.clone(), root()).await;
    let (_, second) = api.send("/api/users/refresh_token", name.clone(), root()).await;
    let token = |said: &Value| said["creds"]["token"].as_str().expect("a token").to_owned();
    let (first, second) = (token(&first), token(&second));
    let with = async |token: &str| {
        let peer = crate::http::tests::port();
        api.send_from("/api/users/get_my_user", json!({}), peer, Some(token)).await.0
    };
    assert_eq!(with(&first).await, StatusCode::FORBIDDEN, "it was replaced");
    assert_eq!(with(&second).await, StatusCode::OK);
    assert_eq!(api.send("/api/users/update", nobody(false), root()).await.0, StatusCode::OK);
    assert_eq!(with(&second).await, StatusCode::FORBIDDEN, "the user is not active");
    assert_eq!(api.send("/api/users/update", nobody(true), root()).await.0, StatusCode::OK);
    assert_eq!(with(&second).await, StatusCode::OK);
    let delete = json!({"users": ["nobody"]});
    assert_eq!(api.send("/api/users/delete", delete, root()).await.0, StatusCode::OK);
    assert_eq!(with(&second).await, StatusCode::FORBIDDEN, "the user is gone");
    let (_, events) = api.send("/api/events/list", json!({}), root()).await;
    let messages: Vec<&Value> =
        events.as_array().expect("events").iter().map(|event| &event["message"]).collect();
    assert!(messages.contains(&&json!("User deleted")), "{messages:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_run_is_pending_until_its_time_and_ends_when_it_is_stopped() {
    let api = Api::empty().await;
    api.server.node_up().await;
    let configuration = json!({"type": "task", "name": "nightly", "commands": ["a"],
        "resources": {"cpu": "1..", "memory": "1GB..", "disk": null},
        "schedule": {"cron": ["0 3 * * *"]}});
    let apply = json!({"plan": {"run_spec": {"configuration": configuration}}});
    let path = "/api/project/main/runs/apply";
    let (status, run) = api.send(path, apply.clone(), Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{run}");
    assert_eq!((&run["status"], &run["jobs"]), (&json!("pending"), &json!([])), "{run}");
    let next = run["next_triggered_at"].as_str().expect("a time").to_owned();
    assert!(next.ends_with("T03:00:00Z"), "{next}");
    api.server.plan();
    let (_, again) = api.send(path, apply, Some(user())).await;
    assert_eq!((&again["id"], &again["status"]), (&run["id"], &json!("pending")), "{again}");
    let stop = json!({"runs_names": ["nightly"], "abort": false});
    assert_eq!(api.send("/api/project/main/runs/stop", stop, Some(user())).await.0, StatusCode::OK);
    let get = json!({"run_name": "nightly"});
    let (_, run) = api.send("/api/project/main/runs/get", get, Some(user())).await;
    assert_eq!(run["status"], "terminated", "{run}");
    let never = json!({"type": "task", "name": "never", "commands": ["a"],
        "schedule": {"cron": ["0 3 30 2 *"]}});
    let never = json!({"plan": {"run_spec": {"configuration": never}}});
    let (status, said) = api.send(path, never, Some(user())).await;
    assert_eq!(status, StatusCode::BAD_REQUEST, "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn kept_text_that_is_no_run_is_refused_and_never_answered() {
    let api = Api::empty().await;
    let valid = json!({"configuration": {"type": "task", "commands": ["a"]}}).to_string();
    let fleet = r#"{"configuration": {"type": "fleet", "nodes": 1}}"#;
    let texts = ["[]", "null", "{}", "{", "7", fleet, r#"[null, {"type": "task"}]"#];
    for text in texts {
        let mut run = submission("");
        run.configuration = Some(text.to_owned());
        let submit = Call::Submit(Box::new(run.clone()));
        let answer = calls::answer(&api.server.shared, user(), submit).await;
        assert!(matches!(answer, Err(Refusal::InvalidValue { .. })), "{text}: {answer:?}");
        // A server of the build before kept it.
        api.server.shared.writer.submit(Box::new(run), user()).await.expect("a run");
    }
    let unreadable = r#"{"configuration": {"type": "task", "commands": ["a"], "resources": 7}}"#;
    for (text, is_taken) in [(valid.as_str(), true), (unreadable, false)] {
        let mut run = submission("");
        run.configuration = Some(text.to_owned());
        let submit = Call::Submit(Box::new(run));
        let answer = calls::answer(&api.server.shared, user(), submit).await;
        assert_eq!(answer.is_ok(), is_taken, "{text}: {answer:?}");
    }
    let (status, runs) = api.send("/api/runs/list", json!({}), Some(user())).await;
    let runs = runs.as_array().expect("a list").clone();
    assert_eq!((status, runs.len()), (StatusCode::OK, texts.len() + 1));
    for run in runs {
        assert_eq!(run["run_spec"]["configuration"]["type"], "task", "{run}");
    }
}

/// `salloc` and a dev environment are one thing: each is in the other's lists.
#[tokio::test(flavor = "multi_thread")]
async fn allocation_of_salloc_is_listed_as_a_dev_environment() {
    let api = Api::empty().await;
    for (name, kind, line) in [
        ("desk", LaunchKind::Interactive, "/usr/bin/salloc -n 1"),
        ("step", LaunchKind::Interactive, "srun hostname"),
        ("file", LaunchKind::Batch, "sbatch salloc"),
    ] {
        let mut run = submission("");
        run.spec.name = name.into();
        run.spec.submit_line = line.into();
        Arc::make_mut(&mut run.spec.launch).kind = kind;
        api.server.shared.writer.submit(Box::new(run), user()).await.expect("a job");
    }
    let (status, runs) = api.send("/api/runs/list", json!({}), Some(user())).await;
    let shown = |name: &str| {
        let runs = runs.as_array().expect("a list").iter();
        let mut specs = runs.map(|run| &run["run_spec"]);
        let is_named =
            |spec: &&Value| spec["run_name"].as_str().is_some_and(|shown| shown.starts_with(name));
        specs.find(is_named).map(|spec| spec["configuration"].clone())
    };
    assert_eq!(status, StatusCode::OK);
    let desk = shown("desk").unwrap_or_else(|| panic!("{runs}"));
    assert_eq!((&desk["type"], &desk["init"]), (&json!("dev-environment"), &json!([])), "{desk}");
    assert_eq!((desk.get("commands"), desk.get("nodes")), (None, None), "no properties of it");
    for (name, line) in [("step", "srun hostname"), ("file", "sbatch salloc")] {
        let task = shown(name).unwrap_or_else(|| panic!("{runs}"));
        assert_eq!((&task["type"], &task["commands"]), (&json!("task"), &json!([line])), "{task}");
    }
}

#[test]
fn nodes_of_groups_are_counted_up_to_the_most() {
    let of_groups = [(1, Vec::new()), (u32::MAX, Vec::new())];
    assert!(offers_of_rank(&of_groups, 1).is_empty());
}

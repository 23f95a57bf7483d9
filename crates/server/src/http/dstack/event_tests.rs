//! Which events a client is given: from a time on, of a fleet, of secrets, of volumes; and what is told of a run that is diagnosed.

use super::event::RECORDS_MAX;
use super::tests::Api;
use crate::auth::principal::server_principal;
use crate::show::dstack_id::uuid;
use crate::testing::{NODE, submission, user};
use axum::http::StatusCode;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use cluster::Command;
use cluster::command::CreateVolume;
use model::principal::Principal;
use model::volume::VolumePlace;
use serde_json::{Value, json};

async fn events(api: &Api, filter: Value, by: Principal) -> Vec<Value> {
    let (status, events) = api.send("/api/events/list", filter, Some(by)).await;
    assert_eq!(status, StatusCode::OK, "{events}");
    events.as_array().expect("events").clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn events_since_a_time_are_those_after_it_and_pages_go_on_where_they_ended() {
    let api = Api::new().await;
    let all = events(&api, json!({"ascending": true}), user()).await;
    assert!(all.len() > 3, "{all:?}");
    let future = json!({"ascending": true, "prev_recorded_at": "2199-01-01T00:00:00+00:00"});
    assert_eq!(events(&api, future, user()).await, Vec::<Value>::new());
    let past = json!({"ascending": true, "prev_recorded_at": "2001-01-01T00:00:00+00:00"});
    assert_eq!(events(&api, past, user()).await, all);
    let before = json!({"prev_recorded_at": "2001-01-01T00:00:00+00:00"});
    assert_eq!(events(&api, before, user()).await, Vec::<Value>::new());
    for ascending in [true, false] {
        let mut read: Vec<Value> = Vec::new();
        loop {
            let mut filter = json!({"ascending": ascending, "limit": 2});
            if let Some(last) = read.last() {
                filter["prev_id"] = last["id"].clone();
                filter["prev_recorded_at"] = last["recorded_at"].clone();
            }
            let page = events(&api, filter, user()).await;
            if page.is_empty() {
                break;
            }
            read.extend(page);
        }
        if !ascending {
            read.reverse();
        }
        assert_eq!(read, all);
    }
}

/// However many runs of other projects came after.
#[tokio::test(flavor = "multi_thread")]
async fn events_of_a_project_are_found_behind_those_of_others() {
    let api = Api::empty().await;
    api.server.node_up().await;
    let create = json!({"project_name": "atlas"});
    let (status, said) = api.send("/api/projects/create", create, Some(server_principal())).await;
    assert_eq!(status, StatusCode::OK, "{said}");
    let submit = |name: &str, account: Option<&str>| {
        // The node is full after a few of them: with `retry` the other runs wait instead of being refused.
        let mut run = submission("retry: {on_events: [no-capacity]}");
        run.spec.name = name.into();
        run.spec.account = account.map(str::to_owned);
        api.server.shared.writer.submit(Box::new(run), server_principal())
    };
    submit("first", Some("atlas")).await.expect("a run");
    for _ in 0..=RECORDS_MAX {
        submit("other", None).await.expect("a run");
    }
    let within = json!({"within_projects": [uuid("project", "atlas")]});
    let found = events(&api, within, server_principal()).await;
    let of_run = |event: &&Value| {
        let targets = event["targets"].as_array().expect("targets");
        targets.iter().any(|target| target["name"] == "first")
    };
    assert!(found.iter().any(|event| of_run(&event)), "{found:?}");
    let unknown = json!({"within_projects": [uuid("project", "none")]});
    assert_eq!(events(&api, unknown, server_principal()).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn events_within_a_fleet_are_those_of_its_instances() {
    let api = Api::new().await;
    let fleet = api.server.shared.read().partitions[0].name.clone();
    let within = |id: String| json!({"within_fleets": [id]});
    let own = events(&api, within(uuid("fleet", &fleet)), user()).await;
    assert!(!own.is_empty());
    let of_instance = |event: &Value| {
        let targets = event["targets"].as_array().expect("targets");
        targets.iter().any(|target| target["type"] == "instance")
    };
    assert!(own.iter().all(of_instance), "{own:?}");
    assert_eq!(events(&api, within(uuid("fleet", "other")), user()).await, Vec::<Value>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn secrets_have_events_for_those_who_may_manage_them() {
    let api = Api::empty().await;
    let root = server_principal;
    for (path, body) in [
        ("create_or_update", json!({"name": "tok", "value": "one"})),
        ("create_or_update", json!({"name": "tok", "value": "two"})),
        ("delete", json!({"secrets_names": ["tok"]})),
    ] {
        let path = format!("/api/project/main/secrets/{path}");
        let (status, said) = api.send(&path, body, Some(root())).await;
        assert_eq!(status, StatusCode::OK, "{said}");
    }
    let of_secrets = json!({"include_target_types": ["secret"], "ascending": true});
    let told = events(&api, of_secrets.clone(), root()).await;
    let messages: Vec<&Value> = told.iter().map(|event| &event["message"]).collect();
    assert_eq!(messages, ["Secret created", "Secret updated", "Secret deleted"]);
    let target = &told[0]["targets"][0];
    assert_eq!((&target["name"], &target["project_name"]), (&json!("tok"), &json!("main")));
    assert_eq!(events(&api, of_secrets, user()).await, Vec::<Value>::new(), "an ordinary user");
}

#[tokio::test(flavor = "multi_thread")]
async fn volumes_have_events_under_the_id_that_lists_show() {
    let api = Api::empty().await;
    for name in ["data", "more"] {
        let volume = CreateVolume {
            project: "main".into(),
            name: name.into(),
            place: VolumePlace::Node(NODE.into()),
            size: None,
        };
        let made = api.server.run(Command::CreateVolume(Box::new(volume))).await;
        made.expect("a volume");
    }
    let path = "/api/project/main/volumes/get";
    let (_, volume) = api.send(path, json!({"name": "data"}), Some(server_principal())).await;
    let of_volume = json!({"target_volumes": [volume["id"]]});
    let told = events(&api, of_volume, user()).await;
    let messages: Vec<&Value> = told.iter().map(|event| &event["message"]).collect();
    assert_eq!(messages, ["Volume created"], "{volume}");
    let target = &told[0]["targets"][0];
    assert_eq!((&target["type"], &target["name"]), (&json!("volume"), &json!("data")));
    let of_all = json!({"include_target_types": ["volume"]});
    assert_eq!(events(&api, of_all, user()).await.len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn diagnosis_of_a_run_is_what_happened_to_it() {
    let api = Api::new().await;
    let named = json!({"run_name": "train"});
    let (_, run) = api.send("/api/project/main/runs/get", named, Some(user())).await;
    let submission = &run["jobs"][0]["job_submissions"][0]["id"];
    let poll = json!({"run_name": "train", "job_submission_id": submission, "diagnose": true});
    let (_, said) = api.send("/api/project/main/logs/poll", poll, Some(user())).await;
    let line = |event: &Value| {
        let bytes = STANDARD.decode(event["message"].as_str().expect("text")).expect("base64");
        String::from_utf8(bytes).expect("text")
    };
    let lines: Vec<String> = said["logs"].as_array().expect("lines").iter().map(line).collect();
    assert_eq!(
        lines,
        [
            "Job created on run submission. Status: SUBMITTED\n",
            "Job assigned to instance\n",
            "Job status changed SUBMITTED -> RUNNING\n",
        ]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn plan_says_whether_the_active_run_can_become_the_asked_one() {
    let api = Api::empty().await;
    api.server.node_up().await;
    let configuration = |more: Value| {
        let mut all = json!({"type": "task", "name": "orbit", "commands": ["sleep 600"],
            "resources": {"cpu": "1..", "memory": "1GB..", "disk": null}, "retry": true});
        for (key, value) in more.as_object().expect("properties") {
            all[key] = value.clone();
        }
        json!({"configuration": all})
    };
    let action = async |more: Value| {
        let plan = json!({"run_spec": configuration(more)});
        let (_, plan) = api.send("/api/project/main/runs/get_plan", plan, Some(user())).await;
        (plan["action"].clone(), plan["current_resource"]["run_spec"]["run_name"].clone())
    };
    let changed = json!({"commands": ["sleep 601"]});
    assert_eq!(action(changed.clone()).await, (json!("create"), json!(null)));
    let apply = json!({"plan": {"run_spec": configuration(json!({}))}});
    let (status, run) = api.send("/api/project/main/runs/apply", apply, Some(user())).await;
    assert_eq!(status, StatusCode::OK, "{run}");
    let named = || json!("orbit");
    assert_eq!(action(json!({})).await, (json!("update"), named()));
    assert_eq!(action(json!({"priority": 9})).await, (json!("update"), named()));
    assert_eq!(action(changed).await, (json!("create"), named()));
    let both = json!({"priority": 9, "max_duration": 60});
    assert_eq!(action(both).await, (json!("create"), named()));
}

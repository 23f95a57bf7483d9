//! Captured bodies of dstack's server and client: an answer goes through our types without loss, a request is read.

use dstack::api::error::ApiError;
use dstack::api::event::{Event, ListEvents};
use dstack::api::fleet::{ApplyFleetPlan, DeleteFleets, Fleet, FleetPlan, GetFleetPlan};
use dstack::api::gpu::{Gpus, ListGpus};
use dstack::api::plan::RunPlan;
use dstack::api::project::{Project, UserWithCreds};
use dstack::api::run::{ApplyRunPlan, DeleteRuns, GetRun, GetRunPlan, ListRuns, Run, StopRuns};
use dstack::api::stored::{
    DeleteSecrets, FileArchive, InitRepo, Logs, Metrics, PollLogs, Secret, SetSecret,
};
use dstack::api::volume::CreateVolume;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

fn body(name: &str) -> Value {
    let path = format!("{}/tests/fixtures/bodies/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{path}: {e}"));
    serde_json::from_str(&text).unwrap()
}

fn answer<T: Serialize + DeserializeOwned>(name: &str) -> T {
    let response = &body(name)["response"];
    let read: T =
        serde_json::from_value(response.clone()).unwrap_or_else(|e| panic!("{name}: {e}"));
    assert_eq!(&serde_json::to_value(&read).unwrap(), response, "{name}");
    read
}

fn request<T: DeserializeOwned>(name: &str) -> T {
    serde_json::from_value(body(name)["request"].clone()).unwrap_or_else(|e| panic!("{name}: {e}"))
}

#[test]
fn answers_go_through_without_loss() {
    for name in ["run_running", "run_service", "run_failed", "run_done", "run_pending"] {
        answer::<Run>(name);
    }
    for name in ["run_plan", "run_plan_service"] {
        answer::<RunPlan>(name);
    }
    answer::<Run>("runs_apply");
    answer::<Vec<Fleet>>("fleets");
    answer::<Fleet>("fleets_apply");
    answer::<FleetPlan>("fleet_plan");
    answer::<Project>("project");
    answer::<UserWithCreds>("user");
    answer::<Vec<Event>>("events");
    answer::<Logs>("logs");
    answer::<Metrics>("metrics");
    answer::<Gpus>("gpus");
    answer::<Secret>("secret");
    answer::<Vec<Secret>>("secrets");
    answer::<FileArchive>("archive");
}

#[test]
fn requests_are_read() {
    let list: ListRuns = request("runs_list");
    assert_eq!((list.limit, list.only_active), (Some(100), true));
    assert_eq!(request::<GetRun>("runs_get").run_name.as_deref(), Some("sleeper"));
    assert_eq!(request::<StopRuns>("runs_stop").runs_names, ["sleeper"]);
    assert_eq!(request::<DeleteRuns>("runs_delete").runs_names, ["devenv"]);
    let plan: GetRunPlan = request("run_plan");
    assert_eq!(plan.run_spec.configuration["type"], "task");
    let apply: ApplyRunPlan = request("runs_apply");
    assert_eq!(apply.plan.run_spec.run_name.as_deref(), Some("sleeper"));
    assert_eq!(request::<GetFleetPlan>("fleet_plan").spec.configuration["name"], "lab");
    assert!(!request::<ApplyFleetPlan>("fleets_apply").force);
    assert_eq!(request::<DeleteFleets>("fleets_delete").names, ["cf"]);
    assert_eq!(request::<CreateVolume>("volume_create").configuration["backend"], "aws");
    assert_eq!(request::<PollLogs>("logs").limit, Some(1000));
    assert_eq!(request::<SetSecret>("secret").name, "tok");
    assert_eq!(request::<DeleteSecrets>("secrets_delete").secrets_names, ["tok"]);
    assert_eq!(request::<InitRepo>("repos_init").repo_id, "none");
    assert!(request::<ListEvents>("events").within_projects.is_some());
    assert_eq!(request::<ListGpus>("gpus").group_by, Some(Vec::new()));
    // An older client leaves fields out, a newer one has more.
    let short: ListRuns = serde_json::from_str(r#"{"limit": 5, "newer": [1]}"#).unwrap();
    assert_eq!(short.limit, Some(5));
}

#[test]
fn errors_have_the_bodies_that_the_client_knows() {
    let cases = [
        ("missing_run", ApiError::not_found("Run not found")),
        ("bad_token", ApiError::invalid_token()),
    ];
    for (name, error) in cases {
        let captured = body(name);
        assert_eq!(captured["status"], error.status, "{name}");
        assert_eq!(captured["response"], error.body, "{name}");
    }
}

//! A body for every route of dstack's API, as its client would send it.

use crate::harness::dice::Dice;
use serde_json::{Value, json};

type Body = fn(&mut Dice) -> Value;

const NO_BODY: Body = |_| json!({});

const ROUTES: &[(&str, Body)] = &[
    ("server/get_info", NO_BODY),
    ("users/get_my_user", NO_BODY),
    ("users/list", NO_BODY),
    ("projects/list", NO_BODY),
    ("projects/main/get", NO_BODY),
    ("backends/list_types", NO_BODY),
    ("project/main/repos/init", |_| json!({"repo_id": "a", "repo_info": {"repo_type": "virtual"}})),
    ("project/main/repos/list", NO_BODY),
    (
        "runs/list",
        |dice| json!({"project_name": "main", "only_active": dice.one_in(2), "limit": dice.below(200)}),
    ),
    ("project/main/runs/get", |dice| json!({"run_name": run(dice)})),
    ("project/main/runs/get_plan", |dice| json!({"run_spec": run_spec(dice), "max_offers": 3})),
    ("project/main/runs/apply", |dice| json!({"plan": {"run_spec": run_spec(dice)}})),
    ("project/main/runs/stop", |dice| json!({"runs_names": [run(dice)], "abort": dice.one_in(2)})),
    ("project/main/gpus/list", |dice| json!({"run_spec": run_spec(dice)})),
    ("project/main/logs/poll", |dice| {
        json!({
            "run_name": run(dice),
            "job_submission_id": "00000000-0000-0000-0000-000000000000",
            "descending": dice.one_in(2),
            "next_token": dice.one_in(4).then(|| dice.below(1 << 20).to_string()),
            "limit": dice.below(2000),
        })
    }),
    ("fleets/list", NO_BODY),
    ("project/main/fleets/list", NO_BODY),
    ("project/main/fleets/get", |_| json!({"name": "gpu"})),
    ("instances/list", NO_BODY),
    ("volumes/list", NO_BODY),
    ("project/main/volumes/list", NO_BODY),
    ("project/main/gateways/list", NO_BODY),
];

fn run(dice: &mut Dice) -> String {
    format!("run{}", dice.below(8))
}

fn run_spec(dice: &mut Dice) -> Value {
    let name = run(dice);
    json!({
        "run_name": name,
        "configuration": {
            "type": "task",
            "name": name,
            "commands": ["true"],
            "env": {"A": "b"},
            "nodes": 1 + dice.below(2),
            "retry": dice.one_in(2),
            "resources": {"cpu": {"count": {"min": 1, "max": 1}}, "memory": {"min": 0.01}},
        },
    })
}

/// A route and a body for it, and whether it starts processes.
pub fn draw(dice: &mut Dice) -> (String, Value, bool) {
    let (path, body) = *dice.pick(ROUTES);
    (format!("/api/{path}"), body(dice), path.ends_with("/apply"))
}

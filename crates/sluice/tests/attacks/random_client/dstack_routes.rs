//! A request for every route of dstack's API, as its client would send it.

use crate::harness::dice::Dice;
use serde_json::{Value, json};

/// Makes the body of a request; `None` for one that is asked for with GET.
type Body = fn(&mut Dice) -> Option<Value>;

const NO_FIELDS: Body = |_| Some(json!({}));

/// Routes with a body of their own, with `{project}` and `{run}` for what is drawn; all others are sent none.
const ROUTES: &[(&str, Body)] = &[
    ("/api/server/get_info", NO_FIELDS),
    ("/api/users/get_my_user", NO_FIELDS),
    ("/api/users/list", NO_FIELDS),
    ("/api/projects/list", NO_FIELDS),
    ("/api/projects/{project}/get", NO_FIELDS),
    ("/api/backends/list_types", NO_FIELDS),
    ("/api/project/{project}/repos/init", |_| {
        Some(json!({"repo_id": "a", "repo_info": {"repo_type": "virtual"}}))
    }),
    ("/api/project/{project}/repos/list", NO_FIELDS),
    ("/api/runs/list", |dice| {
        Some(json!({
            "project_name": "main", "only_active": dice.one_in(2), "ascending": dice.one_in(2),
            "limit": dice.below(200), "job_submissions_limit": dice.below(3),
        }))
    }),
    ("/api/project/{project}/runs/get", |dice| Some(json!({"run_name": run(dice)}))),
    ("/api/project/{project}/runs/get_plan", |dice| {
        Some(json!({"run_spec": run_spec(dice), "max_offers": dice.below(100)}))
    }),
    (APPLY, |dice| Some(json!({"plan": {"run_spec": run_spec(dice)}, "force": dice.one_in(4)}))),
    ("/api/project/{project}/runs/stop", |dice| {
        Some(json!({"runs_names": [run(dice)], "abort": dice.one_in(2)}))
    }),
    ("/api/project/{project}/gpus/list", |dice| Some(json!({"run_spec": run_spec(dice)}))),
    ("/api/project/{project}/logs/poll", |dice| {
        Some(json!({
            "run_name": run(dice),
            "job_submission_id": "00000000-0000-0000-0000-000000000000",
            "descending": dice.one_in(2),
            "next_token": dice.one_in(4).then(|| format!("{}.{}", dice.below(1 << 20), dice.below(9))),
            "limit": dice.below(2000),
        }))
    }),
    ("/api/project/{project}/metrics/job/{run}", |_| None),
    ("/api/fleets/list", NO_FIELDS),
    ("/api/project/{project}/fleets/list", NO_FIELDS),
    ("/api/project/{project}/fleets/get", |_| Some(json!({"name": "gpu"}))),
    ("/api/instances/list", NO_FIELDS),
    ("/api/volumes/list", NO_FIELDS),
    ("/api/project/{project}/volumes/list", NO_FIELDS),
    ("/api/project/{project}/gateways/list", NO_FIELDS),
    ("/api/project/{project}/runs/delete", |dice| Some(json!({"runs_names": [run(dice)]}))),
    ("/api/events/list", |dice| {
        Some(json!({"limit": dice.below(200), "ascending": dice.one_in(2), "within_runs": null}))
    }),
    ("/api/project/{project}/fleets/delete", |_| Some(json!({"names": ["none"]}))),
    ("/api/project/{project}/instances/get", |_| Some(json!({"name": "n1"}))),
    ("/api/users/get_user", |_| Some(json!({"username": "nobody"}))),
    ("/api/users/create", |_| Some(json!({"username": "nobody", "global_role": "user"}))),
    ("/api/users/update", |_| Some(json!({"username": "nobody", "global_role": "user"}))),
    ("/api/users/delete", |_| Some(json!({"users": ["nobody"]}))),
    ("/api/users/refresh_token", |_| Some(json!({"username": "nobody"}))),
    ("/api/projects/create", |_| Some(json!({"project_name": "atlas"}))),
    ("/api/projects/delete", |_| Some(json!({"projects_names": ["atlas"]}))),
    ("/api/projects/{project}/add_members", |_| {
        Some(json!({"members": [{"username": "nobody", "project_role": "user"}]}))
    }),
];

const APPLY: &str = "/api/project/{project}/runs/apply";

/// One run is applied as often as all that is asked about together: many are known by then.
const APPLY_ONE_IN: u64 = 6;

/// Parts of a path that name no project and no run; `%00` and `%ff` are no text.
const ODD_PARTS: &[&str] = &["other", "..", "%2e%2e", "%00", "%ff", "-1", "'", "main%2fruns"];

pub struct DstackRequest {
    pub path: String,
    /// `None` for GET.
    pub body: Option<Value>,
    pub starts_processes: bool,
    /// Whether the path is one of dstack's client.
    pub proper_path: bool,
}

impl DstackRequest {
    pub fn draw(dice: &mut Dice) -> Self {
        let paths: Vec<&str> = server::dstack_paths().collect();
        let route = if dice.one_in(APPLY_ONE_IN) { APPLY } else { *dice.pick(&paths) };
        let body = body_of(route).unwrap_or(NO_FIELDS);
        let proper_path = !dice.one_in(12);
        let (project, run) = if proper_path {
            ("main".to_owned(), run(dice))
        } else if dice.one_in(8) {
            ("x".repeat(60_000), run(dice))
        } else {
            ((*dice.pick(ODD_PARTS)).to_owned(), (*dice.pick(ODD_PARTS)).to_owned())
        };
        Self {
            path: route.replace("{project}", &project).replace("{run}", &run),
            body: body(dice),
            starts_processes: route == APPLY,
            proper_path,
        }
    }
}

fn body_of(route: &str) -> Option<Body> {
    ROUTES.iter().find(|row| row.0 == route).map(|row| row.1)
}

fn run(dice: &mut Dice) -> String {
    format!("run{}", dice.below(100))
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
            // An administrator among the attackers may leave the cluster without a default partition.
            "fleets": ["gpu"],
            "resources": {"cpu": {"count": {"min": 1, "max": 1}}, "memory": {"min": 0.01}},
        },
        "profile": dice.one_in(4).then(|| json!({"name": "default", "priority": dice.below(101)})),
    })
}

#[test]
fn every_body_is_for_a_route_of_dstacks_api() {
    let served: Vec<&str> = server::dstack_paths().collect();
    for (path, _) in ROUTES {
        assert!(served.contains(path), "{path}");
    }
}

//! A request for every route of dstack's API, as its client would send it.

use crate::harness::dice::Dice;
use serde_json::{Value, json};

/// Makes the body of a request; `None` for one that is asked for with GET.
type Body = fn(&mut Dice) -> Option<Value>;

const NO_FIELDS: Body = |_| Some(json!({}));

/// Every route, with `{project}` and `{run}` for what is drawn.
const ROUTES: &[(&str, Body)] = &[
    ("/api/users/get_my_user", NO_FIELDS),
    ("/api/users/list", NO_FIELDS),
    ("/api/projects/list", NO_FIELDS),
    ("/api/projects/{project}/get", NO_FIELDS),
    ("/api/backends/list_types", NO_FIELDS),
    // No source is made of it: nothing is dialled.
    ("/api/project/{project}/backends/create", |_| Some(json!({"type": "aws"}))),
    ("/api/project/{project}/backends/update", |_| Some(json!({"type": "aws"}))),
    ("/api/project/{project}/backends/delete", |_| Some(json!({"backends_names": ["aws"]}))),
    ("/api/project/{project}/backends/create_yaml", |_| Some(json!({"config_yaml": "type: aws"}))),
    ("/api/project/{project}/backends/update_yaml", |_| Some(json!({"config_yaml": "type: aws"}))),
    ("/api/project/{project}/backends/{backend}/config_info", NO_FIELDS),
    ("/api/project/{project}/backends/{backend}/get_yaml", NO_FIELDS),
    ("/api/project/{project}/repos/init", |_| {
        Some(json!({"repo_id": "a", "repo_info": {"repo_type": "virtual"}}))
    }),
    ("/api/project/{project}/repos/list", NO_FIELDS),
    ("/api/project/{project}/repos/get", |_| Some(json!({"repo_id": "a", "include_creds": true}))),
    ("/api/project/{project}/repos/upload_code", NO_FIELDS),
    ("/api/project/{project}/repos/delete", |_| Some(json!({"repos_ids": ["a"]}))),
    ("/api/files/upload_archive", NO_FIELDS),
    ("/api/files/get_archive_by_hash", |_| Some(json!({"hash": "0".repeat(64)}))),
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
    ("/api/project/{project}/secrets/list", NO_FIELDS),
    ("/api/project/{project}/secrets/get", |dice| Some(json!({"name": secret(dice)}))),
    ("/api/project/{project}/secrets/create_or_update", |dice| {
        Some(json!({"name": secret(dice), "value": "hush"}))
    }),
    ("/api/project/{project}/secrets/delete", |dice| {
        Some(json!({"secrets_names": [secret(dice)]}))
    }),
    ("/api/project/{project}/fleets/get_plan", |_| Some(json!({"spec": of_type("fleet")}))),
    ("/api/project/{project}/fleets/apply", |_| Some(json!({"plan": {"spec": of_type("fleet")}}))),
    ("/api/project/{project}/fleets/delete", |_| Some(json!({"names": ["gpu"]}))),
    ("/api/project/{project}/fleets/delete_instances", |dice| {
        Some(json!({"name": "gpu", "instance_nums": [dice.below(3)]}))
    }),
    ("/api/project/{project}/instances/get", |_| Some(json!({"name": "node1"}))),
    ("/api/project/{project}/instances/get_instance_health_checks", |_| {
        Some(json!({"fleet_name": "gpu", "instance_num": 0}))
    }),
    ("/api/project/{project}/volumes/get", |_| Some(json!({"name": "data"}))),
    ("/api/project/{project}/volumes/create", |_| Some(of_type("volume"))),
    ("/api/project/{project}/volumes/delete", |_| Some(json!({"names": ["data"]}))),
    ("/api/project/{project}/gateways/get", |_| Some(json!({"name": "gate"}))),
    ("/api/project/{project}/gateways/get_plan", |_| Some(json!({"spec": of_type("gateway")}))),
    ("/api/project/{project}/gateways/apply", |_| {
        Some(json!({"plan": {"spec": of_type("gateway")}}))
    }),
    ("/api/project/{project}/gateways/create", |_| Some(of_type("gateway"))),
    ("/api/project/{project}/gateways/delete", |_| Some(json!({"names": ["gate"]}))),
    ("/api/project/{project}/gateways/set_default", |_| Some(json!({"name": "gate"}))),
    ("/api/project/{project}/templates/list", NO_FIELDS),
    ("/api/projects/list_only_no_fleets", NO_FIELDS),
    ("/api/users/public_keys/list", NO_FIELDS),
    ("/api/project/{project}/runs/delete", |dice| Some(json!({"runs_names": [run(dice)]}))),
    ("/api/events/list", |dice| {
        Some(json!({"limit": dice.below(200), "ascending": dice.one_in(2), "within_runs": null}))
    }),
    ("/api/users/get_user", |_| Some(json!({"username": "nobody"}))),
    ("/api/users/create", |_| Some(json!({"username": "nobody", "global_role": "user"}))),
    ("/api/users/update", |_| Some(json!({"username": "nobody", "global_role": "user"}))),
    ("/api/users/delete", |_| Some(json!({"users": ["nobody"]}))),
    ("/api/users/refresh_token", |_| Some(json!({"username": "nobody"}))),
    ("/api/users/refresh_ssh_key", |_| Some(json!({"username": "nobody"}))),
    ("/api/projects/create", |_| Some(json!({"project_name": "atlas"}))),
    (DELETE_PROJECTS, |_| Some(json!({"projects_names": ["atlas"]}))),
    ("/api/projects/{project}/update", NO_FIELDS),
    ("/api/projects/{project}/set_members", NO_FIELDS),
    ("/api/projects/{project}/add_members", |_| {
        Some(json!({"members": [{"username": "nobody", "project_role": "user"}]}))
    }),
    ("/api/projects/{project}/remove_members", |_| Some(json!({"usernames": ["nobody"]}))),
];

const APPLY: &str = "/api/project/{project}/runs/apply";
/// Names a project that another may have deleted before.
const DELETE_PROJECTS: &str = "/api/projects/delete";

/// Parts of a path that name no project and no run; `%00` and `%ff` are no text.
const ODD_PARTS: &[&str] = &["other", "..", "%2e%2e", "%00", "%ff", "-1", "'", "main%2fruns"];

pub struct DstackRequest {
    pub path: String,
    /// `None` for GET.
    pub body: Option<Value>,
    pub starts_processes: bool,
    /// Whether the path is one of dstack's client.
    pub proper_path: bool,
    /// Whether the project that it is about may not be there.
    pub may_lack_project: bool,
}

impl DstackRequest {
    pub fn draw(dice: &mut Dice) -> Self {
        let paths: Vec<&str> = server::dstack_paths().collect();
        let refused: Vec<&str> = server::dstack_refused_paths().collect();
        let (route, body) = match dice.below(6) {
            0 => (APPLY, body_of(APPLY)),
            // What is refused whatever is asked reads no body.
            1 => (*dice.pick(&refused), NO_FIELDS),
            _ => {
                let route = *dice.pick(&paths);
                (route, body_of(route))
            }
        };
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
            may_lack_project: route == DELETE_PROJECTS,
        }
    }
}

fn body_of(route: &str) -> Body {
    let row = ROUTES.iter().find(|row| row.0 == route);
    row.unwrap_or_else(|| panic!("{route}: no body is known for it")).1
}

fn secret(dice: &mut Dice) -> String {
    format!("secret{}", dice.below(9))
}

/// A configuration of what cannot be made here.
fn of_type(kind: &str) -> Value {
    let configuration = match kind {
        "fleet" => json!({"type": kind, "name": "pool", "nodes": 1}),
        "volume" => {
            json!({"type": kind, "name": "data", "backend": "aws", "region": "eu", "size": "9GB"})
        }
        _ => {
            json!({"type": kind, "name": "gate", "backend": "aws", "region": "eu", "domain": "a.b"})
        }
    };
    json!({"configuration": configuration})
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
fn every_route_of_dstacks_api_has_a_body_and_no_other() {
    let mut known: Vec<&str> = ROUTES.iter().map(|row| row.0).collect();
    let mut served: Vec<&str> = server::dstack_paths().collect();
    known.sort_unstable();
    served.sort_unstable();
    assert_eq!(known, served);
}

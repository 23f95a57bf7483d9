//! A configuration as dstack's server answers with it.

use crate::api::run::RunSpec;
use crate::configuration::value::Value;
use crate::environment::NO_REPOSITORY;
use serde_json::json;

/// What a plan shows beside the configuration that was sent (`effective_run_spec`, `effective_spec`): the server's own defaults filled in, and
/// no private keys.
pub fn effective(mut value: Value) -> Value {
    match value.get("type").as_text() {
        Some("fleet") => forget_keys(&mut value),
        Some("task" | "dev-environment" | "service") => {
            if value.get("priority").is_null() {
                value.set("priority", Value::Integer(0));
            }
            name_vendor(&mut value);
        }
        _ => {}
    }
    value
}

/// The configuration in a form that dstack's client can read: it has no range of nodes, and refuses some properties beside `groups`. `granted` is the
/// number of nodes that the run has, once it has them.
pub fn for_client(configuration: &Value, granted: Option<u32>) -> serde_json::Value {
    let mut json = told_by_groups(configuration).as_ref().unwrap_or(configuration).to_json();
    if let Some(nodes) = nodes_for_client(configuration, granted) {
        json["nodes"] = nodes.into();
    }
    let fleets = configuration.get("fleets").items();
    if !fleets.is_empty() {
        json["fleets"] = fleets.iter().map(|fleet| fleet_for_client(fleet).to_json()).collect();
    }
    json
}

/// As [`for_client`] for a run that has no nodes yet, in dstack's own form.
pub fn client_form(mut configuration: Value) -> Value {
    if let Some(told) = told_by_groups(&configuration) {
        configuration = told;
    }
    if let Some(nodes) = nodes_for_client(&configuration, None) {
        configuration.set("nodes", Value::Integer(nodes.into()));
    }
    if let Some(Value::List(fleets)) = configuration.get_mut("fleets") {
        for fleet in fleets {
            *fleet = fleet_for_client(fleet);
        }
    }
    configuration
}

/// The profile that came beside a configuration, in a form that any client can read.
pub fn profile_for_client(mut profile: serde_json::Value) -> serde_json::Value {
    let fleets = profile.get_mut("fleets").and_then(serde_json::Value::as_array_mut);
    for fleet in fleets.into_iter().flatten() {
        let text = |key: &str| fleet.get(key).and_then(serde_json::Value::as_str);
        let reference = text("name").map(|name| reference(text("project"), name));
        if let Some(reference) = reference {
            *fleet = reference.into();
        }
    }
    profile
}

fn fleet_for_client(fleet: &Value) -> Value {
    match fleet.get("name").as_text() {
        Some(name) => Value::Text(reference(fleet.get("project").as_text(), name)),
        None => fleet.clone(),
    }
}

/// A fleet as a text, `NAME` or `PROJECT/NAME`: clients before 0.20.14 read it in no other form, and later ones in this too.
fn reference(project: Option<&str>, name: &str) -> String {
    project.map_or_else(|| name.to_owned(), |project| format!("{project}/{name}"))
}

/// Properties that a group may have in place of the whole: the client never takes those of [`NOT_BESIDE_GROUPS`] of the whole, and the others of
/// the whole or of groups, and not of both. One such run would hide all others of its project from the client.
const OF_WHOLE_OR_GROUPS: [&str; 9] = [
    "commands",
    "ports",
    "image",
    "docker",
    "privileged",
    "python",
    "nvcc",
    "spot_policy",
    "reservation",
];
const NOT_BESIDE_GROUPS: [&str; 2] = ["commands", "ports"];

/// What the whole says, said by each group that says nothing of it; `None` where the client reads the configuration as it is.
fn told_by_groups(configuration: &Value) -> Option<Value> {
    let groups = configuration.get("groups").items();
    let is_moved = |name: &&'static str| {
        let is_said_by_one = || groups.iter().any(|group| !is_open(group.get(name)));
        let said = configuration.get(name);
        !is_open(said)
            && *said != Value::Bool(false)
            && (NOT_BESIDE_GROUPS.contains(name) || is_said_by_one())
    };
    let moved: Vec<&'static str> = OF_WHOLE_OR_GROUPS.into_iter().filter(is_moved).collect();
    if groups.is_empty() || moved.is_empty() {
        return None;
    }
    let mut own = configuration.clone();
    for name in moved {
        let said = configuration.get(name);
        if let Some(Value::List(groups)) = own.get_mut("groups") {
            for group in groups.iter_mut().filter(|group| is_open(group.get(name))) {
                group.set(name, said.clone());
            }
        }
        let nothing = match said {
            Value::List(_) => Value::List(Vec::new()),
            Value::Bool(_) => Value::Bool(false),
            _ => Value::Null,
        };
        own.set(name, nothing);
    }
    Some(own)
}

fn is_open(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::List(items) => items.is_empty(),
        _ => false,
    }
}

/// The number that stands for a range of nodes; `None` for a configuration without a range.
fn nodes_for_client(configuration: &Value, granted: Option<u32>) -> Option<u32> {
    let range = configuration.get("nodes").as_text()?;
    let least = range.split("..").next().and_then(|least| least.parse().ok());
    Some(granted.or(least).unwrap_or(1))
}

/// The run of a configuration that was not sent by dstack's client, as that would have sent it.
pub fn run_spec(name: &str, file: Option<String>, configuration: &Value) -> RunSpec {
    RunSpec {
        run_name: Some(name.to_owned()),
        repo_id: Some(NO_REPOSITORY.to_owned()),
        repo_data: Some(json!({"repo_type": "virtual"})),
        configuration_path: file,
        configuration: for_client(&effective(configuration.clone()), None),
        ..RunSpec::default()
    }
}

/// Without an image the GPUs are taken to be NVIDIA's, as dstack does, unless none are wanted.
fn name_vendor(value: &mut Value) {
    let is_said = |value: &Value| !matches!(value, Value::Null | Value::Bool(false));
    if is_said(value.get("image")) || is_said(value.get("docker")) {
        return;
    }
    let Some(gpu) = value.get_mut("resources").and_then(|r| r.get_mut("gpu")) else { return };
    let none = gpu.get("count").get("max") == &Value::Integer(0);
    if !gpu.is_null() && !none && gpu.get("vendor").is_null() {
        let names = gpu.get("name").texts();
        gpu.set("vendor", Value::text(vendor_of(&names)));
    }
}

/// The vendor that the beginning of a name tells.
pub(crate) fn vendor_of(names: &[String]) -> &'static str {
    const BEGINNINGS: &[(&str, &str)] = &[
        ("mi", "amd"),
        ("gaudi", "intel"),
        ("tpu", "google"),
        ("v2-", "google"),
        ("v3-", "google"),
        ("v4-", "google"),
        ("v5", "google"),
        ("v6e", "google"),
        ("n150", "tenstorrent"),
        ("n300", "tenstorrent"),
    ];
    let name = names.first().map(|name| name.to_lowercase()).unwrap_or_default();
    let found = BEGINNINGS.iter().find(|(start, _)| name.starts_with(start));
    found.map_or("nvidia", |(_, vendor)| vendor)
}

fn forget_keys(fleet: &mut Value) {
    let Some(ssh @ Value::Map(_)) = fleet.get_mut("ssh_config") else { return };
    forget_key(ssh);
    if let Some(Value::List(hosts)) = ssh.get_mut("hosts") {
        hosts.iter_mut().for_each(forget_key);
    }
}

/// Its own key, and that of the proxy before it.
fn forget_key(host: &mut Value) {
    if let Some(key) = host.get_mut("ssh_key") {
        *key = Value::Null;
    }
    if let Some(key) = host.get_mut("proxy_jump").and_then(|proxy| proxy.get_mut("ssh_key")) {
        *key = Value::Null;
    }
}

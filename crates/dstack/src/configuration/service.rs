//! `type: service` as a type: a task whose replicas answer requests.

use super::reading::Reading;
use super::task::Task;
use super::value::Value;
use model::publication::{GatewayChoice, HttpsChoice};
use model::replica_group::{GroupRole, ReplicaGroup, RouterKind};
use model::service::{Probe, ProbeMethod, RateKey, RateLimit, Scaling, ServedModel, Service};
use serde_json::json;

/// The path of OpenAI's API in a replica where `model` has no `prefix`.
const MODEL_PREFIX: &str = "/v1";
/// A model may take long for its first token.
const MODEL_PROBE_TIMEOUT_S: u32 = 30;
/// Shorter than that of other probes: it ends when the replica is ready, and whoever waits for the first replica waits for it.
const MODEL_PROBE_INTERVAL_S: u32 = 2;

/// What a group says instead of the service, where it says it.
const OF_GROUP: [&str; 8] =
    ["scaling", "spot_policy", "reservation", "image", "docker", "privileged", "python", "nvcc"];

/// The run of a service. One of several groups of replicas is a task for each group; its first is the run itself.
pub(super) fn task(value: &Value, reading: &Reading) -> Task {
    let groups = value.get("groups").items();
    let has_router = groups.iter().any(|group| !group.get("router").is_null());
    let is_dynamo = |group: &Value| role(group, true) == GroupRole::Router(RouterKind::Dynamo);
    let has_dynamo = groups.iter().any(is_dynamo);
    let mut replica_groups: Vec<Task> = Vec::new();
    let (mut first_replica, count) = (0_u32, u32::try_from(groups.len()).unwrap_or(u32::MAX));
    for (group, index) in groups.iter().zip(0_u32..) {
        let mut of_group = with_group(value, group);
        // A router is told its workers when it is ready, and answers for the model once it has them; a worker may not answer by itself.
        if has_router && value.get("probes").is_null() {
            of_group.set("probes", Value::List(Vec::new()));
        }
        let own = replicas_task(&of_group, reading);
        let name = group.get("name").as_owned_text().unwrap_or_else(|| index.to_string());
        let role = role(group, has_router);
        let waits_for_router = role == GroupRole::Worker && has_dynamo;
        let place = ReplicaGroup { index, count, first_replica, name, role, waits_for_router };
        let service = own.service.map(|service| Service { group: Some(place), ..service });
        first_replica =
            first_replica.saturating_add(service.as_ref().map_or(0, |service| service.replicas));
        replica_groups.push(Task { service, ..own });
    }
    match replica_groups.first().cloned() {
        Some(first) => Task { replica_groups, ..first },
        None => replicas_task(value, reading),
    }
}

fn role(group: &Value, has_router: bool) -> GroupRole {
    let router = group.get("router");
    let kind = router.get("type").as_text().and_then(RouterKind::of_word);
    match (router.is_null(), has_router) {
        (false, _) => GroupRole::Router(kind.unwrap_or(RouterKind::Smg)),
        (true, true) => GroupRole::Worker,
        (true, false) => GroupRole::Serves,
    }
}

/// The service as it would be with this group alone.
fn with_group(value: &Value, group: &Value) -> Value {
    let mut own = value.clone();
    own.set("groups", Value::Null);
    own.set("replicas", group.get("replicas").clone());
    own.set("resources", group.get("resources").clone());
    if !group.get("commands").items().is_empty() {
        own.set("commands", group.get("commands").clone());
    }
    for name in OF_GROUP {
        if !group.get(name).is_null() {
            own.set(name, group.get(name).clone());
        }
    }
    own
}

/// A run whose replicas are alike: the tasks of an array, each placed, limited and retried by itself.
fn replicas_task(value: &Value, reading: &Reading) -> Task {
    let service = service(value);
    // What is scaled is an array also where it has one replica at most: tasks of it are held while they are not needed.
    let is_array = service.replicas > 1 || service.scaling.is_some();
    let array = is_array.then(|| format!("0-{}", service.replicas.saturating_sub(1)));
    Task { array, service: Some(service), ..Task::of(value, reading) }
}

fn service(value: &Value) -> Service {
    let port = value.get("port").get("container_port").as_integer();
    let replicas = value.get("replicas").get("max").as_count();
    Service {
        scaling: scaling(value),
        port: port.and_then(|port| u16::try_from(port).ok()).unwrap_or_default(),
        replicas: replicas.unwrap_or(1),
        auth: value.get("auth").as_bool().unwrap_or(true),
        strip_prefix: value.get("strip_prefix").as_bool().unwrap_or(true),
        gateway: gateway(value.get("gateway")),
        https: https(value.get("https")),
        probes: probes(value),
        model: model(value.get("model")),
        rate_limits: value.get("rate_limits").items().iter().map(rate_limit).collect(),
        // The first deployment; an update of a service that runs gets the next number when it is submitted.
        deployment: 0,
        group: None,
    }
}

/// A gateway is every project's: of `PROJECT/NAME` the name alone counts.
fn gateway(value: &Value) -> GatewayChoice {
    match (value.as_bool(), value.get("name").as_owned_text()) {
        (Some(true), _) => GatewayChoice::Required,
        (Some(false), _) => GatewayChoice::Off,
        (None, Some(name)) => GatewayChoice::Named(name),
        (None, None) => GatewayChoice::Default,
    }
}

/// `auto` where it says nothing.
fn https(value: &Value) -> HttpsChoice {
    match value.as_bool() {
        Some(true) => HttpsChoice::On,
        Some(false) => HttpsChoice::Off,
        None => HttpsChoice::Auto,
    }
}

/// A range of replicas has one.
fn scaling(value: &Value) -> Option<Scaling> {
    let said = Some(value.get("scaling")).filter(|said| !said.is_null())?;
    let seconds = |name: &str, usual: u32| {
        let found = said.get(name).as_duration();
        found.map_or(usual, |found| u32::try_from(found.as_secs()).unwrap_or(u32::MAX))
    };
    Some(Scaling {
        min: value.get("replicas").get("min").as_count().unwrap_or(0),
        target_milli: (said.get("target").as_number().unwrap_or_default() * 1000.0).round() as u64,
        window_s: seconds("window", 60),
        up_delay_s: seconds("scale_up_delay", 300),
        down_delay_s: seconds("scale_down_delay", 600),
    })
}

fn rate_limit(value: &Value) -> RateLimit {
    let key = value.get("key");
    let rps = value.get("rps").as_number().unwrap_or_default();
    let burst = value.get("burst").as_integer().unwrap_or_default();
    RateLimit {
        prefix: value.get("prefix").as_text().unwrap_or("/").to_owned(),
        key: match key.get("type").as_text() {
            Some("header") => {
                RateKey::Header(key.get("header").as_owned_text().unwrap_or_default())
            }
            _ => RateKey::IpAddress,
        },
        // A float becomes the nearest number that there is.
        rps_milli: (rps * 1000.0).round() as u64,
        burst: u32::try_from(burst).unwrap_or(u32::MAX),
    }
}

fn model(value: &Value) -> Option<ServedModel> {
    let name = value.get("name").as_owned_text()?;
    let prefix = model_prefix(value.get("prefix").as_text());
    Some(ServedModel { name, prefix, eos_token: value.get("eos_token").as_owned_text() })
}

fn model_prefix(said: Option<&str>) -> String {
    said.unwrap_or(MODEL_PREFIX).trim_end_matches('/').to_owned()
}

/// The probes that the configuration names, also where it names an empty list; where it says nothing of probes, that of its model.
fn probes(value: &Value) -> Vec<Probe> {
    let (said, model) = (value.get("probes"), value.get("model"));
    if said.is_null() {
        return model_probe(|key| model.get(key).as_text()).into_iter().collect();
    }
    said.items().iter().map(probe).collect()
}

/// The probe of a service that has a `model` and no `probes`, by the properties of the model: a request for one token. Only the format
/// `openai` says where that is asked for. It ends when the replica is ready, so that a busy replica never fails it.
pub fn model_probe<'a>(property: impl Fn(&str) -> Option<&'a str>) -> Option<Probe> {
    let name = property("name").filter(|_| property("format") == Some("openai"))?;
    let message = json!({"role": "user", "content": "hi"});
    let body = json!({"model": name, "messages": [message], "max_tokens": 1});
    Some(Probe {
        url: format!("{}/chat/completions", model_prefix(property("prefix"))),
        method: ProbeMethod::Post,
        headers: vec![("Content-Type".to_owned(), "application/json".to_owned())],
        body: Some(body.to_string()),
        timeout_s: MODEL_PROBE_TIMEOUT_S,
        interval_s: MODEL_PROBE_INTERVAL_S,
        until_ready: true,
        ..Probe::default()
    })
}

/// A probe, with dstack's values for what it leaves open.
fn probe(value: &Value) -> Probe {
    let usual = Probe::default();
    let header = |value: &Value| {
        let text = |name: &str| value.get(name).as_owned_text();
        Some((text("name")?, text("value")?))
    };
    let seconds = |name: &str, usual: u32| {
        let said = value.get(name).as_duration();
        said.map_or(usual, |said| u32::try_from(said.as_secs()).unwrap_or(u32::MAX))
    };
    let method = value.get("method").as_text().and_then(ProbeMethod::of_word);
    Probe {
        url: value.get("url").as_owned_text().unwrap_or(usual.url),
        method: method.unwrap_or(usual.method),
        headers: value.get("headers").items().iter().filter_map(header).collect(),
        body: value.get("body").as_owned_text(),
        timeout_s: seconds("timeout", usual.timeout_s),
        interval_s: seconds("interval", usual.interval_s),
        ready_after: value.get("ready_after").as_count().unwrap_or(usual.ready_after),
        until_ready: value.get("until_ready").as_bool().unwrap_or(usual.until_ready),
    }
}

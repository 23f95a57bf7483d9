//! A run as it was kept, and the jobs of it that dstack's client is shown. The text is answered as it is: only what jobs
//! repeat of it is read.

use dstack::api::job::{AppSpec, JobSpec, Requirements, Retry};
use dstack::api::run::RunSpec;
use dstack::configuration::policy::{RETRY_DURATION_S, RETRY_EVENTS, STOP_S};
use dstack::configuration::{from_json, model_probe};
use model::reason::Refusal;
use model::replica_group::ReplicaGroup;
use model::service::Probe;
use serde::de::value::MapAccessDeserializer;
use serde::de::{MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Value, json};
use std::fmt;
use std::marker::PhantomData;

/// What the jobs of a run repeat of its specification.
#[derive(Default)]
pub struct KeptSpec<'a> {
    repo_data: Option<&'a RawValue>,
    configuration: KeptConfiguration<'a>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeptTexts<'a> {
    #[serde(borrow)]
    repo_data: Option<&'a RawValue>,
    #[serde(borrow)]
    configuration: Option<Mapping<KeptConfiguration<'a>>>,
}

/// A mapping of fields. serde alone would also take a list of their values.
struct Mapping<T>(T);

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Mapping<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OfMap<T>(PhantomData<T>);

        impl<'de, T: Deserialize<'de>> Visitor<'de> for OfMap<T> {
            type Value = Mapping<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a mapping")
            }

            fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Mapping<T>, A::Error> {
                T::deserialize(MapAccessDeserializer::new(map)).map(Mapping)
            }
        }

        deserializer.deserialize_map(OfMap(PhantomData))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KeptType {
    Task,
    DevEnvironment,
    Service,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct KeptConfiguration<'a> {
    r#type: Option<KeptType>,
    commands: Option<Vec<String>>,
    init: Option<Vec<String>>,
    env: Value,
    image: Value,
    priority: Value,
    inactivity_duration: Value,
    retry: Value,
    privileged: Value,
    docker: Value,
    max_duration: Value,
    stop_duration: Value,
    max_price: Value,
    reservation: Value,
    working_dir: Value,
    ide: Value,
    ports: Value,
    /// The one port of a service.
    port: Value,
    probes: Value,
    model: Value,
    #[serde(borrow)]
    utilization_policy: Option<&'a RawValue>,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
    #[serde(borrow)]
    groups: Option<Vec<KeptGroup<'a>>>,
}

/// The editor of a dev environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ide {
    Vscode,
    Cursor,
    Windsurf,
    Zed,
}

impl Ide {
    fn named(name: &str) -> Option<Self> {
        match name {
            "vscode" => Some(Self::Vscode),
            "cursor" => Some(Self::Cursor),
            "windsurf" => Some(Self::Windsurf),
            "zed" => Some(Self::Zed),
            _ => None,
        }
    }

    /// The address that opens it in this folder of a host.
    pub fn url(self, host: &str, folder: &str) -> String {
        let scheme = match self {
            Self::Vscode => "vscode",
            Self::Cursor => "cursor",
            Self::Windsurf => "windsurf",
            Self::Zed => return format!("zed://ssh/{host}{folder}/"),
        };
        format!("{scheme}://vscode-remote/ssh-remote+{host}{folder}/")
    }

    pub fn shown(self) -> &'static str {
        match self {
            Self::Vscode => "VS Code",
            Self::Cursor => "Cursor",
            Self::Windsurf => "Windsurf",
            Self::Zed => "Zed",
        }
    }
}

/// A group of nodes, with what it says of itself.
#[derive(Default, Deserialize)]
#[serde(default)]
struct KeptGroup<'a> {
    name: Option<String>,
    nodes: Option<u32>,
    commands: Option<Vec<String>>,
    ports: Value,
    /// The image of a group of replicas.
    image: Value,
    router: Value,
    #[serde(borrow)]
    resources: Option<&'a RawValue>,
}

/// A node's place in its group.
struct GroupRank<'s, 'a> {
    index: u32,
    rank: u32,
    group: Option<&'s KeptGroup<'a>>,
}

impl<'a> KeptSpec<'a> {
    /// `None` of a text that is no run.
    pub fn of(text: &'a RawValue) -> Option<Self> {
        let Mapping(texts): Mapping<KeptTexts> = serde_json::from_str(text.get()).ok()?;
        let Mapping(configuration) = texts.configuration?;
        configuration.r#type?;
        Some(Self { repo_data: texts.repo_data, configuration })
    }

    pub fn ide(&self) -> Option<Ide> {
        self.configuration.ide.as_str().and_then(Ide::named)
    }

    /// Whether it says something else than the run has, which was updated since.
    pub fn is_updated(&self, now: Updatable) -> bool {
        let KeptConfiguration { priority, inactivity_duration, .. } = &self.configuration;
        priority.as_u64().unwrap_or(0) != u64::from(now.priority)
            || inactivity_duration.as_u64() != now.inactivity_s.map(u64::from)
    }

    pub fn job_spec(&self, name: &str, rank: u32, count: u32) -> JobSpec {
        let configuration = &self.configuration;
        let place = configuration.group_rank(rank);
        let GroupRank { index, group, .. } = place;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let group_name = group.and_then(|group| group.name.clone());
        let resources = group.and_then(|group| group.resources).or(configuration.resources);
        let env = configuration.env.as_object().into_iter().flatten();
        JobSpec {
            replica_num: 0,
            job_num: rank,
            job_name: format!("{name}-{rank}-0"),
            jobs_per_replica: count,
            replica_group: "0".to_owned(),
            app_specs: configuration.app_specs(group),
            user: None,
            commands: configuration.commands(group).to_vec(),
            env: env
                .filter_map(|(key, value)| Some((key.clone(), value.as_str()?.to_owned())))
                .collect(),
            home_dir: None,
            image_name: text(&configuration.image).unwrap_or_default(),
            privileged: [&configuration.privileged, &configuration.docker]
                .iter()
                .any(|said| said.as_bool() == Some(true)),
            single_branch: None,
            max_duration: configuration.max_duration.as_u64(),
            stop_duration: match &configuration.stop_duration {
                Value::Null => Some(STOP_S.into()),
                said => said.as_u64(),
            },
            utilization_policy: configuration.utilization_policy.map(ToOwned::to_owned),
            registry_auth: None,
            requirements: Requirements {
                resources: resources.map_or_else(|| raw(&()), ToOwned::to_owned),
                max_price: configuration.max_price.as_f64(),
                spot: Some(false),
                reservation: text(&configuration.reservation),
                multinode: Some(count > 1),
                backend_options: None,
            },
            retry: configuration.retry(),
            volumes: Vec::new(),
            ssh_key: None,
            working_dir: text(&configuration.working_dir),
            repo_data: self.repo_data.map(ToOwned::to_owned),
            repo_code_hash: None,
            // The client wants one, also where there is no repository.
            repo_dir: Some(String::new()),
            repo_exists_action: None,
            file_archives: Vec::new(),
            service_port: configuration.service_port(),
            probes: configuration.probes(),
            node_group_index: index,
            node_group_name: group_name.unwrap_or_else(|| index.to_string()),
            node_group_job_index: place.rank,
        }
    }

    /// The job of one of several replicas of a service, with what its group says of itself.
    pub fn replica_spec(&self, name: &str, replica: u32, of: Option<&ReplicaGroup>) -> JobSpec {
        let job_name = format!("{name}-0-{replica}");
        let spec = JobSpec { replica_num: replica, job_name, ..self.job_spec(name, 0, 1) };
        let Some(of) = of else { return spec };
        let configuration = &self.configuration;
        let group = configuration.groups.iter().flatten().nth(of.index as usize);
        let resources = group.and_then(|group| group.resources).or(configuration.resources);
        let image = group.and_then(|group| group.image.as_str()).map(str::to_owned);
        JobSpec {
            replica_group: of.name.clone(),
            commands: configuration.commands(group).to_vec(),
            image_name: image.unwrap_or(spec.image_name),
            requirements: Requirements {
                resources: resources.map_or_else(|| raw(&()), ToOwned::to_owned),
                ..spec.requirements
            },
            app_specs: Vec::new(),
            node_group_index: 0,
            node_group_name: "0".to_owned(),
            node_group_job_index: 0,
            ..spec
        }
    }
}

impl<'a> KeptConfiguration<'a> {
    fn commands<'s>(&'s self, group: Option<&'s KeptGroup<'a>>) -> &'s [String] {
        if self.r#type == Some(KeptType::DevEnvironment) {
            return self.init.as_deref().unwrap_or_default();
        }
        let own = group.and_then(|group| group.commands.as_deref());
        let own = own.filter(|commands| !commands.is_empty());
        own.or(self.commands.as_deref()).unwrap_or_default()
    }

    /// `true`, and a mapping without events, are all of them.
    fn retry(&self) -> Option<Retry> {
        let said = match &self.retry {
            Value::Bool(true) => &Value::Null,
            said @ Value::Object(_) => said,
            _ => return None,
        };
        let events = said["on_events"].as_array().into_iter().flatten();
        let events: Vec<String> =
            events.filter_map(|event| event.as_str().map(str::to_owned)).collect();
        let all = || RETRY_EVENTS.map(str::to_owned).to_vec();
        Some(Retry {
            on_events: if events.is_empty() { all() } else { events },
            duration: said["duration"].as_u64().or(Some(RETRY_DURATION_S)),
        })
    }

    /// The ports that a client who attaches forwards: those of the node's group, where it has its own.
    fn app_specs(&self, group: Option<&KeptGroup<'a>>) -> Vec<AppSpec> {
        let said = |ports: &&Value| ports.as_array().is_some_and(|ports| !ports.is_empty());
        let own = group.map(|group| &group.ports).filter(said);
        let ports = own.unwrap_or(&self.ports).as_array().into_iter().flatten();
        let number = |value: &Value| value.as_u64().and_then(|port| u16::try_from(port).ok());
        let spec = |(index, port): (usize, &Value)| {
            Some(AppSpec {
                port: number(&port["container_port"])?,
                map_to_port: number(&port["local_port"]),
                app_name: format!("app_{index}"),
                url_path: None,
                url_query_params: None,
            })
        };
        ports.enumerate().filter_map(spec).collect()
    }

    /// The probes of a service, with what each leaves open filled in. One that says nothing of them may have that of its model.
    fn probes(&self) -> Vec<Value> {
        if self.probes.is_null() {
            let has_router = self.groups.iter().flatten().any(|group| !group.router.is_null());
            let of_model = model_probe(|key| self.model[key].as_str()).filter(|_| !has_router);
            return of_model.iter().map(shown_probe).collect();
        }
        let usual = Probe::default();
        let usual = [
            ("url", Value::from(usual.url)),
            ("method", "get".into()),
            ("timeout", usual.timeout_s.into()),
            ("interval", usual.interval_s.into()),
            ("ready_after", usual.ready_after.into()),
            ("until_ready", usual.until_ready.into()),
        ];
        let mut probes = self.probes.as_array().cloned().unwrap_or_default();
        for probe in probes.iter_mut().filter(|probe| probe.is_object()) {
            for (name, value) in &usual {
                if probe[*name].is_null() {
                    probe[*name] = value.clone();
                }
            }
        }
        probes
    }

    fn service_port(&self) -> Option<u16> {
        self.port["container_port"].as_u64().and_then(|port| u16::try_from(port).ok())
    }

    fn group_rank(&self, mut rank: u32) -> GroupRank<'_, 'a> {
        for (group, index) in self.groups.iter().flatten().zip(0..) {
            let nodes = group.nodes.unwrap_or(1);
            if rank < nodes {
                return GroupRank { index, rank, group: Some(group) };
            }
            rank -= nodes;
        }
        GroupRank { index: 0, rank, group: None }
    }
}

fn shown_probe(probe: &Probe) -> Value {
    let header = |(name, value): &(String, String)| json!({"name": name, "value": value});
    json!({
        "type": "http",
        "url": probe.url,
        "method": probe.method,
        "headers": probe.headers.iter().map(header).collect::<Vec<Value>>(),
        "body": probe.body,
        "timeout": probe.timeout_s,
        "interval": probe.interval_s,
        "ready_after": probe.ready_after,
        "until_ready": probe.until_ready,
    })
}

/// Refuses a configuration of a submission that dstack's client could not read: whoever lists runs is answered with it.
pub fn check(text: &str) -> Result<(), Refusal> {
    let invalid = |why: String| Refusal::InvalidValue {
        what: "configuration".into(),
        value: why,
        expected: "a run of dstack: a task, a dev environment or a service".into(),
    };
    let kept: &RawValue = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    KeptSpec::of(kept).ok_or_else(|| invalid("another form".to_owned()))?;
    let spec: RunSpec = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let loaded = from_json(&spec.configuration, spec.profile.as_ref());
    loaded.map_err(|fault| invalid(fault.to_string()))?;
    Ok(())
}

/// The properties of a configuration that are updated in place.
pub const UPDATED_IN_PLACE: [&str; 2] = ["priority", "inactivity_duration"];

/// The values of those properties that a run has now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Updatable {
    pub priority: u8,
    pub inactivity_s: Option<u32>,
}

/// The kept run with what it has now of that which is updated in place.
pub fn with_updates(kept: Box<RawValue>, now: Option<Updatable>) -> Box<RawValue> {
    let updated = now.filter(|now| KeptSpec::of(&kept).is_some_and(|spec| spec.is_updated(*now)));
    let Some(now) = updated else { return kept };
    let Ok(mut spec) = serde_json::from_str::<Value>(kept.get()) else { return kept };
    let configuration = &mut spec["configuration"];
    configuration["priority"] = now.priority.into();
    let is_off = now.inactivity_s.is_none();
    if !is_off || configuration["inactivity_duration"].is_number() {
        let off = || Value::from("off");
        configuration["inactivity_duration"] = now.inactivity_s.map_or_else(off, Value::from);
    }
    raw(&spec)
}

/// The value as text.
pub fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(configuration: &Value) -> Box<RawValue> {
        raw(&json!({"run_name": "desk", "configuration": configuration}))
    }

    #[test]
    fn jobs_repeat_the_retry_policy_of_their_run() {
        let all = json!(["no-capacity", "interruption", "error"]);
        let table = [
            (json!(null), json!(null)),
            (json!(false), json!(null)),
            (json!(true), json!({"on_events": all, "duration": 3600})),
            (json!({"on_events": null, "duration": 60}), json!({"on_events": all, "duration": 60})),
            (json!({"on_events": ["error"]}), json!({"on_events": ["error"], "duration": 3600})),
        ];
        for (said, shown) in table {
            let kept = kept(&json!({"type": "task", "commands": ["a"], "retry": said}));
            let spec = KeptSpec::of(&kept).expect("a run").job_spec("desk", 0, 1);
            assert_eq!(serde_json::to_value(spec.retry).expect("JSON"), shown, "{said}");
        }
    }

    #[test]
    fn node_of_a_group_has_the_ports_of_its_group() {
        let port = |number: u16| json!([{"local_port": number, "container_port": number}]);
        let groups = json!([{"nodes": 1, "ports": []}, {"nodes": 2, "ports": port(9000)}]);
        let kept = kept(&json!({"type": "task", "commands": ["a"], "ports": port(8000),
            "groups": groups}));
        let ports = |rank: u32| {
            let spec = KeptSpec::of(&kept).expect("a run").job_spec("desk", rank, 3);
            spec.app_specs.iter().map(|app| app.port).collect::<Vec<u16>>()
        };
        assert_eq!((ports(0), ports(1), ports(2)), (vec![8000], vec![9000], vec![9000]));
    }

    #[test]
    fn jobs_show_the_probe_of_the_model_that_their_service_has_without_probes() {
        let shown = |lines: Value| {
            let mut configuration = json!({"type": "service", "commands": ["a"],
                "model": {"name": "m", "format": "openai", "prefix": "/api"}});
            for (key, value) in lines.as_object().expect("a mapping") {
                configuration[key] = value.clone();
            }
            let kept = kept(&configuration);
            KeptSpec::of(&kept).expect("a run").replica_spec("web", 0, None).probes
        };
        let found = shown(json!({"probes": null}));
        let [probe] = &found[..] else { panic!("one probe: {found:?}") };
        assert_eq!((&probe["type"], &probe["method"]), (&json!("http"), &json!("post")));
        assert_eq!(probe["url"], "/api/chat/completions");
        let header = json!({"name": "Content-Type", "value": "application/json"});
        assert_eq!(probe["headers"], json!([header]));
        assert_eq!((&probe["timeout"], &probe["until_ready"]), (&json!(30), &json!(true)));
        for none in [
            json!({"probes": []}),
            json!({"model": null}),
            json!({"model": {"name": "m", "format": "tgi"}}),
            json!({"groups": [{"router": {"type": "smg"}}, {"router": null}]}),
        ] {
            assert_eq!(shown(none.clone()), Vec::<Value>::new(), "{none}");
        }
        let said = shown(json!({"probes": [{"type": "http", "url": "/up"}]}));
        assert_eq!((said.len(), &said[0]["url"]), (1, &json!("/up")));
    }

    #[test]
    fn each_editor_has_an_address_that_opens_it() {
        let table = [
            ("vscode", "vscode://vscode-remote/ssh-remote+desk/home/ada/"),
            ("cursor", "cursor://vscode-remote/ssh-remote+desk/home/ada/"),
            ("windsurf", "windsurf://vscode-remote/ssh-remote+desk/home/ada/"),
            ("zed", "zed://ssh/desk/home/ada/"),
        ];
        for (name, url) in table {
            let kept = kept(&json!({"type": "dev-environment", "ide": name}));
            let ide = KeptSpec::of(&kept).expect("a run").ide().expect("an editor");
            assert_eq!(ide.url("desk", "/home/ada"), url);
        }
    }

    #[test]
    fn what_was_updated_in_place_is_shown_as_it_is_now() {
        let shown = |said: Value, priority, inactivity_s| {
            let now = Some(Updatable { priority, inactivity_s });
            let configuration = json!({"type": "dev-environment", "ide": "vscode",
                "priority": 0, "inactivity_duration": said});
            let text = with_updates(kept(&configuration), now);
            let run: Value = serde_json::from_str(text.get()).expect("JSON");
            let shown = &run["configuration"];
            (shown["priority"].clone(), shown["inactivity_duration"].clone())
        };
        assert_eq!(shown(json!(60), 0, Some(60)), (json!(0), json!(60)));
        assert_eq!(shown(json!(60), 5, Some(90)), (json!(5), json!(90)));
        assert_eq!(shown(json!(60), 0, None), (json!(0), json!("off")));
        assert_eq!(shown(json!(null), 5, None), (json!(5), json!(null)));
        assert_eq!(shown(json!("off"), 0, Some(60)), (json!(0), json!(60)));
    }
}

//! A run as it was kept, and the jobs of it that dstack's client is shown. The text is answered as it is: only what jobs
//! repeat of it is read.

use dstack::api::job::{AppSpec, JobSpec, Requirements};
use dstack::api::run::RunSpec;
use dstack::configuration::from_json;
use model::reason::Refusal;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::{RawValue, to_raw_value};

/// What dstack's client is told where a run does not say how long it may take to stop.
const DSTACK_STOP_S: u64 = 300;

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
    configuration: Option<&'a RawValue>,
}

#[derive(Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum KeptType {
    Task,
    DevEnvironment,
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
    privileged: Value,
    docker: Value,
    max_duration: Value,
    stop_duration: Value,
    max_price: Value,
    reservation: Value,
    working_dir: Value,
    ide: Value,
    ports: Value,
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
}

impl Ide {
    fn named(name: &str) -> Option<Self> {
        match name {
            "vscode" => Some(Self::Vscode),
            "cursor" => Some(Self::Cursor),
            "windsurf" => Some(Self::Windsurf),
            _ => None,
        }
    }

    /// The scheme of the addresses that open it.
    pub fn scheme(self) -> &'static str {
        match self {
            Self::Vscode => "vscode",
            Self::Cursor => "cursor",
            Self::Windsurf => "windsurf",
        }
    }

    pub fn shown(self) -> &'static str {
        match self {
            Self::Vscode => "VS Code",
            Self::Cursor => "Cursor",
            Self::Windsurf => "Windsurf",
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
    /// `None` of a text that is no run of a task or a dev environment.
    pub fn of(text: &'a RawValue) -> Option<Self> {
        let texts: KeptTexts = object(text)?;
        let configuration: KeptConfiguration = object(texts.configuration?)?;
        configuration.r#type?;
        Some(Self { repo_data: texts.repo_data, configuration })
    }

    pub fn ide(&self) -> Option<Ide> {
        self.configuration.ide.as_str().and_then(Ide::named)
    }

    /// Whether it says another priority than the run has, which was updated since.
    fn has_other_priority(&self, priority: u8) -> bool {
        self.configuration.priority.as_u64().unwrap_or(0) != u64::from(priority)
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
            app_specs: configuration.app_specs(),
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
                Value::Null => Some(DSTACK_STOP_S),
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
            retry: None,
            volumes: Vec::new(),
            ssh_key: None,
            working_dir: text(&configuration.working_dir),
            repo_data: self.repo_data.map(ToOwned::to_owned),
            repo_code_hash: None,
            // The client wants one, also where there is no repository.
            repo_dir: Some(String::new()),
            repo_exists_action: None,
            file_archives: Vec::new(),
            service_port: None,
            probes: Vec::new(),
            node_group_index: index,
            node_group_name: group_name.unwrap_or_else(|| index.to_string()),
            node_group_job_index: place.rank,
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

    /// The ports that a client who attaches forwards.
    fn app_specs(&self) -> Vec<AppSpec> {
        let ports = self.ports.as_array().into_iter().flatten();
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

/// A list of the fields' values, which serde would take as well, is none.
fn object<'a, T: Deserialize<'a>>(text: &'a RawValue) -> Option<T> {
    let text = text.get();
    text.starts_with('{').then(|| serde_json::from_str(text).ok()).flatten()
}

/// Refuses a configuration of a submission that dstack's client could not read: whoever lists runs is answered with it.
pub fn check(text: &str) -> Result<(), Refusal> {
    let invalid = |why: String| Refusal::InvalidValue {
        what: "configuration".into(),
        value: why,
        expected: "a run of dstack, with a task or a dev environment".into(),
    };
    let kept: &RawValue = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    KeptSpec::of(kept).ok_or_else(|| invalid("another form".to_owned()))?;
    let spec: RunSpec = serde_json::from_str(text).map_err(|error| invalid(error.to_string()))?;
    let loaded = from_json(&spec.configuration, spec.profile.as_ref());
    loaded.map_err(|fault| invalid(fault.to_string()))?;
    Ok(())
}

/// The kept run with the priority that it has now.
pub fn with_priority(kept: Box<RawValue>, priority: Option<u8>) -> Box<RawValue> {
    let changed = priority.filter(|priority| {
        KeptSpec::of(&kept).is_some_and(|spec| spec.has_other_priority(*priority))
    });
    let Some(priority) = changed else { return kept };
    let Ok(mut spec) = serde_json::from_str::<Value>(kept.get()) else { return kept };
    spec["configuration"]["priority"] = priority.into();
    raw(&spec)
}

/// The value as text.
pub fn raw(value: &impl Serialize) -> Box<RawValue> {
    to_raw_value(value).unwrap_or_else(|_| RawValue::NULL.to_owned())
}

//! `type: task` and `type: dev-environment` as types: commands that run on one node or on several. `type: service` is a task as well (`service.rs`).

use super::env::Env;
use super::policy::{FleetName, Instance, Profile, StopCriteria, retry, startup_order};
use super::reading::Reading;
use super::resources::Resources;
use super::value::{Key, Value};
use crate::words;
use model::range::Range;
use model::run::{Retry, StartupOrder};
use model::service::Service;
use std::collections::BTreeMap;
use std::time::Duration;

#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// A run without a name gets a generated one.
    pub name: Option<String>,
    /// Each runs if the one before it succeeded. Empty where the image says what runs, or each group.
    pub commands: Vec<String>,
    pub env: Env,
    /// The nodes of all groups together, where there are groups.
    pub nodes: Range<u32>,
    pub groups: Vec<NodeGroup>,
    /// The resources that each node of the run shall have; those of the first group, where there are groups.
    pub resources: Resources,
    /// 0 to 100.
    pub priority: u32,
    /// `None` if the run is not retried: without capacity it fails at once.
    pub retry: Option<Retry>,
    /// `None` means no limit.
    pub max_duration: Option<Duration>,
    /// How long a dev environment may go without a connection; `None` means no limit.
    pub inactivity: Option<Duration>,
    /// From the signal that stops the run to the kill: by default the cluster's `KillWait`; `Some(None)` is `off`.
    pub stop_duration: Option<Option<Duration>>,
    /// An absolute path on the node.
    pub working_dir: Option<String>,
    pub shell: Shell,
    /// Any one of these; empty means any that the project may use.
    pub fleets: Vec<FleetName>,
    /// The only nodes that will do; empty means any.
    pub instances: Vec<Instance>,
    pub tags: BTreeMap<String, String>,
    pub startup_order: StartupOrder,
    pub stop_criteria: StopCriteria,
    pub ports: Vec<Port>,
    pub profile: Profile,
    pub container: Container,
    pub volumes: Vec<Mount>,
    pub files: Vec<FileMapping>,
    pub repos: Vec<Repo>,
    pub single_branch: bool,
    pub python: Option<String>,
    /// Cron expressions, in UTC.
    pub schedule: Vec<String>,
    /// Ours: `afterok:NAME`, as Slurm writes it, with a run's name or a job's number.
    pub depends_on: Vec<String>,
    /// Ours, as `--array`.
    pub array: Option<String>,
    /// Ours.
    pub account: Option<String>,
    /// Ours.
    pub qos: Option<String>,
    /// What requests are passed on to, of a service.
    pub service: Option<Service>,
    /// The groups of replicas of a service that has several, each as a run of its own; the run itself is the first of them.
    pub replica_groups: Vec<Task>,
}

/// What a run in a container says of it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Container {
    pub image: Option<String>,
    pub user: Option<String>,
    pub privileged: bool,
    /// The words that run in place of a shell, with the commands as further arguments; empty for a shell.
    pub entrypoint: Vec<String>,
    /// User and password; either may hold `${{ secrets.NAME }}`.
    pub registry_auth: Option<(String, String)>,
    pub nvcc: bool,
    /// A Docker daemon runs inside, in the site's image for that.
    pub docker: bool,
    /// `runtime: process`: the run is to have no container, not even the site's default one.
    pub is_refused: bool,
}

impl Container {
    /// Whether the run names what it runs in: an image of its own, or the site's with Docker.
    pub fn is_named(&self) -> bool {
        self.image.is_some() || self.docker
    }
}

/// A group of equal nodes in a task of several kinds of nodes.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeGroup {
    pub name: Option<String>,
    pub nodes: u32,
    pub resources: Resources,
    pub commands: Vec<String>,
    pub ports: Vec<Port>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mount {
    /// Names of which the one in the node's region is mounted; each may hold `${{ dstack.node_rank }}`.
    Volume {
        names: Vec<String>,
        path: String,
    },
    /// A folder of the node that is kept under a name.
    Named {
        name: String,
        path: String,
    },
    Instance {
        instance_path: String,
        path: String,
        optional: bool,
    },
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileMapping {
    pub local_path: String,
    pub path: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Repo {
    pub local_path: Option<String>,
    pub url: Option<String>,
    pub branch: Option<String>,
    pub hash: Option<String>,
    pub path: String,
    /// Whether a folder that is there already is left as it is; else it is an error.
    pub skip_if_exists: bool,
}

/// The absolute path of the shell that reads the commands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shell(pub String);

impl Default for Shell {
    fn default() -> Self {
        Self("/bin/bash".into())
    }
}

/// A port of the run; `local` is the port of the client's machine that leads to it, any free one if `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Port {
    pub local: Option<u16>,
    pub of_run: u16,
}

/// A task of one node whose commands are `init`, with an IDE that opens into it.
#[derive(Debug, Clone, PartialEq)]
pub struct DevEnvironment {
    pub run: Task,
    pub ide: Option<String>,
    pub version: Option<String>,
}

impl Task {
    /// The groups, where they differ in what they ask for.
    pub fn different_groups(&self) -> &[NodeGroup] {
        let differs = |group: &NodeGroup| group.resources != self.resources;
        if self.groups.iter().any(differs) { &self.groups } else { &[] }
    }

    pub(super) fn of(value: &Value, reading: &Reading) -> Self {
        let groups: Vec<NodeGroup> =
            value.get("groups").items().iter().map(NodeGroup::of).collect();
        let word = |name: &str| value.get(name).as_text();
        Self {
            name: value.get("name").as_owned_text(),
            commands: value.get("commands").texts(),
            env: Env::of(value.get("env"), &reading.from_client),
            nodes: nodes(value.get("nodes"), &groups),
            resources: match groups.first() {
                Some(group) => group.resources.clone(),
                None => Resources::of(value.get("resources")),
            },
            groups,
            priority: value.get("priority").as_count().unwrap_or(0),
            retry: retry(value.get("retry")),
            max_duration: value.get("max_duration").as_duration(),
            inactivity: value.get("inactivity_duration").as_duration(),
            stop_duration: match value.get("stop_duration") {
                Value::Null => None,
                said => Some(said.as_duration()),
            },
            working_dir: value.get("working_dir").as_owned_text(),
            shell: match word("shell") {
                // Images need not have Bash.
                None if !value.get("image").is_null() => Shell("/bin/sh".into()),
                None => Shell::default(),
                Some("sh") => Shell("/bin/sh".into()),
                Some("bash") => Shell("/bin/bash".into()),
                Some(path) => Shell(path.to_owned()),
            },
            fleets: value.get("fleets").items().iter().map(FleetName::of).collect(),
            instances: value.get("instances").items().iter().map(Instance::of).collect(),
            tags: tags(value.get("tags")),
            startup_order: startup_order(word("startup_order")),
            stop_criteria: StopCriteria::of(word("stop_criteria")),
            ports: value.get("ports").items().iter().filter_map(Port::of).collect(),
            profile: Profile::of(value),
            container: Container::of(value),
            volumes: value.get("volumes").items().iter().map(Mount::of).collect(),
            files: value.get("files").items().iter().map(FileMapping::of).collect(),
            repos: value.get("repos").items().iter().map(Repo::of).collect(),
            single_branch: value.get("single_branch").as_bool() == Some(true),
            python: value.get("python").as_owned_text(),
            schedule: value.get("schedule").get("cron").texts(),
            depends_on: value.get("depends_on").texts(),
            array: value.get("array").as_owned_text(),
            account: value.get("account").as_owned_text(),
            qos: value.get("qos").as_owned_text(),
            service: None,
            replica_groups: Vec::new(),
        }
    }
}

/// Waits until it is ended. Every image has it, where `sleep infinity` is not known to all.
const WAIT: &str = "tail -f /dev/null";

impl DevEnvironment {
    /// The same as a task.
    pub fn task(&self) -> Task {
        let mut task = self.run.clone();
        task.commands.push(WAIT.to_owned());
        task
    }

    pub(super) fn of(value: &Value, reading: &Reading) -> Self {
        let mut commands = value.get("setup").texts();
        commands.extend(value.get("init").texts());
        Self {
            run: Task { commands, ..Task::of(value, reading) },
            ide: value.get("ide").as_owned_text(),
            version: value.get("version").as_owned_text(),
        }
    }
}

/// A number, a range as text, or the nodes of all groups.
fn nodes(value: &Value, groups: &[NodeGroup]) -> Range<u32> {
    let of_groups = || groups.iter().fold(0_u32, |sum, group| sum.saturating_add(group.nodes));
    match value {
        Value::Text(text) => Range::parse_count("nodes", text).unwrap_or(Range::exactly(1)),
        _ => Range::exactly(value.as_count().unwrap_or_else(|| of_groups().max(1))),
    }
}

fn tags(value: &Value) -> BTreeMap<String, String> {
    let text = |(key, value): &(Key, Value)| Some((key.to_string(), value.as_owned_text()?));
    value.entries().iter().filter_map(text).collect()
}

/// A text that the tables guarantee.
fn required(value: &Value, key: &str) -> String {
    value.get(key).as_owned_text().unwrap_or_default()
}

impl NodeGroup {
    fn of(value: &Value) -> Self {
        Self {
            name: value.get("name").as_owned_text(),
            nodes: value.get("nodes").as_count().unwrap_or(1),
            resources: Resources::of(value.get("resources")),
            commands: value.get("commands").texts(),
            ports: value.get("ports").items().iter().filter_map(Port::of).collect(),
        }
    }
}

impl Port {
    fn of(value: &Value) -> Option<Self> {
        let port = |name: &str| value.get(name).as_integer().and_then(|n| u16::try_from(n).ok());
        Some(Self { local: port("local_port"), of_run: port("container_port")? })
    }
}

impl Container {
    fn of(value: &Value) -> Self {
        let auth = value.get("registry_auth");
        Self {
            image: value.get("image").as_owned_text(),
            user: value.get("user").as_owned_text(),
            privileged: value.get("privileged").as_bool().unwrap_or(false),
            entrypoint: value
                .get("entrypoint")
                .as_text()
                .and_then(words::split)
                .unwrap_or_default(),
            registry_auth: (!auth.is_null())
                .then(|| (required(auth, "username"), required(auth, "password"))),
            nvcc: value.get("nvcc").as_bool().unwrap_or(false),
            docker: value.get("docker").as_bool().unwrap_or(false),
            is_refused: value.get("runtime").as_text() == Some("process"),
        }
    }
}

impl Mount {
    fn of(value: &Value) -> Self {
        let path = required(value, "path");
        if let Some(instance_path) = value.get("instance_path").as_owned_text() {
            let optional = value.get("optional").as_bool().unwrap_or(false);
            return Self::Instance { instance_path, path, optional };
        }
        let names = match value.get("name") {
            Value::Text(name) => vec![name.clone()],
            names => names.texts(),
        };
        match (value.get("instance").as_bool(), names.first()) {
            (Some(true), Some(name)) => Self::Named { name: name.clone(), path },
            _ => Self::Volume { names, path },
        }
    }
}

impl FileMapping {
    fn of(value: &Value) -> Self {
        Self { local_path: required(value, "local_path"), path: required(value, "path") }
    }
}

impl Repo {
    fn of(value: &Value) -> Self {
        Self {
            local_path: value.get("local_path").as_owned_text(),
            url: value.get("url").as_owned_text(),
            branch: value.get("branch").as_owned_text(),
            hash: value.get("hash").as_owned_text(),
            path: required(value, "path"),
            skip_if_exists: value.get("if_exists").as_text() == Some("skip"),
        }
    }
}

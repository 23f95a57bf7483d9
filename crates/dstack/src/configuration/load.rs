//! A configuration as a whole: which type it has, read by that type's table.

use super::check;
use super::fault::{ConfigurationError, Fault, Notice, Problem};
use super::field::Field;
use super::fleet::Fleet;
use super::property::Table;
use super::reader::{self, mapping};
use super::reading::{Reading, Source};
use super::tables::fleet::FLEET;
use super::tables::gateway::GATEWAY;
use super::tables::profile::{NAMED_PROFILE, PROFILE, PROFILES};
use super::tables::run::{DEV_ENVIRONMENT, TASK};
use super::tables::service::SERVICE;
use super::tables::volume;
use super::task::{DevEnvironment, Task};
use super::tree::{Node, json, yaml};
use super::value::Value;

/// A configuration that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub configuration: Configuration,
    /// The same in dstack's own form, with its defaults.
    pub value: Value,
    /// The properties that have no effect.
    pub notices: Vec<Notice>,
    /// The properties, or the type, that are not available yet: it cannot be applied.
    pub refusals: Vec<Notice>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Configuration {
    Task(Box<Task>),
    DevEnvironment(Box<DevEnvironment>),
    Fleet(Box<Fleet>),
    /// What nothing is done with yet, beyond checking it.
    Service,
    Volume,
    Gateway,
}

#[derive(Clone, Copy, PartialEq)]
enum Type {
    Task,
    DevEnvironment,
    Service,
    Fleet,
    Gateway,
    Volume,
    Preset,
}

const TYPE_WORDS: &[&str] =
    &["task", "dev-environment", "service", "fleet", "gateway", "volume", "preset"];
/// In the order of their words, with why a configuration of the type is not applied.
const TYPES: &[(Type, Option<&str>)] = &[
    (Type::Task, None),
    (Type::DevEnvironment, None),
    (Type::Service, Some("services are not available yet")),
    (Type::Fleet, None),
    (Type::Gateway, Some("gateways are not available yet")),
    (Type::Volume, Some("network volumes are not available yet")),
    (Type::Preset, None),
];

const CLOUD_FLEET: &str = "fleets of cloud machines are not available yet: the nodes are those of slurm.conf, of `sluice up`, or hosts that `ssh_config` names";

/// Reads the bytes of a `.dstack.yml`; `file` is its name as the user wrote it.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Loaded, ConfigurationError> {
    let read = yaml::parse(bytes).and_then(|node| read(&node, Source::Yaml, None));
    read.map_err(|fault| ConfigurationError { file: file.to_owned(), fault })
}

/// Reads the same with a profile of `profiles.yml` behind it.
pub fn parse_with_profile(
    file: &str,
    bytes: &[u8],
    profile: &Value,
) -> Result<Loaded, ConfigurationError> {
    let read = yaml::parse(bytes).and_then(|node| read(&node, Source::Yaml, Some(profile)));
    read.map_err(|fault| ConfigurationError { file: file.to_owned(), fault })
}

/// Reads what dstack's client sends: a configuration, and the profile beside it (`run_spec.profile`).
pub fn from_json(
    configuration: &serde_json::Value,
    profile: Option<&serde_json::Value>,
) -> Result<Loaded, Fault> {
    let profile = match profile {
        Some(profile) if !profile.is_null() => {
            let mut reading = Reading::new(Source::Json);
            Some(mapping(&Field::top(&json::tree(profile)?), &NAMED_PROFILE, &mut reading)?)
        }
        _ => None,
    };
    read(&json::tree(configuration)?, Source::Json, profile.as_ref())
}

/// The profile that says nothing, in dstack's own form.
pub fn default_profile() -> serde_json::Value {
    let named = serde_json::json!({"name": "default"});
    let mut reading = Reading::new(Source::Json);
    let profile = json::tree(&named)
        .and_then(|node| mapping(&Field::top(&node), &NAMED_PROFILE, &mut reading));
    profile.map_or(named, |profile| profile.to_json())
}

/// The profiles of a `profiles.yml`, each in dstack's own form.
pub fn parse_profiles(file: &str, bytes: &[u8]) -> Result<Vec<Value>, ConfigurationError> {
    let read = || {
        let document = yaml::parse(bytes)?;
        let mut reading = Reading::new(Source::Yaml);
        let read = mapping(&Field::top(&document), &PROFILES, &mut reading)?;
        Ok(read.get("profiles").items().to_vec())
    };
    read().map_err(|fault| ConfigurationError { file: file.to_owned(), fault })
}

/// The profile of this name, or without a name the one that is the default.
pub fn select_profile<'a>(profiles: &'a [Value], name: Option<&str>) -> Option<&'a Value> {
    profiles.iter().find(|profile| match name {
        Some(name) => profile.get("name").as_text() == Some(name),
        None => profile.get("default").as_bool() == Some(true),
    })
}

impl Configuration {
    /// What a configuration of a run runs: a dev environment runs `init`, and then waits until it is stopped.
    pub fn task(&self) -> Option<Task> {
        match self {
            Self::Task(task) => Some((**task).clone()),
            Self::DevEnvironment(environment) => Some(environment.task()),
            Self::Fleet(_) | Self::Service | Self::Volume | Self::Gateway => None,
        }
    }
}

impl Loaded {
    /// The configuration, if all of it is available here.
    pub fn applicable(&self) -> Result<&Configuration, Fault> {
        match self.refusals.first() {
            Some(refusal) => Err(refusal.refusal()),
            None => Ok(&self.configuration),
        }
    }
}

fn read(document: &Node, source: Source, profile: Option<&Value>) -> Result<Loaded, Fault> {
    let top = Field::top(document);
    if top.is_nothing() {
        return Err(top.fault(Problem::Empty));
    }
    let expected = "properties such as `type: task`";
    if !top.is_map() {
        return Err(top.fault(Problem::Syntax(format!("expected {expected}"))));
    }
    let mut reading = Reading::new(source);
    let kind = type_of(&top, &mut reading)?;
    let mut value = mapping(&top, table(kind, &top)?, &mut reading)?;
    if let Some(profile) = profile {
        take_from_profile(&mut value, profile, &mut reading)?;
    }
    match kind {
        Type::Task | Type::DevEnvironment | Type::Service => {
            check::run(&top, &mut value, &mut reading)?;
        }
        Type::Fleet => {
            check::fleet(&top, &value)?;
            if value.get("ssh_config").is_null() {
                refuse_type(&top, CLOUD_FLEET, &mut reading)?;
            }
        }
        Type::Gateway | Type::Volume | Type::Preset => {}
    }
    let configuration = match kind {
        Type::Task => Configuration::Task(Box::new(Task::of(&value, &reading))),
        Type::DevEnvironment => {
            Configuration::DevEnvironment(Box::new(DevEnvironment::of(&value, &reading)))
        }
        Type::Fleet => Configuration::Fleet(Box::new(Fleet::of(&value))),
        Type::Service => Configuration::Service,
        Type::Volume => Configuration::Volume,
        Type::Gateway | Type::Preset => Configuration::Gateway,
    };
    let Reading { notices, refusals, .. } = reading;
    Ok(Loaded { configuration, value, notices, refusals })
}

fn type_of(top: &Field<'_>, reading: &mut Reading) -> Result<Type, Fault> {
    let entries = top.entries("")?;
    let Some((_, _, field)) = entries.into_iter().find(|(key, ..)| *key == "type") else {
        let (property, expected) = ("type".into(), "`type: task`");
        return Err(top.fault(Problem::Missing { property, expected }));
    };
    let word = field.word(TYPE_WORDS)?;
    let at = TYPE_WORDS.iter().position(|known| *known == word).unwrap_or_default();
    let (kind, unavailable) = TYPES[at];
    if kind == Type::Preset {
        return Err(field.refused("presets are made and read by dstack's own client only"));
    }
    if let Some(why) = unavailable {
        reading.refuse(&field, why);
    }
    Ok(kind)
}

/// Refuses what is not available of a type that is.
fn refuse_type(top: &Field<'_>, why: &'static str, reading: &mut Reading) -> Result<(), Fault> {
    let entries = top.entries("")?;
    if let Some((_, _, field)) = entries.into_iter().find(|(key, ..)| *key == "type") {
        reading.refuse(&field, why);
    }
    Ok(())
}

fn table(kind: Type, top: &Field<'_>) -> Result<&'static Table, Fault> {
    Ok(match kind {
        Type::Task => &TASK,
        Type::DevEnvironment => &DEV_ENVIRONMENT,
        Type::Service => &SERVICE,
        Type::Fleet => &FLEET,
        Type::Gateway | Type::Preset => &GATEWAY,
        Type::Volume => {
            let entries = top.entries("")?;
            let Some((_, _, backend)) = entries.into_iter().find(|(key, ..)| *key == "backend")
            else {
                let expected = "the volume's backend, such as aws";
                return Err(top.fault(Problem::Missing { property: "backend".into(), expected }));
            };
            let words: Vec<&str> = volume::BACKENDS.iter().map(|(word, _)| *word).collect();
            let word = backend.word(&words)?;
            let found = volume::BACKENDS.iter().find(|(known, _)| *known == word);
            found.map_or(&GATEWAY, |(_, table)| table)
        }
    })
}

/// What the configuration leaves open is what the profile says. It is read once more, so that what is not available in it is
/// told of as if the configuration had it.
fn take_from_profile(
    value: &mut Value,
    profile: &Value,
    reading: &mut Reading,
) -> Result<(), Fault> {
    for property in PROFILE {
        let said = profile.get(property.name);
        if let Some(open @ Value::Null) = value.get_mut(property.name)
            && !said.is_null()
        {
            let node = json::tree(&said.to_json())?;
            *open = reader::property(property, &Field::named(&node, property.name), reading)?;
        }
    }
    Ok(())
}

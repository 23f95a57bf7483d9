//! A configuration as a whole: which type it has, read by that type's table.

use super::check;
use super::fault::{ConfigurationError, Fault, Faults, Notice, Position, Problem};
use super::field::Field;
use super::fleet::Fleet;
use super::older_forms;
use super::property::Table;
use super::reader::{self, mapping, partial_mapping};
use super::reading::{Reading, Source};
use super::service;
use super::tables::fleet::FLEET;
use super::tables::gateway::GATEWAY;
use super::tables::preset::PRESET;
use super::tables::profile::{NAMED_PROFILE, PROFILE, PROFILES};
use super::tables::run::{DEV_ENVIRONMENT, TASK};
use super::tables::service::SERVICE;
use super::tables::volume;
use super::task::{DevEnvironment, Task};
use super::tree::{self, Entry, Node, json, yaml};
use super::value::Value;
use super::volume::Volume;

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
    Service(Box<Task>),
    Fleet(Box<Fleet>),
    Volume(Box<Volume>),
    /// What nothing is done with yet, beyond checking it.
    Gateway,
    Preset,
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
    (Type::Service, None),
    (Type::Fleet, None),
    (Type::Gateway, Some("a gateway is a process: `sluice gateway` starts it")),
    (Type::Volume, None),
    (Type::Preset, Some("presets are made and read by dstack's own client only")),
];

/// Reads the bytes of a `.dstack.yml`; `file` is its name as the user wrote it.
pub fn parse(file: &str, bytes: &[u8]) -> Result<Loaded, ConfigurationError> {
    parse_with(file, bytes, None, &[])
}

/// A value that stands in place of the file's own, whatever that is.
#[derive(Debug, Clone, PartialEq)]
pub struct Override {
    /// The property, from the top: `["resources", "cpu"]`.
    pub path: &'static [&'static str],
    pub value: serde_json::Value,
}

/// Reads the same with a profile of `profiles.yml` behind it, and with other values for some of its properties.
pub fn parse_with(
    file: &str,
    bytes: &[u8],
    profile: Option<&Value>,
    overrides: &[Override],
) -> Result<Loaded, ConfigurationError> {
    parse_with_env(file, bytes, profile, overrides, &[])
}

/// Reads the same with further variables of the run, `NAME=VALUE` or `NAME`, each in place of the file's own of its name.
pub fn parse_with_env(
    file: &str,
    bytes: &[u8],
    profile: Option<&Value>,
    overrides: &[Override],
    variables: &[String],
) -> Result<Loaded, ConfigurationError> {
    let read = || {
        let (mut document, mut reading) = document(bytes)?;
        for Override { path, value } in overrides {
            set(&mut document, path, json::tree(value)?);
        }
        for variable in variables {
            set_variable(&mut document, variable)?;
        }
        read(&document, &mut reading, profile)
    };
    read().map_err(|faults| faults.in_file(file))
}

/// Puts a variable into `env`, which is a list of such words or a mapping.
fn set_variable(document: &mut Node, word: &str) -> Result<(), Fault> {
    let name_of = |word: &str| word.split('=').next().unwrap_or_default().to_owned();
    let name = name_of(word);
    if let tree::Value::Map(entries) = &mut document.value
        && let Some(env) = entries.iter_mut().find(|entry| entry.key == "env")
        && let tree::Value::List(items) = &mut env.value.value
    {
        let is_other = |item: &Node| match &item.value {
            tree::Value::Scalar { text, .. } => name_of(text) != name,
            _ => true,
        };
        items.retain(is_other);
        items.push(json::tree(&word.into())?);
        return Ok(());
    }
    let value = match word.split_once('=') {
        Some((_, value)) => value.into(),
        None => serde_json::json!({ "key": name }),
    };
    set(document, &["env", &name], json::tree(&value)?);
    Ok(())
}

/// Puts a value at this path. What is no mapping on the way is left as it is, to be refused by its reader.
fn set(node: &mut Node, path: &[&str], value: Node) {
    if Field::top(node).is_nothing() {
        node.value = tree::Value::Map(Vec::new());
    }
    let (Some((first, rest)), tree::Value::Map(entries)) = (path.split_first(), &mut node.value)
    else {
        return;
    };
    let at = entries.iter().position(|entry| entry.key == *first).unwrap_or_else(|| {
        let (key, empty) = ((*first).to_owned(), tree::Value::Map(Vec::new()));
        let value = Node { position: Position::NONE, value: empty };
        entries.push(Entry { key, position: Position::NONE, value });
        entries.len() - 1
    });
    match rest {
        [] => entries[at].value = value,
        _ => set(&mut entries[at].value, rest, value),
    }
}

/// The tree of a file, and what is wrong with it so far.
fn document(bytes: &[u8]) -> Result<(Node, Reading), Fault> {
    let mut repeated = Vec::new();
    let document = yaml::parse_all(bytes, &mut repeated)?;
    let mut reading = Reading::new(Source::Yaml);
    repeated.into_iter().for_each(|fault| reading.fault(fault));
    Ok((document, reading))
}

/// Reads what dstack's client sends: a configuration, and the profile beside it (`run_spec.profile`).
pub fn from_json(
    configuration: &serde_json::Value,
    profile: Option<&serde_json::Value>,
) -> Result<Loaded, Fault> {
    let profile = match profile {
        Some(profile) if !profile.is_null() => {
            let mut reading = Reading::new(Source::Json);
            let document = json::tree(profile)?;
            let read = whole_mapping(&document, &NAMED_PROFILE, &mut reading);
            Some(read.map_err(|faults| faults.first)?)
        }
        _ => None,
    };
    let mut reading = Reading::new(Source::Json);
    let read = read(&json::tree(configuration)?, &mut reading, profile.as_ref());
    read.map_err(|faults| faults.first)
}

/// A document that is one mapping, or all that is wrong with it.
fn whole_mapping(
    document: &Node,
    table: &'static Table,
    reading: &mut Reading,
) -> Result<Value, Faults> {
    let value = partial_mapping(&Field::top(document), table, reading)?;
    reading.take_faults().map_or(Ok(value), Err)
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
        let (document, mut reading) = document(bytes)?;
        let read = whole_mapping(&document, &PROFILES, &mut reading)?;
        Ok(read.get("profiles").items().to_vec())
    };
    read().map_err(|faults: Faults| faults.in_file(file))
}

/// The profile of this name, or without a name the one that is the default.
pub fn select_profile<'a>(profiles: &'a [Value], name: Option<&str>) -> Option<&'a Value> {
    profiles.iter().find(|profile| match name {
        Some(name) => profile.get("name").as_text() == Some(name),
        None => profile.get("default").as_bool() == Some(true),
    })
}

impl Configuration {
    /// As [`Configuration::into_task`], of a configuration that is needed further.
    pub fn task(&self) -> Option<Task> {
        self.clone().into_task()
    }

    /// What a configuration of a run runs: a dev environment runs `init`, and then waits until it is stopped.
    pub fn into_task(self) -> Option<Task> {
        match self {
            Self::Task(task) | Self::Service(task) => Some(*task),
            Self::DevEnvironment(environment) => Some(environment.task()),
            Self::Fleet(_) | Self::Volume(_) | Self::Gateway | Self::Preset => None,
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

fn read(document: &Node, reading: &mut Reading, profile: Option<&Value>) -> Result<Loaded, Faults> {
    let renamed = older_forms::renamed(document);
    let top = Field::top(renamed.as_ref().unwrap_or(document));
    if top.is_nothing() {
        return Err(top.fault(Problem::Empty).into());
    }
    let expected = "properties such as `type: task`";
    if !top.is_map() {
        return Err(top.fault(Problem::Syntax(format!("expected {expected}"))).into());
    }
    let known = type_of(&top, reading).and_then(|kind| Ok((kind, table(kind, &top)?)));
    let (kind, table) = match known {
        Ok(known) => known,
        Err(fault) => {
            // Without its type nobody knows which properties it may have.
            reading.fault(fault.clone());
            return Err(reading.take_faults().unwrap_or(fault.into()));
        }
    };
    let mut value = partial_mapping(&top, table, reading)?;
    if let Some(profile) = profile {
        take_from_profile(&mut value, profile, reading)?;
    }
    match kind {
        Type::Task | Type::DevEnvironment | Type::Service => check::run(&top, &mut value, reading),
        Type::Fleet => check::fleet(&top, &value, reading),
        Type::Preset => check::preset(&top, &value, reading),
        Type::Gateway | Type::Volume => {}
    }
    if let Some(faults) = reading.take_faults() {
        return Err(faults);
    }
    let configuration = match kind {
        Type::Task => Configuration::Task(Box::new(Task::of(&value, reading))),
        Type::DevEnvironment => {
            Configuration::DevEnvironment(Box::new(DevEnvironment::of(&value, reading)))
        }
        Type::Fleet => Configuration::Fleet(Box::new(Fleet::of(&value))),
        Type::Service => Configuration::Service(Box::new(service::task(&value, reading))),
        Type::Volume => Configuration::Volume(Box::new(Volume::of(&value))),
        Type::Gateway => Configuration::Gateway,
        Type::Preset => Configuration::Preset,
    };
    let notices = std::mem::take(&mut reading.notices);
    let refusals = std::mem::take(&mut reading.refusals);
    Ok(Loaded { configuration, value, notices, refusals })
}

fn type_of(top: &Field<'_>, reading: &mut Reading) -> Result<Type, Fault> {
    let Some(field) = top.child("type") else {
        let (property, expected) = ("type".into(), "`type: task`");
        return Err(top.fault(Problem::Missing { property, expected }));
    };
    let word = field.word(TYPE_WORDS)?;
    let at = TYPE_WORDS.iter().position(|known| *known == word).unwrap_or_default();
    let (kind, unavailable) = TYPES[at];
    if let Some(why) = unavailable {
        reading.refuse(&field, why);
    }
    Ok(kind)
}

fn table(kind: Type, top: &Field<'_>) -> Result<&'static Table, Fault> {
    Ok(match kind {
        Type::Task => &TASK,
        Type::DevEnvironment => &DEV_ENVIRONMENT,
        Type::Service => &SERVICE,
        Type::Fleet => &FLEET,
        Type::Gateway => &GATEWAY,
        Type::Preset => &PRESET,
        Type::Volume => {
            let Some(backend) = top.child("backend") else {
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

//! `type: task`: commands that run to their end on one node or on several.

use super::env::{self, Env};
use super::fault::{Fault, Problem};
use super::field::Field;
use super::notice::Notices;
use super::profile::{self, FleetName, Profile, StartupOrder, StopCriteria};
use super::property::{self, PropertySupport};
use super::resources::{self, Resources};
use crate::name;
use model::run::Retry;
use std::collections::BTreeMap;
use std::time::Duration;

/// dstack's grace between the signal to stop and the kill.
const STOP_DURATION: Duration = Duration::from_secs(300);
const PRIORITY_MAX: u32 = 100;

#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// A run without a name gets a generated one.
    pub name: Option<String>,
    /// Each runs if the one before it succeeded. Never empty.
    pub commands: Vec<String>,
    pub env: Env,
    pub nodes: u32,
    /// The resources that each node of the run shall have.
    pub resources: Resources,
    /// 0 to 100.
    pub priority: u32,
    /// `None` if the run is not retried: without capacity it fails at once.
    pub retry: Option<Retry>,
    /// `None` means no limit.
    pub max_duration: Option<Duration>,
    /// `None` means no limit. Not applied yet: `KillWait` is the grace of every job.
    pub stop_duration: Option<Duration>,
    /// An absolute path on the node.
    pub working_dir: Option<String>,
    pub shell: Shell,
    /// Any one of these; empty means any that the project may use.
    pub fleets: Vec<FleetName>,
    pub tags: BTreeMap<String, String>,
    pub startup_order: StartupOrder,
    pub stop_criteria: StopCriteria,
    pub ports: Vec<Port>,
    pub profile: Profile,
}

impl Default for Task {
    fn default() -> Self {
        Self {
            name: None,
            commands: Vec::new(),
            env: Env::default(),
            nodes: 1,
            resources: Resources::default(),
            priority: 0,
            retry: None,
            max_duration: None,
            stop_duration: Some(STOP_DURATION),
            working_dir: None,
            shell: Shell::default(),
            fleets: Vec::new(),
            tags: BTreeMap::new(),
            startup_order: StartupOrder::Any,
            stop_criteria: StopCriteria::AllDone,
            ports: Vec::new(),
            profile: Profile::default(),
        }
    }
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

pub(super) fn read(top: &Field<'_>, notices: &mut Notices) -> Result<Task, Fault> {
    let mut task = Task::default();
    let mut stop_criteria = None;
    for (property, field) in top.properties(property::TASK, "properties of a task")? {
        match property.support {
            _ if property.name == "stop_criteria" => stop_criteria = Some(field),
            PropertySupport::Acts
            | PropertySupport::ActsInPart
            | PropertySupport::NotApplied(_) => set(&mut task, property.name, &field, notices)?,
            PropertySupport::Refused(_) if field.is_off() => {}
            PropertySupport::Refused(why) => return Err(field.refused(why)),
            PropertySupport::Notice(why) => {
                if property.name == "ports" {
                    task.ports = ports(&field)?;
                }
                task.profile.set(property.name, &field)?;
                if !field.is_off() {
                    notices.add(&field, why);
                }
            }
        }
    }
    if let Some(field) = stop_criteria {
        task.stop_criteria = profile::stop_criteria(&field)?;
        if task.stop_criteria == StopCriteria::MasterDone && task.nodes > 1 {
            return Err(field.refused(
                "`master-done` is not available yet on several nodes: a run ends when all its nodes have",
            ));
        }
    }
    if task.commands.is_empty() {
        return Err(top.fault(Problem::Missing {
            property: "commands".into(),
            expected: "a list of one shell command or more",
        }));
    }
    Ok(task)
}

/// Reads one property into the task.
fn set(
    task: &mut Task,
    name: &'static str,
    field: &Field<'_>,
    notices: &mut Notices,
) -> Result<(), Fault> {
    match name {
        "name" => task.name = Some(run_name(field)?),
        "commands" => task.commands = commands(field)?,
        "env" => task.env = env::read(field)?,
        "nodes" => task.nodes = field.integer(1, u32::MAX)?,
        "resources" => task.resources = resources::read(field, notices)?,
        "priority" => task.priority = field.integer(0, PRIORITY_MAX)?,
        "retry" => task.retry = profile::retry(field)?,
        "max_duration" => task.max_duration = field.duration_or_off(None)?,
        "stop_duration" => task.stop_duration = field.duration_or_off(Some(STOP_DURATION))?,
        "working_dir" => task.working_dir = Some(absolute_path(field)?),
        "shell" => task.shell = shell(field)?,
        "fleets" => task.fleets = profile::fleets(field)?,
        "tags" => task.tags = profile::tags(field)?,
        "backends" => profile::backends(field)?,
        "startup_order" => task.startup_order = profile::startup_order(field, notices)?,
        _ => debug_assert_eq!(name, "type", "every property that is read has its line above"),
    }
    Ok(())
}

fn run_name(field: &Field<'_>) -> Result<String, Fault> {
    let text = field.text(name::RULE)?;
    if name::is_valid(text) { Ok(text.to_owned()) } else { Err(field.invalid(name::RULE)) }
}

fn commands(field: &Field<'_>) -> Result<Vec<String>, Fault> {
    let mut commands = Vec::new();
    for item in field.list("a list of shell commands")? {
        if item.is_map() {
            // `- echo a: b` is a mapping to YAML, which is seldom what its author meant.
            return Err(item.invalid("a shell command: put quotes around one that contains `: `"));
        }
        let text = item.text("a shell command")?;
        if text.contains('\0') {
            return Err(item.invalid("a shell command without a NUL character"));
        }
        commands.push(text.to_owned());
    }
    Ok(commands)
}

fn absolute_path(field: &Field<'_>) -> Result<String, Fault> {
    let expected = "an absolute path";
    match field.text(expected)? {
        path if path.starts_with('/') && !path.contains('\0') => Ok(path.to_owned()),
        _ => Err(field.invalid(expected)),
    }
}

fn shell(field: &Field<'_>) -> Result<Shell, Fault> {
    let expected = "sh, bash, or an absolute path";
    match field.text(expected)? {
        "sh" => Ok(Shell("/bin/sh".into())),
        "bash" => Ok(Shell("/bin/bash".into())),
        path if path.starts_with('/') && !path.contains(char::is_whitespace) => {
            Ok(Shell(path.to_owned()))
        }
        _ => Err(field.invalid(expected)),
    }
}

fn ports(field: &Field<'_>) -> Result<Vec<Port>, Fault> {
    let items = field.list("a list of ports")?;
    items.iter().map(port).collect()
}

/// `8080`, `80:8080`, `*:8080`, or a mapping.
fn port(field: &Field<'_>) -> Result<Port, Fault> {
    let expected = "a port such as 8080, 80:8080 or *:8080";
    let number = |text: &str| text.trim().parse::<u16>().ok().filter(|port| *port > 0);
    let port = if field.is_map() {
        let (mut local, mut of_run) = (None, None);
        for (property, end) in field.properties(property::PORT, expected)? {
            let port = number(end.text(expected)?).ok_or_else(|| end.invalid("a port"))?;
            match property.name {
                "local_port" => local = Some(port),
                _ => of_run = Some(port),
            }
        }
        of_run.map(|of_run| Port { local, of_run })
    } else {
        match field.text(expected)?.split_once(':') {
            None => {
                number(field.text(expected)?).map(|port| Port { local: Some(port), of_run: port })
            }
            Some(("*", of_run)) => number(of_run).map(|of_run| Port { local: None, of_run }),
            Some((local, of_run)) => number(local)
                .zip(number(of_run))
                .map(|(local, of_run)| Port { local: Some(local), of_run }),
        }
    };
    port.ok_or_else(|| field.invalid(expected))
}

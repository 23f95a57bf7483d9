//! Rules between the properties of a configuration.

use super::env::fill_variables;
use super::fault::{Fault, Problem};
use super::field::Field;
use super::reading::Reading;
use super::value::Value;
use model::container::is_work_dir;
use model::service::{REPLICAS_MAX, Service, check_groups};
use model::volume::VolumeUse;
use std::collections::BTreeSet;

/// Pairs of properties of which a run has one at most.
const EXCLUSIVE: &[(&str, &str)] = &[
    ("nodes", "groups"),
    ("replicas", "groups"),
    ("image", "python"),
    ("image", "docker"),
    ("python", "docker"),
    ("nvcc", "docker"),
    ("entrypoint", "docker"),
];

/// The same of a group of replicas, with what its service says for all of them.
const EXCLUSIVE_IN_GROUP: &[(&str, &str)] = &[
    ("image", "python"),
    ("image", "docker"),
    ("image", "nvcc"),
    ("python", "docker"),
    ("nvcc", "docker"),
];

/// Checks a task, a dev environment or a service, and fills in its number of nodes.
pub fn run(top: &Field<'_>, value: &mut Value, reading: &mut Reading) {
    for (one, other) in EXCLUSIVE {
        if is_said(value.get(one)) && is_said(value.get(other)) {
            let why = format!("`{one}` and `{other}` exclude each other: expected one of them");
            reading.fault(refused(top, other, why));
        }
    }
    if value.get("runtime").as_text() == Some("process") && is_said(value.get("image")) {
        let why = "`process` runs without an image: leave out one of them";
        reading.fault(refused(top, "runtime", why.to_owned()));
    }
    variables(top, value, reading);
    match value.get("type").as_text() {
        Some("task") => task(top, value, reading),
        Some("service") => service(top, value, reading),
        Some("dev-environment") => dev_environment(top, value, reading),
        _ => {}
    }
}

/// What `registry_auth` and probes take from the variables of the run is among them.
fn variables(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    if reading.is_faulty("env") {
        return;
    }
    let auth = value.get("registry_auth");
    let mut texts =
        vec![("registry_auth", auth.get("username")), ("registry_auth", auth.get("password"))];
    for probe in value.get("probes").items() {
        texts.extend([("probes", probe.get("url")), ("probes", probe.get("body"))]);
        texts.extend(probe.get("headers").items().iter().map(|one| ("probes", one.get("value"))));
    }
    let env = value.get("env");
    let known = |name: &str| (!env.get(name).is_null()).then(String::new);
    for (property, text) in texts {
        if let Err(name) = fill_variables(text.as_text().unwrap_or_default(), &known) {
            let why = format!("`${{{{ env.{name} }}}}`: expected a variable that `env` has");
            reading.fault(refused(top, property, why));
        }
    }
}

/// Checks that a preset names its model, in one of three ways.
pub fn preset(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    let ways = ["model", "base", "repo"];
    let is_named =
        |name: &&str| is_said(value.get(name)) || reading.is_faulty(&top.child_name(name));
    if !ways.iter().any(is_named) {
        let expected = "the model as `base` or as `repo`";
        reading.fault(top.fault(Problem::Missing { property: "model".into(), expected }));
    }
}

/// Notes that the run has no commands, unless what would say them is wrong.
fn no_commands(top: &Field<'_>, reading: &mut Reading, expected: &'static str) {
    let is_faulty = |name: &&str| reading.is_faulty(&top.child_name(name));
    if !["commands", "groups", "image", "docker"].iter().any(is_faulty) {
        let place = property(top, "commands").unwrap_or_else(|| top.clone());
        let property = "commands".into();
        reading.fault(place.fault(Problem::Missing { property, expected }));
    }
}

fn task(top: &Field<'_>, value: &mut Value, reading: &mut Reading) {
    let groups = value.get("groups");
    if groups.is_null() && value.get("nodes").is_null() {
        value.set("nodes", Value::Integer(1));
    } else if !groups.is_null() && groups.items().is_empty() {
        reading.fault(refused(top, "groups", "expected at least one group".to_owned()));
    }
    if !value.get("groups").is_null() && is_said(value.get("entrypoint")) {
        let why = "is not for `groups`: put it into the `commands` of each".to_owned();
        reading.fault(refused(top, "entrypoint", why));
    }
    group_names(top, value, reading);
    let groups = value.get("groups").items();
    let has_commands = |part: &Value| !part.get("commands").items().is_empty();
    let of_groups = !groups.is_empty() && groups.iter().all(has_commands);
    if !has_commands(value) && !of_groups && !is_said(value.get("image")) {
        no_commands(top, reading, "a list of one shell command or more");
    }
    on_node(top, value, reading)
}

/// A group without a name has its number for one.
fn group_names(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    let groups = value.get("groups").items().iter().zip(0_usize..);
    let name = |(group, index): (&Value, usize)| {
        group.get("name").as_owned_text().unwrap_or_else(|| index.to_string())
    };
    let names: Vec<String> = groups.map(name).collect();
    let mut seen = BTreeSet::new();
    if let Some(name) = names.iter().find(|name| !seen.insert(name.as_str())) {
        let why = format!("two groups have the name {name}: expected one for each");
        reading.fault(refused(top, "groups", why));
    }
}

fn dev_environment(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    let (ide, version) = (value.get("ide"), value.get("version").as_text());
    // Windsurf's is `1.106.0@8951cd3a`.
    let is_of_windsurf = |version: &str| {
        let commit = version.rsplit_once('@').filter(|(number, _)| !number.is_empty());
        let digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        commit.is_some_and(|(_, commit)| !commit.is_empty() && commit.bytes().all(digit))
    };
    let fault = match (ide.as_text(), version) {
        _ if is_said(value.get("entrypoint")) => {
            Some(("entrypoint", "is not for a dev environment: put it into `init`"))
        }
        (None, Some(_)) if !reading.is_faulty("ide") => {
            Some(("version", "is that of an IDE: expected `ide` beside it"))
        }
        (Some("windsurf"), Some(version)) if !is_of_windsurf(version) => {
            Some(("version", "expected VERSION@COMMIT, as Windsurf has it"))
        }
        _ if is_said(value.get("dstack")) && !value.get("inactivity_duration").is_null() => {
            Some(("dstack", "is not for `inactivity_duration`: leave out one of them"))
        }
        _ => None,
    };
    match fault {
        Some((name, why)) => reading.fault(refused(top, name, why.to_owned())),
        None => on_node(top, value, reading),
    }
}

/// What a run may say depends on whether it has an image, or runs among the node's own files.
fn on_node(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    let names_image = |part: &Value| is_said(part.get("image")) || is_said(part.get("docker"));
    let has_image = names_image(value) || value.get("groups").items().iter().any(names_image);
    let contradiction = match value.get("runtime").as_text() {
        Some("container") if !has_image => Some("`container` needs an `image`"),
        Some("process") if has_image => Some("`process` and an `image` exclude each other"),
        _ => None,
    };
    if let (Some(why), Some(field)) = (contradiction, property(top, "runtime")) {
        reading.refuse(&field, why);
    }
    if !has_image
        && is_said(value.get("user"))
        && let Some(field) = property(top, "user")
    {
        reading.refuse(&field, "needs an `image`: on the node itself a run is its own user");
    }
    if !has_image
        && is_said(value.get("privileged"))
        && let Some(field) = property(top, "privileged")
    {
        reading.refuse(&field, "needs an `image`: on the node itself a run has its user's rights");
    }
    if has_image
        && is_said(value.get("nvcc"))
        && let Some(field) = property(top, "nvcc")
    {
        reading.refuse(&field, "an `image` brings its own: leave out one of them");
    }
    if has_image
        && value.get("working_dir").as_text().is_some_and(|folder| !is_work_dir(folder))
        && let Some(field) = property(top, "working_dir")
    {
        reading.refuse(&field, "expected a path without `..` and not below /proc, in an `image`");
    }
    if value.get("repos").items().len() > 1
        && let Some(field) = property(top, "repos")
    {
        reading.refuse(&field, "expected one repository at most");
    }
    volumes(top, value, has_image, reading)
}

/// Folders of the node are mounted into a container. A run without an image has them where they are, and at no other path.
/// Volumes have names that `sluice volume create` takes.
fn volumes(top: &Field<'_>, value: &Value, has_image: bool, reading: &mut Reading) {
    let Some(items) = property(top, "volumes").and_then(|field| field.list("").ok()) else {
        return;
    };
    for (item, mount) in items.iter().zip(value.get("volumes").items()) {
        match (mount.get("instance_path").as_text(), mount.get("path").as_text()) {
            (None, Some(path)) => {
                let names = match mount.get("name") {
                    Value::Text(name) => vec![name.clone()],
                    names => names.texts(),
                };
                if let Err(error) = VolumeUse::one_of(&names, path) {
                    reading.refuse(item, error.to_string());
                }
            }
            (None, None) => {}
            (Some(from), Some(to)) if !has_image && from != to => {
                let why =
                    format!("a run without an `image` finds {from} at {from} and not at {to}");
                // Optional is what a run can do without, where there is no such mount.
                if is_said(mount.get("optional")) {
                    reading.notice(item, format!("is left out: {why}"));
                } else {
                    reading.refuse(item, why);
                }
            }
            (Some(_), Some("/")) => {
                reading.refuse(item, "nothing is mounted over the whole of a container")
            }
            (Some(_), _) => {}
        }
    }
}

fn service(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    if value.get("groups").is_null() {
        scaling(top, value, reading);
        replicas(top, value, reading);
    } else {
        replica_groups(top, value, reading);
    }
    let runs =
        |part: &Value| !part.get("commands").items().is_empty() || is_said(part.get("image"));
    let groups = value.get("groups").items();
    let of_groups = !groups.is_empty() && groups.iter().all(runs);
    if !runs(value) && !of_groups {
        no_commands(top, reading, "a list of one shell command or more, or an image");
    }
    if let Some(field) = property(top, "array") {
        reading.refuse(&field, "is not for a service: `replicas` says how many there are");
    }
    let probes = value.get("probes").items();
    if has_twins(probes, |one, other| one == other) {
        reading.fault(refused(top, "probes", "two of them are alike: leave out one".to_owned()));
    }
    let limits = value.get("rate_limits").items();
    if has_twins(limits, |one, other| one.get("prefix") == other.get("prefix")) {
        let why = "two of them have the same `prefix`: expected one for each".to_owned();
        reading.fault(refused(top, "rate_limits", why));
    }
    on_node(top, value, reading)
}

fn has_twins(items: &[Value], are_twins: impl Fn(&Value, &Value) -> bool) -> bool {
    let mut each = items.iter().enumerate();
    each.any(|(at, one)| items[..at].iter().any(|other| are_twins(one, other)))
}

/// What each group of replicas says, and what all of them have in common. The rules between groups are those of the service itself.
fn replica_groups(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    let fields = property(top, "groups").and_then(|field| field.list("").ok()).unwrap_or_default();
    let groups = value.get("groups").items();
    if groups.is_empty() {
        reading.fault(refused(top, "groups", "expected at least one group".to_owned()));
    }
    for name in ["scaling", "entrypoint"] {
        if is_said(value.get(name)) {
            let why = "is not for `groups`: say it for each of them".to_owned();
            reading.fault(refused(top, name, why));
        }
    }
    for (field, group) in fields.iter().zip(groups) {
        scaling(field, group, reading);
        replicas(field, group, reading);
        let says = |name: &str| is_said(group.get(name)) || is_said(value.get(name));
        for (one, other) in EXCLUSIVE_IN_GROUP {
            // What the service says by itself is told of once.
            let is_own = is_said(group.get(one)) || is_said(group.get(other));
            if is_own && says(one) && says(other) {
                let why = format!("`{one}` and `{other}` exclude each other, in a group too");
                let place = if is_said(group.get(other)) { other } else { one };
                reading.fault(refused(field, place, why));
            }
        }
        if is_said(group.get("privileged")) && !says("image") && !says("docker") {
            let why = "needs an `image`: on the node itself a run has its user's rights";
            reading.fault(refused(field, "privileged", why.to_owned()));
        }
    }
    let tasks = super::service::task(value, reading).replica_groups;
    let services: Vec<Option<&Service>> = tasks.iter().map(|one| one.service.as_ref()).collect();
    if !services.is_empty()
        && !reading.is_faulty("groups")
        && let Err(why) = check_groups(&services)
    {
        reading.fault(refused(top, "groups", why));
    }
}

/// The most replicas are within their bound.
fn replicas(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    let said = value.get("replicas");
    let Some(field) = property(top, "replicas").filter(|_| !said.is_null()) else { return };
    let is_good = |count: u32| (1..=REPLICAS_MAX).contains(&count);
    if !said.get("max").as_count().is_some_and(is_good) {
        let expected = format!("expected a number from 1 to {REPLICAS_MAX}, or a range up to one");
        reading.refuse(&field, expected);
    }
}

/// A range of replicas is scaled within, and a number has nothing to scale.
fn scaling(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    let is_faulty = |name: &&str| reading.is_faulty(&top.child_name(name));
    if ["replicas", "scaling"].iter().any(is_faulty) {
        return;
    }
    let replicas = value.get("replicas");
    let is_range = !replicas.is_null() && replicas.get("min") != replicas.get("max");
    match (is_range, value.get("scaling").is_null()) {
        (true, true) => {
            let why = "a range needs `scaling`: expected one, or a number".to_owned();
            reading.fault(refused(top, "replicas", why));
        }
        (false, false) => {
            let why = "is for a range of `replicas`, as in 0..4".to_owned();
            reading.fault(refused(top, "scaling", why));
        }
        _ => {}
    }
}

/// What chooses and keeps machines of a cloud.
const OF_MACHINES: &[&str] = &[
    "reservation",
    "resources",
    "backends",
    "regions",
    "availability_zones",
    "instance_types",
    "spot_policy",
    "retry",
    "max_price",
    "idle_duration",
    "tags",
];

pub fn fleet(top: &Field<'_>, value: &Value, reading: &mut Reading) {
    if reading.is_faulty("nodes") || reading.is_faulty("ssh_config") {
        return;
    }
    if is_said(value.get("ssh_config")) {
        let said = OF_MACHINES.iter().filter(|name| is_said(value.get(name)));
        for field in said.filter_map(|name| property(top, name)) {
            reading.notice(
                &field,
                "has no effect: it is for machines of a cloud, and `ssh_config` names hosts",
            );
        }
    }
    match (is_said(value.get("ssh_config")), is_said(value.get("nodes"))) {
        (true, true) => {
            let why = "is for machines of a cloud: `ssh_config` names its hosts".to_owned();
            reading.fault(refused(top, "nodes", why));
        }
        (false, false) => reading.fault(top.fault(Problem::Missing {
            property: "nodes".into(),
            expected: "`nodes` for machines of a cloud, or `ssh_config` with hosts",
        })),
        _ => {}
    }
}

fn is_said(value: &Value) -> bool {
    !matches!(value, Value::Null | Value::Bool(false))
}

fn property<'a>(top: &Field<'a>, name: &str) -> Option<Field<'a>> {
    top.child(name).filter(|field| !field.is_nothing())
}

fn refused(top: &Field<'_>, name: &str, why: String) -> Fault {
    match property(top, name) {
        Some(field) => field.refused(why),
        None => top.fault(Problem::Refused { property: top.child_name(name), why }),
    }
}

//! The backends of dstack's `config.yml` as `[[source]]` tables of sluice.toml. Keys and tokens are named and never written: each
//! source reads them from a file of its own.

use crate::backend_words::{RENAMED, SAME, no_effect};
use crate::configuration::fault::Fault;
use crate::configuration::field::Field;
use crate::configuration::tree::yaml;
use serde_json::Value;
use std::fmt::Write;

/// The clouds that are sources by themselves; any other backend but pods needs a provider program.
const OWN_SOURCES: [&str; 3] = ["aws", "gcp", "lambda"];

const KUBERNETES: &str = "kubernetes";

/// Where the files of credentials and the provider programs are said to be.
const FOLDER: &str = "/etc/sluice";

/// A form of `creds` of a backend.
struct Creds {
    backend: &'static str,
    word: &'static str,
    /// What is to be in the file of credentials; empty where none is needed.
    holds: &'static str,
}

const fn creds(backend: &'static str, word: &'static str, holds: &'static str) -> Creds {
    Creds { backend, word, holds }
}

const CREDS: &[Creds] = &[
    creds("aws", "access_key", "access_key and secret_key, as AWS's tools write them"),
    creds("aws", "default", ""),
    creds("gcp", "service_account", "the key of the service account (data)"),
    creds("gcp", "default", ""),
    creds("lambda", "api_key", "api_key"),
];

/// Words of a backend that are written otherwise than by the tables of words.
const OTHER_WORDS: [&str; 7] =
    ["type", "regions", "creds", "tags", "vpc_name", "vpc_project_id", "security_group_id"];

/// How many machines a backend may have at once where nobody says it.
pub const MACHINES: u32 = 8;

/// The forms of `creds` of a backend.
pub fn creds_words(backend: &str) -> Vec<&'static str> {
    CREDS.iter().filter(|form| form.backend == backend).map(|form| form.word).collect()
}

/// The sources as the text of a sluice.toml, or the first fault of the file.
pub fn sources(bytes: &[u8]) -> Result<String, Fault> {
    let tree = yaml::parse(bytes)?;
    let top = Field::top(&tree);
    let projects = top.child("projects").filter(|projects| !projects.is_nothing());
    let mut text = String::new();
    let mut names: Vec<String> = Vec::new();
    for project in projects.map_or(Ok(Vec::new()), |all| all.list("a list of projects"))? {
        let of = required(&project, "name", "the project's name")?;
        let backends = project.child("backends").filter(|backends| !backends.is_nothing());
        for backend in backends.map_or(Ok(Vec::new()), |all| all.list("a list of backends"))? {
            let kind = required(&backend, "type", "the backend's type, such as aws")?;
            let name = if names.iter().any(|name| name == kind) {
                format!("{kind}-{}", of.to_ascii_lowercase())
            } else {
                kind.to_owned()
            };
            push_source(&mut text, of, &name, kind, &backend)?;
            names.push(name);
        }
    }
    if text.is_empty() {
        text.push_str("# No project of the file has a backend.\n");
    }
    Ok(text)
}

fn required<'a>(of: &Field<'a>, key: &str, expected: &str) -> Result<&'a str, Fault> {
    match of.child(key) {
        Some(field) => field.text(expected),
        None => Err(of.refused(format!("expected `{key}`: {expected}"))),
    }
}

fn push_source(
    text: &mut String,
    project: &str,
    name: &str,
    kind: &str,
    backend: &Field<'_>,
) -> Result<(), Fault> {
    let project = printable(project);
    // Writing to a String does not fail.
    let _ = writeln!(text, "# Backend {} of project {project}.", printable(kind));
    let _ = writeln!(text, "[[source]]\nname = {}", quoted(name));
    let is_own = OWN_SOURCES.contains(&kind);
    if is_own || kind == KUBERNETES {
        let _ = writeln!(text, "kind = {}", quoted(kind));
    } else {
        let program = format!("{FOLDER}/{name}.py");
        let _ = writeln!(text, "program = {}  # to be written: docs/machines.md", quoted(&program));
    }
    let _ = writeln!(text, "machines = {MACHINES}  # at most, at once");
    if is_own {
        push_cloud(text, name, kind, backend)?;
    } else if kind == KUBERNETES {
        push_pods(text, name, backend)?;
    }
    text.push('\n');
    Ok(())
}

fn push_cloud(text: &mut String, name: &str, kind: &str, backend: &Field<'_>) -> Result<(), Fault> {
    text.push_str("[source.cloud]\n");
    let regions = backend.child("regions").filter(|regions| !regions.is_nothing());
    let regions = regions.map_or(Ok(Vec::new()), |all| all.texts("a list of regions"))?;
    let places: Vec<String> = match kind {
        "gcp" => regions.iter().flat_map(|region| google_zones(region)).collect(),
        _ => regions.clone(),
    };
    let listed: Vec<String> = places.iter().map(|place| quoted(place)).collect();
    let note = match (listed.is_empty(), kind) {
        (true, _) => "  # expected at least one",
        (false, "gcp") => "  # zones, where backends of dstack name regions",
        (false, _) => "",
    };
    let _ = writeln!(text, "regions = [{}]{note}", listed.join(", "));
    if kind == "gcp" {
        required(backend, "project_id", "the id of the cloud's project")?;
    }
    push_words(text, kind, backend)?;
    if kind != "lambda" {
        text.push_str("image = \"\"  # an image that has the program\n");
    } else {
        text.push_str("ssh_key = \"\"  # the name of an SSH key of the account\n");
    }
    push_credentials(text, name, kind, backend)
}

/// What a backend says beside its regions and credentials. What a source has no word for, and what changes nothing, is said.
fn push_words(text: &mut String, kind: &str, backend: &Field<'_>) -> Result<(), Fault> {
    let given = |word: &str| backend.child(word).filter(|given| !given.is_nothing());
    let renamed = || RENAMED.into_iter().filter(|(of, ..)| *of == kind);
    for (_, word, key) in renamed() {
        if let Some(value) = given(word) {
            let _ = writeln!(text, "{key} = {}", quoted(value.text("a name")?));
        }
    }
    let same = || SAME.into_iter().filter(|(of, _)| *of == kind);
    for (_, word) in same() {
        if let Some(value) = given(word) {
            let _ = writeln!(text, "{word} = {}", inline(&value.as_it_is().to_json()));
        }
    }
    // A word of another kind of backend is none of this one's.
    let is_missing = |word: &str| match word {
        "vpc_name" | "vpc_project_id" => kind != "gcp",
        "security_group_id" => kind != "aws",
        "tags" => kind == "lambda",
        _ => false,
    };
    let written = |word: &str| given(word).filter(|_| !is_missing(word));
    let (name, project) = (written("vpc_name"), written("vpc_project_id"));
    if name.is_some() || project.is_some() {
        let name = name.as_ref().map(|name| name.text("the network's name")).transpose()?;
        let project = project.as_ref().map(|project| project.text("a project")).transpose()?;
        let _ = writeln!(text, "network = {}", quoted(&google_network(name, project)));
    }
    if let Some(group) = written("security_group_id") {
        let group = quoted(group.text("the id of a security group")?);
        let _ = writeln!(text, "security_groups = [{group}]");
    }
    if let Some(tags) = written("tags") {
        let mut pairs = Vec::new();
        for (key, _, value) in tags.entries("tags with their values")? {
            pairs.push(format!("{} = {}", quoted(key), quoted(value.text("a text")?)));
        }
        let _ = writeln!(text, "tags = {{ {} }}", pairs.join(", "));
    }
    let is_known = |word: &str| {
        let is_written = OTHER_WORDS.contains(&word) && !is_missing(word);
        let is_same = same().any(|(_, known)| known == word);
        is_written || is_same || renamed().any(|(_, known, _)| known == word)
    };
    for (word, _, value) in backend.entries("a backend")? {
        let word_shown = printable(word);
        match no_effect(kind, word) {
            _ if is_known(word) => {}
            Some(_) if value.is_off() => {}
            Some(why) => {
                let _ = writeln!(text, "# `{word_shown}` has no effect: {why}.");
            }
            None => {
                let _ = writeln!(text, "# `{word_shown}`: a source has no word for it.");
            }
        }
    }
    Ok(())
}

/// The path by which Google's API knows a network, of this project where it is another's. Without a name it is the default one.
pub fn google_network(name: Option<&str>, project: Option<&str>) -> String {
    let path = format!("global/networks/{}", name.unwrap_or("default"));
    project.map_or_else(|| path.clone(), |project| format!("projects/{project}/{path}"))
}

/// `kubeconfig` has the file, or its text, which is not written. A source has one of its contexts.
fn push_pods(text: &mut String, name: &str, backend: &Field<'_>) -> Result<(), Fault> {
    text.push_str("[source.kubernetes]\n");
    let given = backend.child("kubeconfig").filter(|given| !given.is_nothing());
    let file = given.as_ref().and_then(|given| given.child("filename"));
    match (file.filter(|file| !file.is_nothing()), given) {
        (Some(file), _) => {
            let path = quoted(file.text("a file")?);
            let _ = writeln!(text, "kubeconfig = {path}  # an absolute path, of mode 600");
        }
        (None, Some(_)) => {
            let path = quoted(&format!("{FOLDER}/{name}"));
            let _ = writeln!(text, "kubeconfig = {path}  # a file of mode 600 with `data`");
        }
        (None, None) => text.push_str("# Without `kubeconfig`: the server runs in the cluster.\n"),
    }
    if let Some(namespace) = backend.child("namespace").filter(|of| !of.is_nothing()) {
        let namespace = quoted(namespace.text("the namespace of pods")?);
        let _ = writeln!(text, "namespace = {namespace}");
    }
    push_context(text, backend)?;
    text.push_str("runner_image = \"\"  # an image that has the program\n");
    text.push_str("image = \"\"  # of runs that name none\n");
    let has_jump = backend.child("proxy_jump").is_some_and(|jump| !jump.is_nothing());
    if let Some(why) = no_effect(KUBERNETES, "proxy_jump").filter(|_| has_jump) {
        let _ = writeln!(text, "# `proxy_jump` has no effect: {why}.");
    }
    Ok(())
}

fn push_context(text: &mut String, backend: &Field<'_>) -> Result<(), Fault> {
    let given = backend.child("contexts").filter(|given| !given.is_nothing());
    let contexts = given.map_or(Ok(Vec::new()), |all| all.list("a list of contexts"))?;
    for (at, context) in contexts.iter().enumerate() {
        let name = context.child("name");
        let name = quoted(name.as_ref().unwrap_or(context).text("the name of a context")?);
        let _ = match at {
            0 => writeln!(text, "context = {name}"),
            _ => writeln!(text, "# Context {name} is another [[source]]: each has one."),
        };
    }
    Ok(())
}

/// Google's regions whose first zones are not `a`, `b` and `c`.
const OTHER_ZONES: &[(&str, [&str; 3])] =
    &[("europe-west1", ["b", "c", "d"]), ("us-east1", ["b", "c", "d"])];

/// The zones of one of Google's regions; a zone is itself. Sources name zones, in which machines are made.
pub fn google_zones(place: &str) -> Vec<String> {
    let is_letter = |text: &str| text.len() == 1 && text.bytes().all(|b| b.is_ascii_lowercase());
    let is_zone = |(_, last): (&str, &str)| is_letter(last);
    if place.rsplit_once('-').is_some_and(is_zone) {
        return vec![place.to_owned()];
    }
    let known = OTHER_ZONES.iter().find(|(region, _)| *region == place);
    let letters = known.map_or(["a", "b", "c"], |(_, letters)| *letters);
    letters.iter().map(|letter| format!("{place}-{letter}")).collect()
}

fn push_credentials(
    text: &mut String,
    name: &str,
    kind: &str,
    backend: &Field<'_>,
) -> Result<(), Fault> {
    let known = creds_words(kind);
    let given = backend.child("creds").filter(|given| !given.is_nothing());
    let Some(given) = given else {
        text.push_str("# Without `creds`: those of the server's environment, or of its machine.\n");
        return Ok(());
    };
    let word = match given.child("type") {
        Some(word) => word.word(&known)?,
        // The value may be a key: it is not shown.
        None => return Err(given.refused(format!("expected a `type`: {}", known.join(" or ")))),
    };
    // A file that is there already is named as it is.
    if let Some(file) = given.child("filename").filter(|file| !file.is_nothing()) {
        let _ = writeln!(text, "credentials = {}", quoted(file.text("a file")?));
        return Ok(());
    }
    let form = CREDS.iter().find(|form| form.backend == kind && form.word == word);
    match form.map(|form| form.holds).filter(|holds| !holds.is_empty()) {
        Some(holds) => {
            let file = quoted(&format!("{FOLDER}/{name}"));
            let _ = writeln!(text, "credentials = {file}  # a file of mode 600 with {holds}");
        }
        None => {
            let _ = writeln!(text, "# `creds: {{type: {word}}}`: those of the server's machine.");
        }
    }
    Ok(())
}

/// A value as TOML has it on one line.
fn inline(value: &Value) -> String {
    match value {
        Value::Array(items) => {
            let items: Vec<String> = items.iter().map(inline).collect();
            format!("[{}]", items.join(", "))
        }
        Value::Object(entries) => {
            let pair =
                |(key, value): (&String, &Value)| format!("{} = {}", quoted(key), inline(value));
            let given = entries.iter().filter(|(_, value)| !value.is_null());
            let pairs: Vec<String> = given.map(pair).collect();
            format!("{{ {} }}", pairs.join(", "))
        }
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

/// A string of TOML: JSON's escapes are TOML's.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

fn printable(text: &str) -> String {
    model::printable::printable(text).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = "\
projects:
- name: main
  backends:
  - type: aws
    regions: [eu-west-1, us-east-1]
    iam_instance_profile: nodes
    tags: {team: vision}
    public_ips: false
    vpc_ids: {eu-west-1: vpc-1}
    os_images: {cpu: {name: lab cpu, owner: 123456789012, user: ubuntu}}
    security_group_id: sg-1
    nat_check: true
    creds: {type: access_key, access_key: AKIA123, secret_key: hush}
  - type: gcp
    project_id: lab-1
    regions: [europe-west4, us-east1, us-west1-b]
    vpc_name: lab
    vpc_project_id: net
    public_ips: true
    nat_check: true
    extra_vpcs: []
    creds: {type: service_account, filename: /etc/keys/gcp.json}
  - type: lambda
    creds: {type: api_key, api_key: hush}
  - type: nebius
    creds: {type: service_account}
  - type: kubernetes
    kubeconfig: {filename: /etc/sluice/kubeconfig}
    proxy_jump: {hostname: 10.0.0.1, port: 32000}
- name: Vision
  backends:
  - type: aws
    regions: [eu-west-1]
    creds: {type: default}
  - type: kubernetes
    kubeconfig: {data: hush}
    contexts: [{name: lab}, other]
";

    #[test]
    fn backends_are_sources_and_no_key_is_written() {
        let text = sources(FILE.as_bytes()).expect("good");
        assert!(!text.contains("hush") && !text.contains("AKIA123"), "{text}");
        for line in [
            "name = \"aws\"",
            "kind = \"aws\"",
            "regions = [\"eu-west-1\", \"us-east-1\"]",
            "credentials = \"/etc/sluice/aws\"  # a file of mode 600 with access_key and secret_key, as AWS's tools write them",
            "regions = [\"europe-west4-a\", \"europe-west4-b\", \"europe-west4-c\", \"us-east1-b\", \"us-east1-c\", \"us-east1-d\", \"us-west1-b\"]  # zones, where backends of dstack name regions",
            "project = \"lab-1\"",
            "identity = \"nodes\"",
            "tags = { \"team\" = \"vision\" }",
            "public_ips = false",
            "vpc_ids = { \"eu-west-1\" = \"vpc-1\" }",
            "os_images = { \"cpu\" = { \"name\" = \"lab cpu\", \"owner\" = 123456789012, \"user\" = \"ubuntu\" } }",
            "security_groups = [\"sg-1\"]",
            "# `nat_check`: a source has no word for it.",
            "public_ips = true",
            "# `nat_check` has no effect: a network is not looked at; a machine that does not join is given up.",
            "network = \"projects/net/global/networks/lab\"",
            "credentials = \"/etc/keys/gcp.json\"",
            "credentials = \"/etc/sluice/lambda\"  # a file of mode 600 with api_key",
            "program = \"/etc/sluice/nebius.py\"  # to be written: docs/machines.md",
            "name = \"aws-vision\"",
            "# `creds: {type: default}`: those of the server's machine.",
            "kind = \"kubernetes\"",
            "kubeconfig = \"/etc/sluice/kubeconfig\"  # an absolute path, of mode 600",
            "kubeconfig = \"/etc/sluice/kubernetes-vision\"  # a file of mode 600 with `data`",
            "context = \"lab\"",
            "# Context \"other\" is another [[source]]: each has one.",
            "# `proxy_jump` has no effect: the agents of pods dial out.",
        ] {
            assert!(text.lines().any(|of| of == line), "{line}\n{text}");
        }
        assert_eq!(text.lines().filter(|line| *line == "[[source]]").count(), 7, "{text}");
        let none = sources(b"projects:\n- name: main\n").expect("good");
        assert_eq!(none, "# No project of the file has a backend.\n");
    }

    #[test]
    fn faults_of_the_file_are_told_without_its_keys() {
        let table = [
            ("projects: [{backends: []}]", "name"),
            ("projects: [{name: a, backends: [{regions: []}]}]", "type"),
            ("projects: [{name: a, backends: [{type: gcp}]}]", "project_id"),
            (
                "projects: [{name: a, backends: [{type: aws, creds: {access_key: hush}}]}]",
                "access_key or default",
            ),
            (
                "projects: [{name: a, backends: [{type: aws, creds: {type: password}}]}]",
                "one of access_key, default",
            ),
        ];
        for (text, words) in table {
            let said = sources(text.as_bytes()).expect_err(text).to_string();
            assert!(said.contains(words) && !said.contains("hush"), "{words}: {said}");
            assert!(!said.contains('\n'), "{said}");
        }
    }
}

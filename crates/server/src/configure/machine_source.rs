//! `[[source]]` of sluice.toml: where machines come from that are made for waiting jobs.

use super::cloud_source::CloudToml;
use super::pod_source::KubernetesToml;
use super::type_error;
use crate::agent_addresses::unreachable;
use cluster::ClusterConfig;
use model::backend::SOURCE_NAME_BYTES_MAX;
use model::cloud_source::SourceKind;
use model::container::is_plain_path;
use model::hostlist;
use model::machine::SourceConfig;
use model::price::{Cost, Price};
use model::printable::is_unprintable;
use model::time::parse_duration;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::time::Duration;

/// The most sources, and the most machines of one.
const SOURCES_MAX: usize = 64;
const MACHINES_MAX: u32 = 10_000;

const DAY: Duration = Duration::from_secs(24 * 3600);

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SourceToml {
    name: String,
    kind: Option<String>,
    program: Option<String>,
    nodes: Option<String>,
    features: Option<Vec<String>>,
    machines: u32,
    price_per_hour: Option<f64>,
    budget_per_month: Option<f64>,
    idle: Option<String>,
    min_life: Option<String>,
    boot: Option<String>,
    call_limit: Option<String>,
    own_nodes_first: Option<bool>,
    account: Option<String>,
    cloud: Option<CloudToml>,
    kubernetes: Option<KubernetesToml>,
}

/// The sources, or what is wrong with one.
pub(super) fn sources(given: &[SourceToml]) -> Result<Vec<SourceConfig>, String> {
    if given.len() > SOURCES_MAX {
        return Err(format!(
            ": [[source]]: {} of them: expected at most {SOURCES_MAX}",
            given.len()
        ));
    }
    let mut found: Vec<SourceConfig> = Vec::new();
    for one in given {
        let source = one.source().map_err(|why| format!(": [[source]] {:?}: {why}", one.name))?;
        if found.iter().any(|other| other.name == source.name) {
            return Err(format!(": [[source]] {:?}: another has this name", one.name));
        }
        found.push(source);
    }
    Ok(found)
}

/// The source of a backend, whose table is as one of the file, and whose credentials are given beside it.
pub(super) fn of_backend(table: &Value) -> Result<SourceConfig, String> {
    let given = SourceToml::deserialize(table);
    let mut given = given.map_err(|e| type_error::of_key(&e.to_string(), || wrong_key(table)))?;
    if let Some(cloud) = &mut given.cloud {
        cloud.has_given_credentials = true;
    }
    given.source()
}

/// The first key that the table of a source is refused for, as `cloud.image`: the parser does not say which it was, so each is read by
/// itself.
fn wrong_key(table: &Value) -> Option<String> {
    let is_wrong = |key: &str, value: &Value| {
        let mut source = json!({"name": "", "machines": 1});
        source[key] = value.clone();
        SourceToml::deserialize(&source).is_err()
    };
    let (key, value) = table.as_object()?.iter().find(|(key, value)| is_wrong(key, value))?;
    // A value that should be no table has no keys to name.
    let below = value.as_object().filter(|_| !is_wrong(key, &json!({})));
    let inner = below.and_then(|below| {
        below.iter().find(|(inner, value)| is_wrong(key, &json!({ (inner.as_str()): value })))
    });
    Some(inner.map_or_else(|| key.clone(), |(inner, _)| format!("{key}.{inner}")))
}

impl SourceToml {
    fn source(&self) -> Result<SourceConfig, String> {
        let first = self.name.bytes().next();
        let is_plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_name = first.is_some_and(|b| b.is_ascii_lowercase())
            && self.name.len() <= SOURCE_NAME_BYTES_MAX
            && self.name.bytes().all(is_plain);
        if !is_name {
            return Err(format!(
                "name: expected a letter and then small letters, digits and -, at most {SOURCE_NAME_BYTES_MAX}"
            ));
        }
        if !(1..=MACHINES_MAX).contains(&self.machines) {
            return Err(format!("machines: {}: expected 1 to {MACHINES_MAX}", self.machines));
        }
        let usual = SourceConfig::of_kind(&self.name, self.kind()?);
        let features = self.features.clone().unwrap_or(usual.features);
        let is_feature = |text: &String| {
            let is_wrong = |c: char| is_unprintable(c) || " ,&|=".contains(c);
            !text.is_empty() && text.len() <= 64 && !text.contains(is_wrong)
        };
        if features.is_empty() || features.len() > 16 || !features.iter().all(is_feature) {
            return Err("features: expected 1 to 16 words".into());
        }
        let (hour, month) = (self.price_per_hour, self.budget_per_month);
        let price = |dollars: f64| {
            let wrong = || format!("price_per_hour: {dollars}: expected dollars, 0 to 1000000");
            Price::from_dollars(dollars).ok_or_else(wrong)
        };
        let budget = |dollars: f64| {
            let wrong = || format!("budget_per_month: {dollars}: expected dollars, 0 to 1e9");
            Cost::from_dollars(dollars).ok_or_else(wrong)
        };
        let is_account = |name: &String| !name.is_empty() && !name.contains(is_unprintable);
        if let Some(name) = self.account.as_ref().filter(|name| !is_account(name)) {
            return Err(format!("account: {name:?}: expected the name of an account or a project"));
        }
        let nodes = self.nodes.as_deref().map(hostlist::expand).transpose();
        Ok(SourceConfig {
            nodes: nodes.map_err(|why| format!("nodes: {why}"))?.unwrap_or_default(),
            features,
            machines_max: self.machines,
            price_hour_max: hour.map(price).transpose()?,
            budget_month: month.map(budget).transpose()?,
            idle_s: seconds("idle", self.idle.as_deref(), usual.idle_s, (1, 365))?,
            life_min_s: seconds("min_life", self.min_life.as_deref(), usual.life_min_s, (0, 365))?,
            boot_s: seconds("boot", self.boot.as_deref(), usual.boot_s, (1, 1))?,
            call_limit_s: seconds(
                "call_limit",
                self.call_limit.as_deref(),
                usual.call_limit_s,
                (1, 1),
            )?,
            own_first: self.own_nodes_first.unwrap_or(usual.own_first),
            account: self.account.clone(),
            name: usual.name,
            kind: usual.kind,
        })
    }

    /// Who makes the machines: a program, or a cloud as its own table says.
    fn kind(&self) -> Result<SourceKind, String> {
        let kind = self.kind.as_deref().unwrap_or("program");
        if !SourceKind::NAMES.contains(&kind) {
            return Err(format!(
                "kind: {kind:?}: expected program, aws, gcp, lambda or kubernetes"
            ));
        }
        let has_table = self.cloud.is_some() || self.kubernetes.is_some();
        if self.kind.is_none() && self.program.is_none() && has_table {
            let (expected, table) = match self.cloud {
                Some(_) => ("aws, gcp or lambda", "cloud"),
                None => ("kubernetes", "kubernetes"),
            };
            return Err(format!("kind: missing: expected {expected} beside [source.{table}]"));
        }
        if kind == "kubernetes" {
            return self.pods();
        }
        if self.kubernetes.is_some() {
            return Err("kubernetes: only a source of kind kubernetes has it".into());
        }
        match (kind, &self.program, &self.cloud) {
            ("program", Some(program), None) if is_plain_path(program) => {
                Ok(SourceKind::Program(program.clone()))
            }
            ("program", Some(program), None) => {
                Err(format!("program: {program:?}: expected an absolute path"))
            }
            ("program", None, _) => Err("program: missing: expected an absolute path".into()),
            ("program", Some(_), Some(_)) => Err("cloud: only a source of a cloud has it".into()),
            (_, Some(_), _) => Err(format!("program: a source of kind {kind} has none")),
            (_, None, None) => Err("cloud: missing: expected a table [source.cloud]".into()),
            (_, None, Some(cloud)) => {
                let cloud = Box::new(cloud.config(kind).map_err(|why| format!("cloud.{why}"))?);
                Ok(match kind {
                    "aws" => SourceKind::Aws(cloud),
                    "gcp" => SourceKind::Gcp(cloud),
                    _ => SourceKind::Lambda(cloud),
                })
            }
        }
    }

    /// Pods, as their own table says.
    fn pods(&self) -> Result<SourceKind, String> {
        let others = [
            ("program", self.program.is_some()),
            ("cloud", self.cloud.is_some()),
            // A pod is made for a job, and a node of slurm.conf is there before.
            ("nodes", self.nodes.is_some()),
        ];
        if let Some((key, _)) = others.into_iter().find(|(_, is_given)| *is_given) {
            return Err(format!("{key}: a source of kind kubernetes has none"));
        }
        let table = "kubernetes: missing: expected a table [source.kubernetes]";
        let given = self.kubernetes.as_ref().ok_or_else(|| table.to_owned())?;
        let pods = given.config().map_err(|why| format!("kubernetes.{why}"))?;
        Ok(SourceKind::Kubernetes(Box::new(pods)))
    }
}

/// The files and programs that sources name and that are not there, a line each.
pub(super) fn missing_files(sources: &[SourceConfig]) -> Vec<String> {
    let of_source = |source: &SourceConfig| {
        let cloud = source.kind.cloud();
        let named = match &source.kind {
            SourceKind::Program(program) => [("program", Some(program.clone())), ("", None)],
            SourceKind::Kubernetes(pods) => {
                [("kubernetes.kubeconfig", pods.kubeconfig.clone()), ("", None)]
            }
            SourceKind::Aws(_) | SourceKind::Gcp(_) | SourceKind::Lambda(_) => [
                ("cloud.credentials", cloud.and_then(|cloud| cloud.credentials.clone())),
                ("cloud.prices", cloud.and_then(|cloud| cloud.prices.clone())),
            ],
        };
        let line = |(key, path): (&str, Option<String>)| {
            let path = path?;
            let found = std::fs::metadata(&path);
            let is_missing = found.is_err_and(|error| error.kind() == ErrorKind::NotFound);
            let name = &source.name;
            is_missing.then(|| {
                format!("sluice.toml: [[source]] {name:?}: {key}: {path:?}: there is no such file")
            })
        };
        named.into_iter().filter_map(line).collect::<Vec<String>>()
    };
    sources.iter().flat_map(of_source).collect()
}

/// Sources whose machines are elsewhere and find no server: `sluice.toml` names addresses that lead nowhere from there, or none.
pub(super) fn loopback_notices(config: &ClusterConfig) -> Vec<String> {
    let named = &config.server_addresses;
    let elsewhere = config.sources.iter().filter(|source| source.kind.is_elsewhere());
    let line = |source: &SourceConfig| {
        let why = if named.is_empty() {
            "its machines reach the server at the agents' port, which is on 127.0.0.1 unless the server is started with --agents: \
             expected --agents 0.0.0.0:6821, or addresses in [server]"
                .to_owned()
        } else {
            unreachable(named)?
        };
        Some(format!("sluice.toml: [[source]] {:?}: {why}", source.name))
    };
    elsewhere.filter_map(line).collect()
}

/// The place of a program in `scontrol show config` that nobody calls: sources power their nodes up and down.
const BY_SOURCE: &str = "[[source]]";

/// Checks the nodes that sources back, and lets nodes be powered up and down where slurm.conf names no programs for it.
pub(super) fn back_nodes(config: &mut ClusterConfig) -> Result<(), String> {
    let mut backed: BTreeMap<&str, &str> = BTreeMap::new();
    for source in &config.sources {
        for name in &source.nodes {
            let place = format!("sluice.toml: [[source]] {:?}: nodes: {name}", source.name);
            if !config.nodes.iter().any(|node| node.name == *name && node.cloud) {
                return Err(format!("{place}: expected a node of slurm.conf with State=CLOUD"));
            }
            if let Some(other) = backed.insert(name, &source.name) {
                return Err(format!("{place}: source {other} has it already"));
            }
        }
    }
    if !backed.is_empty() {
        let power = &mut config.parameters.power;
        power.resume_program.get_or_insert_with(|| BY_SOURCE.to_owned());
        power.suspend_program.get_or_insert_with(|| BY_SOURCE.to_owned());
    }
    Ok(())
}

/// A time within bounds: the least seconds and the most days.
fn seconds(
    key: &str,
    given: Option<&str>,
    usual: u32,
    (least_s, most_days): (u64, u32),
) -> Result<u32, String> {
    let Some(text) = given else { return Ok(usual) };
    let bounds = Duration::from_secs(least_s)..=most_days * DAY;
    match parse_duration(text) {
        Ok(Some(length)) if bounds.contains(&length) => Ok(length.as_secs() as u32),
        _ => Err(format!(
            "{key}: {text:?}: expected a time from {least_s}s to {most_days}d, as in 10m"
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, Deserialize)]
    struct File {
        source: Vec<SourceToml>,
    }

    fn read(text: &str) -> Result<Vec<SourceConfig>, String> {
        let file: File = toml::from_str(text).map_err(|e| e.message().to_owned())?;
        sources(&file.source)
    }

    #[test]
    fn source_has_its_limits_and_usual_ones_where_it_says_none() {
        let small = "[[source]]\nname = 'cloud'\nprogram = '/opt/make'\nmachines = 2\n";
        let found = read(small).expect("it is good");
        let expected = SourceConfig { machines_max: 2, ..SourceConfig::new("cloud", "/opt/make") };
        assert_eq!(found, [expected]);
        let more = "features = ['fast']\nprice_per_hour = 2.5\nbudget_per_month = 100\nidle = '1m'\nmin_life = '1h'\nboot = '5m'\ncall_limit = '10s'\nown_nodes_first = false\n";
        let found = read(&format!("{small}{more}")).expect("it is good");
        let one = &found[0];
        assert_eq!((one.idle_s, one.life_min_s, one.boot_s, one.call_limit_s), (60, 3600, 300, 10));
        assert_eq!((&one.features[..], one.own_first), (&["fast".to_owned()][..], false));
        assert_eq!(one.price_hour_max, Price::from_dollars(2.5));
        assert_eq!(one.budget_month, Cost::from_dollars(100.0));
    }

    #[test]
    fn wrong_values_are_said_with_their_source() {
        let source = |more: &str| {
            format!("[[source]]\nname = 'cloud'\nprogram = '/opt/make'\nmachines = 2\n{more}\n")
        };
        let table = [
            (source("colour = 'red'"), "unknown field `colour`"),
            (source("idle = 'soon'"), "[[source]] \"cloud\": idle: \"soon\": expected a time"),
            (source("idle = '0s'"), "idle: \"0s\": expected a time from 1s to 365d"),
            (source("boot = '0s'"), "boot: \"0s\": expected a time from 1s to 1d"),
            (source("call_limit = '0s'"), "call_limit: \"0s\": expected a time from 1s"),
            (
                source("[source.cloud]\nregions = ['r']").replace("program = '/opt/make'", ""),
                "kind: missing: expected aws, gcp or lambda beside [source.cloud]",
            ),
            (
                source("[source.kubernetes]\nimage = 'a'").replace("program = '/opt/make'", ""),
                "kind: missing: expected kubernetes beside [source.kubernetes]",
            ),
            (
                source("kind = 'aws'\n[source.cloud]\nregions = ['r']\nimage = 'i'\ntypes = ['[']")
                    .replace("program = '/opt/make'", ""),
                "cloud.types: \"[\": expected names of types",
            ),
            (source("price_per_hour = -1"), "price_per_hour: -1: expected dollars"),
            (source("budget_per_month = -1"), "budget_per_month: -1: expected dollars"),
            (source("features = ['a,b']"), "features: expected 1 to 16 words"),
            (source(&source("")), "another has this name"),
            (source("").replace("cloud", "Cloud 9"), "name: expected a letter"),
            (source("").replace("/opt/", ""), "program: \"make\": expected an absolute path"),
            (source("").replace("program = '/opt/make'", ""), "program: missing"),
            (source("kind = 'azure'"), "kind: \"azure\": expected program, aws, gcp, lambda or"),
            (source("kind = 'kubernetes'"), "program: a source of kind kubernetes has none"),
            (source("[source.kubernetes]\nimage = 'a'"), "kubernetes: only a source of kind"),
            (
                source("kind = 'kubernetes'\nnodes = 'c1'\n[source.kubernetes]\nimage = 'a'")
                    .replace("program = '/opt/make'", ""),
                "nodes: a source of kind kubernetes has none",
            ),
            (
                source("kind = 'kubernetes'\n[source.kubernetes]\nimage = 'a'")
                    .replace("program = '/opt/make'", ""),
                "[[source]] \"cloud\": kubernetes.runner_image: missing",
            ),
            (source("kind = 'aws'"), "program: a source of kind aws has none"),
            (source("[source.cloud]\nregions = ['r']"), "cloud: only a source of a cloud has it"),
            (
                source("kind = 'aws'").replace("program = '/opt/make'", ""),
                "cloud: missing: expected a table [source.cloud]",
            ),
            (
                source("kind = 'aws'\n[source.cloud]\nregions = []")
                    .replace("program = '/opt/make'", ""),
                "[[source]] \"cloud\": cloud.regions: expected at least one",
            ),
            (source("").replace("= 2", "= 0"), "machines: 0: expected 1 to 10000"),
        ];
        for (text, words) in table {
            let said = read(&text).expect_err(&text);
            assert!(said.contains(words), "{words}: {said}");
        }
    }
}

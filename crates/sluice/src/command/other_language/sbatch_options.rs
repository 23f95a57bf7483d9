//! The options of an `sbatch` whose file is a configuration: each is a property that stands in place of the file's own, or is
//! refused in one line.

use super::{dependency, is_configuration};
use crate::command::slurm::submit::caller::{self, ProcessSurroundings};
use crate::command::verb::VerbError;
use ::dstack::configuration::load::Override;
use ::slurm::option::invocation::{self, Caller, Invocation};
use ::slurm::option::parse::parse_components;
use ::slurm::option::table::long_name;
use ::slurm::option::{Command, JobOptions, OptionKey};
use model::gres::GresCount;
use model::time::TimeLimit;
use serde_json::{Value, json};

/// The options that become properties, or say how `sbatch` itself behaves. All others are refused.
const TAKEN: &[OptionKey] = &[
    OptionKey::Account,
    OptionKey::Array,
    OptionKey::Chdir,
    OptionKey::ContainerImage,
    OptionKey::CpusPerTask,
    OptionKey::Dependency,
    OptionKey::GpusPerNode,
    OptionKey::Gres,
    OptionKey::JobName,
    OptionKey::Mem,
    OptionKey::Nodes,
    OptionKey::Parsable,
    OptionKey::Partition,
    OptionKey::Qos,
    OptionKey::Quiet,
    OptionKey::Reservation,
    OptionKey::Time,
    OptionKey::Tmp,
    OptionKey::Wait,
];

pub struct SbatchOptions {
    pub file: String,
    pub given: JobOptions,
    pub overrides: Vec<Override>,
}

impl SbatchOptions {
    /// `None` where the file is no configuration, or the words are none that `sbatch` takes, which it says itself.
    pub fn read(args: &[String]) -> Option<Result<Self, VerbError>> {
        let parsed = parse_components(Command::Sbatch, args).ok()?;
        let rest = &parsed.last()?.rest;
        let file = rest.first().filter(|file| is_configuration(file))?.clone();
        let refused = |why: String| VerbError::Message(format!("{file}: {why}"));
        if parsed.len() > 1 {
            let why = "a configuration has `groups` where a command line has `:`";
            return Some(Err(refused(why.to_owned())));
        }
        if rest.len() > 1 {
            return Some(Err(refused("a configuration takes no arguments".to_owned())));
        }
        let settings = parsed.iter().flat_map(|component| &component.values);
        if let Some(other) = settings.into_iter().find(|one| !TAKEN.contains(&one.key)) {
            return Some(Err(refused(no_counterpart(other.key))));
        }
        let given = match typed(args) {
            Ok(given) => given?,
            Err(error) => return Some(Err(refused(error))),
        };
        let overrides = overrides(&given).map_err(&refused);
        Some(overrides.map(|overrides| Self { file, given, overrides }))
    }
}

fn no_counterpart(key: OptionKey) -> String {
    let name = long_name(Command::Sbatch, key);
    format!("--{name} has no counterpart in a configuration")
}

/// The options by their types. A configuration has no directives, and variables for batch scripts are not for it.
fn typed(args: &[String]) -> Result<Option<JobOptions>, String> {
    let here = ProcessSurroundings::default();
    let load = |_: Option<&str>| Ok(b"#!/bin/sh\n".to_vec());
    let caller = Caller { variable: &|_| None, load: &load, ..caller::caller(&here) };
    match invocation::batch(args, &caller) {
        Ok(Invocation::Submission(batch)) => Ok(batch.components.into_iter().next()),
        Ok(Invocation::Question(_)) => Ok(None),
        Err(error) => {
            let text = error.render(Command::Sbatch);
            let line = text.lines().next().unwrap_or_default();
            Err(line.trim_start_matches("sbatch: ").trim_start_matches("error: ").to_owned())
        }
    }
}

fn overrides(given: &JobOptions) -> Result<Vec<Override>, String> {
    let mut found: Vec<Override> = Vec::new();
    let mut add =
        |path: &'static [&'static str], value: Value| found.push(Override { path, value });
    let texts: [(&'static [&'static str], &Option<String>); 5] = [
        (&["name"], &given.job_name),
        (&["account"], &given.account),
        (&["qos"], &given.qos),
        (&["reservation"], &given.reservation),
        (&["working_dir"], &given.chdir),
    ];
    for (path, text) in texts {
        if let Some(text) = text {
            add(path, json!(text));
        }
    }
    if let Some(image) = given.container.as_ref().and_then(|container| container.image_name()) {
        add(&["image"], json!(image));
    }
    if !given.partitions.is_empty() {
        add(&["fleets"], json!(given.partitions));
    }
    if let Some(array) = &given.array {
        add(&["array"], json!(array.text));
    }
    if let Some(dependency) = &given.dependency {
        let (terms, others) = dependency::terms(dependency);
        if let Some(other) = others.first() {
            return Err(format!("--dependency={other} has no counterpart in a configuration"));
        }
        add(&["depends_on"], json!(terms));
    }
    match given.time {
        Some(TimeLimit::Minutes(minutes)) => add(&["max_duration"], json!(format!("{minutes}m"))),
        Some(TimeLimit::Unlimited) => add(&["max_duration"], json!("off")),
        None => {}
    }
    if !given.node_counts.is_empty() {
        return Err("--nodes: expected a number or a range".to_owned());
    }
    if let Some(nodes) = given.nodes {
        add(&["nodes"], json!(nodes.to_string()));
    }
    if let Some(cpus) = given.cpus_per_task {
        add(&["resources", "cpu"], json!(cpus));
    }
    match given.mem {
        Some(all) if all.0 == 0 => {
            return Err("--mem=0 has no counterpart in a configuration".to_owned());
        }
        Some(memory) => add(&["resources", "memory"], json!(memory.format_dstack())),
        None => {}
    }
    if let Some(disk) = given.tmp {
        add(&["resources", "disk"], json!(format!("{}..", disk.format_dstack())));
    }
    let gpus: Vec<&GresCount> = given.gpus_per_node.iter().chain(&given.gres).collect();
    match &gpus[..] {
        [] => {}
        [gpu] if gpu.name == "gpu" => {
            let kind = gpu.kind.as_ref().map(|kind| format!("{kind}:")).unwrap_or_default();
            add(&["resources", "gpu"], json!(format!("{kind}{}", gpu.count)));
        }
        [other] => {
            return Err(format!("--gres={} has no counterpart in a configuration", other.name));
        }
        _ => return Err("--gres: a configuration has GPUs of one kind".to_owned()),
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Option<Result<SbatchOptions, VerbError>> {
        let args: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        SbatchOptions::read(&args)
    }

    #[test]
    fn each_option_is_a_property_in_place_of_the_files_own() {
        let table = [
            ("-J it", "name", json!("it")),
            ("-A lab", "account", json!("lab")),
            ("--qos=high", "qos", json!("high")),
            ("-p a,b", "fleets", json!(["a", "b"])),
            ("-t 90", "max_duration", json!("90m")),
            ("-t UNLIMITED", "max_duration", json!("off")),
            ("-N 2-4", "nodes", json!("2..4")),
            ("-N 2", "nodes", json!("2")),
            ("-c 8", "resources.cpu", json!(8)),
            ("--mem=64G", "resources.memory", json!("64GB")),
            ("--gpus-per-node=h100:2", "resources.gpu", json!("h100:2")),
            ("--gres=gpu:2", "resources.gpu", json!("2")),
            ("--tmp=100G", "resources.disk", json!("100GB..")),
            ("-d afterok:118", "depends_on", json!(["afterok:118"])),
            ("--array=0-9%2", "array", json!("0-9%2")),
            ("--reservation=night", "reservation", json!("night")),
            ("-D /data", "working_dir", json!("/data")),
        ];
        for (option, path, value) in table {
            let read = read(&format!("{option} it.dstack.yml")).expect("a configuration");
            let read = read.unwrap_or_else(|error| panic!("{option}: {error}"));
            let found: Vec<_> =
                read.overrides.iter().map(|one| (one.path.join("."), &one.value)).collect();
            assert_eq!(found, [(path.to_owned(), &value)], "{option}");
        }
        assert!(read("job.sh it.yml").is_none() && read("--no-such-option it.yml").is_none());
    }

    #[test]
    fn option_without_a_counterpart_is_named_in_one_line() {
        let table = [
            ("-o out it.yml", "it.yml: --output has no counterpart in a configuration"),
            ("--mail-user=ada it.yml", "it.yml: --mail-user has no counterpart in a configuration"),
            ("-n 4 it.yml", "it.yml: --ntasks has no counterpart in a configuration"),
            ("--gres=fpga:1 it.yml", "it.yml: --gres=fpga has no counterpart in a configuration"),
            ("--mem=0 it.yml", "it.yml: --mem=0 has no counterpart in a configuration"),
            (
                "-d singleton it.yml",
                "it.yml: --dependency=singleton has no counterpart in a configuration",
            ),
            (
                "-d afterok:1?afterok:2 it.yml",
                "it.yml: --dependency=afterok:1?afterok:2 has no counterpart in a configuration",
            ),
            ("it.yml 7", "it.yml: a configuration takes no arguments"),
        ];
        for (line, expected) in table {
            let error = read(line).expect("a configuration").map(drop).expect_err(line);
            assert_eq!(error.to_string(), expected);
        }
    }
}

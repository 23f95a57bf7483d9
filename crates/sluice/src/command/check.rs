//! `sluice check FILE…`: says what is wrong with a batch script, a folder with slurm.conf, or a `.dstack.yml`. Needs no server.

use super::slurm::submit::caller::{self, ProcessSurroundings};
use super::verb::{VerbError, VerbResult};
use ::dstack::backends_file;
use ::dstack::configuration::task::Task;
use ::dstack::configuration::{self, load};
use ::dstack::request::Submitter;
use ::dstack::server_settings;
use ::server::configure::projects_file;
use ::slurm::conf::{RealFiles, load_dir};
use ::slurm::option::invocation::{self, Batch, Caller, Invocation};
use ::slurm::option::{Command, OptionError, script_faults};
use ::slurm::request::{self, Draft};
use clap::Args;
use serde::Serialize;
use serde_json::{Value, json};
use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Bounds what is read of a configuration; a file near this size is refused by its reader.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// What is in a configuration folder: each of them is right or wrong together with the others.
const CONF_FILES: [&str; 6] = [
    "slurm.conf",
    "gres.conf",
    "cgroup.conf",
    "topology.conf",
    "job_container.conf",
    "sluice.toml",
];

/// Files of a site's Slurm that are not read, and what there is in their place.
const NOT_READ: [(&str, &str); 3] = [
    ("oci.conf", "`[containers]` of sluice.toml names the runtime and its settings"),
    ("plugstack.conf", "there are no SPANK plugins; the options of Pyxis are there without it"),
    ("acct_gather.conf", "energy and usage are read without plugins"),
];

#[derive(Args)]
pub struct CheckArgs {
    /// Batch scripts, folders with slurm.conf or its files, or .dstack.yml files
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Print what was understood, with defaults filled in
    #[arg(long)]
    json: bool,
}

/// What was found in one file. Every line names the file, and the line where there is one.
#[derive(Default, Serialize)]
struct Findings {
    file: String,
    kind: &'static str,
    errors: Vec<String>,
    /// What is not available yet: the file is right, and cannot be applied.
    unavailable: Vec<String>,
    /// What has no effect.
    notices: Vec<String>,
    understood: Value,
}

pub fn run(args: CheckArgs) -> VerbResult {
    let found: Vec<Findings> = args.files.iter().map(|path| check(path)).collect();
    if args.json {
        let text = serde_json::to_string_pretty(&found);
        println!("{}", text.map_err(|error| VerbError::Message(error.to_string()))?);
    } else {
        found.iter().for_each(print);
    }
    let good = found.iter().all(|findings| findings.errors.is_empty());
    Ok(if good { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn print(findings: &Findings) {
    findings.errors.iter().for_each(|line| println!("{line}"));
    findings.unavailable.iter().for_each(|line| println!("{line}"));
    findings.notices.iter().for_each(|line| println!("{line}"));
    if findings.errors.is_empty() {
        let outcome = match findings.unavailable.len() {
            0 => "good",
            _ => "understood, but not all of it is available yet",
        };
        println!("{}: {} ({})", findings.file, outcome, findings.kind);
    }
}

fn check(path: &Path) -> Findings {
    let file = path.display().to_string();
    let mut findings = Findings { file: file.clone(), ..Findings::default() };
    if path.is_dir() {
        slurm_conf(path, &mut findings);
        return findings;
    }
    let of_folder = |name: &OsStr| CONF_FILES.iter().any(|known| name == *known);
    // dstack's file acts beside slurm.conf alone.
    let is_beside = path.file_name().is_some_and(|name| name == projects_file::FILE)
        && path.with_file_name("slurm.conf").exists();
    if is_beside || path.file_name().is_some_and(of_folder) {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        slurm_conf(folder.unwrap_or(Path::new(".")), &mut findings);
        return findings;
    }
    let bytes = match read(path) {
        Ok(bytes) => bytes,
        Err(error) => {
            findings.errors.push(format!("{file}: {error}"));
            return findings;
        }
    };
    let is_yaml = path.extension().is_some_and(|end| end == "yml" || end == "yaml");
    if path.file_name().is_some_and(|name| name == "profiles.yml" || name == "profiles.yaml") {
        profiles(&bytes, &mut findings);
    } else if is_yaml && server_settings::is_file(&bytes) {
        findings.kind = "settings of dstack's server";
        findings.notices = server_settings::notices_of_file(&findings.file, &bytes);
        // What `sluice convert` cannot read is not good.
        let fault = backends_file::sources(&bytes).err();
        findings.errors.extend(fault.map(|fault| fault.in_file(&file)));
    } else if is_yaml {
        dstack(&bytes, &mut findings);
    } else {
        script(&bytes, &mut findings);
    }
    findings
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(FILE_BYTES_MAX).read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn slurm_conf(dir: &Path, findings: &mut Findings) {
    let has_toml = dir.join("sluice.toml").exists();
    findings.kind = if has_toml { "slurm.conf and sluice.toml" } else { "slurm.conf" };
    match load_dir(&RealFiles, dir) {
        Ok(conf) => {
            let nodes = conf.slurm.nodes.iter().map(|node| node.config.clone());
            let toml = ::server::configure::check_sluice_toml(&RealFiles, dir, nodes.collect());
            findings.errors.extend(toml.errors);
            findings.notices = conf.notices.iter().map(ToString::to_string).collect();
            findings.notices.extend(toml.notices);
            let nodes: Vec<_> = conf.slurm.nodes.iter().map(|node| &node.config).collect();
            let partitions: Vec<_> =
                conf.slurm.partitions.iter().map(|conf| &conf.partition).collect();
            findings.understood = json!({
                "cluster": conf.slurm.cluster_name, "nodes": nodes, "partitions": partitions,
            });
        }
        Err(errors) => findings.errors = errors.iter().map(ToString::to_string).collect(),
    }
    let line = |line: String| format!("{}/{line}", dir.display());
    let there = NOT_READ.iter().filter(|(name, _)| dir.join(name).exists());
    findings.notices.extend(there.map(|(name, why)| line(format!("{name}: is not read: {why}"))));
    match projects_file::read(dir) {
        Ok(None) => {}
        Ok(Some(file)) => {
            findings.errors.extend(file.refused.into_iter().map(line));
            findings.notices.extend(file.notices.into_iter().map(line));
        }
        Err(why) => findings.errors.push(line(why)),
    }
}

fn dstack(bytes: &[u8], findings: &mut Findings) {
    findings.kind = "dstack configuration";
    match configuration::parse(&findings.file, bytes) {
        Ok(loaded) => {
            let lines = |notices: &[configuration::fault::Notice]| {
                notices.iter().map(|notice| notice.in_file(&findings.file)).collect::<Vec<_>>()
            };
            findings.unavailable = lines(&loaded.refusals);
            findings.notices = lines(&loaded.notices);
            findings.understood = loaded.value.to_json();
            if loaded.refusals.is_empty()
                && let Some(task) = loaded.configuration.into_task()
            {
                submission(task, findings);
            }
        }
        Err(error) => findings.errors = error.lines(),
    }
}

/// What a submit would refuse or note besides. Runs and nodes that it names are the cluster's to know.
fn submission(task: Task, findings: &mut Findings) {
    let task = Task { depends_on: Vec::new(), instances: Vec::new(), ..task };
    // The environment of whoever submits it may have any value: this one is good wherever a variable is filled in.
    let variable = |_: &str| Some("/".to_owned());
    let submitter = Submitter {
        now: ::server::clock::now(),
        random: 0,
        work_dir: "/",
        file: None,
        submit_line: String::new(),
        host: String::new(),
        session: 0,
        umask: 0,
        variable: &variable,
    };
    match ::dstack::request::draft(&task, &submitter) {
        Ok(draft) => {
            let notices = draft.notices.iter();
            let lines: Vec<String> =
                notices.map(|notice| format!("{}: {notice}", findings.file)).collect();
            findings.notices.extend(lines);
        }
        Err(error) => findings.errors.push(format!("{}: {error}", findings.file)),
    }
}

fn profiles(bytes: &[u8], findings: &mut Findings) {
    findings.kind = "dstack profiles";
    match load::parse_profiles(&findings.file, bytes) {
        Ok(profiles) => {
            findings.understood =
                profiles.iter().map(configuration::value::Value::to_json).collect();
        }
        Err(error) => findings.errors = error.lines(),
    }
}

/// A batch script, by itself: no variable of the environment changes what it asks for.
fn script(bytes: &[u8], findings: &mut Findings) {
    findings.kind = "batch script";
    match read_script(&findings.file, bytes) {
        Ok(None) => {}
        Ok(Some((batch, draft))) => {
            let notes = batch.notes.iter().chain(&draft.notes);
            findings.notices = notes.map(|line| format!("{}: {line}", findings.file)).collect();
            findings.notices.extend(script_faults::not_read(&findings.file, bytes));
            let submission = draft.submission;
            let others = submission.het_components.iter();
            findings.understood =
                std::iter::once(&submission.spec).chain(others).map(|spec| json!(spec)).collect();
        }
        Err(first) => {
            let read = |bytes: Vec<u8>| read_script(&findings.file, &bytes).map(drop);
            findings.errors = script_faults::lines(&findings.file, bytes, first, u32::MAX, read);
        }
    }
}

/// `None` for a script that only asks for help.
fn read_script(file: &str, bytes: &[u8]) -> Result<Option<(Batch, Draft)>, OptionError> {
    let here = ProcessSurroundings::default();
    let load = |_: Option<&str>| Ok(bytes.to_vec());
    let caller = Caller { variable: &|_| None, load: &load, ..caller::caller(&here) };
    let args = [file.to_owned()];
    let Invocation::Submission(batch) = invocation::batch(&args, &caller)? else { return Ok(None) };
    let Some(options) = batch.components.first() else { return Ok(None) };
    let submitter = caller::submitter(Command::Sbatch, &args, options);
    let draft = request::batch(&batch, &submitter)?;
    Ok(Some((batch, draft)))
}

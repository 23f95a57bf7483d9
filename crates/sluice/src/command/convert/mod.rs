//! `sluice convert FILE`: a batch script as a `.dstack.yml`, or the other way; and the backends of dstack's own `config.yml` as
//! sources of machines. What has no counterpart becomes a comment.

mod to_sbatch;
mod to_yaml;

use super::slurm::submit::caller::{self, ProcessSurroundings};
use super::verb::{VerbError, VerbResult};
use ::dstack::backends_file;
use ::dstack::configuration::{self, Configuration};
use ::dstack::server_settings;
use ::slurm::option::invocation::{self, Caller, Invocation};
use ::slurm::option::{OptionError, script, script_faults};
use clap::Args;
use std::borrow::Cow;
use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::process::ExitCode;

/// Bounds what is read of a file; a file near this size is refused by its reader.
const FILE_BYTES_MAX: u64 = 4 << 20;

#[derive(Args)]
pub struct ConvertArgs {
    /// A batch script, a .dstack.yml of a task, or the config.yml of dstack's server
    #[arg(value_name = "FILE")]
    file: PathBuf,
}

pub fn run(args: ConvertArgs) -> VerbResult {
    let file = args.file.display().to_string();
    let mut bytes = Vec::new();
    let opened = File::open(&args.file);
    opened
        .and_then(|opened| opened.take(FILE_BYTES_MAX).read_to_end(&mut bytes))
        .map_err(VerbError::file(&args.file))?;
    let is_yaml = args.file.extension().is_some_and(|end| end == "yml" || end == "yaml");
    let text = if is_yaml { from_yaml(&file, &bytes)? } else { from_script(&file, bytes)? };
    print!("{text}");
    Ok(ExitCode::SUCCESS)
}

fn from_yaml(file: &str, bytes: &[u8]) -> Result<String, VerbError> {
    if server_settings::is_file(bytes) {
        let sources = backends_file::sources(bytes);
        return sources.map_err(|fault| VerbError::Message(format!("{file}:{fault}")));
    }
    let loaded = configuration::parse(file, bytes);
    let loaded = loaded.map_err(|error| VerbError::Message(error.to_string()))?;
    match &loaded.configuration {
        Configuration::Task(task) => Ok(to_sbatch::script(task, &loaded.value)),
        _ => Err(VerbError::Message(format!(
            "{file}: only `type: task` has a counterpart in a batch script"
        ))),
    }
}

fn from_script(file: &str, bytes: Vec<u8>) -> Result<String, VerbError> {
    let refused = |error: OptionError| {
        let read = |bytes: Vec<u8>| {
            let here = ProcessSurroundings::default();
            let load = |_: Option<&str>| Ok(bytes.clone());
            let caller = Caller { variable: &|_| None, load: &load, ..caller::caller(&here) };
            invocation::batch(&[file], &caller).map(drop)
        };
        VerbError::Message(script_faults::lines(file, &bytes, error, u32::MAX, read).join("\n"))
    };
    let settings = script::read(file, bytes.clone()).map_err(refused)?.components;
    let here = ProcessSurroundings::default();
    let load = |_: Option<&str>| Ok(bytes.clone());
    let caller = Caller { variable: &|_| None, load: &load, ..caller::caller(&here) };
    let read = invocation::batch(&[file], &caller).map_err(refused)?;
    let Invocation::Submission(batch) = read else { return Ok(String::new()) };
    match (&batch.components[..], &settings[..]) {
        ([options], [settings]) => {
            let text = characters(file, &batch.script)?;
            Ok(to_yaml::configuration(options, settings, &text))
        }
        _ => Err(VerbError::Message(format!(
            "{file}: a heterogeneous job has no counterpart yet: convert its components one by one"
        ))),
    }
}

/// The script as a configuration can hold it, which is UTF-8: other bytes are replaced in comments, and refused in commands and
/// directives.
fn characters<'s>(file: &str, script: &'s [u8]) -> Result<Cow<'s, str>, VerbError> {
    let is_refused = |line: &[u8]| {
        let is_directive = line.starts_with(script::DIRECTIVE.as_bytes());
        let is_comment = !is_directive && line.trim_ascii_start().starts_with(b"#");
        !is_comment && std::str::from_utf8(line).is_err()
    };
    match script.split(|byte| *byte == b'\n').position(is_refused) {
        Some(before) => Err(VerbError::Message(format!(
            "{file}:{}: the line is not UTF-8 text, as a configuration is: expected a file that iconv made so",
            before + 1
        ))),
        None => Ok(String::from_utf8_lossy(script)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_that_no_configuration_holds_are_replaced_in_comments_and_refused_in_commands() {
        let text = characters("job.sh", b"#!/bin/sh\n  # gr\xfcn\ntrue\n").ok();
        assert_eq!(text.as_deref(), Some("#!/bin/sh\n  # gr\u{fffd}n\ntrue\n"));
        for line in [&b"echo gr\xfcn"[..], b"#SBATCH -J gr\xfcn"] {
            let script = [&b"#!/bin/sh\n# ok\n"[..], line].concat();
            let refused = characters("job.sh", &script);
            assert!(refused.is_err_and(|error| error.to_string().starts_with("job.sh:3: ")));
        }
    }
}

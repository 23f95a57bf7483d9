//! A whole `sbatch`, `srun` or `salloc`, from the words of its command line to typed options.

use super::command::Command;
use super::environment;
use super::error::OptionError;
use super::job_options::JobOptions;
use super::key::OptionKey;
use super::merge;
use super::parse::{self, Parsed, Question, Setting};
use super::script::{self, Script};
use super::submission;
use super::surroundings::Surroundings;

/// What one part of an `srun` says for those after it as well.
const OF_ALL_PARTS: [OptionKey; 7] = [
    OptionKey::Error,
    OptionKey::Input,
    OptionKey::Label,
    OptionKey::OpenMode,
    OptionKey::Output,
    OptionKey::Quiet,
    OptionKey::Unbuffered,
];

/// What the caller gives: its environment, and how to get at a script.
pub struct Caller<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub surroundings: &'a dyn Surroundings,
    /// The bytes of the named script, or of standard input. Usually [`script::load`] and [`script::load_from`].
    pub load: &'a LoadScript<'a>,
}

type LoadScript<'a> = dyn Fn(Option<&str>) -> Result<Vec<u8>, OptionError> + 'a;

/// What a command line comes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation<T> {
    /// Only a question about the command itself.
    Question(Question),
    Submission(T),
}

/// An `sbatch` that can be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// One, or several for a heterogeneous job.
    pub components: Vec<JobOptions>,
    pub script: Vec<u8>,
    /// The script's file; absent for `--wrap` and standard input.
    pub script_name: Option<String>,
    /// What the script is called with.
    pub args: Vec<String>,
    /// Remarks for standard error, without the command's name.
    pub notes: Vec<String>,
}

/// An `srun` or `salloc`: options and command of each component.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    pub components: Vec<(JobOptions, Vec<String>)>,
}

/// Reads the command line of `sbatch`, and the script.
pub fn batch<S: AsRef<str>>(
    args: &[S],
    caller: &Caller<'_>,
) -> Result<Invocation<Batch>, OptionError> {
    let mut parsed = parse::parse_components(Command::Sbatch, args)?;
    if let Some(question) = question(&parsed) {
        return Ok(Invocation::Question(question));
    }
    let rest = parsed.last_mut().map(|last| std::mem::take(&mut last.rest)).unwrap_or_default();
    let wrapped = parsed.iter().find_map(|component| component.text(OptionKey::Wrap));
    let (script_name, args) = match (wrapped, rest.split_first()) {
        (Some(_), Some(_)) => {
            let words = "Script arguments not permitted with --wrap option";
            return Err(OptionError::failure(words));
        }
        (None, Some((name, args))) => (Some(name.clone()), args.to_vec()),
        (_, None) => (None, Vec::new()),
    };
    let bytes = match wrapped {
        Some(command) => script::wrap(command),
        None => (caller.load)(script_name.as_deref())?,
    };
    let Script { bytes, components: directives, notes } =
        script::read(script_name.as_deref().unwrap_or("stdin"), bytes)?;

    let environment = environment::settings(Command::Sbatch, caller.variable);
    let count = parsed.len().max(directives.len());
    let components = (0..count)
        .map(|at| {
            let directives = directives.get(at).map_or(&[][..], Vec::as_slice);
            let command_line = parsed.get(at).map_or(&[][..], |parsed| parsed.values.as_slice());
            typed(Command::Sbatch, directives, &environment, command_line, caller)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let silent = components.iter().any(|options| options.ignore_pbs);
    let notes = if silent { Vec::new() } else { notes };
    Ok(Invocation::Submission(Batch { components, script: bytes, script_name, args, notes }))
}

/// Reads the command line of `srun` or `salloc`.
pub fn launch<S: AsRef<str>>(
    command: Command,
    args: &[S],
    caller: &Caller<'_>,
) -> Result<Invocation<Launch>, OptionError> {
    let mut parsed = parse::parse_components(command, args)?;
    if let Some(question) = question(&parsed) {
        return Ok(Invocation::Question(question));
    }
    if command == Command::Srun {
        share_among_parts(&mut parsed)?;
    }
    let environment = environment::settings(command, caller.variable);
    let components = parsed
        .into_iter()
        .map(|Parsed { values, rest }| {
            Ok((typed(command, &[], &environment, &values, caller)?, rest))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Invocation::Submission(Launch { components }))
}

/// `srun a : b`: a part without a command runs the next one's, and what is said of input and output holds for the parts
/// that follow until they say otherwise.
fn share_among_parts(parsed: &mut [Parsed]) -> Result<(), OptionError> {
    let mut command: Vec<String> = Vec::new();
    for part in parsed.iter_mut().rev() {
        if part.rest.is_empty() {
            part.rest.clone_from(&command);
        }
        command.clone_from(&part.rest);
        if command.is_empty() {
            return Err(OptionError::Fatal("No command given to execute.".to_owned()));
        }
    }
    let mut shared: Vec<Setting> = Vec::new();
    for part in parsed.iter_mut() {
        let own = part.values.iter().filter(|setting| OF_ALL_PARTS.contains(&setting.key));
        let own: Vec<Setting> = own.cloned().collect();
        part.values.splice(0..0, shared.iter().cloned());
        shared.extend(own);
    }
    Ok(())
}

fn question(components: &[Parsed]) -> Option<Question> {
    components.iter().find_map(Parsed::question)
}

fn typed(
    command: Command,
    directives: &[Setting],
    environment: &[Setting],
    command_line: &[Setting],
    caller: &Caller<'_>,
) -> Result<JobOptions, OptionError> {
    let settings = merge::merge(directives, environment, command_line)?;
    submission::job_options(command, &settings, caller.surroundings)
}

#[cfg(test)]
#[path = "invocation_tests.rs"]
mod tests;

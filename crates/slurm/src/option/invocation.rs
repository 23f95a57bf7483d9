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

/// What each component of a heterogeneous job or step says for itself. All else holds for those after it too, until
/// they say otherwise. A dependency makes all wait, whichever has it.
const OF_ONE_COMPONENT: [OptionKey; 40] = [
    OptionKey::Constraint,
    OptionKey::Contiguous,
    OptionKey::CoresPerSocket,
    OptionKey::CpusPerGpu,
    OptionKey::CpusPerTask,
    OptionKey::Dependency,
    OptionKey::Exclusive,
    OptionKey::ExtraNodeInfo,
    OptionKey::GpuBind,
    OptionKey::GpuFreq,
    OptionKey::Gpus,
    OptionKey::GpusPerNode,
    OptionKey::GpusPerSocket,
    OptionKey::GpusPerTask,
    OptionKey::Gres,
    OptionKey::HetGroup,
    OptionKey::Licenses,
    OptionKey::MailType,
    OptionKey::MailUser,
    OptionKey::MemPerCpu,
    OptionKey::MemPerGpu,
    OptionKey::Mincpus,
    OptionKey::Nodefile,
    OptionKey::Nodelist,
    OptionKey::Nodes,
    OptionKey::Ntasks,
    OptionKey::NtasksPerCore,
    OptionKey::NtasksPerGpu,
    OptionKey::NtasksPerNode,
    OptionKey::NtasksPerSocket,
    OptionKey::Oversubscribe,
    OptionKey::Partition,
    OptionKey::Power,
    OptionKey::Pty,
    OptionKey::Relative,
    OptionKey::SocketsPerNode,
    OptionKey::Switches,
    OptionKey::ThreadsPerCore,
    OptionKey::Tmp,
    OptionKey::Wrap,
];

/// What a batch job's components without it have from the first that says it.
const OF_ANY_COMPONENT: [OptionKey; 2] = [OptionKey::Comment, OptionKey::JobName];

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
    let components = said_by_components(directives, parsed)
        .iter()
        .map(|(directives, command_line)| {
            typed(Command::Sbatch, directives, &environment, command_line, caller)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let silent = components.iter().any(|options| options.ignore_pbs);
    let notes = if silent { Vec::new() } else { notes };
    Ok(Invocation::Submission(Batch { components, script: bytes, script_name, args, notes }))
}

/// What holds for each component of a batch job: what its part of the script says, after what it has from the components
/// before it, and what the command line says. Where the script has more components, the last of the command line is theirs too.
fn said_by_components(
    mut directives: Vec<Vec<Setting>>,
    parsed: Vec<Parsed>,
) -> Vec<(Vec<Setting>, Vec<Setting>)> {
    let mut parsed: Vec<_> = parsed.into_iter().map(|component| component.values).collect();
    let count = parsed.len().max(directives.len());
    directives.resize(count, Vec::new());
    let last = parsed.last().cloned().unwrap_or_default();
    parsed.resize(count, last);
    let mut handed_on: Vec<Setting> = Vec::new();
    for key in OF_ANY_COMPONENT {
        let mut said = directives.iter().zip(&parsed).flat_map(|(script, line)| [script, line]);
        let first = said.find_map(|said| said.iter().rfind(|setting| setting.key == key));
        handed_on.extend(first.cloned());
    }
    hand_on(handed_on, &mut directives, &parsed);
    directives.into_iter().zip(parsed).collect()
}

/// Puts before each component's own what the components before it say.
fn hand_on(mut handed_on: Vec<Setting>, own: &mut [Vec<Setting>], command_lines: &[Vec<Setting>]) {
    for (own, command_line) in own.iter_mut().zip(command_lines) {
        let said = own.iter().chain(command_line);
        let said = said.filter(|setting| !OF_ONE_COMPONENT.contains(&setting.key)).cloned();
        let next: Vec<Setting> = handed_on.iter().cloned().chain(said).collect();
        own.splice(0..0, std::mem::replace(&mut handed_on, next));
    }
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
        share_command(&mut parsed)?;
    }
    let environment = environment::settings(command, caller.variable);
    let (command_lines, runs): (Vec<_>, Vec<_>) =
        parsed.into_iter().map(|Parsed { values, rest }| (values, rest)).unzip();
    let mut from_others = vec![Vec::new(); command_lines.len()];
    hand_on(Vec::new(), &mut from_others, &command_lines);
    let components = from_others
        .iter()
        .zip(&command_lines)
        .zip(runs)
        .map(|((from_others, command_line), run)| {
            Ok((typed(command, from_others, &environment, command_line, caller)?, run))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Invocation::Submission(Launch { components }))
}

/// `srun a : b`: a part without a command runs the next one's.
fn share_command(parsed: &mut [Parsed]) -> Result<(), OptionError> {
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

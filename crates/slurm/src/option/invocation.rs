//! A whole `sbatch`, `srun` or `salloc`, from the words of its command line to typed options.

use super::command::Command;
use super::error::OptionError;
use super::input_variables;
use super::job_options::JobOptions;
use super::key::OptionKey;
use super::merge;
use super::parse::{self, Parsed, Question};
use super::script::{self, Script};
use super::setting::Setting;
use super::value::context::ValueContext;
use crate::words::refusal;

/// Options that hold only for the component of a heterogeneous job or step that has them. All others hold for the following
/// components too, until one sets them anew. A dependency makes all components wait, whichever has it.
const PER_COMPONENT_KEYS: [OptionKey; 41] = [
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
    OptionKey::TresBind,
    OptionKey::Wrap,
];

/// Options of a batch job that hold for all its components, from the first component that has them.
const SHARED_KEYS: [OptionKey; 2] = [OptionKey::Comment, OptionKey::JobName];

/// The calling process: its environment, and how to read a script.
pub struct Caller<'a> {
    pub variable: &'a dyn Fn(&str) -> Option<String>,
    pub context: &'a dyn ValueContext,
    /// The bytes of the named script, or of standard input. Usually [`script::load`] and [`script::load_from`].
    pub load: &'a LoadScript<'a>,
}

type LoadScript<'a> = dyn Fn(Option<&str>) -> Result<Vec<u8>, OptionError> + 'a;

/// The meaning of a command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Invocation<T> {
    /// `--help`, `--usage` or `--version`.
    Question(Question),
    Submission(T),
}

/// An `sbatch` that can be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    /// The options of each component; several for a heterogeneous job.
    pub components: Vec<JobOptions>,
    pub script: Vec<u8>,
    /// The script's file; absent for `--wrap` and standard input.
    pub script_name: Option<String>,
    /// The arguments of the script.
    pub args: Vec<String>,
    /// Lines for standard error, without the command's name.
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

    let environment = input_variables::settings(Command::Sbatch, caller.variable);
    let settings = settings_by_component(directives, parsed);
    let is_het = settings.len() > 1;
    let components = settings
        .iter()
        .map(|(directives, command_line)| {
            let options =
                component_options(Command::Sbatch, directives, &environment, command_line, caller)?;
            // Said here, before an array of each component is held.
            if is_het && options.array.is_some() {
                return Err(OptionError::Refused(refusal::INVALID_ARRAY.text));
            }
            Ok(options)
        })
        .collect::<Result<Vec<_>, _>>()?;
    let silent = components.iter().any(|options| options.ignore_pbs);
    let notes = if silent { Vec::new() } else { notes };
    Ok(Invocation::Submission(Batch { components, script: bytes, script_name, args, notes }))
}

/// The settings of each component of a batch job: from the script, after those inherited from the components before it, and
/// from the command line. If the script has more components, the last of the command line holds for the rest.
fn settings_by_component(
    mut directives: Vec<Vec<Setting>>,
    parsed: Vec<Parsed>,
) -> Vec<(Vec<Setting>, Vec<Setting>)> {
    let mut parsed: Vec<_> = parsed.into_iter().map(|component| component.values).collect();
    let count = parsed.len().max(directives.len());
    directives.resize(count, Vec::new());
    let last = parsed.last().cloned().unwrap_or_default();
    parsed.resize(count, last);
    let mut inherited: Vec<Setting> = Vec::new();
    for key in SHARED_KEYS {
        let mut said = directives.iter().zip(&parsed).flat_map(|(script, line)| [script, line]);
        let first = said.find_map(|said| said.iter().rfind(|setting| setting.key == key));
        inherited.extend(first.cloned());
    }
    inherit_settings(inherited, &mut directives, &parsed);
    directives.into_iter().zip(parsed).collect()
}

/// Puts the settings that a component inherits before its own.
fn inherit_settings(
    mut inherited: Vec<Setting>,
    own: &mut [Vec<Setting>],
    command_lines: &[Vec<Setting>],
) {
    for (own, command_line) in own.iter_mut().zip(command_lines) {
        let said = own.iter().chain(command_line);
        let said = said.filter(|setting| !PER_COMPONENT_KEYS.contains(&setting.key)).cloned();
        let next: Vec<Setting> = inherited.iter().cloned().chain(said).collect();
        own.splice(0..0, std::mem::replace(&mut inherited, next));
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
    // `--mpi=list` asks and starts nothing.
    let asks = parsed.iter().any(|part| part.text(OptionKey::Mpi) == Some("list"));
    if command == Command::Srun && !asks {
        share_command(&mut parsed)?;
    }
    let environment = input_variables::settings(command, caller.variable);
    let (command_lines, runs): (Vec<_>, Vec<_>) =
        parsed.into_iter().map(|Parsed { values, rest }| (values, rest)).unzip();
    let mut inherited = vec![Vec::new(); command_lines.len()];
    inherit_settings(Vec::new(), &mut inherited, &command_lines);
    let components = inherited
        .iter()
        .zip(&command_lines)
        .zip(runs)
        .map(|((inherited, command_line), run)| {
            Ok((component_options(command, inherited, &environment, command_line, caller)?, run))
        })
        .collect::<Result<Vec<_>, _>>()?;
    Ok(Invocation::Submission(Launch { components }))
}

/// `srun -n1 : -n2 prog`: a component without a command runs that of the next.
fn share_command(parsed: &mut [Parsed]) -> Result<(), OptionError> {
    let mut command: Vec<String> = Vec::new();
    for component in parsed.iter_mut().rev() {
        if component.rest.is_empty() {
            component.rest.clone_from(&command);
        }
        command.clone_from(&component.rest);
        if command.is_empty() {
            return Err(OptionError::Fatal("No command given to execute.".to_owned()));
        }
    }
    Ok(())
}

fn question(components: &[Parsed]) -> Option<Question> {
    components.iter().find_map(Parsed::question)
}

fn component_options(
    command: Command,
    directives: &[Setting],
    environment: &[Setting],
    command_line: &[Setting],
    caller: &Caller<'_>,
) -> Result<JobOptions, OptionError> {
    let settings = merge::merge(directives, environment, command_line)?;
    JobOptions::from_settings(command, &settings, caller.context)
}

#[cfg(test)]
#[path = "invocation_tests.rs"]
mod tests;

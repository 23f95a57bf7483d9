//! Everything that can be wrong with a command line or a batch script, in Slurm's words and with Slurm's exit codes.

use model::grammar::GrammarError;
use thiserror::Error;

use super::command::Command;
use super::setting::Source;
use crate::words::note;
use crate::words::refusal::{self, SlurmError};

/// Exit code of a value that Slurm's option table refuses.
const CODE_VALUE: i32 = 255;
/// Exit code of a failure after the values were read.
const CODE_FAILURE: i32 = 1;

/// One refusal. `Display` gives the message alone; [`OptionError::render`] gives what the command prints.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum OptionError {
    #[error("unrecognized option '{0}'")]
    Unrecognized(String),
    #[error("invalid option -- '{0}'")]
    UnknownLetter(char),
    #[error("option '{given}' is ambiguous; possibilities: {possibilities}")]
    Ambiguous { given: String, possibilities: String },
    #[error("option '--{0}' requires an argument")]
    MissingArgument(&'static str),
    #[error("option requires an argument -- '{0}'")]
    MissingLetterArgument(char),
    #[error("option '--{0}' doesn't allow an argument")]
    UnexpectedArgument(&'static str),
    #[error("Unrecognized option: {0}")]
    UnexpectedOperand(String),
    #[error("Invalid directive found in batch script: {0}")]
    InvalidDirective(String),
    /// A value outside its option's grammar.
    #[error("Invalid --{0} specification")]
    Specification(&'static str),
    /// A time that cannot be read. Slurm prints two lines about it.
    #[error("Invalid time specification (pos=0): {value}")]
    Time { option: &'static str, value: String },
    /// A text that is not a number, or a number that is too small. `option` is spelled as Slurm does, with its dashes.
    #[error("Invalid numeric value \"{value}\" for {option}.")]
    Number { value: String, option: String },
    /// A refused value with lines of its own.
    #[error("{}", .0.join(" "))]
    Value(Vec<String>),
    /// A failure after the values were read, with lines of its own.
    #[error("{}", .0.join(" "))]
    Failure(Vec<String>),
    /// Options that contradict each other.
    #[error("{0}")]
    Fatal(String),
    /// A refusal in the words of Slurm's controller.
    #[error("{0}")]
    Refused(&'static str),
    /// A value that Slurm's client hands on and its controller cannot read.
    #[error("{}", .0.text)]
    Unreadable(SlurmError),
    /// A list of generic resources, or of GPUs, that cannot be read.
    #[error("{}", refusal::INVALID_GRES.text)]
    Gres(GrammarError),
    /// A refusal of a value from the script or the environment, with its place.
    #[error("{error} ({place})")]
    Placed { error: Box<OptionError>, place: String },
}

impl OptionError {
    pub(crate) fn failure(line: impl Into<String>) -> OptionError {
        OptionError::Failure(vec![line.into()])
    }

    pub(crate) fn number(value: &str, option: impl Into<String>) -> OptionError {
        OptionError::Number { value: value.to_owned(), option: option.into() }
    }

    pub(crate) fn value(line: impl Into<String>) -> OptionError {
        OptionError::Value(vec![line.into()])
    }

    /// Adds the place of the refused value.
    pub(crate) fn at(self, source: Source) -> OptionError {
        let place = match source {
            Source::CommandLine => return self,
            Source::Script { line } => format!("line {line} of the batch script"),
            Source::Environment(name) => format!("{name} in the environment"),
        };
        OptionError::Placed { error: Box::new(self), place }
    }

    /// What `command` prints on standard error, each line ended.
    pub fn render(&self, command: Command) -> String {
        let name = command.name();
        match self {
            OptionError::Unrecognized(_)
            | OptionError::UnknownLetter(_)
            | OptionError::Ambiguous { .. }
            | OptionError::MissingArgument(_)
            | OptionError::MissingLetterArgument(_)
            | OptionError::UnexpectedArgument(_) => {
                let mut text = format!("{name}: {self}\n");
                if command.points_to_help() {
                    text.push_str(&format!("Try \"{name} --help\" for more information\n"));
                }
                text
            }
            OptionError::Time { option, .. } => {
                format!("{self}\n{name}: error: Invalid --{option} specification\n")
            }
            OptionError::Placed { error, place } => {
                format!("{}{name}: error: ({place})\n", error.render(command))
            }
            OptionError::Failure(lines) | OptionError::Value(lines) => {
                lines.iter().map(|line| format!("{name}: error: {line}\n")).collect()
            }
            OptionError::Fatal(_) => format!("{name}: fatal: {self}\n"),
            OptionError::Refused(_) | OptionError::Unreadable(_) => {
                format!("{name}: error: {}: {self}\n", command.refusal_prefix())
            }
            OptionError::UnexpectedOperand(_) => {
                format!("{name}: error: {self}\n{}", super::help::usage(command))
            }
            OptionError::InvalidDirective(_)
            | OptionError::Specification(_)
            | OptionError::Gres(_)
            | OptionError::Number { .. } => format!("{name}: error: {self}\n"),
        }
    }

    /// The code `command` exits with.
    pub fn exit_code(&self, command: Command) -> i32 {
        match self {
            OptionError::Placed { error, .. } => error.exit_code(command),
            OptionError::Unrecognized(_)
            | OptionError::UnknownLetter(_)
            | OptionError::Ambiguous { .. }
            | OptionError::MissingArgument(_)
            | OptionError::MissingLetterArgument(_)
            | OptionError::UnexpectedArgument(_) => command.misuse_code(),
            OptionError::InvalidDirective(_)
            | OptionError::Specification(_)
            | OptionError::Time { .. }
            | OptionError::Value(_) => CODE_VALUE,
            OptionError::UnexpectedOperand(_)
            | OptionError::Number { .. }
            | OptionError::Failure(_)
            | OptionError::Fatal(_)
            | OptionError::Gres(_)
            | OptionError::Refused(_)
            | OptionError::Unreadable(_) => CODE_FAILURE,
        }
    }

    /// One line more than Slurm prints: what can be written instead.
    pub fn note(&self) -> Option<String> {
        match self {
            OptionError::Unreadable(error) => note::grammar(*error).map(str::to_owned),
            OptionError::Gres(error) => Some(error.to_string()),
            OptionError::Placed { error, .. } => error.note(),
            _ => None,
        }
    }
}

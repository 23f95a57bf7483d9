//! The command lines of Slurm's commands, and the `#SBATCH` lines of a batch script.
//!
//! A submission goes through these steps: [`parse`] reads a command line by the rows of [`table`], [`script`] the batch script,
//! [`input_variables`] the environment; [`merge`] puts the three in order of precedence; [`job_options`] gives each value its type
//! with the help of [`value`], or refuses it in Slurm's words; `defined_options` is what `-v` shows of it. [`invocation`] does all of it;
//! [`script_faults`] says which lines of a script are wrong. What the options ask the server for is in the module `request`.

pub mod command;
mod defined_options;
pub mod document;
pub mod error;
pub mod help;
pub mod help_text;
pub mod input_variables;
pub mod invocation;
pub mod job_options;
pub mod key;
pub mod merge;
pub mod parse;
pub mod script;
pub mod script_faults;
pub mod setting;
pub mod signal;
pub mod table;
pub mod value;

pub use command::Command;
pub use error::OptionError;
pub use job_options::JobOptions;
pub use key::{OptionKey, TriggerEvent};
pub use parse::Parsed;
pub use setting::{Setting, Source};
pub use value::context::ValueContext;

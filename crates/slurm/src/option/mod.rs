//! The command lines of Slurm's commands, and the `#SBATCH` lines of a batch script.
//!
//! The road of a submission: [`parse`] reads a command line by the rows of [`table`], [`script`] reads the batch script,
//! [`environment`] the input variables; [`merge`] puts the three in order of precedence; [`submission`] gives each value its
//! type, or refuses it in Slurm's words. [`invocation`] walks the whole road. What the options mean for the scheduler is
//! decided elsewhere.

pub mod command;
pub mod error;
pub mod help;
pub mod input_variables;
pub mod invocation;
pub mod job_options;
pub mod key;
pub mod merge;
pub mod parse;
pub mod script;
pub mod setting;
pub mod signal;
pub mod table;
pub mod value;

pub use command::Command;
pub use error::OptionError;
pub use job_options::JobOptions;
pub use key::OptionKey;
pub use parse::Parsed;
pub use setting::{Setting, Source};
pub use value::context::ValueContext;

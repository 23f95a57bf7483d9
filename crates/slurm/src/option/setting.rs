//! One option as it was set, and where: on the command line, in the batch script, or by an environment variable.

use super::key::OptionKey;

/// Where a setting was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    CommandLine,
    /// A `#SBATCH` line; the first line of the script is 1.
    Script {
        line: u32,
    },
    /// An input variable, by its name.
    Environment(&'static str),
}

/// One option as it was given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Setting {
    pub key: OptionKey,
    /// `None` for an option without an argument, and for an optional argument that was left out.
    pub value: Option<String>,
    pub source: Source,
}

impl Setting {
    /// The value; empty when there is none.
    pub fn text(&self) -> &str {
        self.value.as_deref().unwrap_or_default()
    }
}

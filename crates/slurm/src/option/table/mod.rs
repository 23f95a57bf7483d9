//! The options of every command, as rows: spelling, argument, meaning.

mod accounting;
mod control;
mod query;
mod submit;
mod verdict;

pub use verdict::{Verdict, note, verdict};

use super::command::{Command, Commands};
use super::key::OptionKey;

/// Whether an option takes an argument, and what to call it in help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Arg {
    None,
    Required(&'static str),
    Optional(&'static str),
}

/// One spelling of one option.
///
/// Rows with the same key are spellings of the same option: an abbreviation that fits several of them is not ambiguous.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OptionSpec {
    pub commands: Commands,
    /// Empty for the few options that have only a letter.
    pub long: &'static str,
    pub short: Option<char>,
    pub arg: Arg,
    pub key: OptionKey,
    /// One line for `--help`. Empty for a second spelling and for an option that is not for users: help leaves these out.
    pub about: &'static str,
}

impl OptionSpec {
    /// Whether a `#SBATCH` line may set it; the others are read there and have no effect.
    pub const fn acts_in_script(&self) -> bool {
        self.commands.contains(Command::Sbatch)
            && !matches!(
                self.key,
                OptionKey::Help | OptionKey::Usage | OptionKey::Version | OptionKey::Wrap
            )
    }
}

/// One row of a table, written on one line.
const fn row(
    commands: Commands,
    long: &'static str,
    short: Option<char>,
    arg: Arg,
    key: OptionKey,
    about: &'static str,
) -> OptionSpec {
    OptionSpec { commands, long, short, arg, key, about }
}

/// The options of `command`, in the order help lists them.
pub fn options(command: Command) -> impl Iterator<Item = &'static OptionSpec> {
    table(command).iter().filter(move |spec| spec.commands.contains(command))
}

fn table(command: Command) -> &'static [OptionSpec] {
    match command {
        Command::Sbatch | Command::Srun | Command::Salloc => submit::ROWS,
        Command::Squeue
        | Command::Sinfo
        | Command::Sprio
        | Command::Sshare
        | Command::Sdiag
        | Command::Sstat
        | Command::Seff => query::ROWS,
        Command::Scancel
        | Command::Scontrol
        | Command::Sattach
        | Command::Sbcast
        | Command::Strigger => control::ROWS,
        Command::Sacct | Command::Sacctmgr | Command::Sreport => accounting::ROWS,
    }
}

/// The long name under which messages mention `key`.
pub fn long_name(command: Command, key: OptionKey) -> &'static str {
    options(command).find(|spec| spec.key == key).map_or("", |spec| spec.long)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn no_spelling_appears_twice_in_a_command() {
        for command in Command::ALL {
            let mut longs = HashSet::new();
            let mut shorts = HashMap::new();
            for spec in options(command) {
                assert!(
                    spec.long.is_empty() || longs.insert(spec.long),
                    "{}: --{} twice",
                    command.name(),
                    spec.long
                );
                if let Some(short) = spec.short {
                    let before = shorts.insert(short, spec.long);
                    assert_eq!(before, None, "{}: -{short} twice", command.name());
                }
            }
        }
    }

    #[test]
    fn every_command_can_say_its_version_and_help() {
        for command in Command::ALL {
            for key in [OptionKey::Help, OptionKey::Version, OptionKey::Usage] {
                assert!(!long_name(command, key).is_empty(), "{} lacks {key:?}", command.name());
            }
        }
    }

    /// The options of real Slurm; the file says how they were found.
    const SLURM: &str = include_str!("slurm_options.txt");

    #[test]
    fn every_option_of_slurm_is_in_the_tables_with_its_argument() {
        for line in SLURM.lines().filter(|line| !line.starts_with('#')) {
            let mut words = line.split(' ');
            let command = words.next().and_then(Command::from_name).expect("a command");
            let is_long = words.next() == Some("long");
            for word in words {
                let (name, kind) = word.split_once(':').expect("name:kind");
                let spec = options(command).find(|spec| {
                    if is_long {
                        spec.long == name
                    } else {
                        spec.short.is_some_and(|s| name == s.to_string())
                    }
                });
                let spec = spec.unwrap_or_else(|| panic!("{} lacks {name}", command.name()));
                let same = match spec.arg {
                    Arg::None => kind == "n",
                    Arg::Required(_) => kind == "r",
                    Arg::Optional(_) => kind == "o" || !is_long && kind == "n",
                };
                assert!(same, "{} {name}: {:?} is not {kind}", command.name(), spec.arg);
            }
        }
    }
}

//! Every name that the program is called by, with its options: those of `sluice` as clap has them, Slurm's from their table.

use super::Cli;
use ::slurm::option::Command as SlurmCommand;
use ::slurm::option::help;
use ::slurm::option::table::{self, Arg as Argument, OptionSpec};
use clap::{Arg, ArgAction, Command, CommandFactory, ValueHint};

/// The program as `sluice`, with its verbs.
pub fn of_sluice() -> Command {
    Cli::command()
}

/// The program as one of Slurm's commands.
pub fn of_slurm(command: SlurmCommand) -> Command {
    let described = table::options(command).filter(|spec| !spec.about.is_empty());
    Command::new(command.name())
        .about(help::about(command))
        .disable_help_flag(true)
        .disable_version_flag(true)
        .args(described.map(option))
}

/// The operands of one of Slurm's commands, as a shell completes them.
pub fn operands(command: SlurmCommand) -> Option<Arg> {
    let hint = match command {
        SlurmCommand::Sbatch => ValueHint::FilePath,
        SlurmCommand::Srun | SlurmCommand::Salloc => ValueHint::CommandWithArguments,
        _ => return None,
    };
    let is_command = hint == ValueHint::CommandWithArguments;
    Some(Arg::new("operands").num_args(0..).trailing_var_arg(is_command).value_hint(hint))
}

fn option(spec: &OptionSpec) -> Arg {
    // What only has a letter is known by its description.
    let id = if spec.long.is_empty() { spec.about } else { spec.long };
    let mut arg = Arg::new(id).help(spec.about);
    if !spec.long.is_empty() {
        arg = arg.long(spec.long);
    }
    if let Some(letter) = spec.short {
        arg = arg.short(letter);
    }
    match spec.arg {
        Argument::None => arg.action(ArgAction::SetTrue),
        Argument::Required(value) => arg.value_name(value),
        Argument::Optional(value) => arg.value_name(value).num_args(0..=1).require_equals(true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::builder::StyledStr;

    /// clap checks a description when it is built: names that come twice, letters that two options have.
    #[test]
    fn every_name_has_a_description_that_holds_together() {
        of_sluice().debug_assert();
        for command in SlurmCommand::ALL {
            let described = of_slurm(command).args(operands(command));
            let longs = described.get_arguments().filter(|arg| arg.get_long().is_some()).count();
            assert!(longs >= 3, "{}: {longs} options", command.name());
            described.debug_assert();
        }
    }

    #[test]
    fn options_of_a_verb_are_described_when_it_is_called_and_leave_its_own_words() {
        let words = |command: &Command| {
            let text = |words: Option<&StyledStr>| words.map(ToString::to_string);
            let (about, after) = (command.get_about(), command.get_after_help());
            [text(about), text(command.get_long_about()), text(after)]
        };
        let (at_start, mut whole) = (of_sluice(), of_sluice());
        whole.build();
        for verb in at_start.get_subcommands() {
            let name = verb.get_name();
            assert_eq!(verb.get_arguments().count(), 0, "{name}");
            let described = whole.find_subcommand(name).expect(name);
            assert_eq!(words(described), words(verb), "{name}");
        }
        let ps = whole.find_subcommand("ps").expect("a verb");
        assert!(ps.get_arguments().any(|arg| arg.get_long() == Some("all")));
    }
}

//! `sluice completion SHELL [NAME]`: prints what a shell completes the command lines of the program with.

use super::command_line;
use super::verb::{VerbError, VerbResult};
use ::slurm::option::Command as SlurmCommand;
use clap::{Args, Command, ValueEnum};
use std::process::ExitCode;

#[derive(Args)]
pub struct CompletionArgs {
    shell: Shell,
    /// The name that is completed: sluice, or a Slurm command
    #[arg(default_value = "sluice")]
    name: String,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

pub fn run(args: &CompletionArgs) -> VerbResult {
    let mut command = described(&args.name).ok_or_else(|| {
        VerbError::Message(format!(
            "{:?}: expected sluice or the name of a Slurm command",
            args.name
        ))
    })?;
    let shell = match args.shell {
        Shell::Bash => clap_complete::Shell::Bash,
        Shell::Zsh => clap_complete::Shell::Zsh,
        Shell::Fish => clap_complete::Shell::Fish,
    };
    clap_complete::generate(shell, &mut command, &args.name, &mut std::io::stdout());
    Ok(ExitCode::SUCCESS)
}

fn described(name: &str) -> Option<Command> {
    if name == "sluice" {
        return Some(command_line::of_sluice());
    }
    let command = SlurmCommand::from_name(name)?;
    // zsh takes what follows a colon for its own.
    let plain = command_line::of_slurm(command).mut_args(|arg| {
        let names = arg.get_value_names().unwrap_or_default();
        if names.iter().any(|name| name.contains(':')) { arg.value_name("value") } else { arg }
    });
    Some(plain.args(command_line::operands(command)))
}

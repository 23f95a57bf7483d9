//! `sluice completion SHELL [NAME]`: prints what a shell completes the command lines of the program with.

use super::command_line;
use super::verb::{VerbError, VerbResult};
use crate::printing;
use ::agent::trusted_dir::TrustedDir;
use ::slurm::option::Command as SlurmCommand;
use clap::{Args, Command, ValueEnum};
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

/// The link under which the program takes dstack's verbs.
const DSTACK: &str = "dstack";

#[derive(Args)]
pub struct CompletionArgs {
    shell: Shell,
    /// The name that is completed: sluice, dstack, or a Slurm command
    #[arg(default_value = "sluice")]
    name: String,
}

#[derive(Clone, Copy, ValueEnum)]
pub enum Shell {
    Bash,
    Zsh,
    Fish,
}

impl Shell {
    fn generator(self) -> clap_complete::Shell {
        match self {
            Shell::Bash => clap_complete::Shell::Bash,
            Shell::Zsh => clap_complete::Shell::Zsh,
            Shell::Fish => clap_complete::Shell::Fish,
        }
    }

    /// The file that the shell looks for when it completes a command.
    fn file(self, name: &str) -> String {
        match self {
            Shell::Bash => name.to_owned(),
            Shell::Zsh => format!("_{name}"),
            Shell::Fish => format!("{name}.fish"),
        }
    }
}

pub fn run(args: &CompletionArgs) -> VerbResult {
    let mut command = described(&args.name).ok_or_else(|| {
        VerbError::Message(format!(
            "{:?}: expected sluice, dstack or the name of a Slurm command",
            args.name
        ))
    })?;
    let shell = args.shell.generator();
    // In memory first: the generator cannot fail to write there.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, &args.name, &mut script);
    printing::written(std::io::stdout().write_all(&script));
    Ok(ExitCode::SUCCESS)
}

/// Writes a file for each name of the program into a folder, which is made if it is missing. `has_dstack`: one of the names is
/// `dstack`, and not that of dstack's own client.
pub fn write_files(folder: &Path, shell: Shell, has_dstack: bool) -> Result<(), VerbError> {
    let folder = TrustedDir::make(folder).map_err(VerbError::file(folder))?;
    let own = std::iter::once("sluice").chain(has_dstack.then_some(DSTACK));
    for name in own.chain(SlurmCommand::ALL.map(SlurmCommand::name)) {
        let Some(mut command) = described(name) else { continue };
        let mut text = Vec::new();
        clap_complete::generate(shell.generator(), &mut command, name, &mut text);
        let file = shell.file(name);
        folder.replace(&file, 0o644, &text).map_err(VerbError::file(folder.path().join(&file)))?;
    }
    Ok(())
}

fn described(name: &str) -> Option<Command> {
    if name == "sluice" {
        return Some(command_line::of_sluice());
    }
    if name == DSTACK {
        return Some(command_line::of_sluice().name(DSTACK));
    }
    let command = SlurmCommand::from_name(name)?;
    // zsh takes what follows a colon for its own.
    let plain = command_line::of_slurm(command).mut_args(|arg| {
        let names = arg.get_value_names().unwrap_or_default();
        if names.iter().any(|name| name.contains(':')) { arg.value_name("value") } else { arg }
    });
    Some(plain.args(command_line::operands(command)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_of_the_program_gets_the_file_that_the_shell_looks_for() {
        let dir = tempfile::tempdir().expect("a folder");
        write_files(dir.path(), Shell::Zsh, false).expect("written");
        assert!(!dir.path().join("_dstack").exists(), "dstack's own client has its own");
        write_files(dir.path(), Shell::Zsh, true).expect("written");
        for name in ["_sluice", "_dstack", "_sbatch", "_scontrol"] {
            let text = std::fs::read_to_string(dir.path().join(name)).expect(name);
            assert!(text.starts_with(&format!("#compdef {}", &name[1..])), "{name}: {text}");
        }
    }
}

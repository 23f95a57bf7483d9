//! `sluice man FOLDER`: writes the manual pages of `sluice`, of its verbs and of Slurm's commands.

use super::command_line;
use super::verb::{VerbError, VerbResult};
use ::agent::trusted_dir::TrustedDir;
use ::slurm::option::Command as SlurmCommand;
use ::slurm::option::help;
use clap::Args;
use clap_mangen::Man;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct ManArgs {
    folder: PathBuf,
}

pub fn run(args: &ManArgs) -> VerbResult {
    write_pages(&args.folder)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes all pages into a folder, which is made if it is missing.
pub fn write_pages(folder: &Path) -> Result<(), VerbError> {
    let folder = TrustedDir::make(folder).map_err(VerbError::file(folder))?;
    clap_mangen::generate_to(command_line::of_sluice(), folder.path())
        .map_err(VerbError::file(folder.path()))?;
    for command in SlurmCommand::ALL {
        let file = format!("{}.1", command.name());
        let mut page = Vec::new();
        slurm_page(command, &mut page).map_err(VerbError::file(&file))?;
        folder.replace(&file, 0o644, &page).map_err(VerbError::file(folder.path().join(&file)))?;
    }
    Ok(())
}

fn slurm_page(command: SlurmCommand, page: &mut Vec<u8>) -> io::Result<()> {
    let man = Man::new(command_line::of_slurm(command)).source("Sluice").manual("Sluice");
    man.render_title(page)?;
    man.render_name_section(page)?;
    let (name, operands) = (command.name(), help::operands(command));
    writeln!(page, ".SH SYNOPSIS\n\\fB{name}\\fR [OPTIONS] {}", operands.replace('-', "\\-"))?;
    writeln!(
        page,
        ".SH DESCRIPTION\nSluice's command of this name. It takes the options of Slurm {}, prints its columns and words, and ends with its exit codes.",
        help::VERSION.rsplit(' ').next().unwrap_or_default()
    )?;
    man.render_options_section(page)?;
    writeln!(page, ".SH \"SEE ALSO\"\n.BR sluice (1)")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn page_of_a_slurm_command_has_its_options() {
        let mut page = Vec::new();
        slurm_page(SlurmCommand::Sbatch, &mut page).expect("a page");
        let page = String::from_utf8(page).expect("text");
        for part in [".TH sbatch 1", "submit a batch script", "script [args", "number of tasks"] {
            assert!(page.contains(part), "{part}: {page}");
        }
    }
}

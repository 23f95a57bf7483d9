//! `sluice links DIR`: makes a link to this program for every Slurm command.

use super::verb::{VerbError, VerbResult};
use ::agent::trusted_dir::TrustedDir;
use ::slurm::option::Command;
use clap::Args;
use std::path::PathBuf;
use std::process::ExitCode;

#[derive(Args)]
pub struct LinksArgs {
    dir: PathBuf,
}

pub fn run(args: &LinksArgs) -> VerbResult {
    let program = std::env::current_exe().map_err(VerbError::file("sluice"))?;
    let dir = TrustedDir::make(&args.dir).map_err(VerbError::file(&args.dir))?;
    for name in Command::ALL.map(Command::name) {
        let link = dir.path().join(name);
        match std::fs::symlink_metadata(&link) {
            Ok(found) if found.is_symlink() => {
                std::fs::remove_file(&link).map_err(VerbError::file(&link))?;
            }
            Ok(_) => {
                let text =
                    format!("{} is there and is not a link; it is left alone", link.display());
                return Err(VerbError::Message(text));
            }
            Err(_) => {}
        }
        std::os::unix::fs::symlink(&program, &link).map_err(VerbError::file(&link))?;
    }
    println!("{} links in {}", Command::ALL.len(), args.dir.display());
    Ok(ExitCode::SUCCESS)
}

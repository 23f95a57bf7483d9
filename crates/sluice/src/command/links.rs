//! `sluice links DIR`: makes a link to this program for every Slurm command, and one for `dstack`; with them, where it is
//! asked for, the manual pages and what a shell completes.

use super::completion::{self, Shell};
use super::man;
use super::verb::{VerbError, VerbResult};
use ::agent::trusted_dir::TrustedDir;
use ::slurm::option::Command;
use clap::Args;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub struct LinksArgs {
    dir: PathBuf,
    /// Also write the manual pages into this folder, as /usr/local/share/man/man1
    #[arg(long, value_name = "DIR")]
    man: Option<PathBuf>,
    /// Also write completion into this folder, as /usr/share/bash-completion/completions
    #[arg(long, value_name = "DIR")]
    completion: Option<PathBuf>,
    /// The shell that completes
    #[arg(long, default_value = "bash")]
    shell: Shell,
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
    let dstack = link_dstack(&program, &dir.path().join("dstack"))?;
    println!("{} links in {}", Command::ALL.len() + usize::from(dstack), args.dir.display());
    if let Some(folder) = &args.man {
        man::write_pages(folder)?;
        println!("manual pages in {}", folder.display());
    }
    if let Some(folder) = &args.completion {
        completion::write_files(folder, args.shell, dstack)?;
        println!("completion in {}", folder.display());
    }
    Ok(ExitCode::SUCCESS)
}

/// `dstack VERB` is `sluice VERB`, unless dstack's own client is there: that one is left alone. Returns whether a link was made.
fn link_dstack(program: &Path, link: &Path) -> Result<bool, VerbError> {
    if std::fs::symlink_metadata(link).is_ok() {
        let is_ours = std::fs::read_link(link)
            .is_ok_and(|to| to == program || to.file_name() == program.file_name());
        if !is_ours {
            return Ok(false);
        }
        std::fs::remove_file(link).map_err(VerbError::file(link))?;
    }
    std::os::unix::fs::symlink(program, link).map_err(VerbError::file(link))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dstacks_own_client_is_left_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let (program, link) = (Path::new("/opt/bin/sluice"), dir.path().join("dstack"));
        let made = || link_dstack(program, &link).expect("a link, or none");
        assert!(made() && made(), "its own link is made anew");
        assert_eq!(std::fs::read_link(&link).expect("a link"), program);
        std::fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink("/opt/venv/bin/dstack", &link).expect("a link");
        assert!(!made());
        std::fs::remove_file(&link).expect("removed");
        std::fs::write(&link, "#!/bin/sh\n").expect("a file");
        assert!(!made());
    }
}

//! `sluice links DIR`: makes a link to this program for every Slurm command, one for `dstack`, and one for `sluice` itself where
//! `PATH` does not lead to it; with them, where it is asked for, the manual pages and what a shell completes.

use super::completion::{self, Shell};
use super::man;
use super::verb::{VerbError, VerbResult};
use ::agent::trusted_dir::TrustedDir;
use ::slurm::option::Command;
use clap::Args;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const PROGRAM: &str = "sluice";

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
    let dstack = link_unless_taken(&program, &dir.path().join("dstack"))?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let own =
        !is_on_path(&program, &path) && link_unless_taken(&program, &dir.path().join(PROGRAM))?;
    let made = Command::ALL.len() + usize::from(dstack) + usize::from(own);
    println!("{made} links in {}", args.dir.display());
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

/// Whether the commands that are named without a folder find this program by its own name.
fn is_on_path(program: &Path, path: &OsStr) -> bool {
    let is_ours = |dir: PathBuf| dir.join(PROGRAM).canonicalize().is_ok_and(|to| to == program);
    std::env::split_paths(path).any(is_ours)
}

/// Makes a link unless something that is not ours has the name, as dstack's own client has `dstack`, or as the program itself has its
/// own name in its folder: that is left alone. Returns whether a link was made.
fn link_unless_taken(program: &Path, link: &Path) -> Result<bool, VerbError> {
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
        let made = || link_unless_taken(program, &link).expect("a link, or none");
        assert!(made() && made(), "its own link is made anew");
        assert_eq!(std::fs::read_link(&link).expect("a link"), program);
        std::fs::remove_file(&link).expect("removed");
        std::os::unix::fs::symlink("/opt/venv/bin/dstack", &link).expect("a link");
        assert!(!made());
        std::fs::remove_file(&link).expect("removed");
        std::fs::write(&link, "#!/bin/sh\n").expect("a file");
        assert!(!made());
    }

    #[test]
    fn program_is_found_on_the_path_under_its_own_name_alone() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = |name: &str| {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            folder
        };
        let (build, bin, empty) = (folder("build"), folder("bin"), folder("empty"));
        let program = build.join("sluice-1.0");
        std::fs::write(&program, "").expect("a file");
        let program = program.canonicalize().expect("its path");
        let path = std::env::join_paths([&empty, &bin, &build]).expect("a path");
        assert!(!is_on_path(&program, &path), "by another name");
        std::os::unix::fs::symlink(&program, bin.join(PROGRAM)).expect("a link");
        assert!(is_on_path(&program, &path));
        assert!(!is_on_path(&program, empty.as_os_str()));
    }
}

//! `sluice links DIR`: makes a link to this program for every Slurm command, one for `dstack` where `PATH` leads to no client of
//! dstack's own, and one for `sluice` itself where `PATH` does not lead to it; with them, where it is asked for, the manual pages and what a shell completes.

use super::completion::{self, Shell};
use super::man;
use super::verb::{VerbError, VerbResult};
use ::agent::trusted_dir::TrustedDir;
use ::slurm::option::Command;
use clap::Args;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const PROGRAM: &str = "sluice";
const DSTACK: &str = "dstack";

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
    let path = std::env::var_os("PATH").unwrap_or_default();
    let client = other_on_path(DSTACK, &program, &path);
    let dstack = link_dstack(&program, dir.path(), client.as_deref())?;
    let own =
        !is_on_path(&program, &path) && link_unless_taken(&program, &dir.path().join(PROGRAM))?;
    let made = Command::ALL.len() + usize::from(dstack) + usize::from(own);
    println!("{made} links in {}", args.dir.display());
    if let Some(client) = client.filter(|_| !dstack) {
        println!("no link dstack: it would hide {}", client.display());
    }
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

/// The command of this name that `PATH` leads to and that is not this program.
fn other_on_path(name: &str, program: &Path, path: &OsStr) -> Option<PathBuf> {
    let is_command = |found: &Path| {
        found.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    let is_other = |found: &PathBuf| {
        let is_ours = |to: PathBuf| to.file_name() == program.file_name();
        is_command(found) && !found.canonicalize().is_ok_and(is_ours)
    };
    std::env::split_paths(path).map(|dir| dir.join(name)).find(is_other)
}

/// Makes the link `dstack` unless it would hide this client of dstack's own. One that is there stays: nobody loses a command.
fn link_dstack(program: &Path, dir: &Path, client: Option<&Path>) -> Result<bool, VerbError> {
    let link = dir.join(DSTACK);
    if client.is_some() && std::fs::symlink_metadata(&link).is_err() {
        return Ok(false);
    }
    link_unless_taken(program, &link)
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
    fn client_of_dstack_that_path_leads_to_is_not_hidden() {
        let dir = tempfile::tempdir().expect("a folder");
        let folder = |name: &str| {
            let folder = dir.path().join(name);
            std::fs::create_dir(&folder).expect("a folder");
            folder
        };
        let (build, bin, venv) = (folder("build"), folder("bin"), folder("venv"));
        let program = build.join(PROGRAM);
        let client = venv.join(DSTACK);
        std::fs::write(&program, "").expect("a file");
        std::fs::set_permissions(&program, PermissionsExt::from_mode(0o755)).expect("its mode");
        std::fs::write(&client, "").expect("a file");
        let path = std::env::join_paths([&bin, &venv]).expect("a path");
        let other = || other_on_path(DSTACK, &program, &path);
        let made = || link_dstack(&program, &bin, other().as_deref()).expect("a link, or none");
        std::fs::set_permissions(&client, PermissionsExt::from_mode(0o644)).expect("its mode");
        assert_eq!(other(), None, "no command");
        std::fs::set_permissions(&client, PermissionsExt::from_mode(0o755)).expect("its mode");
        assert_eq!(other().as_ref(), Some(&client));
        assert!(!made());
        std::fs::remove_file(&client).expect("removed");
        assert!(made());
        assert_eq!(other(), None, "the link is ours");
        std::fs::write(&client, "").expect("a file");
        std::fs::set_permissions(&client, PermissionsExt::from_mode(0o755)).expect("its mode");
        assert!(made(), "one that is there stays");
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

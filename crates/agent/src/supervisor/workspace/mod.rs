//! Places what a run brings along, before its script runs: `unpack` the archives of files, `clone` the repository, make the
//! `python` environment that it asks for. `program` runs the programs that this takes.
//!
//! All of it is done by the process that becomes the script, as the run's user, in the script's own groups, namespaces and
//! container: root has no part in it. For a container the repository is cloned before, by `node_clone`, and inside it is
//! `copy` that places it.

mod clone;
mod copy;
mod node_clone;
mod program;
mod python;
mod unpack;

use std::ffi::{CString, OsStr};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use model::secret::GitCredentials;
use serde::{Deserialize, Serialize};
use wire::workspace::{Repository, Workspace};

/// A workspace with what its repository is cloned with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct RunWorkspace {
    pub workspace: Workspace,
    #[serde(default)]
    pub git_credentials: Option<GitCredentials>,
    /// Where its repository was cloned to already; `None` if that is still to be done.
    #[serde(default)]
    pub cloned: Option<PathBuf>,
}

impl RunWorkspace {
    /// What a process in a container places: it finds the clone where it is shown, and gets nothing to clone with.
    pub fn for_container(&self, shown: &str) -> Self {
        let cloned = Some(PathBuf::from(shown));
        Self { workspace: self.workspace.clone(), git_credentials: None, cloned }
    }

    pub fn brings_files(&self) -> bool {
        !self.workspace.files.is_empty() || self.workspace.repository.is_some()
    }

    /// Places everything below the working directory of this process, or where it is meant to be. The error is a line.
    ///
    /// Returns the variables that the script gets besides.
    pub fn place(&self, environment: &[CString]) -> Result<Vec<(String, String)>, String> {
        let home = variable(environment, "HOME");
        let mut more = Vec::new();
        // First: files may belong into its folder, which has to be empty before.
        if let Some(repository) = &self.workspace.repository {
            let folder = resolve(&repository.path, home)
                .and_then(|folder| {
                    self.place_repository(repository, &folder, environment)?;
                    absolute(&folder)
                })
                .map_err(|why| format!("`repos`: {why}"))?;
            more.extend(repository.folder_variable.clone().map(|name| (name, folder)));
        }
        for file in &self.workspace.files {
            let target = resolve(&file.path, home).map_err(|why| format!("`files`: {why}"))?;
            unpack::unpack(&file.archive.0, &target)
                .map_err(|why| format!("`files`: {}: {why}", file.path))?;
        }
        let programs = self.make_programs(environment)?;
        more.extend(programs.into_iter().map(|(name, value)| (name.to_owned(), value)));
        Ok(more)
    }

    fn place_repository(
        &self,
        repository: &Repository,
        folder: &Path,
        environment: &[CString],
    ) -> Result<(), String> {
        if !clone::make_folder(repository, folder)? {
            return Ok(());
        }
        match &self.cloned {
            Some(cloned) if clone::is_empty(cloned)? => {
                let text = "was there when the container was made, and is gone now";
                Err(format!("{}: {text}", repository.path))
            }
            Some(cloned) => copy::copy(cloned, folder).map_err(|why| format!("cannot copy: {why}")),
            None => clone::clone(repository, folder, self.clone_options(), environment),
        }
    }

    fn clone_options(&self) -> clone::CloneOptions<'_> {
        clone::CloneOptions {
            credentials: self.git_credentials.as_ref(),
            single_branch: self.workspace.single_branch,
        }
    }

    /// Makes what the run's commands are to find in `PATH`.
    fn make_programs(
        &self,
        environment: &[CString],
    ) -> Result<Vec<(&'static str, String)>, String> {
        let path = variable(environment, "PATH").map_or(String::new(), |p| p.display().to_string());
        let mut folders: Vec<String> = Vec::new();
        let mut more = Vec::new();
        if let Some(version) = &self.workspace.python {
            let made =
                python::make(version, environment).map_err(|why| format!("`python`: {why}"))?;
            folders.push(made.join("bin").display().to_string());
            more.push(("VIRTUAL_ENV", made.display().to_string()));
        }
        if self.workspace.nvcc && program::found("nvcc", environment).is_none() {
            if !Path::new(CUDA).join("nvcc").is_file() {
                return Err("`nvcc`: there is no nvcc here: name an `image` that has it".into());
            }
            folders.push(CUDA.to_owned());
        }
        if !folders.is_empty() {
            folders.push(path);
            more.push(("PATH", folders.join(":")));
        }
        Ok(more)
    }
}

/// Where NVIDIA's packages have their programs.
const CUDA: &str = "/usr/local/cuda/bin";

fn variable<'a>(environment: &'a [CString], name: &str) -> Option<&'a Path> {
    let value = |entry: &'a CString| {
        let rest = entry.to_bytes().strip_prefix(name.as_bytes())?.strip_prefix(b"=")?;
        Some(Path::new(OsStr::from_bytes(rest)))
    };
    environment.iter().find_map(value)
}

/// The path that a path of the run's configuration means: `~` is the user's home, and anything else is below the working
/// directory if it is relative.
pub(crate) fn resolve(path: &str, home: Option<&Path>) -> Result<PathBuf, String> {
    let below_home = path.strip_prefix("~/").or((path == "~").then_some(""));
    match (below_home, home) {
        (Some(rest), Some(home)) => Ok(home.join(rest)),
        (Some(_), None) => Err(format!("{path}: the run has no HOME")),
        (None, _) => Ok(PathBuf::from(path)),
    }
}

/// The path from the root of a folder that is there, by way of the working directory of this process.
fn absolute(folder: &Path) -> Result<String, String> {
    let here = std::env::current_dir().map_err(|error| error.to_string())?;
    Ok(here.join(folder).components().collect::<PathBuf>().display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folder_below_the_working_directory_has_a_path_from_the_root() {
        let here = std::env::current_dir().expect("a working directory");
        assert_eq!(absolute(Path::new(".")), Ok(here.display().to_string()));
        assert_eq!(absolute(Path::new("code/a/")), Ok(here.join("code/a").display().to_string()));
        assert_eq!(absolute(Path::new("/code/./a")), Ok("/code/a".to_owned()));
    }

    #[test]
    fn tilde_is_the_home_of_the_run() {
        let home = Some(Path::new("/home/kim"));
        assert_eq!(resolve("~/a/b", home), Ok("/home/kim/a/b".into()));
        assert_eq!(resolve("~", home), Ok("/home/kim".into()));
        assert_eq!(resolve("~other", home), Ok("~other".into()));
        assert_eq!(resolve("/x", None), Ok("/x".into()));
        assert!(resolve("~/a", None).is_err());
    }
}

//! What a process in a container runs: its arguments, variables and working directory, from what was asked for and what
//! the image says.

use super::assembly::SCRIPT;
use super::mount_calls::{make_folder_in_root, open_in_root};
use super::{ContainerSpec, driver_files, files, inside};
use crate::supervisor::process::credentials::as_user;
use image::ImageConfig;
use model::container::{ContainerUser, is_plain_path};
use nix::errno::Errno;
use nix::fcntl::OFlag;
use nix::sys::stat::{SFlag, fstat};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::path::Path;

/// `PATH` of an image that has none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What an image of Apptainer runs by itself; other images name theirs.
const RUN_SCRIPT: &str = "/.singularity.d/runscript";
/// Where an image of Apptainer has scripts that set its variables.
const ENVIRONMENT_SCRIPTS: &str = "/.singularity.d/env";
/// Executes its arguments with those variables.
const AFTER_SCRIPTS: [&str; 4] = [
    "/bin/sh",
    "-c",
    "for script in /.singularity.d/env/*.sh; do if [ -f \"$script\" ]; then . \"$script\"; fi; done; exec \"$@\"",
    "sh",
];

/// A container as its processes find it.
pub(super) struct Inside<'a> {
    pub settings: &'a ImageConfig,
    pub root: &'a OwnedFd,
    /// It shows the files of NVIDIA's driver.
    pub has_driver: bool,
}

pub(super) struct Program {
    pub arguments: Vec<String>,
    pub environment: Vec<String>,
    pub work_dir: String,
}

impl Program {
    /// The arguments that run it in its working directory, with what a run brings along.
    pub fn in_place(&self, spec: &ContainerSpec, root: &OwnedFd) -> Vec<String> {
        let has_own = || open_in_root(root, files::PROGRAM, OFlag::O_PATH).is_ok();
        if spec.workspace.is_some() {
            inside::in_workspace(&self.work_dir, &self.arguments)
        } else if self.work_dir != "/" && has_own() {
            inside::in_work_dir(&self.work_dir, &self.arguments)
        } else {
            self.arguments.clone()
        }
    }
}

impl Inside<'_> {
    /// The program, which is there; else the error and the path that it is about.
    pub fn program(
        &self,
        spec: &ContainerSpec,
        argv: &[String],
        environment: &[CString],
    ) -> Result<Program, (Errno, String)> {
        let environment = self.environment(spec, environment);
        let work_dir = self.work_dir(spec);
        let mut arguments = self.arguments(spec, argv);
        let as_inside = |look: &dyn Fn() -> nix::Result<()>| match spec.request.user {
            ContainerUser::JobUser => as_user(spec.user, look).and_then(|found| found),
            _ => look(),
        };
        let has = |path: &str| open_in_root(self.root, path, OFlag::O_PATH).map(drop);
        if as_inside(&|| has(ENVIRONMENT_SCRIPTS).and(has(AFTER_SCRIPTS[0]))).is_ok() {
            // The scripts may change PATH: the shell says then what is not there.
            arguments.splice(0..0, AFTER_SCRIPTS.map(str::to_owned));
        }
        let program = arguments.first().cloned().unwrap_or_default();
        as_inside(&|| find_program(self.root, &program, &environment, &work_dir))
            .map_err(|errno| (errno, program.clone()))?;
        Ok(Program { arguments, environment, work_dir })
    }

    fn arguments(&self, spec: &ContainerSpec, argv: &[String]) -> Vec<String> {
        let settings = self.settings;
        if spec.request.own_command {
            let own = settings.entrypoint.iter().chain(&settings.cmd).cloned();
            let mut own: Vec<String> = own.collect();
            if own.is_empty() {
                own.push(RUN_SCRIPT.to_owned());
            }
            return own;
        }
        let entrypoint = settings.entrypoint.iter().filter(|_| spec.request.entrypoint);
        let mut all: Vec<String> = entrypoint.cloned().collect();
        match (&spec.script, argv.split_first()) {
            (Some(_), Some((_, rest))) => {
                all.push(SCRIPT.to_owned());
                all.extend(rest.iter().cloned());
            }
            _ => all.extend(argv.iter().cloned()),
        }
        all
    }

    /// The job's variables, but for those of the image that win.
    fn environment(&self, spec: &ContainerSpec, job: &[CString]) -> Vec<String> {
        let of_job: Vec<String> =
            job.iter().map(|entry| entry.to_string_lossy().into_owned()).collect();
        let wins = |name: &str| spec.request.variables.wins(name);
        let mut all = merge(&self.settings.env, &of_job, wins);
        if self.has_driver {
            append_folder(&mut all, "LD_LIBRARY_PATH", driver_files::LIBRARIES);
            append_folder(&mut all, "PATH", driver_files::PROGRAMS);
        }
        all
    }

    /// Inside the container: as asked for, else the job's where the container has it, else the image's. What is missing
    /// of it is made in the container's own files.
    fn work_dir(&self, spec: &ContainerSpec) -> String {
        let has = |path: &str| {
            let flags = OFlag::O_PATH | OFlag::O_DIRECTORY;
            let open = || open_in_root(self.root, path, flags).is_ok();
            as_user(spec.user, open).unwrap_or(false)
        };
        let made = |path: &str| {
            if spec.workspace.is_some() {
                // Its user makes it, who is to write there.
                return path.to_owned();
            }
            // What cannot be made here is said when it is entered.
            let _ = make_folder_in_root(self.root, path);
            path.to_owned()
        };
        let image = Some(self.settings.working_dir.as_str()).filter(|path| !path.is_empty());
        // A folder of `/proc` would be one of the runtime's own.
        let is_good = |path: &&str| is_plain_path(path) && !Path::new(path).starts_with("/proc");
        let image = image.filter(is_good);
        if let Some(asked) = spec.request.work_dir.as_deref() {
            return made(Some(asked).filter(is_good).unwrap_or("/"));
        }
        let of_job = Some(spec.work_dir)
            .filter(|path| !spec.request.isolated && !files::is_of_image(path) && has(path));
        of_job.map(str::to_owned).unwrap_or_else(|| made(image.unwrap_or("/")))
    }
}

/// Whether the container has the program, by its `PATH`.
fn find_program(
    root: &OwnedFd,
    program: &str,
    environment: &[String],
    work_dir: &str,
) -> nix::Result<()> {
    let check = |path: &str| {
        let file = open_in_root(root, path, OFlag::O_PATH)?;
        let status = fstat(&file)?;
        let is_file = status.st_mode & SFlag::S_IFMT.bits() == SFlag::S_IFREG.bits();
        if is_file && status.st_mode & 0o111 != 0 { Ok(()) } else { Err(Errno::EACCES) }
    };
    if program.is_empty() {
        return Err(Errno::ENOENT);
    }
    if program.contains('/') {
        let path = if program.starts_with('/') {
            program.to_owned()
        } else {
            format!("{work_dir}/{program}")
        };
        return check(&path);
    }
    let path = environment.iter().find_map(|entry| entry.strip_prefix("PATH=")).unwrap_or_default();
    let found: Vec<_> = path
        .split(':')
        .filter(|folder| !folder.is_empty())
        .map(|folder| check(&format!("{folder}/{program}")))
        .collect();
    match found.iter().any(|one| one.is_ok()) {
        true => Ok(()),
        false if found.contains(&Err(Errno::EACCES)) => Err(Errno::EACCES),
        false => Err(Errno::ENOENT),
    }
}

/// The variables of a process: those of the image, and the job's over or under them. `PATH` finds Sluice's commands too.
fn merge(image: &[String], job: &[String], wins: impl Fn(&str) -> bool) -> Vec<String> {
    let name = |entry: &str| entry.split_once('=').map_or(entry, |(name, _)| name).to_owned();
    let of_image = |wanted: &str| image.iter().any(|entry| name(entry) == wanted);
    let has_own_path = of_image("PATH");
    // The node's paths say nothing about an image.
    let is_kept = |entry: &&String| {
        let name = name(entry);
        wins(&name) || !(of_image(&name) || (name == "PATH" && !has_own_path))
    };
    let kept: Vec<&String> = job.iter().filter(is_kept).collect();
    let replaced = |entry: &&String| !kept.iter().any(|one| name(one) == name(entry));
    let mut all: Vec<String> =
        image.iter().filter(replaced).chain(kept.iter().copied()).cloned().collect();
    if !all.iter().any(|entry| entry.starts_with("PATH=")) {
        all.push(format!("PATH={PATH}"));
    }
    append_folder(&mut all, "PATH", &format!("{}/bin", files::OWN));
    all
}

/// Adds a folder to the end of a variable that lists folders.
fn append_folder(variables: &mut Vec<String>, name: &str, folder: &str) {
    let is_name =
        |entry: &&mut String| entry.strip_prefix(name).is_some_and(|rest| rest.starts_with('='));
    match variables.iter_mut().find(is_name) {
        Some(entry) => {
            let folders = &entry[name.len() + 1..];
            if folders.is_empty() {
                entry.push_str(folder);
            } else if !folders.split(':').any(|one| one == folder) {
                *entry = format!("{entry}:{folder}");
            }
        }
        None => variables.push(format!("{name}={folder}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merged(image: &[&str], job: &[&str], wins: &[&str]) -> Vec<String> {
        let owned = |list: &[&str]| list.iter().map(|one| (*one).to_owned()).collect::<Vec<_>>();
        let mut all = merge(&owned(image), &owned(job), |name| wins.contains(&name));
        all.sort();
        all
    }

    #[test]
    fn variables_of_the_image_win_unless_named() {
        let image = ["PATH=/opt/bin", "HOME=/root", "CUDA_VERSION=12"];
        let job = ["PATH=/usr/bin", "HOME=/home/kim", "SLURM_JOB_ID=1", "CUDA_VERSION=11"];
        let path = "PATH=/opt/bin:/run/sluice/bin";
        assert_eq!(
            merged(&image, &job, &[]),
            ["CUDA_VERSION=12", "HOME=/root", path, "SLURM_JOB_ID=1"]
        );
        assert_eq!(
            merged(&image, &job, &["HOME"]),
            ["CUDA_VERSION=12", "HOME=/home/kim", path, "SLURM_JOB_ID=1"]
        );
        let own = format!("PATH={PATH}:/run/sluice/bin");
        assert_eq!(merged(&[], &["PATH=/usr/bin", "A=1"], &[]), ["A=1".to_owned(), own]);
        let job_path = "PATH=/usr/bin:/run/sluice/bin";
        assert_eq!(merged(&["PATH=/x"], &["PATH=/usr/bin"], &["PATH"]), [job_path]);
    }

    #[test]
    fn folders_are_added_once_at_the_end() {
        let appended = |entry: &str| {
            let mut all = vec!["PATH_X=/a".to_owned(), entry.to_owned()];
            append_folder(&mut all, "PATH", "/x");
            all.split_off(1).join(" ")
        };
        assert_eq!(appended("PATH=/a:/b"), "PATH=/a:/b:/x");
        assert_eq!(appended("PATH=/x:/b"), "PATH=/x:/b");
        assert_eq!(appended("PATH="), "PATH=/x");
        assert_eq!(appended("HOME=/"), "HOME=/ PATH=/x");
    }
}

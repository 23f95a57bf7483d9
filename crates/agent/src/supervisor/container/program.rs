//! What a process in a container runs: its arguments, variables and working directory, from what was asked for and what
//! the image says.

use super::assembly::{Assembled, SCRIPT, STATE_VARIABLE};
use super::runtime_config::set_rlimit;
use super::{ContainerSpec, files, inside};
use crate::cdi::{DRIVER_LIBRARIES, DRIVER_PROGRAMS, set_variable};
use crate::socket_folder::{self, SOCKET};
use crate::supervisor::mount_calls::{MountPoints, Rights, open_in_root};
use crate::supervisor::process::credentials::as_user;
use crate::supervisor::process::path_variable::first_in_path;
use crate::supervisor::workspace::resolve;
use image::ImageConfig;
use model::container::{ContainerUser, is_work_dir};
use model::os_text;
use model::search_path::SYSTEM_PATH;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, SFlag, fstat};
use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use wire::order::UserIds;

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
    /// Its own files are a folder of the node.
    pub of_folder: bool,
    /// It shows the files of NVIDIA's driver.
    pub has_driver: bool,
    /// What vendors' files set for the process's devices.
    pub device_variables: &'a [String],
}

pub(super) struct Program {
    pub arguments: Vec<String>,
    pub environment: Vec<String>,
    pub work_dir: String,
}

impl Program {
    /// The arguments that run it in its working directory, with what a run brings along. Both take Sluice's own program in
    /// the container, which a build without a C library does not show there; only the working directory can do without.
    /// Arguments and variables that are not UTF-8 take it too: without it such an argument is refused.
    pub fn in_place(
        &self,
        has_workspace: bool,
        root: &OwnedFd,
        rights: Rights,
    ) -> Result<Vec<String>, (Errno, String)> {
        let has_bytes = |words: &[String]| words.iter().any(|word| os_text::has_bytes(word));
        let of_bytes = has_bytes(&self.arguments);
        match rights.open(root, files::PROGRAM, OFlag::O_PATH) {
            Err(errno) if has_workspace || of_bytes => Err((errno, files::PROGRAM.to_owned())),
            Err(Errno::ENOENT) => Ok(self.arguments.clone()),
            // One that cannot be reached says so itself.
            _ if of_bytes || has_bytes(&self.environment) || os_text::has_bytes(&self.work_dir) => {
                Ok(inside::with_bytes(has_workspace, &self.work_dir, &self.arguments))
            }
            _ if has_workspace => Ok(inside::in_workspace(&self.work_dir, &self.arguments)),
            _ if self.work_dir == "/" => Ok(self.arguments.clone()),
            _ if rights.open(root, files::ENTER, OFlag::O_PATH).is_ok() => {
                Ok(inside::in_work_dir_fast(&self.work_dir, &self.arguments))
            }
            _ => Ok(inside::in_work_dir(&self.work_dir, &self.arguments)),
        }
    }
}

impl<'a> Inside<'a> {
    /// The container as a process with these variables of its devices finds it.
    pub fn of(assembled: &'a Assembled, root: &'a OwnedFd, device_variables: &'a [String]) -> Self {
        let Assembled { settings, has_driver, of_folder, .. } = assembled;
        let (has_driver, of_folder) = (*has_driver, *of_folder);
        Inside { settings, root, of_folder, has_driver, device_variables }
    }

    /// With whose rights paths in it are looked up for the job's user.
    pub fn rights<'u>(&self, user: &'u UserIds) -> Rights<'u> {
        Rights::among_mounts(user, self.of_folder)
    }

    /// The program, which is there; else the error and the path that it is about.
    pub fn program(
        &self,
        spec: &ContainerSpec,
        argv: &[String],
        environment: &[CString],
    ) -> Result<Program, (Errno, String)> {
        let mut environment = self.environment(spec, environment);
        let work_dir = self.work_dir(spec);
        for name in spec.folder_variables {
            set_variable(&mut environment, &format!("{name}={work_dir}"));
        }
        let mut arguments = self.arguments(spec, argv);
        let rights = match spec.request.user {
            ContainerUser::JobUser => Rights::User(spec.user),
            // Others than the job's user see more of the image's own files.
            _ => self.rights(spec.user),
        };
        let open = |path: &str| rights.open(self.root, path, OFlag::O_PATH);
        if open(ENVIRONMENT_SCRIPTS).and(open(AFTER_SCRIPTS[0])).is_ok() {
            // The scripts may change PATH: the shell says then what is not there.
            arguments.splice(0..0, AFTER_SCRIPTS.map(str::to_owned));
        }
        let program = arguments.first().cloned().unwrap_or_default();
        find_program(&open, &program, &environment, &work_dir)
            .map_err(|errno| (errno, program.clone()))?;
        Ok(Program { arguments, environment, work_dir })
    }

    /// Clones the run's repository on the node if its folder in the container may be used as it is and is not there.
    /// `node_mounts` is the mount namespace in which the node is seen, `rlimits` are the job's.
    pub fn clone_late(
        &self,
        spec: &ContainerSpec,
        environment: &[CString],
        node_mounts: &OwnedFd,
        rlimits: &[(String, u64, u64)],
    ) -> Result<(), String> {
        let workspace = spec.workspace.and_then(|brought| Some((brought, brought.cloned_late()?)));
        let Some((workspace, repository)) = workspace else { return Ok(()) };
        let variables = self.environment(spec, environment);
        let home = variables.iter().find_map(|entry| entry.strip_prefix("HOME=")).map(Path::new);
        let folder = resolve(&repository.path, home).map_err(|why| format!("`repos`: {why}"))?;
        let folder = Path::new(&self.work_dir(spec)).join(folder);
        // What the job's user cannot look into is decided by the container's own user, who needs the clone then.
        let is_there = || folder.to_str().is_some_and(|folder| holds_entry(self.root, folder));
        if as_user(spec.user, is_there).unwrap_or(false) {
            return Ok(());
        }
        workspace.clone_on_node(spec.scratch, spec.user, environment, || {
            rlimits.iter().for_each(|(name, soft, hard)| set_rlimit(name, *soft, *hard));
            setns(node_mounts, CloneFlags::CLONE_NEWNS)
        })
    }

    fn arguments(&self, spec: &ContainerSpec, argv: &[String]) -> Vec<String> {
        let settings = self.settings;
        // Steps of the job run their own programs.
        let is_script = spec.script.is_some();
        if is_script && !spec.request.command.is_empty() {
            return spec.request.command.iter().cloned().map(os_text::from_text).collect();
        }
        if is_script && spec.request.own_command {
            let own = settings.entrypoint.iter().chain(&settings.cmd).cloned();
            let mut own: Vec<String> = own.map(os_text::from_text).collect();
            if own.is_empty() {
                own.push(RUN_SCRIPT.to_owned());
            }
            return own;
        }
        let entrypoint = settings.entrypoint.iter().filter(|_| spec.request.entrypoint);
        let mut all: Vec<String> = entrypoint.cloned().map(os_text::from_text).collect();
        let has_run_script =
            || self.rights(spec.user).open(self.root, RUN_SCRIPT, OFlag::O_PATH).is_ok();
        if spec.request.entrypoint && all.is_empty() && has_run_script() {
            all.push(RUN_SCRIPT.to_owned());
        }
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
            job.iter().map(|entry| os_text::from_bytes(entry.to_bytes().to_vec())).collect();
        let of_image: Vec<String> =
            self.settings.env.iter().cloned().map(os_text::from_text).collect();
        let wins = |name: &str| spec.request.variables.wins(name);
        let mut all = merge(&of_image, &of_job, wins);
        if self.has_driver {
            append_folder(&mut all, "LD_LIBRARY_PATH", DRIVER_LIBRARIES);
            append_folder(&mut all, "PATH", DRIVER_PROGRAMS);
        }
        if let Some(folder) = spec.run_files {
            first_in_path(&mut all, folder);
        }
        self.device_variables.iter().for_each(|entry| set_variable(&mut all, entry));
        let state = all.iter().find_map(|entry| entry.strip_prefix(STATE_VARIABLE));
        let folder = state.map(socket_folder::of_state).filter(|folder| {
            let socket = format!("{folder}/{SOCKET}");
            self.rights(spec.user).open(self.root, &socket, OFlag::O_PATH).is_ok()
        });
        if let Some(folder) = folder {
            set_variable(&mut all, &format!("{STATE_VARIABLE}{folder}"));
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
            let rights = self.rights(spec.user);
            let _ = MountPoints { root: self.root.as_fd(), rights }.folder(path);
            path.to_owned()
        };
        let image = Some(self.settings.working_dir.as_str()).filter(|path| !path.is_empty());
        // An image may say anything; what a user asks for was read as a good one.
        let is_good = |path: &&str| is_work_dir(path);
        let image = image.filter(is_good);
        if let Some(asked) = spec.request.work_dir.as_deref() {
            return made(Some(asked).filter(is_good).unwrap_or("/"));
        }
        let of_job = Some(spec.work_dir)
            .filter(|path| !spec.request.isolated && !files::is_of_image(path) && has(path));
        of_job.map(str::to_owned).unwrap_or_else(|| made(image.unwrap_or("/")))
    }
}

/// The mount namespace of this process.
pub(super) fn own_mounts() -> Result<OwnedFd, String> {
    open("/proc/self/ns/mnt", OFlag::O_RDONLY | OFlag::O_CLOEXEC, Mode::empty())
        .map_err(|e| format!("the node's mount namespace: {}", e.desc()))
}

/// Whether there is a folder at the path that is not empty.
fn holds_entry(root: &OwnedFd, path: &str) -> bool {
    let folder = open_in_root(root, path, OFlag::O_RDONLY | OFlag::O_DIRECTORY);
    let Ok(mut folder) = folder.and_then(Dir::from_fd) else { return false };
    let is_own = |name: &CStr| matches!(name.to_bytes(), b"." | b"..");
    folder.iter().any(|entry| entry.is_ok_and(|entry| !is_own(entry.file_name())))
}

/// Whether the container has the program, by its `PATH`. `open` opens a path in it as its user would.
fn find_program(
    open: &dyn Fn(&str) -> nix::Result<OwnedFd>,
    program: &str,
    environment: &[String],
    work_dir: &str,
) -> nix::Result<()> {
    let check = |path: &str| {
        let file = open(path)?;
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
        all.push(format!("PATH={SYSTEM_PATH}"));
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
    use std::fs::{self, File};

    #[test]
    fn files_of_a_run_are_placed_by_a_program_that_is_there() {
        let dir = tempfile::tempdir().expect("scratch folder");
        let root = OwnedFd::from(File::open(dir.path()).expect("opened"));
        let program = Program {
            arguments: vec!["/bin/true".into()],
            environment: Vec::new(),
            work_dir: "/work".into(),
        };
        let in_place = |has_workspace| program.in_place(has_workspace, &root, Rights::Root);
        assert_eq!(in_place(true), Err((Errno::ENOENT, files::PROGRAM.to_owned())));
        assert_eq!(in_place(false), Ok(program.arguments.clone()));
        let own = dir.path().join(files::PROGRAM.trim_start_matches('/'));
        fs::create_dir_all(own.parent().expect("a folder")).expect("made");
        fs::write(own, "").expect("written");
        for has_workspace in [true, false] {
            let words = in_place(has_workspace).expect("it is there");
            assert!(words.iter().any(|word| word == files::PROGRAM), "{words:?}");
        }
    }

    #[test]
    fn words_that_are_not_utf_8_take_the_program_that_turns_them_back() {
        let dir = tempfile::tempdir().expect("scratch folder");
        let root = OwnedFd::from(File::open(dir.path()).expect("opened"));
        let in_place = |argument: &str, variable: &str, work_dir: &str| {
            let program = Program {
                arguments: vec!["/bin/echo".into(), argument.into()],
                environment: vec![format!("A={variable}")],
                work_dir: work_dir.into(),
            };
            program.in_place(false, &root, Rights::Root)
        };
        let green = os_text::from_bytes(b"/gr\xfcn".to_vec());
        let green = green.as_str();
        assert_eq!(in_place(green, "", "/"), Err((Errno::ENOENT, files::PROGRAM.to_owned())));
        let own = dir.path().join(files::PROGRAM.trim_start_matches('/'));
        fs::create_dir_all(own.parent().expect("a folder")).expect("made");
        fs::write(own, "").expect("written");
        for (argument, variable, work_dir) in
            [(green, "", "/"), ("a", green, "/"), ("a", "b", green)]
        {
            let words = in_place(argument, variable, work_dir).expect("it is there");
            let expected = ["--bytes", work_dir, "/bin/echo", argument];
            assert!(words.ends_with(&expected.map(str::to_owned)), "{words:?}");
        }
        assert_eq!(in_place("a", "b", "/"), Ok(vec!["/bin/echo".into(), "a".into()]));
    }

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
        let own = format!("PATH={SYSTEM_PATH}:/run/sluice/bin");
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

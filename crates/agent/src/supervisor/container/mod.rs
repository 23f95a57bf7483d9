//! Containers: a process of a job in the root file system of an image, inside the same groups and limits as ever.
//!
//! The process that is to become the task does it all before it executes the runtime: it gets the image, makes or joins
//! the container's namespaces, and writes the runtime's configuration. So it counts to the job, and ends with it.
//!
//! - `rootfs`: what `--container` names: a bundle, a folder, an image.
//! - `holder`: the process that holds the namespaces; `id_range`: ids for user namespaces.
//! - `assembly`: the root file system with everything that is shown in it; `files`, `mount_calls`, `squash`: how.
//! - `group_trees`: the control groups that the runtime sees.
//! - `runtime_config`: what the runtime is told; `runtime`: which program that is.
//! - `inside`: what runs in the container before the program.
//! - `user`: the users of the image; `devices`, `driver_files`: what it needs for the job's GPUs.

mod assembly;
mod devices;
mod driver_files;
mod files;
mod group_trees;
mod holder;
mod id_range;
pub mod inside;
mod mount_calls;
mod rootfs;
mod runtime;
mod runtime_config;
mod squash;
mod user;

use crate::cgroup::JobGroup;
use crate::spool::AttemptDir;
use crate::supervisor::folders::remove_tree::remove_tree;
use crate::supervisor::job_context::JobContext;
use crate::supervisor::process::credentials::as_user;
use crate::supervisor::workspace::RunWorkspace;
use assembly::{Assembled, MOUNT_POINT};
use image::Credentials;
use model::container::{Container, ContainerName, ContainerUser, Join, is_plain_path};
use model::id::AttemptId;
use model::limits::DeviceLimits;
use model::secret::RegistryAuth;
use model::site::ContainerSite;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sched::{CloneFlags, setns};
use nix::sys::stat::{Mode, umask};
use nix::unistd::Uid;
use runtime_config::{ProcessUser, RuntimeConfig};
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use wire::order::UserIds;

/// Said of a step: it runs on the node itself, although its job has a container.
pub(crate) const NO_CONTAINER: &str = "none";

/// The folder of all containers of a node.
const FOLDER: &str = "containers";
/// The group of a container's processes, below that of the process that started it.
const GROUP: &str = "container";
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

/// What a process that runs in a container is started with, beside what every process is.
pub(crate) struct ContainerSpec<'a> {
    pub request: &'a Container,
    pub site: &'a ContainerSite,
    /// The node's images.
    pub store: PathBuf,
    /// The folder of this container alone; what is in it is root's.
    pub folder: PathBuf,
    /// The step and the number that tell this process from the others in the container.
    pub step: String,
    pub process: u32,
    pub user: &'a UserIds,
    /// The folders of the process's group, in each tree.
    pub groups: Vec<String>,
    /// The devices of the process's step, or of the job.
    pub devices: Option<DeviceLimits>,
    pub of_several_nodes: bool,
    /// The job's script, where that is what runs.
    pub script: Option<PathBuf>,
    /// What is placed inside before the script runs.
    pub workspace: Option<&'a RunWorkspace>,
    pub work_dir: &'a str,
    pub scratch: Option<&'a str>,
    /// Bytes of memory that the job has.
    pub memory: Option<u64>,
    pub terminal: bool,
    pub umask: u32,
    /// For the image's registry, and for this pull only.
    pub credentials: Option<Credentials>,
}

impl<'a> ContainerSpec<'a> {
    /// The specification for one process of a job; `name` is its step's, `group` the control group that it starts in,
    /// `auth` for the registry of its image.
    pub fn of_job(
        job: JobContext<'a>,
        request: &'a Container,
        name: &str,
        group: &JobGroup,
        auth: Option<&RegistryAuth>,
    ) -> Self {
        let record = job.record;
        let folder = folder_of_attempt(job.dir);
        let store = match &record.site.containers.store {
            Some(store) => PathBuf::from(store),
            None => job.dir.path().ancestors().nth(4).unwrap_or(Path::new("/")).join("images"),
        };
        ContainerSpec {
            request,
            site: &record.site.containers,
            store,
            folder: match &request.name {
                Some(named) => folder.join(format!("named-{}", named.name)),
                None => folder.join(name),
            },
            step: name.to_owned(),
            process: 0,
            user: &record.launch.user,
            groups: group.paths(),
            devices: record.limits.devices.clone(),
            of_several_nodes: record.launch.nodes > 1,
            script: None,
            workspace: None,
            work_dir: "/",
            scratch: job.folders.scratch_path(),
            memory: record.limits.memory.map(|bytes| bytes.0),
            terminal: false,
            umask: 0o022,
            credentials: auth.map(|auth| Credentials {
                username: auth.username.0.clone(),
                password: auth.password.0.clone(),
            }),
        }
    }
}

/// The folder of all containers of an attempt, beside the node's spool.
pub(crate) fn folder_of_attempt(dir: &AttemptDir) -> PathBuf {
    let node = dir.path().ancestors().nth(2).unwrap_or(Path::new("/"));
    node.join(FOLDER).join(dir.path().file_name().unwrap_or_default())
}

/// A container that this process has entered as far as its mount namespace.
pub(crate) struct Entered {
    assembled: Assembled,
    root: OwnedFd,
    runtime: PathBuf,
    /// The process's own group, below the root of each tree.
    group: String,
    /// The job's limits, which do not hold for what root does for the container.
    rlimits: Vec<(String, u64, u64)>,
}

/// Makes the container, or joins it if a process before this one made it. `progress` is told what takes long.
pub(crate) fn enter(
    spec: &ContainerSpec,
    environment: &[CString],
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<Entered, String> {
    if !Uid::effective().is_root() {
        return Err("containers need an agent that runs as root".into());
    }
    let rlimits = runtime_config::own_rlimits();
    runtime_config::raise_own_limits();
    // What is made from here on is shown inside, where others may be to read it; the container has a mask of its own.
    umask(Mode::from_bits_truncate(0o022));
    let runtime = runtime::find(spec.site)?;
    let group = group_trees::path(&spec.groups)?;
    let failed = |e: std::io::Error| format!("{}: {e}", spec.folder.display());
    let private = fs::DirBuilder::new().recursive(true).mode(0o700).create(&spec.folder);
    private.map_err(failed)?;
    let lock = File::create(spec.folder.join("lock")).map_err(failed)?;
    let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| failed(e.into()))?;
    let there = Assembled::read(&spec.folder);
    let is_running = there.as_ref().is_some_and(|there| there.holder.is_alive());
    if let (Some(name), true) =
        (&spec.request.name, there.as_ref().is_none_or(|there| there.step != spec.step))
    {
        check_name(name, there.is_some(), is_running)?;
    }
    let assembled = match there {
        Some(running) if is_running => {
            let failed = |e: Errno| format!("cannot join the container: {}", e.desc());
            let namespace = running.holder.namespace("mnt");
            let flags = OFlag::O_RDONLY | OFlag::O_CLOEXEC;
            let namespace = open(namespace.as_str(), flags, Mode::empty()).map_err(failed)?;
            // Asked after it was opened: the pid may have become another process's.
            if !running.holder.is_alive() {
                return Err("cannot join the container: it has ended".into());
            }
            setns(namespace, CloneFlags::CLONE_NEWNS).map_err(failed)?;
            running
        }
        _ => assembly::assemble(spec, environment, progress)?,
    };
    drop(lock);
    let root =
        open(MOUNT_POINT, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|e| format!("the container's root: {}", e.desc()))?;
    Ok(Entered { assembled, root, runtime, group, rlimits })
}

/// Whether a container of this name may be used as its word says.
fn check_name(asked: &ContainerName, is_there: bool, is_running: bool) -> Result<(), String> {
    let name = &asked.name;
    match asked.join {
        Join::Create if is_there => {
            Err(format!("container {name} is there already: expected none, because of :create"))
        }
        Join::Running if !is_running => {
            Err(format!("container {name} does not run: expected a running one, because of :exec"))
        }
        Join::NotRunning if is_running => {
            Err(format!("container {name} runs: expected one that does not, because of :no_exec"))
        }
        _ => Ok(()),
    }
}

impl Entered {
    /// Executes the runtime, which executes the program. Returns only on failure, with the path that failed.
    pub fn execute(
        &self,
        spec: &ContainerSpec,
        argv: &[String],
        environment: &[CString],
    ) -> (Errno, String) {
        let environment = self.environment(spec, environment);
        let work_dir = self.work_dir(spec);
        let mut argv = self.arguments(spec, argv);
        let as_inside = |look: &dyn Fn() -> nix::Result<()>| match spec.request.user {
            ContainerUser::JobUser => as_user(spec.user, look).and_then(|found| found),
            _ => look(),
        };
        let has = |path: &str| mount_calls::open_in_root(&self.root, path, OFlag::O_PATH).map(drop);
        if as_inside(&|| has(ENVIRONMENT_SCRIPTS).and(has(AFTER_SCRIPTS[0]))).is_ok() {
            // The scripts may change PATH: the shell says then what is not there.
            argv.splice(0..0, AFTER_SCRIPTS.map(str::to_owned));
        }
        let program = argv.first().cloned().unwrap_or_default();
        let found =
            as_inside(&|| runtime::find_program(&self.root, &program, &environment, &work_dir));
        if let Err(errno) = found {
            return (errno, program);
        }
        if spec.workspace.is_some() {
            argv = inside::in_workspace(&work_dir, &argv);
        } else if work_dir != "/" && has(files::PROGRAM).is_ok() {
            argv = inside::in_work_dir(&work_dir, &argv);
        }
        match self.write_and_execute(spec, &argv, &environment) {
            Ok(never) => match never {},
            Err(errno) => (errno, self.runtime.display().to_string()),
        }
    }

    fn write_and_execute(
        &self,
        spec: &ContainerSpec,
        argv: &[String],
        environment: &[String],
    ) -> nix::Result<std::convert::Infallible> {
        let io = |e: std::io::Error| Errno::from_raw(e.raw_os_error().unwrap_or(libc::EIO));
        let bundle = spec.folder.join(format!("process-{}-{}", spec.step, spec.process));
        fs::create_dir_all(&bundle).map_err(io)?;
        let group = format!("{}/{GROUP}-{}", self.group, spec.process);
        let devices = devices::files(spec.devices.as_ref(), spec.of_several_nodes);
        let config = RuntimeConfig {
            root: MOUNT_POINT,
            read_only: spec.request.read_only,
            shared_memory: assembly::SHARED_MEMORY,
            holder: &self.assembled.holder,
            map: Some(&self.assembled.map).filter(|_| self.assembled.has_user_namespace),
            user: self.user(spec),
            umask: spec.umask,
            arguments: argv,
            environment,
            terminal: spec.terminal,
            rlimits: &self.rlimits,
            group: &group,
            devices: &devices,
        };
        // The environment may hold secrets.
        let mut file = fs::OpenOptions::new();
        file.write(true).create(true).truncate(true).mode(0o600);
        let mut file = file.open(bundle.join("config.json")).map_err(io)?;
        file.write_all(config.to_json().to_string().as_bytes()).map_err(io)?;
        let state = spec.folder.join("state");
        let id = format!("{}-{}-{}", self.assembled.name, spec.step, spec.process);
        runtime::execute(&self.runtime, &state, &bundle, &id)
    }

    fn user(&self, spec: &ContainerSpec) -> ProcessUser {
        match &spec.request.user {
            ContainerUser::JobUser => ProcessUser {
                uid: spec.user.uid,
                gid: spec.user.gid,
                groups: spec.user.groups.clone(),
            },
            _ => {
                let (uid, gid) = self.assembled.user;
                ProcessUser { uid, gid, groups: Vec::new() }
            }
        }
    }

    fn arguments(&self, spec: &ContainerSpec, argv: &[String]) -> Vec<String> {
        let settings = &self.assembled.settings;
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
                all.push(assembly::SCRIPT.to_owned());
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
        let mut all = merge(&self.assembled.settings.env, &of_job, wins);
        if self.assembled.has_driver {
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
            let open = || mount_calls::open_in_root(&self.root, path, flags).is_ok();
            as_user(spec.user, open).unwrap_or(false)
        };
        let made = |path: &str| {
            if spec.workspace.is_some() {
                // Its user makes it, who is to write there.
                return path.to_owned();
            }
            // What cannot be made here is said when it is entered.
            let _ = mount_calls::make_folder_in_root(&self.root, path);
            path.to_owned()
        };
        let image =
            Some(self.assembled.settings.working_dir.as_str()).filter(|path| !path.is_empty());
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

/// Removes the folders of an attempt's containers; `groups` are those of the job.
pub(crate) fn remove(folder: &Path, groups: &[String]) {
    group_trees::remove_foreign(groups);
    remove_folder(folder);
}

/// Removes the folders of an attempt whose supervisor was killed.
pub(crate) fn remove_leftovers(node: &Path, attempt: AttemptId) {
    remove_folder(&node.join(FOLDER).join(attempt.to_string()));
}

/// What cannot be removed now is removed when the agent forgets the attempt.
fn remove_folder(folder: &Path) {
    let name = folder.file_name().and_then(|name| CString::new(name.as_bytes()).ok());
    let (Some(above), Some(name)) = (folder.parent(), name) else { return };
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    if let Ok(above) = open(above, flags, Mode::empty()) {
        let _ = remove_tree(above.as_fd(), &name);
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

//! Containers: a process of a job in the root file system of an image, inside the same groups and limits as ever.
//!
//! The process that is to become the task does it all before it executes the runtime: it gets the image, makes or joins
//! the container's namespaces, and writes the runtime's configuration. So it counts to the job, and ends with it.
//!
//! - `spec`: what a process in a container is started with; `container_error`: why there is no container, by its part.
//! - `rootfs`: what `--container` names: a bundle, a folder, an image.
//! - `holder`: the process that holds the namespaces; `users`: how long; `id_range`: the ids of an image's users on the node.
//! - `assembly`: the root file system with everything that is shown in it; `files`, `squash`, `writable`,
//!   `loop_device`: how.
//! - `network`: a network of its own, with ports of the node that lead in.
//! - `group_trees`: the control groups that the runtime sees.
//! - `node_programs`: programs of the node; `runtime`: which of them runs containers; `runtime_config`: what an OCI runtime is told;
//!   `early_runtime`: one that is started before its container is made.
//! - `engine`: Docker and Podman; `init`: the first process of their containers.
//! - `enroot`, `apptainer`: programs that run containers as the job's user; `users_program`: what these have in common.
//! - `program`: its arguments, variables and working directory; `inside`: what runs in the container before it.
//! - `save`: the container's files as an image; `leftovers`: what is left of ended containers.
//! - `user`: the users of the image; `devices`: the device files of the job.

mod apptainer;
mod assembly;
mod container_error;
mod devices;
mod early_runtime;
mod engine;
mod enroot;
mod files;
mod group_trees;
mod holder;
mod id_range;
pub mod init;
pub mod inside;
mod leftovers;
mod loop_device;
mod network;
mod node_programs;
mod program;
mod rootfs;
mod runtime;
mod runtime_config;
mod save;
mod spec;
mod squash;
mod user;
mod users;
mod users_program;
mod writable;

use crate::privilege;
use crate::spool::AttemptDir;
use apptainer::ApptainerProcess;
use assembly::{Assembled, MOUNT_POINT};
pub(crate) use container_error::ContainerError;
use early_runtime::EarlyRuntime;
pub(crate) use early_runtime::exit_of;
use engine::EngineProcess;
use enroot::EnrootProcess;
pub(crate) use leftovers::{
    begin_removal, folders_of_others, holder_of, on_process_ended, oom_kills, remove,
    remove_leftovers,
};
use model::container::{ContainerName, ContainerNetwork, ContainerUser, Join, Mount};
use model::site::ContainerSite;
use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open};
use nix::sys::stat::{Mode, umask};
use program::Inside;
use runtime::{Runtime, Traces};
use runtime_config::{ProcessUser, RuntimeConfig};
use save::SaveTarget;
pub(crate) use save::{SAVE, remove_partial, save_path};
pub(crate) use spec::ContainerSpec;
use std::ffi::CString;
use std::fs::{self, File};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use users::Users;

/// The name of the job's script among its steps.
pub(crate) const SCRIPT_STEP: &str = "batch";
/// The folder of all containers of a node.
const FOLDER: &str = "containers";
/// The group of a container's processes, below that of the process that started it.
const GROUP: &str = "container";

/// The node's images: in the folder that the site names, or in the state folder.
fn store_folder(site: &ContainerSite, dir: &AttemptDir) -> PathBuf {
    let state = || dir.path().ancestors().nth(4).unwrap_or(Path::new("/"));
    site.store.as_ref().map_or_else(|| state().join("images"), PathBuf::from)
}

/// Brings the images that were pulled to disk. Without it they are pulled again after the machine has started anew.
pub(crate) fn sync_images(site: &ContainerSite, dir: &AttemptDir) {
    let folder = store_folder(site, dir);
    if folder.is_dir()
        && let Ok(store) = rootfs::open_store(&folder, site, Duration::ZERO)
    {
        let _ = store.sync();
    }
}

/// The folder of all containers of an attempt, beside the node's spool.
pub(crate) fn folder_of_attempt(dir: &AttemptDir) -> PathBuf {
    let node = dir.path().ancestors().nth(2).unwrap_or(Path::new("/"));
    node.join(FOLDER).join(dir.path().file_name().unwrap_or_default())
}

/// The folder of the container that the job's script runs in, while it runs.
pub(crate) fn running_script(dir: &AttemptDir) -> Option<PathBuf> {
    let folder = folder_of_attempt(dir).join(SCRIPT_STEP);
    Assembled::read(&folder).filter(|there| there.holder.is_alive()).map(|_| folder)
}

/// The arguments that run a verb of Sluice's own program: the node's, or the one that a container shows.
pub(crate) fn own_program(verb: &str, has_container: bool) -> Result<Vec<String>, String> {
    if has_container {
        return Ok(files::own_program(verb).into());
    }
    let program = files::program_file().map_err(|e| format!("Sluice's own program: {e}"))?;
    let path = program.to_str().ok_or("the path of Sluice's own program is no text")?;
    Ok(vec![path.to_owned(), verb.to_owned()])
}

/// The folder of one process in the folder of its container.
fn process_folder(container: &Path, step: &str, process: u32) -> PathBuf {
    container.join(format!("process-{step}-{process}"))
}

/// A container that this process is about to run in.
pub(crate) enum Entered {
    Oci(Box<OciProcess>),
    Engine(Box<EngineProcess>),
    Enroot(Box<EnrootProcess>),
    Apptainer(Box<ApptainerProcess>),
}

impl Entered {
    /// Becomes the runtime, which runs the program. Returns only on failure, with the path that failed; `exec_failed` is
    /// the line about a program that cannot be executed.
    pub fn execute(
        self,
        spec: &ContainerSpec,
        argv: &[String],
        environment: &[CString],
        exec_failed: &str,
    ) -> (Errno, String) {
        match self {
            Entered::Oci(process) => process.execute(spec, argv, environment),
            Entered::Engine(process) => process.execute(spec, argv, environment, exec_failed),
            Entered::Enroot(process) => process.execute(spec, argv, environment),
            Entered::Apptainer(process) => process.execute(spec, argv, environment),
        }
    }

    /// The network that the container was made with, where that is not the node's.
    pub fn network(&self) -> Option<&ContainerNetwork> {
        match self {
            Entered::Oci(process) => process.assembled.network.as_ref(),
            Entered::Engine(_) | Entered::Enroot(_) | Entered::Apptainer(_) => None,
        }
    }

    /// Saves the container instead, and ends this process.
    pub fn save_and_exit(&self, spec: &ContainerSpec, environment: &[CString]) {
        match self {
            Entered::Oci(process) => process.save_and_exit(spec),
            Entered::Enroot(process) => process.save_and_exit(spec, environment),
            // A container that is to be saved is neither an engine's nor Apptainer's.
            Entered::Engine(_) | Entered::Apptainer(_) => {}
        }
    }
}

/// A container that this process has entered as far as its mount namespace.
pub(crate) struct OciProcess {
    assembled: Assembled,
    root: OwnedFd,
    runtime: PathBuf,
    /// The process's own group, below the root of each tree.
    group: String,
    /// The job's limits, which do not hold for what root does for the container.
    rlimits: Vec<(String, u64, u64)>,
    /// What vendors' files set for the process's devices.
    device_variables: Vec<String>,
    /// Keeps a named container for as long as this process lives.
    users: Option<Users>,
    /// Where this process saves the container to, or why it cannot.
    save_target: Option<Result<SaveTarget, String>>,
}

/// Makes the container, or joins it if a process before this one made it. `progress` is told what takes long.
pub(crate) fn enter(
    spec: &ContainerSpec,
    environment: &[CString],
    progress: &mut (dyn FnMut(&str) + Send),
) -> Result<Entered, ContainerError> {
    if !privilege::is_root() {
        return Err("containers need an agent that runs as root".into());
    }
    check_privileged(spec)?;
    // What is made from here on is shown inside, where others may be to read it; the container has a mask of its own.
    umask(Mode::from_bits_truncate(0o022));
    if let Some(workspace) = spec.workspace {
        let cloned = workspace.clone_early(spec.scratch, spec.user, environment);
        cloned.map_err(ContainerError::workspace)?;
    }
    let rlimits = runtime_config::own_rlimits();
    runtime_config::raise_own_limits();
    let save_target = spec.save.map(|path| SaveTarget::open(path, spec));
    let runtime = match runtime::find(spec.site, spec.request, &spec.folder, spec.own_network)? {
        Runtime::Oci(runtime) => runtime,
        Runtime::Engine(engine, image) => {
            let process =
                EngineProcess::prepare(engine, &image, spec, environment, rlimits, progress)?;
            return Ok(Entered::Engine(Box::new(process)));
        }
        Runtime::Enroot(program, image) => {
            let process = EnrootProcess::prepare(
                program,
                &image,
                spec,
                environment,
                rlimits,
                save_target,
                progress,
            )?;
            return Ok(Entered::Enroot(Box::new(process)));
        }
        Runtime::Apptainer(program, image) => {
            let process = ApptainerProcess::prepare(program, &image, spec, environment, rlimits)?;
            return Ok(Entered::Apptainer(Box::new(process)));
        }
    };
    let group = group_trees::path(&spec.groups)?;
    let node_mounts = program::own_mounts()?;
    let device_variables = spec.device_edits().variables.clone();
    let failed = |e: std::io::Error| format!("{}: {e}", spec.folder.display());
    let private = fs::DirBuilder::new().recursive(true).mode(0o700).create(&spec.folder);
    private.map_err(failed)?;
    let lock = File::create(spec.folder.join("lock")).map_err(failed)?;
    let lock = Flock::lock(lock, FlockArg::LockExclusive).map_err(|(_, e)| failed(e.into()))?;
    let there = Assembled::read(&spec.folder);
    let (users, is_running) = match &spec.request.name {
        Some(_) => {
            let joined = Users::join(&spec.folder, there.as_ref().map(|there| &there.holder));
            joined.map(|(users, is_running)| (Some(users), is_running))?
        }
        None => (None, there.as_ref().is_some_and(|there| there.holder.is_alive())),
    };
    if let (Some(name), true) =
        (&spec.request.name, there.as_ref().is_none_or(|there| there.step != spec.step))
    {
        check_name(name, there.is_some(), is_running)?;
    }
    let assembled = match there {
        Some(running) if is_running => {
            check_user(spec, &running)?;
            tell_missing_mounts(spec, running.mounts.as_deref(), progress);
            running.holder.join_network()?;
            running.holder.join_mounts()?;
            running
        }
        before => {
            assembly::enter_mount_namespace()?;
            if early_runtime::is_possible(spec, &runtime) {
                let _ = spec.early.set(EarlyRuntime::start(spec, &runtime)?);
            }
            assembly::assemble(spec, before.as_ref(), users.as_ref(), environment, progress)?
        }
    };
    drop(lock);
    let root =
        open(MOUNT_POINT, OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC, Mode::empty())
            .map_err(|e| format!("the container's root: {}", e.desc()))?;
    let inside = Inside::of(&assembled, &root, &device_variables);
    let cloned = inside.clone_late(spec, environment, &node_mounts, &rlimits);
    cloned.map_err(ContainerError::workspace)?;
    let process = OciProcess {
        assembled,
        root,
        runtime,
        group,
        rlimits,
        device_variables,
        users,
        save_target,
    };
    Ok(Entered::Oci(Box::new(process)))
}

/// The server has checked the site's consent of a job; of a step nobody has.
fn check_privileged(spec: &ContainerSpec) -> Result<(), String> {
    if spec.request.takes_consent() && !spec.site.privileged {
        return Err("privileged containers are not allowed here".into());
    }
    match spec.request.user {
        ContainerUser::JobUser if spec.request.privileged => {
            Err("a privileged container needs root inside".into())
        }
        _ => Ok(()),
    }
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

/// Whether the process is in the running container whom its step says: ids mean another user where only one of both has root
/// inside.
fn check_user(spec: &ContainerSpec, running: &Assembled) -> Result<(), String> {
    let is_root_inside = spec.request.user != ContainerUser::JobUser;
    let name =
        spec.request.name.as_ref().map_or(running.name.as_str(), |named| named.name.as_str());
    match (running.has_user_namespace, is_root_inside) {
        (true, false) => Err(format!(
            "container {name} runs with root inside: expected --container-remap-root of a step that joins it"
        )),
        (false, true) => Err(format!(
            "container {name} runs without root inside: expected no --container-remap-root of a step that joins it"
        )),
        _ => Ok(()),
    }
}

/// Mounts are made with their container: a step that joins one that runs is told which of its own it does not have. `there` are
/// those of the step that made it.
fn tell_missing_mounts(
    spec: &ContainerSpec,
    there: Option<&[Mount]>,
    progress: &mut (dyn FnMut(&str) + Send),
) {
    // Once for all tasks of a step on a node.
    let (Some(named), Some(there), 0) = (&spec.request.name, there, spec.process) else { return };
    let name = &named.name;
    let is_missing = |mount: &&Mount| !mount.optional && !there.contains(mount);
    for missing in spec.request.mounts.iter().filter(is_missing) {
        let Mount { source, target, .. } = missing;
        progress(&format!(
            "sluice: container {name} runs already, without the mount {source}:{target}"
        ));
    }
}

impl OciProcess {
    fn execute(
        &self,
        spec: &ContainerSpec,
        argv: &[String],
        environment: &[CString],
    ) -> (Errno, String) {
        let inside = Inside::of(&self.assembled, &self.root, &self.device_variables);
        let program = match inside.program(spec, argv, environment) {
            Ok(program) => program,
            Err(failed) => return failed,
        };
        let rights = inside.rights(spec.user);
        let argv = match program.in_place(spec.workspace.is_some(), &self.root, rights) {
            Ok(argv) => argv,
            Err(failed) => return failed,
        };
        match self.write_and_execute(spec, &argv, &program.environment) {
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
        // Where the step has no group of its own in this tree, it shares the job's with other steps: a runtime ends all
        // processes of its group with its own.
        let group = format!("{}/{GROUP}-{}-{}", self.group, spec.step, spec.process);
        let devices = spec.device_files();
        let config = RuntimeConfig {
            root: MOUNT_POINT,
            read_only: spec.request.read_only,
            shared_memory: assembly::SHARED_MEMORY,
            holder: &self.assembled.holder,
            map: Some(&self.assembled.map).filter(|_| self.assembled.has_user_namespace),
            privileged: self.assembled.privileged,
            user: self.user(spec),
            umask: spec.umask,
            arguments: argv,
            environment,
            terminal: spec.terminal,
            rlimits: &self.rlimits,
            group: &group,
            devices,
        };
        let config = config.to_json().to_string();
        if let Some(runtime) = spec.early.get() {
            return runtime.run(config.as_bytes());
        }
        let bundle = process_folder(&spec.folder, &spec.step, spec.process);
        fs::create_dir_all(&bundle).map_err(io)?;
        // The environment may hold secrets.
        let mut file = fs::OpenOptions::new();
        file.write(true).create(true).truncate(true).mode(0o600);
        let mut file = file.open(bundle.join("config.json")).map_err(io)?;
        file.write_all(config.as_bytes()).map_err(io)?;
        let (state, id) = (early_runtime::state_folder(spec), early_runtime::runtime_id(spec));
        self.users.as_ref().map_or(Ok(()), Users::keep_over_exec)?;
        runtime::execute(&self.runtime, &state, &bundle, &id, Traces::Removed)
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
}
